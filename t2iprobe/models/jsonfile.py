"""JSON files of a checkpoint: whole mappings, or one line that names the file, the line and what to do."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2iprobe.errors import ModelError


def read_mapping(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file.

    Raises:
        ModelError: the file cannot be read, is not JSON or not text, or holds something else than a mapping.
    """
    again = "copy or download it again"
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ModelError(f"{file}, line {error.lineno}: not JSON ({error.msg}); {again}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{file} is not text, as JSON has to be; {again}") from error
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{file} holds no settings but a JSON {type(value).__name__}; {again}")
    return value


def is_component(value: Any) -> bool:
    """Whether an entry of model_index.json is a component: a pair of two names, or of two nulls."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and (all(isinstance(x, str) and x for x in value) or value == [None, None])
    )


def components(index: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The components in a model_index.json; what begins with an underscore is about the pipeline itself."""
    return {k: v for k, v in index.items() if is_component(v) and not k.startswith("_")}


def no_component(file: str, part: str, value: Any) -> str:
    """One line for an entry of model_index.json that should be a component and is something else."""
    got = json.dumps(value)
    got = got if len(got) <= 60 else f"{got[:59]}…"
    return (
        f"{file}: {part} has to be [library, class], or [null, null] where it is left out; it is {got}; copy or"
        " download the file again"
    )
