"""Prompts cut by a text encoder: what it lost is undefined there, and the numbers of the run go on."""

from pathlib import Path

import numpy as np
import pytest
from worded_run import CONFIG, SITES, encoders, written

from t2iprobe.places import Place
from t2iprobe.probes.crossfit import cross_predict
from t2iprobe.probes.decodability import r2
from t2iprobe.runs import report
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.array import probe as probe_one
from t2iprobe.runs.records import HEADLINE, PROBES, SUMMARY, ProbeRow
from t2iprobe.runs.run_tasks import RunTasks
from t2iprobe.runs.targets import ALL, Cuts, Targets


@pytest.fixture(scope="module")
def drawn() -> RunTasks:
    return drawing.draw(CONFIG, None)


def row_of(rows: list[ProbeRow], site: str, coding: str, constituent: str) -> ProbeRow:
    place = Place.parse(site).site
    wanted = (place.module, place.stream, coding, constituent)
    (row,) = [r for r in rows if (r.site, r.stream, r.coding, r.constituent) == wanted]
    return row


def test_what_every_prompt_lost_is_undefined_in_that_encoder_alone(
    tmp_path: Path, drawn: RunTasks
) -> None:
    lost = {task.id: {"text_encoder": ["color2", "shape2"]} for task in drawn.tasks}
    folder = written(tmp_path / "run", drawn, lost)
    rows = PROBES.read(folder.path)
    for name in ("color2", "shape2"):
        row = row_of(rows, SITES[0], "slot", name)
        assert (row.r2, row.accuracy, row.n_tasks_cut) == (None, None, 48)
        assert row.reason == f"prompts are cut before {name}"
        for site in SITES[1:]:
            row = row_of(rows, site, "slot", name)
            assert (row.reason, row.n_tasks_cut, row.n_tasks) == (None, 0, 48)
            assert row.r2 > 0.9
    kept = row_of(rows, SITES[0], "slot", "color1")
    assert (kept.n_tasks, kept.n_tasks_cut, kept.reason) == (48, 0, None)
    assert kept.r2 == row_of(rows, SITES[1], "slot", "color1").r2
    whole = row_of(rows, SITES[0], "slot", ALL)
    assert (whole.r2, whole.reason) == (None, "prompts are cut before color2")
    assert row_of(rows, SITES[0], "presence", "color").r2 is None
    headline = HEADLINE.read(folder.path)
    assert headline.denoiser.site == "transformer.blocks.0"
    assert headline.text_encoder.site == "text_encoder_2.layers.0"


def test_without_any_encoder_that_reads_all_the_report_says_why(
    tmp_path: Path, drawn: RunTasks
) -> None:
    """What every encoder lost, the denoiser does not receive; its own sites are measured all the same."""
    both: dict[str, list[str]] = {
        "text_encoder": ["color2"],
        "text_encoder_2": ["color2", "shape2"],
    }
    folder = written(tmp_path / "run", drawn, {task.id: both for task in drawn.tasks})
    rows = PROBES.read(folder.path)
    row = row_of(rows, SITES[2], "slot", "color2")
    assert (row.r2, row.reason) == (None, "prompts are cut before color2")
    assert row_of(rows, SITES[2], "slot", "shape2").r2 > 0.9
    assert row_of(rows, SITES[3], "slot", "color2").r2 > 0.9
    report.run(folder, CONFIG)
    found = SUMMARY.read(folder.path).decodability.text_encoder
    assert (found.site, found.r2) == (None, None)
    assert "cut before" in found.reason
    assert (folder.path / "report.html").is_file()


def test_tasks_that_lost_it_are_left_out_and_counted(tmp_path: Path, drawn: RunTasks) -> None:
    """The oracle is a probe of the tasks that are left, alone."""
    gone = {task.id for task in drawn.tasks[::4]}
    folder = written(tmp_path / "run", drawn, {task: {"text_encoder": ["shape2"]} for task in gone})
    rows = PROBES.read(folder.path)
    row = row_of(rows, SITES[0], "slot", "shape2")
    assert (row.n_tasks, row.n_images, row.n_tasks_cut) == (36, 36, 12)
    left = [at for at, task in enumerate(drawn.tasks) if task.id not in gone]
    targets = Targets.of(drawn, [task.id for task in drawn.tasks], CONFIG.seed)
    words = targets.Y[:, [name.startswith("slot/") for name in targets.column_groups]]
    columns = np.flatnonzero([name == "slot/shape2" for name in targets.column_groups])
    alone = cross_predict(
        words[left].astype(np.float32), targets.Y[left][:, columns], targets.folds[left]
    )
    expected = r2(targets.Y[left][:, columns], alone.predictions, alone.baseline).value
    assert row.r2 == pytest.approx(expected)
    whole = row_of(rows, SITES[0], "slot", ALL)
    assert (whole.n_tasks, whole.n_tasks_cut) == (36, 12)
    assert row_of(rows, SITES[0], "slot", "color1").n_tasks == 48


def test_too_few_tasks_left_are_said_to_be_so(drawn: RunTasks) -> None:
    lost = {task.id: {"text_encoder": ["color2"]} for task in drawn.tasks[2:]}
    targets = Targets.of(drawn, [task.id for task in drawn.tasks], 0)
    found = Cuts(drawn, encoders(drawn, lost), targets).of(Place.parse(SITES[0]))
    X = np.random.default_rng(0).standard_normal((48, 4), dtype=np.float32)
    rows = probe_one(X, targets, None, cross_predict, found).rows
    (row,) = [r for r in rows if (r.coding, r.constituent) == ("slot", "color2")]
    assert row.r2 is None
    assert row.reason == (
        "prompts of 46 tasks are cut before color2, and fewer than 3 folds have activations"
    )


def test_in_the_scene_coding_the_wording_decides_what_is_lost(drawn: RunTasks) -> None:
    """The left object is named second in "a red circle right of a blue square"."""
    lost = {task.id: {"text_encoder": ["color2"]} for task in drawn.tasks}
    targets = Targets.of(drawn, [task.id for task in drawn.tasks], 0)
    found = Cuts(drawn, encoders(drawn, lost), targets).of(Place.parse(SITES[0]))
    canonical = np.array([task.is_canonical for task in drawn.tasks])
    assert 0 < canonical.sum() < 48
    assert np.array_equal(found.rows["scene/color2"], canonical)
    assert np.array_equal(found.rows["scene/color1"], ~canonical)
    assert found.rows["slot/color2"].all()
    assert "scene/shape1" not in found.rows
