"""card.json: what the training of a checkpoint saw, where that is known. Every zoo model carries one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2iprobe.errors import ModelError
from t2iprobe.models import zoo
from t2iprobe.models.index import read_mapping


@dataclass(frozen=True)
class Card:
    """The part of a model card that t2iprobe computes with. A card may leave out any of it.

    Attributes:
        name: of the checkpoint; that of its folder where the card has none.
        family: the task family it was trained on; None where the card does not say.
        call: pipeline arguments it is meant to be called with.
        scene_counts: how often each scene was seen in training, in the order of `Family.scenes()`; 0 is held out.
        content: everything in the file.
    """

    name: str
    family: str | None
    call: dict[str, Any]
    scene_counts: tuple[int, ...]
    content: dict[str, Any]

    @classmethod
    def read(cls, file: Path) -> "Card":
        """The card in a file.

        Raises:
            ModelError: it is no JSON, or an entry is not what it has to be.
        """
        content = read_mapping(file)
        call, counts = content.get("call", {}), content.get("scene_counts", [])
        if not isinstance(call, dict) or not isinstance(counts, list):
            raise ModelError(
                f"{file}: 'call' has to be a mapping and 'scene_counts' a list: remove the file or mend it"
            )
        name = str(content.get("name", file.parent.name))
        return cls(name, content.get("family"), call, tuple(counts), content)


def card_in(folder: Path) -> Card | None:
    """The card in a pipeline folder; None where there is none."""
    file = folder / "card.json"
    return Card.read(file) if file.is_file() else None


def find_card(model: str) -> Card | None:
    """The card of a zoo model or of a local folder; None where there is none."""
    return card_in(zoo.path(model) if model in zoo.names() else Path(model))
