"""What a run will take, against what was measured."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2iprobe.activations import estimate
from t2iprobe.activations.estimate import measure, measure_like_the_run
from t2iprobe.activations.generate import generate
from t2iprobe.activations.plan import bytes_per_image, plan_capture
from t2iprobe.checks.doctor import requests
from t2iprobe.errors import ConfigError
from t2iprobe.runs import stages
from t2iprobe.runs.config import RunConfig, resolved
from t2iprobe.runs.estimate import estimate as estimate_run
from t2iprobe.runs.folder import RunFolder

SMALL: dict[str, Any] = {"tasks": 40, "seeds": 2, "steps": 4, "folds": 4, "resamples": 199}


def test_bytes_are_those_of_the_activations(tiny_model: Callable[[str], Any]) -> None:
    model = tiny_model("sd3")
    for sites in ("default", "all"):
        plan = plan_capture(model, sites=sites, at=(0, 1))
        (batch,) = generate(model, requests()[:1], plan, 1, 0)
        stored = sum(values.numel() * 4 for values in batch.activations.values())
        assert bytes_per_image(plan, 1) == stored


def test_an_image_is_measured(tiny_model: Callable[[str], Any]) -> None:
    model = tiny_model("sd15")
    plan = plan_capture(model)
    start = time.perf_counter()
    got = measure(model, plan, requests()[:2], 0)
    assert got.n_images == 2
    assert 0 < 2 * got.seconds <= time.perf_counter() - start
    assert got.activation_bytes == bytes_per_image(plan, 1)
    with pytest.raises(ConfigError, match="no image"):
        measure(model, plan, [], 0)


def test_a_whole_batch_is_measured_where_that_is_short(
    tiny_model: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("sd15")
    plan = plan_capture(model)
    assert measure_like_the_run(model, plan, requests()[:4], 0).n_images == 4
    monkeypatch.setattr(estimate, "AFFORDABLE", 0.0)
    assert measure_like_the_run(model, plan, requests()[:4], 0).n_images == 2


def test_the_estimate_of_a_small_run_is_that_of_the_run(tmp_path: Path) -> None:
    """Disk is exact but for the sizes of single images. Time is only bounded: other work may slow either down."""
    config = RunConfig(out=tmp_path / "run", **SMALL)
    expected = estimate_run(config, time.monotonic())
    folder = RunFolder.open(config.folder, resolved(config), None)
    with folder.locked():
        stages.run_stage("generate", folder, config)
    files = [*folder.shards(), *(folder.path / "images").glob("*.png")]
    disk = sum(path.stat().st_size for path in files)
    assert expected.disk_bytes == pytest.approx(disk, rel=0.2)
    stage = folder.stage("generate")
    assert expected.making_s / 4 < stage["making_s"] < expected.making_s * 4
    assert (expected.n_tasks, expected.n_images, expected.n_measured) == (40, 80, 16)
