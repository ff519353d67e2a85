"""What a scorer gives is checked before anything is written."""

from typing import Any

import pytest

from t2iprobe.errors import DataError
from t2iprobe.families.reading import load_family
from t2iprobe.runs.score import _check_verdict
from t2iprobe.scorers.verdict import Verdict

TASK = load_family("shapes-pair").tasks()[0]
WHOLE: dict[str, bool | None] = dict.fromkeys(TASK.values, True)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (True, "gave a bool, not a Verdict"),
        (Verdict(TASK.id, 0, "right", "", {}), "judged the constituents none instead of color1"),
        (Verdict(TASK.id, 0, "right", "", WHOLE | {"size": None}), "size instead of color1"),
        (Verdict(TASK.id, 0, "good", "", WHOLE), "'good', not one of right, wrong"),  # type: ignore[arg-type]
    ],
)
def test_verdicts_that_are_not_whole_are_refused(verdict: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        _check_verdict(verdict, TASK, "mine")


def test_a_whole_verdict_passes() -> None:
    _check_verdict(Verdict(TASK.id, 0, "unscored", "why", dict.fromkeys(TASK.values)), TASK, "mine")
