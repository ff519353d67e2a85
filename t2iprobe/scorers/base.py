"""What every judge of images is, and the verdict that it gives on an image."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from t2iprobe.families.tasks import Family, Task

if TYPE_CHECKING:
    from PIL.Image import Image

Outcome = Literal["right", "wrong", "malformed", "unscored"]


@dataclass(frozen=True)
class Verdict:
    """What a scorer sees in one image.

    Attributes:
        outcome: "right": every constituent is as the task says; "wrong": clean objects with another value, a failure to
            compose; "malformed": not the right number of clean objects; "unscored": no judgement was possible, which
            is counted and never taken for a failure.
        reason: one short sentence, the evidence.
        constituents: for each constituent of the task whether it is right; None where it cannot be told.

    Example:
        >>> from t2iprobe import Verdict
        >>> Verdict("wrong", "a green circle", {"color": False, "shape": True}).success
        False
    """

    outcome: Outcome
    reason: str
    constituents: dict[str, bool | None]

    @property
    def success(self) -> bool | None:
        """Whether the image shows its task; None when it could not be scored."""
        return None if self.outcome == "unscored" else self.outcome == "right"

    @classmethod
    def unscored(cls, task: Task, reason: str) -> "Verdict":
        """The verdict on an image of a task that cannot be judged."""
        return cls("unscored", reason, dict.fromkeys(task.values))


class Scorer(Protocol):
    """A judge of images; made once for a run.

    A class that inherits from it writes `score`, and what differs of the rest: here a scorer judges every family, needs
    no device, and is given 16 images at a time.

    Example:
        >>> from t2iprobe import Scorer, Verdict
        >>> class Yes(Scorer):
        ...     def score(self, images, tasks):
        ...         return [Verdict("right", "it always is", dict.fromkeys(t.values, True)) for t in tasks]
    """

    device: str
    batch_size: ClassVar[int] = 16
    """The most images that `score` is given at a time."""

    def __init__(self, device: str = "auto") -> None:
        """Load what the judge needs.

        Args:
            device: where to compute, as `--device` says it: auto, cpu, cuda, cuda:1 or mps.
        """
        self.device = device

    @classmethod
    def check_family(cls, family: Family) -> None:  # noqa: ARG003
        """Refuse a family that cannot be judged; called before a model is loaded.

        Raises:
            ConfigError: the family has a constituent or a value that the scorer does not know.
        """
        return

    @abstractmethod
    def score(self, images: "Sequence[Image]", tasks: Sequence[Task]) -> list[Verdict]:
        """The verdict on each image: every constituent of its task right, wrong, or None where it cannot be told.

        Args:
            images: at most `batch_size` RGB images of any size.
            tasks: the task of each image.
        """
        ...
