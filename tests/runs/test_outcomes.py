"""Joining scores and decodability by task: slots behind a target group, unscored images, undefined values."""

from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from t2iprobe.families.reading import Task, load_family
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.config import RunConfig, resolved
from t2iprobe.runs.correlate import correlate
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.outcomes import Outcomes, slots_behind
from t2iprobe.runs.records import (
    DECODABILITY,
    HEADLINE,
    PROBES,
    SCORES,
    ChosenSite,
    DecodabilityRow,
    Headline,
    ProbeRow,
    ScoreRow,
)
from t2iprobe.runs.summary import summarise

FAMILY = load_family("shapes-pair")
CANONICAL = {
    "color1": "red",
    "shape1": "circle",
    "relation": "left of",
    "color2": "blue",
    "shape2": "square",
}
SWAPPED = {
    "color1": "blue",
    "shape1": "square",
    "relation": "right of",
    "color2": "red",
    "shape2": "circle",
}
CONFIG = RunConfig(tasks=40, seeds=2, folds=4, resamples=99)


@pytest.mark.parametrize(
    ("values", "coding", "group", "slots"),
    [
        (CANONICAL, "slot", "color1", ("color1",)),
        (SWAPPED, "slot", "color1", ("color1",)),
        (CANONICAL, "scene", "color1", ("color1",)),
        (SWAPPED, "scene", "color1", ("color2",)),
        (SWAPPED, "scene", "relation", ("relation",)),
        (SWAPPED, "presence", "color", ("color1", "color2")),
        (SWAPPED, "binding", "color+shape", ("color1", "shape1", "color2", "shape2")),
    ],
)
def test_slots_behind_a_target_group(
    values: dict[str, str], coding: str, group: str, slots: tuple[str, ...]
) -> None:
    assert slots_behind(FAMILY, FAMILY.task(values), coding, group) == slots


def _outcome(task_number: int, image: int) -> str:
    """Task 0 is never scored, task 1 always right, the others once right and once wrong or malformed."""
    if task_number == 0:
        return "unscored"
    if task_number == 1 or image == 0:
        return "right"
    return "wrong" if task_number % 2 else "malformed"


def _row(task: Task, number: int, image: int) -> ScoreRow:
    outcome = _outcome(number, image)
    known = outcome in ("right", "wrong")
    right = {name: outcome == "right" or name != "color1" for name in task.values}
    constituents = {name: value if known else None for name, value in right.items()}
    return ScoreRow(task.id, image, outcome, "", constituents)


PROBE = ProbeRow(
    site="unet.mid_block", component="unet", stream="image", pooling="grid", step=0, timestep=1000.0, coding="slot",
    constituent="all", r2=None, r2_shuffled=None, reason=None, accuracy=None, chance=None, alpha=None, n_images=None,
    n_tasks=None, n_folds=None, n_tasks_cut=0,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder.open(tmp_path / "run", resolved(CONFIG))
    drawn = drawing.draw(CONFIG, None)
    drawing.write(run, drawn, {})
    SCORES.write(
        run.path, [_row(task, n, image) for n, task in enumerate(drawn.tasks) for image in range(2)]
    )
    rows = []
    for group in ["all", *FAMILY.names]:
        for n, task in enumerate(drawn.tasks):
            r2 = 0.9 if n == 1 else 0.01 * n
            rows.append(DecodabilityRow(task.id, "scene", group, r2, 1.0 - r2, 1.0, 1.0, 1.0, 2))
    DECODABILITY.write(run.path, rows)
    place = ChosenSite("unet.mid_block", "unet", "image", "grid", 0, n_candidates=1)
    HEADLINE.write(run.path, Headline("scene", place, ChosenSite(reason="none"), {"scene": 0.1}))
    PROBES.write(run.path, [PROBE])
    run.set_stage("generate", "done", seconds=1.0)
    return run


def test_unscored_images_are_no_failures(folder: RunFolder) -> None:
    outcomes = Outcomes(folder, CONFIG)
    success = outcomes.success()
    assert np.isnan(success.share[0])
    assert success.share[1] == 1.0
    assert success.share[2] == 0.5
    assert success.share_of_clean[2] == 1.0  # its other image is malformed
    assert success.share_of_clean[3] == 0.5


def test_the_summary_counts_and_excludes_unscored_images(folder: RunFolder) -> None:
    outcomes = Outcomes(folder, CONFIG)
    summary = summarise(folder, outcomes, correlate(outcomes, CONFIG), CONFIG)
    assert summary.n_unscored == 2
    assert summary.success.coverage == pytest.approx(78 / 80)
    assert summary.success.all == pytest.approx(40 / 78)
    assert summary.success.outcomes == {
        "right": 40,
        "wrong": 19,
        "malformed": 19,
        "unscored": 2,
    }
    assert summary.correlation.n == 39
    assert summary.success.seen is None
    assert "model card" in str(summary.success.seen_reason)


def test_a_single_deviating_task_is_no_finding(folder: RunFolder) -> None:
    found = correlate(Outcomes(folder, CONFIG), CONFIG)
    assert isnan(found.overall.value)
    assert found.overall.reason == "success differs in only 1 of 39 tasks"
    assert isnan(found.by_constituent["shape1"].value)
    assert "success does not vary" in found.by_constituent["shape1"].reason


def test_a_single_deviating_task_is_no_finding_within_strata_either(folder: RunFolder) -> None:
    outcomes = Outcomes(folder, CONFIG)
    outcomes.drawn.seen[:] = [n % 2 for n in range(40)]
    found = correlate(outcomes, CONFIG)
    assert found.within is not None and found.strata is not None
    assert isnan(found.within.value)
    assert found.within.reason == "success differs in only 1 of 39 tasks"
    assert found.strata["seen"].reason == "success differs in only 1 of 20 tasks"
    assert "does not vary" in found.strata["held_out"].reason


def _judge_nothing(folder: RunFolder, outcome: str) -> None:
    """Let every image have one outcome, in which no constituent can be told."""
    blank = dict.fromkeys(FAMILY.names)
    rows = [replace(r, outcome=outcome, constituents=blank) for r in SCORES.read(folder.path)]
    SCORES.write(folder.path, rows)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("malformed", "no clean picture to judge"), ("unscored", "no image could be scored")],
)
def test_nothing_to_judge_is_said_of_every_constituent(
    folder: RunFolder, outcome: str, reason: str
) -> None:
    _judge_nothing(folder, outcome)
    found = correlate(Outcomes(folder, CONFIG), CONFIG)
    estimates = [*found.by_constituent.values(), found.among_clean]
    assert [(isnan(e.value), e.n, e.reason) for e in estimates] == [(True, 0, reason)] * 6
    overall = "success does not vary" if outcome == "malformed" else reason
    assert found.overall.reason == overall


