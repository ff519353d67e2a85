"""The JSON files of a pipeline folder, model_index.json above all. Read without any heavy library."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2iprobe.errors import ModelError

AGAIN = "copy or download it again"


def read_mapping(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file.

    Raises:
        ModelError: the file cannot be read, is not JSON or not text, or holds something else than a mapping.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ModelError(f"{file}, line {error.lineno}: not JSON ({error.msg}); {AGAIN}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{file} is not text, as JSON has to be; {AGAIN}") from error
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{file} holds no settings but a JSON {type(value).__name__}; {AGAIN}")
    return value


def read_index(folder: Path) -> dict[str, Any]:
    """The model_index.json of a pipeline folder: component -> [library, class], beside a few settings.

    Raises:
        ModelError: there is none, it is not JSON, or an entry is not what it has to be.
    """
    file = folder / "model_index.json"
    if not file.is_file():
        looks = {
            "modular_model_index.json": "a modular pipeline, which has no call of its own",
            "config.json": "one component of a pipeline",
        }
        kind = next((what for name, what in looks.items() if (folder / name).is_file()), None)
        part = f" (this looks like {kind})" if kind else ""
        raise ModelError(
            f"{folder} has no model_index.json{part}; give the folder of a whole diffusers pipeline"
        )
    index = read_mapping(file)
    kind = index.get("_class_name")
    if not isinstance(kind, str) and not (is_component(kind) and kind != [None, None]):
        raise ModelError(f"{file} names no pipeline class (_class_name)")
    for name, value in index.items():
        half = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)
        if (half or (folder / name).is_dir()) and not is_component(value):  # else a setting
            raise ModelError(no_component(str(file), name, value))
    return index


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
