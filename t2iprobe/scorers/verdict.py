"""The typed records that stages hand to each other through the run folder."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from t2iprobe.families.tasks import Task

if TYPE_CHECKING:
    from PIL.Image import Image

Outcome = Literal["right", "wrong", "malformed", "unscored"]


@dataclass(frozen=True)
class Verdict:
    """What a scorer found in one image.

    Attributes:
        outcome: "right": every constituent is as asked; "wrong": clean objects with another value, a failure to
            compose; "malformed": not the right number of clean objects; "unscored": no judgement was possible, which
            is counted and never taken for a failure.
        reason: one short sentence, the evidence.
        constituents: for each constituent of the task whether it is right; None where it cannot be told.

    Example:
        >>> from t2iprobe import Verdict
        >>> Verdict("2a59f645c6d7", 0, "wrong", "a green circle", {"color": False, "shape": True}).success
        False
    """

    task_id: str
    image_index: int
    outcome: Outcome
    reason: str
    constituents: dict[str, bool | None]

    @property
    def success(self) -> bool | None:
        """Whether the image shows what was asked; None when it could not be scored."""
        return None if self.outcome == "unscored" else self.outcome == "right"


class Scorer(Protocol):
    """A judge of images. One that cannot judge every family also has `check_family(family)`, which raises ConfigError.

    Example:
        >>> from t2iprobe import Verdict
        >>> class Yes:
        ...     def score(self, image, task, image_index):
        ...         parts = dict.fromkeys(task.values, True)
        ...         return Verdict(task.id, image_index, "right", "it always is", parts)
    """

    def score(self, image: "Image", task: Task, image_index: int) -> Verdict:
        """The verdict on one image: every constituent of the task right, wrong, or None where it cannot be told."""
        ...
