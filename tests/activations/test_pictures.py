"""Frames that no one may score: not finite, flagged by a safety checker, wholly black. A dark picture is one."""

import inspect
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from t2iprobe.activations import pictures as module
from t2iprobe.activations.pictures import pictures
from t2iprobe.calibration.batches import images_differ
from t2iprobe.calibration.trial import image_size
from t2iprobe.checks.doctor import _remedy, diagnose
from t2iprobe.cli.main import main
from t2iprobe.errors import ModelError
from t2iprobe.models.loading import load_model
from t2iprobe.models.model import Model
from t2iprobe.models.settings import LoadSettings
from t2iprobe.runs.folder import read_table

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


def output(frames: Any, flags: Any, field: str = "nsfw_content_detected") -> Any:
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


def pixels(image: Image.Image) -> Any:
    return np.asarray(image).astype(int)


def tensor(frame: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(frame))


FORMS: dict[str, Callable[[Any], Any]] = {
    "floats": lambda f: f,
    "double precision": lambda f: f.astype(np.float64),
    "bytes": lambda f: (f * 255).round().astype(np.uint8),
    "integers": lambda f: (f * 255).round().astype(int),
    "an image": lambda f: Image.fromarray((f * 255).round().astype(np.uint8)),
    "a tensor": lambda f: tensor(f.transpose(2, 0, 1)),
    "a tensor of bytes": lambda f: tensor((f.transpose(2, 0, 1) * 255).round().astype(np.uint8)),
    "a tensor, channels last": tensor,
    "an array, channels first": lambda f: f.transpose(2, 0, 1),
    "bytes, channels first": lambda f: (f.transpose(2, 0, 1) * 255).round().astype(np.uint8),
    "a video of one frame": lambda f: f[None],
}
"""Ways to give one picture."""


@pytest.mark.parametrize("form", FORMS)
def test_one_picture_in_every_form(form: str) -> None:
    frame = RANDOM.uniform(0.2, 0.9, (8, 12, 3)).astype(np.float32)
    given = FORMS[form](frame)
    for made in ([given, given], np.stack([np.asarray(given)] * 2)):
        if isinstance(given, torch.Tensor) and not isinstance(made, list):
            made = torch.stack([given] * 2)
        (image, _), invalid = pictures(output(made, None), "Pipeline")
        assert invalid == [None, None]
        assert (pixels(image) == (frame * 255).round()).all()
        if form != "a video of one frame":
            assert image_size(made, "Pipeline") == (8, 12)


def test_where_both_ends_may_be_channels() -> None:
    """Four rows, or four channels: arrays have channels last, tensors first."""
    frame = RANDOM.uniform(0.2, 0.9, (4, 12, 3)).astype(np.float32)
    assert pictures(output([frame], None), "Pipeline")[0][0].size == (12, 4)
    assert image_size([frame], "Pipeline") == (4, 12)
    (image,), _ = pictures(output([tensor(frame)], None), "Pipeline")
    assert image.size == (3, 12)
    assert image_size([tensor(frame)], "Pipeline") == (12, 3)


def test_one_channel_or_none() -> None:
    grey = RANDOM.uniform(0.2, 0.9, (8, 12)).astype(np.float32)
    for frame in (grey, grey[..., None], tensor(grey), grey[None]):
        (image,), invalid = pictures(output([frame], None), "Pipeline")
        assert invalid == [None]
        assert (pixels(image) == (grey * 255).round()[..., None]).all()
        assert image_size([frame], "Pipeline") == (8, 12)


@pytest.mark.parametrize("wrong", [np.zeros((5, 8, 8)), np.zeros((2, 8, 8, 3)), "no image"])
def test_what_is_no_still_image(wrong: Any) -> None:
    with pytest.raises(ModelError, match="gives no still image"):
        pictures(output([wrong], None), "Pipeline")
    with pytest.raises(ModelError, match="gives no still image"):
        image_size([wrong], "Pipeline")


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0.0, 254.0, "values from 0 to 254, not 0 to 1"),
        (-1.0, 1.0, "values from -1 to 1, not 0 to 1"),
        (-0.02, 1.0, "values from -0.02 to 1, not 0 to 1"),
        (-0.009, 1.009, None),
    ],
)
def test_values_of_another_range(low: float, high: float, told: str | None) -> None:
    frame = np.linspace(low, high, 8 * 8 * 3, dtype=np.float32).reshape(8, 8, 3)
    for form in (frame, tensor(frame.transpose(2, 0, 1))):
        assert pictures(output([form], None), "Pipeline")[1] == [told]
    if low < -0.5:
        return
    large = (frame.astype(int) * 2).astype(np.int32)
    expected = "values from 0 to 508, not 0 to 255" if high > 2 else None
    assert pictures(output([large + 1 * (high < 2)], None), "Pipeline")[1] == [expected]