def test_a_constituent_that_does_not_vary_says_so(folder: RunFolder) -> None:
    why = "the target does not vary among these tasks"
    same = ("scene", "shape1")
    rows = DECODABILITY.read(folder.path)
    same = [replace(r, decodability=None) if r.constituent == "shape1" else r for r in rows]
    DECODABILITY.write(folder.path, same)
    probe = replace(PROBE, coding="scene", constituent="shape1", reason=why)
    differing: list[dict[str, Any]]
    differing = [{"constituent": "color1"}, {"site": "unet.up_blocks.0"}, {"step": 1}]
    others = [replace(probe, reason="another", **changes) for changes in differing]
    PROBES.write(folder.path, [*others, probe])
    found = correlate(Outcomes(folder, CONFIG), CONFIG).by_constituent
    assert isnan(found["shape1"].value)
    assert found["shape1"].reason == why
    assert why not in found["shape2"].reason
    _judge_nothing(folder, "malformed")
    found = correlate(Outcomes(folder, CONFIG), CONFIG).by_constituent
    assert found["shape1"].reason == f"no clean picture to judge; {why}"


def test_one_task_with_both_values_is_counted(folder: RunFolder) -> None:
    first = Outcomes(folder, CONFIG).tasks[1].id
    rows = DECODABILITY.read(folder.path)
    one = [row if row.task_id == first else replace(row, decodability=None) for row in rows]
    DECODABILITY.write(folder.path, one)
    found = correlate(Outcomes(folder, CONFIG), CONFIG)
    assert isnan(found.overall.value)
    assert found.overall.reason == "only 1 of 40 tasks can be both read and judged"


def test_clean_images_alone_correlate_as_scipy_says(folder: RunFolder) -> None:
    """Of the clean images, even tasks are all right and odd ones half right."""
    found = correlate(Outcomes(folder, CONFIG), CONFIG)
    decodability = [0.9, *(0.01 * n for n in range(2, 40))]
    success = [1.0, *(0.5 if n % 2 else 1.0 for n in range(2, 40))]
    expected = scipy.stats.spearmanr(decodability, success)[0]
    assert found.among_clean.value == pytest.approx(expected)


def test_a_scene_in_two_folds_is_counted() -> None:
    tasks = [FAMILY.task(CANONICAL), FAMILY.task(SWAPPED)]
    assert drawing.RunTasks(FAMILY, tasks, [0, 0], [None, None]).fold_overlap == 0
    assert drawing.RunTasks(FAMILY, tasks, [0, 1], [None, None]).fold_overlap == 1
