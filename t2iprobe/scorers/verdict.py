"""The typed records that stages hand to each other through the run folder."""

from dataclasses import dataclass
from typing import Literal

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
