"""Settings of a component's config whose type is not that of its class's own default: the likely cause of a failure."""

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2iprobe.errors import ModelError
from t2iprobe.models.jsonfile import read_mapping

_FILES = ("config.json", "scheduler_config.json")
_KINDS = {bool: "true or false", str: "a text", dict: "a mapping", list: "a list"}


def mistyped(folder: Path, kind: Any) -> str | None:
    """The first such setting, in words; None where there is none. Only to be asked once something has failed.

    A number and a list of numbers pass for each other, as they do in many configs.

    Args:
        folder: of the component.
        kind: its class.
    """
    file = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if file is None:
        return None
    try:
        settings = read_mapping(file)
    except ModelError:
        return None
    defaults = _defaults(kind)
    wrong = {
        key: value
        for key, value in settings.items()
        if defaults.get(key) is not None and not _alike(value, defaults[key])
    }
    for key, value in sorted(wrong.items(), key=lambda pair: pair[1] is None):
        wanted = _KINDS.get(_type(defaults[key]), "a number")
        return f"{key} in its {file.name} is {json.dumps(value)[:60]}, where {wanted} is needed"
    return None


def _defaults(kind: Any) -> Mapping[str, Any]:
    """The settings of a class as they are when no config says anything."""
    try:
        if hasattr(kind, "config_class"):
            return dict(kind.config_class().to_dict())
        parameters = inspect.signature(kind.__init__).parameters
    except (AttributeError, TypeError, ValueError):
        return {}
    return {k: p.default for k, p in parameters.items() if p.default is not inspect.Parameter.empty}


def _type(value: Any) -> type:
    """Kind of a JSON value: all numbers are one, and so are all sequences."""
    if isinstance(value, bool | str | dict):
        return type(value)
    return list if isinstance(value, list | tuple) else float


def _alike(value: Any, default: Any) -> bool:
    kinds = {_type(value), _type(default)}
    if value is None:
        return False
    if kinds == {list, float}:
        flat = value if isinstance(value, list) else [value]
        return all(isinstance(x, int | float | list) for x in flat)
    return len(kinds) == 1
