"""What a scorer gives is checked before anything is written."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from PIL import Image

from t2iprobe.errors import DataError
from t2iprobe.families.reading import load_family
from t2iprobe.families.tasks import Task
from t2iprobe.runs.score import check_verdicts, judge
from t2iprobe.runs.shards import Entry
from t2iprobe.scorers.base import Scorer, Verdict

TASK = load_family("shapes-pair").tasks()[0]
WHOLE: dict[str, bool | None] = dict.fromkeys(TASK.values, True)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (True, "gave a bool, not a Verdict"),
        (Verdict("right", "", {}), "judged the constituents none instead of color1"),
        (Verdict("right", "", WHOLE | {"size": None}), "size instead of color1"),
        (Verdict("good", "", WHOLE), "'good', not one of right, wrong"),  # type: ignore[arg-type]
    ],
)
def test_verdicts_that_are_not_whole_are_refused(verdict: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        check_verdicts([verdict], [TASK], "mine")


def test_a_whole_verdict_passes() -> None:
    check_verdicts([Verdict.unscored(TASK, "why")], [TASK], "mine")


def test_every_image_has_a_verdict() -> None:
    with pytest.raises(DataError, match="'mine' gave 1 verdicts for 2 images"):
        check_verdicts([Verdict.unscored(TASK, "why")], [TASK, TASK], "mine")


class Counting(Scorer):
    """Takes two images at a time and says in its reason which image of how many it was given."""

    batch_size = 2
    given: ClassVar[list[int]] = []

    def score(self, images: Sequence[Image.Image], tasks: Sequence[Task]) -> list[Verdict]:
        self.given.append(len(images))
        return [
            Verdict("right", str(image.getpixel((0, 0))), dict.fromkeys(task.values, True))
            for image, task in zip(images, tasks, strict=True)
        ]


def test_images_are_scored_in_batches_and_marked_ones_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five images, of which the second and the fourth are marked: rows keep their order and their own verdict."""
    entries = [Entry(TASK.id, i, "black frame" if i in (1, 3) else "") for i in range(5)]
    for i in (0, 2, 4):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / f"{i}.png")
    folder = SimpleNamespace(image=lambda _, index: tmp_path / f"{index}.png")
    batches = [entries[:2], entries[2:4], entries[4:]]
    verdicts = [
        verdict
        for batch in batches
        for verdict in judge(folder, Counting(), "counting", batch, {TASK.id: TASK})  # type: ignore[arg-type]
    ]
    assert [v.outcome for v in verdicts] == ["right", "unscored", "right", "unscored", "right"]
    assert [v.reason for v in verdicts] == [
        "(0, 0, 0)",
        "black frame",
        "(2, 0, 0)",
        "black frame",
        "(4, 0, 0)",
    ]
    assert Counting.given == [1, 1, 1]
