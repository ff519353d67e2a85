"""The embedded zoo: small diffusers pipelines that compose. Each is an ordinary folder beside this file.

`scripts/train_zoo.py` remakes them.
"""

from pathlib import Path

from t2iprobe.errors import ModelError, unknown

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of the zoo models, sorted."""
    return sorted(index.parent.name for index in FOLDER.glob("*/model_index.json"))


def path(name: str) -> Path:
    """The diffusers folder of a zoo model.

    Raises:
        ModelError: there is no such model; the message names near matches.
    """
    if name not in names():
        raise ModelError(unknown("zoo model", name, names()))
    return FOLDER / name