def test_an_image_that_was_not_made() -> None:
    images, invalid = pictures(output([None, noise(), None], [False, False, True]), "Pipeline")
    assert invalid == ["no image", None, "safety checker"]
    assert {image.size for image in images} == {(SIDE, SIDE)}
    assert pictures(output([None], None), "Pipeline")[1] == ["no image"]
    for nothing in ([], [None]):
        with pytest.raises(ModelError, match=r"gives no image for .* safety checker"):
            image_size(nothing, "Pipeline")


@pytest.mark.parametrize(
    ("flags", "invalid"),
    [
        (False, [None, None]),
        (True, ["safety checker"] * 2),
        ([None, True], [None, "safety checker"]),
        ([np.False_, torch.tensor(True)], [None, "safety checker"]),
        (np.array([[True], [False]]), ["safety checker", None]),
    ],
)
def test_flags_of_other_forms(flags: Any, invalid: list[str | None]) -> None:
    assert pictures(output([noise(), noise()], flags), "Pipeline")[1] == invalid


@pytest.mark.parametrize("flags", [[0.01, 0.9], 0.5, {"nsfw": False}, [{"nsfw": False}] * 2, "no"])
def test_flags_that_say_neither_yes_nor_no(flags: Any) -> None:
    with pytest.raises(ModelError, match="switch the checker off"):
        pictures(output([noise(), noise()], flags), "Pipeline")


def test_an_output_that_is_a_mapping() -> None:
    made = {"images": [noise(), noise()], "nsfw_content_detected": [False, True]}
    assert pictures(made, "Pipeline")[1] == [None, "safety checker"]
    with pytest.raises(ModelError, match="its output has: frames, 3"):
        pictures({"frames": [], 3: 4}, "Pipeline")


def test_bytes_of_a_batch_may_be_rounded_otherwise() -> None:
    frame = RANDOM.integers(1, 250, (1, 8, 8, 3)).astype(np.uint8)
    pair = np.concatenate([frame, frame + np.uint8(1)])
    for form in (lambda f: f, torch.from_numpy):
        one, both = output(form(frame), None), output(form(pair), None)
        assert not images_differ((one, one), both, "float32")
        far = output(form(np.concatenate([frame, frame + np.uint8(3)])), None)
        assert images_differ((one, one), far, "float32")
    nothing = output(frame[:0], None)
    assert not images_differ((nothing, one), one, "float32")
    mixed = output(np.array([frame[0], None], dtype=object), None)
    assert not images_differ((one, one), mixed, "float32")


def finished(source: Model, finish: Callable[[Any], Any]) -> Model:
    """A model whose pipeline gives its images in another form."""

    class Finishing(type(source.pipe)):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            made = super().__call__(*args, **kwargs)
            return SimpleNamespace(images=finish(made.images), nsfw_content_detected=None)

    Finishing.__call__.__signature__ = inspect.signature(type(source.pipe).__call__)  # type: ignore[attr-defined]
    source.pipe.__class__ = Finishing
    return source


@pytest.mark.parametrize(
    ("finish", "told"),
    [
        (lambda made: made * 255, "4 x values from|1 x values from"),
        (lambda made: [*made[:-1], None] if len(made) > 1 else made, "x no image"),
    ],
)
def test_doctor_fails_where_frames_are_unsound(
    finish: Callable[[Any], Any], told: str, tiny_folder: Folder
) -> None:
    settings = LoadSettings(steps=2, height=SIDE, width=SIDE)
    model = finished(load_model(str(tiny_folder("sd15")), settings), finish)
    failed = [
        check.sentence
        for check in diagnose(model)
        if check.name == "frames are sound" and not check.ok
    ]
    assert failed
    assert re.search(told, failed[0])


def test_images_that_were_left_out_end_in_a_line(tiny_folder: Folder) -> None:
    settings = LoadSettings(steps=2, height=SIDE, width=SIDE)
    model = finished(load_model(str(tiny_folder("sd15")), settings), lambda made: made[:1])
    with pytest.raises(ModelError, match="1 images for 4 prompts; with --batch-size 1"):
        list(diagnose(model))


def test_a_run_scores_the_sound_ones_and_prints_the_coverage(
    tiny_folder: Folder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Of every ten images one decodes to NaN, two are flagged and one is dark: 7 of 10 are scored."""
    n_made = 0
    real = module.images_of

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

    monkeypatch.setattr(module, "images_of", some_unsound)
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
