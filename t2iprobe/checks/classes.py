"""The classes that a model_index.json names: of the two libraries, or of code that the checkpoint brings."""

import importlib
import inspect
from pathlib import Path
from typing import Any

from t2iprobe.errors import first_line
from t2iprobe.models.remote_code import failed_in_code, remote_code


class NoClass(Exception):  # noqa: N818 - says of a component why it stays unknown
    """A component's class cannot be found; the text says why."""


STAND_IN_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def find_class(place: Path, library: str, name: str) -> Any:
    """A class by what model_index.json says: a library, a module of diffusers' pipelines, or a file beside the config.

    Args:
        place: folder of the component.
        library: name of the library or the module.
        name: of the class.

    Raises:
        NoClass: there is none, or a library that it needs is missing.
    """
    if (place / f"{library}.py").is_file():
        return _class_of_own(place, library, name)
    places = [
        library,
        f"diffusers.pipelines.{library}",
        f"diffusers.pipelines.deprecated.{library}",
    ]
    reached = False
    for module in places:
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError:
            continue
        except (ImportError, RuntimeError) as error:
            raise NoClass(f"{name} of {library} needs a library: {first_line(error)}") from error
        if found is not None:
            return found
        reached = True
    if reached:
        raise NoClass(f"{library} has no class {name}")
    raise NoClass(
        f"no library called {library} is installed and {place.name}/ has no {library}.py, so {name} is unknown; code of"
        " a hub repository is fetched with --trust-remote-code only"
    )


def _class_of_own(place: Path, module: str, name: str) -> Any:
    """A class of a file that lies beside its config; the caller has made sure that it is trusted."""
    from diffusers.utils.dynamic_modules_utils import get_class_from_dynamic_module

    known = inspect.signature(get_class_from_dynamic_module).parameters
    trust = {"trust_remote_code": True} if "trust_remote_code" in known else {}
    try:
        with remote_code(str(place.parent), place.parent):
            return get_class_from_dynamic_module(
                str(place), f"{module}.py", class_name=name, **trust
            )
    except STAND_IN_ERRORS as error:
        why = failed_in_code(place.parent, error) or first_line(error)
        raise NoClass(f"{place.name}/{module}.py gives no class {name}: {why}") from error
