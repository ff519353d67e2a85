"""The main job from end to end, on the embedded model: what it writes, and that it can be stopped at any moment."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from t2iprobe.errors import DataError
from t2iprobe.runs import generate, stages
from t2iprobe.runs.config import RunConfig, resolved
from t2iprobe.runs.folder import RunFolder, read_json, read_table
from t2iprobe.runs.records import TASKS
from t2iprobe.runs.shards import ActivationReader

SMALL: dict[str, Any] = {
    "tasks": 40,
    "seeds": 2,
    "steps": 4,
    "folds": 4,
    "resamples": 199,
    "at": "0,1",
}
ARGUMENTS = [f"--{name}={value}" for name, value in SMALL.items()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return stages.run(RunConfig(out=tmp_path_factory.mktemp("runs") / "whole", **SMALL))


def _without_cost(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = read_json(folder / "summary.json")
    return {key: value for key, value in summary.items() if key != "cost"}


def test_the_summary_has_every_promised_key(finished: RunFolder) -> None:
    summary = read_json(finished.path / "summary.json")
    promised = {
        "": "schema_version model family n_tasks n_images n_unscored success decodability correlation cost",
        "success": "all ci seen held_out by_constituent",
        "decodability": "headline by_constituent controls",
        "correlation": "spearman ci p n unit by_constituent",
        "cost": "wall_s images_per_s peak_rss_mb activation_bytes",
    }
    for part, keys in promised.items():
        assert set(keys.split()) <= set(summary[part] if part else summary), part
    assert {"site", "step", "r2", "ci"} <= set(summary["decodability"]["headline"])
    assert {"shuffled_labels", "bag_of_words"} <= set(summary["decodability"]["controls"])
    assert (summary["n_tasks"], summary["n_images"], summary["n_unscored"]) == (40, 80, 0)


def test_the_readme_and_the_report_list_what_a_run_writes(finished: RunFolder) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    _, _, listed = readme.partition("## What comes out\n\n")
    lines = [line.split() for line in listed.partition("\n\n")[0].splitlines()[1:]]
    written = {
        path.name + "/" * path.is_dir()
        for path in finished.path.iterdir()
        if not path.name.startswith(".")
    }
    assert {line[0] for line in lines} == written
    page = (finished.path / "report.html").read_text(encoding="utf-8")
    linked = {name for name in written if f'<a href="{name}">' in page}
    assert written - linked == {"report.html", "images/", "activations/"}


def test_success_is_what_the_tables_say(finished: RunFolder) -> None:
    scores = read_table(finished.path / "scores.parquet")
    right = sum(row["outcome"] == "right" for row in scores)
    assert read_json(finished.path / "summary.json")["success"]["all"] == pytest.approx(right / 80)


def test_the_headline_is_in_the_denoisers_image_stream(finished: RunFolder) -> None:
    headline = read_json(finished.path / "headline.json")["denoiser"]
    assert headline["stream"] == "image"
    assert headline["component"] == "transformer"
    assert headline["step"] is not None


def test_decodability_sums_to_the_headline(finished: RunFolder) -> None:
    """The headline R2 is the mean over the halves of the folds of 1 - sum residual / sum total of the tasks."""
    rows = [
        row
        for row in read_table(finished.path / "decodability.parquet")
        if (row["coding"], row["constituent"]) == ("scene", "all")
    ]
    fold = {row.id: row.fold for row in TASKS.read(finished.path)}
    halves = []
    for half in ((0, 1), (2, 3)):
        chosen = [row for row in rows if fold[row["task_id"]] in half]
        halves.append(1 - sum(r["residual"] for r in chosen) / sum(r["total"] for r in chosen))
    r2 = read_json(finished.path / "summary.json")["decodability"]["headline"]["r2"]
    assert r2 == pytest.approx(np.mean(halves), abs=1e-12)


def test_tasks_are_drawn_over_seen_and_unseen_scenes(finished: RunFolder) -> None:
    seen = [row.seen for row in TASKS.read(finished.path)]
    assert sum(count == 0 for count in seen) == 20


def test_a_finished_run_is_left_alone(finished: RunFolder) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.path.rglob("*")}
    stages.run(RunConfig(out=finished.path, **SMALL))
    assert {path: path.stat().st_mtime_ns for path in finished.path.rglob("*")} == before


def test_broken_images_are_made_again(finished: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    images = sorted((copy / "images").iterdir())
    images[0].write_bytes(b"")
    images[5].write_bytes(images[5].read_bytes()[:100])
    images[9].unlink()
    folder = RunFolder(copy)
    for stage in stages.STAGES:
        folder.set_stage(stage, "running")
    stages.run(RunConfig(out=copy, **SMALL))
    for image in images:
        assert image.read_bytes() == (finished.path / "images" / image.name).read_bytes()
    assert _without_cost(copy) == _without_cost(finished.path)


def test_killed_at_random_moments_it_ends_the_same(finished: RunFolder, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "t2iprobe", "run", "--out", str(folder), *ARGUMENTS]
    rng = np.random.default_rng()
    kills = 0
    for _ in range(40):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _wait_for(folder, process, images=int(rng.integers(1, 80)))
        time.sleep(float(rng.uniform(0, 0.5)))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        if kills == 2:
            break
    assert kills > 0
    subprocess.run(command, check=True, capture_output=True)
    names = sorted(path.name for path in (folder / "images").iterdir())
    assert names == sorted(path.name for path in (finished.path / "images").iterdir())
    assert _without_cost(folder) == _without_cost(finished.path)


def _wait_for(folder: Path, process: "subprocess.Popen[bytes]", images: int) -> None:
    """Until the run has written some images, or has ended."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if len(list(folder.glob("images/*.png"))) >= images:
            return
        time.sleep(0.02)


def test_ctrl_c_says_how_to_continue(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    command = [sys.executable, "-m", "t2iprobe", "run", "--out", str(folder), *ARGUMENTS]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs with Ctrl-C ignored; the test must not inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    _wait_for(folder, process, images=1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"`t2iprobe run --out {folder}" in err.splitlines()[-1]
    assert "continues" in err
    assert "Traceback" not in err


def test_names_come_from_ids(finished: RunFolder) -> None:
    tasks = {row.id for row in TASKS.read(finished.path)}
    for path in (finished.path / "images").iterdir():
        task_id, index = path.stem.rsplit("-", 1)
        assert task_id in tasks
        assert index in "01"
        with Image.open(path) as image:
            assert image.size == (64, 64)


def test_run_json_traces_the_result(finished: RunFolder) -> None:
    manifest = json.loads(finished.manifest_path.read_text())
    assert manifest["settings"]["tasks"] == 40
    assert manifest["model"]["pipeline_class"] == "StableDiffusion3Pipeline"
    assert len(manifest["model"]["weights"]) == 32
    assert manifest["versions"]["torch"]
    assert set(manifest["stages"]) == set(stages.STAGES)
    assert manifest["fold_overlap"] == 0
    assert manifest["counts"] == {
        "tasks": 40,
        "tasks_done": 40,
        "images_asked": 80,
        "images_done": 80,
        "unscored": 0,
    }


def test_run_json_lists_the_sites_in_running_order(tmp_path: Path) -> None:
    """In a UNet, whose names do not tell it: a block's parts have run when the block has, down, mid, then up."""
    config = RunConfig(model="shapes-unet", tasks=40, seeds=1, folds=4, steps=2, at="0")
    folder = RunFolder.open(tmp_path / "run", resolved(config))
    assert generate.run(folder, config) == "done"
    sites = folder.manifest["capture"]["sites"]
    assert set(sites) == {place.site.module for place in ActivationReader(folder).places}
    assert len(sites) == len(set(sites))
    parts = [(part, block) for part in sites for block in sites if part.startswith(f"{block}.")]
    assert parts
    assert all(sites.index(part) < sites.index(block) for part, block in parts)
    stages_of_unet = [site.split(".")[1] for site in sites if site.startswith("unet.")]
    assert list(dict.fromkeys(stages_of_unet)) == [
        "conditioning",
        "down_blocks",
        "mid_block",
        "up_blocks",
    ]


def test_a_missing_shard_is_an_error_until_the_run_makes_it_again(
    finished: RunFolder, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    folder = RunFolder(copy)
    config = RunConfig(out=copy, **SMALL)
    folder.shards()[1].unlink()
    with pytest.raises(DataError, match="64 of 80 images"):
        stages.rerun(folder, config, "probe")
    stages.run(config)
    assert _without_cost(copy) == _without_cost(finished.path)


def test_a_cut_shard_or_image_is_named(finished: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    folder = RunFolder(copy)
    image = sorted((copy / "images").iterdir())[0]
    image.write_bytes(image.read_bytes()[:50])
    with pytest.raises(DataError, match=image.name):
        stages.rerun(folder, RunConfig(out=copy, **SMALL), "score")
    os.truncate(folder.shards()[2], 1000)
    with pytest.raises(DataError, match=folder.shards()[2].name):
        stages.rerun(folder, RunConfig(out=copy, **SMALL), "probe")
