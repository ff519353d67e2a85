"""card.json: what the training of a checkpoint saw, where that is known. Every zoo model carries one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2iprobe.errors import DataError, ModelError
from t2iprobe.models import zoo
from t2iprobe.models.jsonfile import read_mapping


@dataclass(frozen=True)
class Card:
    """The part of a model card that t2iprobe computes with.

    Attributes:
        family: the task family the checkpoint was trained on.
        call: pipeline arguments the checkpoint is meant to be called with.
        scene_counts: how often each scene was seen in training, in the order of `Family.scenes()`; 0 is held out.
        content: everything in the file.
    """

    name: str
    family: str
    call: dict[str, Any]
    scene_counts: tuple[int, ...]
    content: dict[str, Any]

    @classmethod
    def read(cls, path: Path) -> "Card":
        """The card in a file.

        Raises:
            DataError: it is not JSON or lacks a key.
        """
        try:
            content = read_mapping(path)
            return cls(
                name=content["name"],
                family=content["family"],
                call=dict(content["call"]),
                scene_counts=tuple(content["scene_counts"]),
                content=content,
            )
        except ModelError as error:
            raise DataError(f"model card {error}") from None
        except KeyError as error:
            raise DataError(
                f"{path} lacks the key {error}: remove the file or complete it"
            ) from None
        except (TypeError, ValueError):
            raise DataError(
                f"{path}: 'call' has to be a mapping and 'scene_counts' a list: remove the file or mend it"
            ) from None


def find_card(model: str) -> Card | None:
    """The card of a zoo model or of a local folder; None where there is none."""
    folder = zoo.path(model) if model in zoo.names() else Path(model)
    file = folder / "card.json"
    return Card.read(file) if file.is_file() else None
