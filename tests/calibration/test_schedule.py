"""Steps told from noise levels and pictures alone."""

import pytest
import torch

from t2iprobe.calibration.observe import Call, fingerprint
from t2iprobe.calibration.steps import Run, Schedule, conditional_schedules

TEXT = torch.randn(5, 8)


def call(number: int, level: float, picture: int, side: int = 4) -> Call:
    torch.manual_seed(picture)
    drawn = [fingerprint(torch.randn(4, side, side))]
    return Call(level, {"x": drawn, "text": [fingerprint(TEXT)]}, number=number)


def told(levels: str, asked: list[int], pictures: str = "") -> Schedule:
    """The schedule of calls at some levels; every call has a picture of its own unless `pictures` says otherwise."""
    seen = pictures.split() or range(len(levels.split()))
    calls = [
        call(i, float(level), int(picture))
        for i, (level, picture) in enumerate(zip(levels.split(), seen, strict=True))
    ]
    return conditional_schedules({"net": Run(calls, "text", [])}, asked)["net"]


@pytest.mark.parametrize(
    ("levels", "asked", "counting"),
    [
        ("9 6 3", [3], "9 6 3"),
        ("9 6 6 3 3", [3], "9 - 6 - 3"),  # Heun: the second evaluation belongs to the step before
        ("9 9 6 6 3 3", [3], "- 9 - 6 - 3"),  # a step and its correction at one level
        ("9 8 6 5 3 2", [3], "9 - 6 - 3 -"),  # DPM2
        ("9 8 6 5 3", [3], "9 - 6 - 3"),  # DPM2, whose last step has one evaluation
        ("9 6 8 4 5 2 3", [4], "9 - 8 - 5 - 3"),  # a level between entries may lie below the next
        ("9 8 7 6 5 4 3 2 1", [3], "9 - - 6 - - 3 - -"),
        ("9 6 3 0", [3], "9 6 3 -"),  # one more at the end of a run
        ("0 9 6 3", [3], "- 9 6 3"),  # the text is put through once before the first step
        ("0 9 6 0", [3], "- 9 6 0"),
        (".1 .4 .7", [3], ".1 .4 .7"),
        ("9 9 3", [3], "9 9 3"),  # half precision makes two levels equal
        ("9 6 6 3 3", [5, 3], "9 - 6 - 3"),  # as many calls as another stage has steps
        ("9 6 3 6 3 0", [4], "9 - - 6 3 0"),  # some steps are taken again
    ],
)
def test_one_call_of_each_step_counts(levels: str, asked: list[int], counting: str) -> None:
    found = told(levels, asked)
    kept = [
        f"{one.timestep:g}" if one.counts and one.step is not None else "-" for one in found.calls
    ]
    assert kept == [f"{float(part):g}" if part != "-" else "-" for part in counting.split()]
    steps = [one.step for one in found.calls if one.counts and one.step is not None]
    assert steps == list(range(found.n_steps))


def test_of_calls_with_one_picture_the_first_counts() -> None:
    found = told("9 9 9 9 3 3", [2], "1 1 2 2 3 3")
    assert [one.counts for one in found.calls] == [False, False, True, False, True, False]
    found = told("9 9 9 3", [2], "1 2 1 3")  # the picture comes back
    assert [one.counts for one in found.calls] == [True, False, False, True]


def test_pictures_that_are_no_numbers_equal_none() -> None:
    calls = [call(i, level, i) for i, level in enumerate([9.0, 6.0, 6.0, 3.0, 3.0])]
    for one in calls:
        one.arguments["x"] = [fingerprint(torch.full((4, 4, 4), torch.nan))]
    found = conditional_schedules({"net": Run(calls, "text", [])}, [3])["net"]
    assert [one.counts for one in found.calls] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("levels", "asked", "note"),
    [
        ("9 6 3", [], None),
        ("9 6 3", [3], None),
        ("9 6 6 3 3", [3], None),
        ("9 6 3", [4], "it is called at 3 noise levels, 4 steps were asked for"),
        ("9 6 3", [7, 4], "it is called at 3 noise levels, 7 and 4 steps were asked for"),
        ("9 3 6", [3], "its noise levels neither only fall nor only rise"),
        ("9 9 6 6", [2], "it is called for 2 pictures at one noise level"),
    ],
)
def test_what_is_not_as_usual_is_told(levels: str, asked: list[int], note: str | None) -> None:
    notes = told(levels, asked).notes
    assert len(notes) == (note is not None)
    assert all(one.startswith(note or "") for one in notes)


def parts(*runs: str, sides: tuple[int, ...] = (4, 4, 4)) -> list[list[int | None]]:
    """Steps of denoisers that are called one after the other, in a run of six steps."""
    number, given = 0, {}
    for index, levels in enumerate(runs):
        calls = []
        for level in levels.split():
            calls.append(call(number, float(level), number, sides[index]))
            number += 1
        given[f"net{index}"] = Run(calls, "text", [])
    return [[one.step for one in own.calls] for own in conditional_schedules(given, [6]).values()]


def test_denoisers_in_turn_share_a_schedule() -> None:
    assert parts("9 8 7 6", "5 4") == [[0, 1, 2, 3], [4, 5]]
    assert parts("9 8", "7 6 5", "4") == [[0, 1], [2, 3, 4], [5]]
    assert parts(".1 .2 .3 .4 .5", ".6") == [[0, 1, 2, 3, 4], [5]]
    assert parts("9 8 8 7 7", "6 6 5 5 4 4") == [[0, 1, 1, 2, 2], [3, 3, 4, 4, 5, 5]]


def test_denoisers_that_begin_anew_have_schedules_of_their_own() -> None:
    assert parts("9 8 7", "9 8 7") == [[0, 1, 2], [0, 1, 2]]
    assert parts("9 8 7", "8 7 6") == [[0, 1, 2], [0, 1, 2]]
    assert parts("9 8 7", "6 7 8") == [[0, 1, 2], [0, 1, 2]]
    assert parts("9 8 7", "6 5 4", sides=(4, 8)) == [[0, 1, 2], [0, 1, 2]]
