"""A run inside a budget: whole tasks, never too late, and the same bytes in the end."""

import inspect
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2iprobe import report
from t2iprobe.activations.generate import ImageRequest
from t2iprobe.cli.main import main
from t2iprobe.errors import ConfigError, DataError
from t2iprobe.report.reading import missing_stage
from t2iprobe.runs import maker, stages
from t2iprobe.runs.budget import GENERATION_SHARE, Budget, parse_duration
from t2iprobe.runs.config import RunConfig, RunSettings
from t2iprobe.runs.estimate import tasks_in
from t2iprobe.runs.folder import RunFolder, read_json, read_table
from t2iprobe.runs.maker import Maker
from t2iprobe.runs.pieces import Piece, keep_only, split
from t2iprobe.runs.records import TASKS

SMALL: dict[str, Any] = {
    "tasks": 48,
    "seeds": 2,
    "steps": 2,
    "folds": 4,
    "resamples": 99,
    "at": "0,1",
    "sites": ("transformer.transformer_blocks.*:image",),
}
TABLES = ("scores.parquet", "probes.parquet", "decodability.parquet")
FILES = ("tasks.jsonl", "correlation.json", "headline.json")


class TestDuration:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("90s", 90),
            ("30m", 1800),
            ("1h30m", 5400),
            ("1.5h", 5400),
            ("1H 0M".replace(" ", ""), 3600),
        ],
    )
    def test_it_is_read(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == seconds

    @pytest.mark.parametrize("text", ["abc", "30", "", "-5m", "0s", "0", "1m1h", "5 m", "nans"])
    def test_other_texts_end_in_one_line(
        self, text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert main(["run", f"--budget={text}", "--out", str(tmp_path / "run")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "--budget" in line and "1h30m" in line
        assert not (tmp_path / "run").exists()


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 40))
def test_pieces_hold_whole_tasks_in_batches_that_fit(n_tasks: int, seeds: int, size: int) -> None:
    requests = [ImageRequest(str(t), s, "") for t in range(n_tasks) for s in range(seeds)]
    pieces = split(requests, seeds, size)
    assert [request for piece in pieces for request in piece.requests] == requests
    assert [n for piece in pieces for n in piece.batches] == list(
        range(sum(len(piece.batches) for piece in pieces))
    )
    for piece in pieces:
        assert len(piece.requests) == seeds * len(piece.task_ids)
        assert all(0 < len(batch) <= size for batch in piece.batches.values())
        assert len(piece.batches) == 1 or len(piece.task_ids) == 1


@pytest.mark.parametrize("seconds", [0.05, 0.2])
def test_images_are_made_until_the_share_is_over(seconds: float, tmp_path: Path) -> None:
    """Pieces of 2 images at a pace that the clock sets: of 100 s, 50 s are for images, 10 s go for loading."""
    now = 10.0
    made: list[int] = []
    pieces = split([ImageRequest(str(t), s, "") for t in range(40) for s in range(2)], 2, 2)

    class Timed(Maker):
        def __init__(self) -> None:
            self._pieces = pieces
            self._missing = {number for piece in pieces for number in piece.batches}

        def _make(self, piece: Piece, progress: Any) -> None:
            nonlocal now
            now += 100 * seconds
            made.append(len(piece.requests))
            self._missing -= piece.batches.keys()

    budget = Budget("100s", 0.0, lambda: now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maker.time, "monotonic", lambda: now)
        Timed().make(budget, 100 * seconds / 2)
    assert len(made) == int((50 - 10) / (100 * seconds))
    assert now <= GENERATION_SHARE * 100


def test_the_share_is_told() -> None:
    assert f"{GENERATION_SHARE:.0%}" in inspect.getsource(RunSettings)


def until(folder: Path, n_images: int) -> Budget:
    """A budget that is over as soon as a folder holds so many images."""

    def clock() -> float:
        return 0.0 if len(list(folder.glob("images/*.png"))) < n_images else 1e9

    return Budget("24h", 0.0, clock)


def results(folder: Path) -> dict[str, Any]:
    """Everything a run found, cost and the state of the run left out."""
    summary = read_json(folder / "summary.json")
    for name in ("cost", "tasks_asked", "stopped"):
        del summary[name]
    return {
        "summary": summary,
        "tables": [read_table(folder / name) for name in TABLES],
        "files": [(folder / name).read_bytes() for name in FILES],
        "images": {path.name: path.read_bytes() for path in folder.glob("images/*")},
        "shards": {path.name: path.read_bytes() for path in folder.glob("activations/*")},
    }


def run(config: RunConfig, budget: Budget | None = None) -> RunFolder:
    """A run without the drawings of its report, which take longer than all the rest."""

    def build(folder: Path) -> None:
        (folder / "report.html").write_text("a report")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "build", build)
        return stages.run(config, budget)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = run(RunConfig(out=tmp_path_factory.mktemp("runs") / "whole", **SMALL))
    return results(folder.path)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of 48 tasks that its budget stopped after 32."""
    path = tmp_path_factory.mktemp("runs") / "stopped"
    return stages.run(RunConfig(out=path, **SMALL), until(path, 64))


def test_a_stopped_run_reports_its_whole_tasks(stopped: RunFolder) -> None:
    summary = read_json(stopped.path / "summary.json")
    assert (summary["n_tasks"], summary["tasks_asked"], summary["stopped"]) == (32, 48, "budget")
    manifest = stopped.manifest
    assert manifest["stages"]["generate"]["status"] == "stopped"
    assert manifest["stages"]["generate"]["reason"] == "budget"
    counts = {"tasks": 48, "tasks_done": 32, "images_asked": 96, "images_done": 64, "unscored": 0}
    assert manifest["counts"] == counts
    assert "budget" not in manifest["settings"]
    tasks = [row.id for row in TASKS.read(stopped.path)]
    names = {path.stem for path in stopped.path.glob("images/*")}
    assert names == {f"{task}-{seed}" for task in tasks for seed in (0, 1)}
    page = (stopped.path / "report.html").read_text()
    assert "32 of 48 tasks, stopped by the budget" in page
    assert missing_stage(stopped.path, manifest) is None


def test_its_results_are_those_of_a_run_that_asks_for_these_tasks(
    stopped: RunFolder, tmp_path: Path
) -> None:
    """The first tasks are a fair sample, and folds and statistics are made for them alone."""
    shorter = run(RunConfig(out=tmp_path / "run", **(SMALL | {"tasks": 32})))
    assert results(shorter.path) == results(stopped.path)


def test_it_goes_on_to_the_bytes_of_an_unbroken_run(
    stopped: RunFolder, unbroken: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run"
    shutil.copytree(stopped.path, path)
    config = RunConfig(out=path, **SMALL)
    before = read_json(path / "summary.json")["cost"]
    run(config, until(path, 80))
    assert read_json(path / "summary.json")["n_tasks"] == 40
    folder = run(config)
    assert results(path) == unbroken
    summary = read_json(path / "summary.json")
    assert (summary["tasks_asked"], summary["stopped"]) == (48, None)
    assert folder.stage("generate")["reason"] is None
    cost = summary["cost"]
    assert cost["images_made"] == 96
    assert all(cost["by_stage"][name] >= before["by_stage"][name] for name in stages.STAGES)
    assert cost["wall_s"] > before["wall_s"]
    assert cost["wall_s"] == pytest.approx(sum(cost["by_stage"].values()), abs=0.02)
    assert cost["peak_rss_mb"] >= before["peak_rss_mb"]


def test_too_few_tasks_for_the_folds_are_kept(unbroken: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run"
    config = RunConfig(out=path, **SMALL)
    with pytest.raises(DataError, match="after 8 of 48 tasks, too few") as caught:
        run(config, until(path, 16))
    said = str(caught.value)
    assert "\n" not in said
    assert "draw more" not in said
    assert re.search(
        r"the least that can be probed, (1[6-9]|[2-4]\d) tasks, .*; give \d+s or more", said
    )
    assert len(list(path.glob("images/*"))) == 16
    run(config)
    assert results(path) == unbroken
    assert read_json(path / "summary.json")["cost"]["images_made"] == 96


def test_a_budget_too_short_for_a_task_leaves_nothing(tmp_path: Path) -> None:
    config = RunConfig(out=tmp_path / "run", budget="1s", **SMALL)
    late = Budget("1s", time.monotonic() - 1000)
    for budget in (late, until(tmp_path, 0)):
        with pytest.raises(ConfigError, match="too short: loading and measuring took") as caught:
            run(config, budget)
        assert re.search(r"; give \d+s or more", str(caught.value))
        assert not (tmp_path / "run").exists()


def test_a_budget_too_short_for_another_task_changes_nothing(
    stopped: RunFolder, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    shutil.copytree(stopped.path, path)
    before = results(path)
    with pytest.raises(ConfigError, match="32 of 48 tasks are done"):
        run(RunConfig(out=path, **SMALL), until(path, 0))
    assert results(path) == before
    folder = RunFolder(path)
    assert folder.stage("generate")["status"] == "stopped"
    assert all(folder.has_results(stage) for stage in stages.STAGES)
    assert results(path) == before


def test_what_was_made_of_a_task_that_is_not_whole_is_removed(tmp_path: Path) -> None:
    requests = [ImageRequest(task, seed, "") for task in "ab" for seed in range(3)]
    pieces = split(requests, 3, 2)
    folder = RunFolder(tmp_path)
    made = [folder.image("a", 0), folder.image("a", 1), folder.image("a", 2), folder.image("b", 0)]
    shards = [folder.shard(number) for number in range(3)]
    for path in (*made, *shards):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    keep_only(folder, pieces[:1])
    assert [path.exists() for path in made] == [True, True, True, False]
    assert [path.exists() for path in shards] == [True, True, False]


@pytest.mark.slow
def test_a_run_by_the_clock_ends_inside_its_budget(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "t2iprobe", "run", "--out", str(folder)]
    start = time.monotonic()
    done = subprocess.run(
        [*command, "--tasks", "2000", "--budget", "90s"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert time.monotonic() - start < 90
    if done.returncode:  # a busy machine
        assert "too short" in done.stderr or "too few" in done.stderr
        pytest.skip(done.stderr)
    assert "stopped by the budget of 90s after" in done.stderr
    summary = read_json(folder / "summary.json")
    assert 0 < summary["n_tasks"] < summary["tasks_asked"] == 2000
    assert summary["n_images"] == 4 * summary["n_tasks"]


def test_plan_says_how_many_tasks_fit(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["plan", "--tasks", "40", "--seeds", "2", "--steps", "2", "--at", "0,1"]
    assert main([*small, "--sites", SMALL["sites"][0], "--budget", "10h"]) == 0
    out = capsys.readouterr().out
    assert "budget  about 40 of 40 tasks fit into 10h" in out
    assert all(f"\n{word} " in out for word in ("time", "memory", "disk", "reach"))


def test_plan_with_a_budget_for_nothing_names_one_that_is_enough(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """8 tasks make no folds; what is named for the least is more than loading, and the exit code says it."""
    small = ["plan", "--tasks", "40", "--seeds", "2", "--steps", "2", "--at", "0,1"]
    assert main([*small, "--sites", SMALL["sites"][0], "--budget", "2s"]) == 1
    out = capsys.readouterr().out
    found = re.search(r"2s is too short for .* (\d+) tasks; give --budget (\d+)s or more", out)
    assert found is not None
    assert 8 < int(found[1]) <= 40
    assert int(found[2]) > 2


@pytest.mark.parametrize(("budget", "expected"), [("10s", 0), ("40s", 24), ("1h", 200)])
def test_tasks_in_a_budget(budget: str, expected: int) -> None:
    """Of 40 s, 20 s are for images; loading takes 10 s, a piece of four tasks 1.6 s."""
    requests = [ImageRequest(str(t), s, "") for t in range(200) for s in range(4)]
    assert tasks_in(parse_duration(budget), split(requests, 4, 16), 0.1, 10.0) == expected


def test_the_shortest_budget_named_is_for_enough_tasks(tmp_path: Path) -> None:
    """Of 8 tasks no folds can be made (see above): the line names as many as can be probed."""
    with pytest.raises(ConfigError, match=r"the least that can be probed, (\d+) tasks") as caught:
        run(RunConfig(out=tmp_path / "run", **SMALL), until(tmp_path, 0))
    named = int(str(caught.value).split(" tasks,")[0].split()[-1])
    assert 8 < named < 48
