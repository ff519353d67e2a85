"""The classes that model_index.json and a command line name: of a library, or of code that the checkpoint brings."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from t2iprobe.models.foreign import foreign
from t2iprobe.models.index import components
from t2iprobe.models.remote_code import remote_code


def library_class(library: str, name: str) -> type | None:
    """The class of an installed library, or of a module of diffusers' pipelines, with that name; None without any.

    A class whose own libraries are missing counts as none.
    """
    for module in (
        library,
        f"diffusers.pipelines.{library}",
        f"diffusers.pipelines.deprecated.{library}",
    ):
        try:
            kind = getattr(importlib.import_module(module), name, None)
        except (
            ImportError,
            RuntimeError,
        ):  # RuntimeError: what lazy modules of both libraries raise
            continue
        if isinstance(kind, type):
            return kind
    return None


def component_class(folder: Path, library: str, name: str) -> type | None:
    """The class of a component: a library's, or one of a file beside its config, which then runs.

    Args:
        folder: of the component.
        library: what model_index.json names: a library, a module of diffusers' pipelines, or a file of the folder.
        name: of the class.

    Returns:
        None where there is no such class.

    Raises:
        ForeignError: the file fails.
        ModelError: it is no Python, or ends the program.
    """
    if not (folder / f"{library}.py").is_file():
        return library_class(library, name)
    from diffusers.utils.dynamic_modules_utils import get_class_from_dynamic_module

    known = inspect.signature(get_class_from_dynamic_module).parameters
    trust = {"trust_remote_code": True} if "trust_remote_code" in known else {}
    with foreign(f"{folder.name}/{library}.py"), remote_code(str(folder.parent), folder.parent):
        kind: type = get_class_from_dynamic_module(
            str(folder), f"{library}.py", class_name=name, **trust
        )
    return kind


def module_classes(index: Mapping[str, Any]) -> dict[str, type]:
    """The classes of the modules that a pipeline takes from diffusers and transformers, by component."""
    kinds = {
        name: library_class(*value)
        for name, value in components(index).items()
        if value[0] in ("diffusers", "transformers")
    }
    return {name: kind for name, kind in kinds.items() if kind and issubclass(kind, nn.Module)}
