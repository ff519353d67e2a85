"""What a run will take: against simulation and against what was measured."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from t2iprobe.errors import ConfigError
from t2iprobe.models.doctor import requests
from t2iprobe.models.estimate import estimate, smallest_correlation
from t2iprobe.models.generate import generate
from t2iprobe.models.plan import bytes_per_image, plan_capture


def test_the_smallest_correlation_is_found_four_times_in_five() -> None:
    n = 100
    rho = smallest_correlation(n)
    assert rho is not None
    pearson = 2 * np.sin(np.pi * rho / 6)  # of the normal pair with this Spearman correlation
    draw = np.random.default_rng(0)
    found = 0
    for _ in range(1000):
        x = draw.normal(size=n)
        y = pearson * x + np.sqrt(1 - pearson**2) * draw.normal(size=n)
        found += spearmanr(x, y).pvalue < 0.05
    assert found / 1000 == pytest.approx(0.8, abs=0.04)


def test_more_tasks_show_less_and_few_show_nothing() -> None:
    assert smallest_correlation(3) is None
    few, many = smallest_correlation(24), smallest_correlation(192)
    assert few is not None
    assert many is not None
    assert few > many > 0.15


def test_bytes_are_those_of_the_activations(tiny_model: Callable[[str], Any]) -> None:
    model = tiny_model("sd3")
    for sites in ("default", "all"):
        plan = plan_capture(model, sites=sites, at=(0, 1))
        (batch,) = generate(model, requests()[:1], plan, 1, 0)
        stored = sum(values.numel() * 4 for values in batch.activations.values())
        assert bytes_per_image(plan, 1) == stored


def test_an_estimate(tiny_model: Callable[[str], Any]) -> None:
    model = tiny_model("sd15")
    plan = plan_capture(model)
    wanted = requests() * 10
    got = estimate(model, plan, wanted, n_tasks=4, n_constituents=1, run_seed=0)
    assert got.n_images == 40
    assert got.seconds == pytest.approx(40 * got.seconds_per_image)
    assert got.disk_bytes > 40 * bytes_per_image(plan, 1)
    with pytest.raises(ConfigError, match="no image"):
        estimate(model, plan, [], 0, 1, 0)
