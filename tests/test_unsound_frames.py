"""Frames that no one may score: not finite, flagged by a safety checker, wholly black. A dark picture is one."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from t2iprobe.cli import main
from t2iprobe.errors import ModelError
from t2iprobe.models.checks.doctor import _remedy
from t2iprobe.models.generation import generate
from t2iprobe.models.generation.generate import pictures
from t2iprobe.store import read_table

Folder = Callable[[str], Path]

SIDE = 32
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers of libraries keep the stream of the test that loaded them, which is closed by now."""
    monkeypatch.setattr(logging, "raiseExceptions", False)


def noise() -> Any:
    return RANDOM.uniform(0.2, 0.9, (SIDE, SIDE, 3)).astype(np.float32)


def night() -> Any:
    """A black cat at night: a mean of about 2 of 255, and no flag."""
    frame = np.zeros((SIDE, SIDE, 3), np.float32)
    frame[10:20, 10:20] = 20 / 255
    assert 1 < 255 * frame.mean() < 3
    return frame


def broken() -> Any:
    frame = noise()
    frame[3, 4, 1] = np.nan
    return frame


def black() -> Any:
    return np.zeros((SIDE, SIDE, 3), np.float32)


def output(frames: list[Any], flags: Any, field: str = "nsfw_content_detected") -> Any:
    return SimpleNamespace(images=frames, **{field: flags})


TEN = [noise() for _ in range(6)] + [night(), broken(), black(), black()]
FLAGS = [False] * 8 + [True] * 2


@pytest.mark.parametrize(
    "flags",
    [FLAGS, tuple(FLAGS), np.array(FLAGS), torch.tensor(FLAGS)],
    ids=lambda f: type(f).__name__,
)
@pytest.mark.parametrize("field", ["nsfw_content_detected", "nsfw_detected"])
def test_ten_frames_of_which_three_are_unsound(flags: Any, field: str) -> None:
    images, invalid = pictures(output(TEN, flags, field), "Pipeline")
    assert invalid == [None] * 7 + ["NaN in decode"] + ["safety checker"] * 2
    assert len(images) == 10
    assert {image.mode for image in images} == {"RGB"}


def test_a_flag_counts_whatever_the_frame_looks_like() -> None:
    """Some checkers blur or replace the picture instead of blackening it."""
    assert (
        pictures(output([noise(), night()], [True, True]), "Pipeline")[1] == ["safety checker"] * 2
    )


def test_a_checker_that_flags_all_and_one_that_flags_none() -> None:
    frames = [black() for _ in range(7)]
    assert pictures(output(frames, [True] * 7), "Pipeline")[1] == ["safety checker"] * 7
    assert pictures(output([night()], None), "Pipeline")[1] == [None]
    assert pictures(output(frames, None), "Pipeline")[1] == ["black frame"] * 7


def test_infinite_values_are_unsound_too() -> None:
    frame = noise()
    frame[0, 0, 0] = np.inf
    assert pictures(output([frame], None), "Pipeline")[1] == ["NaN in decode"]


def test_flags_that_are_not_one_a_frame() -> None:
    with pytest.raises(ModelError, match="1 flags of a safety checker for 2 images"):
        pictures(output([noise(), noise()], [True]), "Pipeline")


def test_a_run_scores_the_sound_ones_and_prints_the_coverage(
    tiny_folder: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of every ten images one decodes to NaN, two are flagged and one is dark: 7 of 10 are scored."""
    n_made = 0
    real = generate.images_of

    def some_unsound(out: Any, name: str) -> Any:
        nonlocal n_made
        frames = np.array(real(out, name))
        numbers = np.arange(n_made, n_made + len(frames)) % 10
        n_made += len(frames)
        frames[numbers == 0, 3, 4, 1] = np.nan
        frames[(numbers == 1) | (numbers == 2)] = 0.0
        frames[numbers == 3] = night()
        out.nsfw_content_detected = [number in (1, 2) for number in numbers]
        return frames

    monkeypatch.setattr(generate, "images_of", some_unsound)
    out = tmp_path / "run"
    small = ["--tasks=50", "--seeds=1", "--folds=3", "--resamples=99", "--at=1", "--batch-size=16"]
    size = [f"--height={SIDE}", f"--width={SIDE}", "--steps=2"]
    model = ["--model", str(tiny_folder("sd15")), "--family=shapes-single", "--out", str(out)]
    assert main(["run", *model, *small, *size]) == 0
    said = " ".join("".join(capfd.readouterr()).split())
    rows = read_table(out / "scores.parquet")
    reasons = [row["reason"] for row in rows if row["outcome"] == "unscored"]
    assert sorted(reasons) == ["NaN in decode"] * 5 + ["safety checker"] * 10
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["n_images"], summary["n_unscored"]) == (50, 15)
    assert summary["success"]["coverage"] == 0.7
    outcomes = summary["success"]["outcomes"]
    assert outcomes["unscored"] == 15
    assert sum(outcomes.values()) == 50
    assert summary["success"]["all"] == outcomes["right"] / 35
    assert "15 images could not be scored" in said
    assert "coverage 70%" in said


@pytest.mark.parametrize(
    ("family", "dtype", "told", "untold"),
    [
        ("sd15_nan", "fp32", "precision is not the cause", "--dtype fp32"),
        ("sd15_nan", "bf16", "try --dtype fp32", "precision is not"),
        ("sd15_flagged", "bf16", "4 x safety checker", "--dtype"),
    ],
)
def test_doctor_advises_another_precision_only_where_it_can_help(
    tiny_folder: Folder,
    family: str,
    dtype: str,
    told: str,
    untold: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    size = [f"--height={SIDE}", f"--width={SIDE}", "--steps=2"]
    assert main(["doctor", str(tiny_folder(family)), *size, f"--dtype={dtype}"]) == 1
    said = capfd.readouterr().out
    assert told in said
    assert untold not in said


def test_the_remedy_for_black_frames() -> None:
    assert "--dtype fp32" in _remedy(["black frame"], "float16")
    assert "--dtype" not in _remedy(["black frame"], "float32")
    assert _remedy([], "float16") == ""
