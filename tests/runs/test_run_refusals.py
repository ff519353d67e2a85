"""What `t2iprobe run` tells before it makes an image: cut prompts, sites without a headline, sizes not kept to."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_run import write_fake_run

from t2iprobe.activations.plan import (
    calibrated,
    check_has_image_site,
    check_size,
    plan_capture,
)
from t2iprobe.cli.main import main
from t2iprobe.errors import ConfigError, SiteError
from t2iprobe.models.settings import LoadSettings
from t2iprobe.report.finding import find
from t2iprobe.runs.folder import read_table
from t2iprobe.runs.records import SUMMARY

Folder = Callable[[str], Path]
Load = Callable[[str], Any]
SMALL = ["--tasks=48", "--seeds=1", "--folds=3", "--resamples=99", "--at=1"]
SIZE = ["--height=32", "--width=32", "--steps=2"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers of libraries keep the stream of the test that loaded them, which is closed by now."""
    monkeypatch.setattr(logging, "raiseExceptions", False)


def run(folder: Path, out: Path, *more: str) -> int:
    return main(["run", "--model", str(folder), "--out", str(out), *SMALL, *more])


def refused(
    capsys: pytest.CaptureFixture[str], folder: Path, out: Path, *more: str, family: str
) -> str:
    """What a run says that is refused: one line, and no folder left."""
    assert run(folder, out, "--family", family, *more) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    assert not out.exists()
    return said[0]


@pytest.fixture
def wordy(tmp_path: Path) -> str:
    """shapes-single behind so many words that CLIP's 77 tokens end before the constituents."""
    family = yaml.safe_load(
        (Path(__file__).parents[2] / "prompts" / "shapes-single.yaml").read_text()
    )
    family |= {"template": "very " * 80 + family["template"]}
    path = tmp_path / "wordy.yaml"
    path.write_text(yaml.safe_dump(family, width=10_000, sort_keys=False))
    return str(path)


def test_constituents_that_an_encoder_cuts_off_are_told_everywhere(
    tiny_folder: Folder, tmp_path: Path, wordy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    sites = "--sites=text_encoder.*,unet.mid_block:image"
    assert run(tiny_folder("sd15"), out, *SIZE, "--family", wordy, sites) == 0
    said = " ".join(" ".join(capfd.readouterr()).replace("│", " ").split())
    lost = "size, color, shape, position lost in"
    assert f"note: text_encoder cuts prompts at 77 tokens: {lost} the longest prompt" in said
    assert f"text_encoder cuts prompts at 77 tokens: {lost} 48 of 48 tasks." in said
    assert "truncated" not in said
    summary = json.loads((out / "summary.json").read_text())
    names = ("size", "color", "shape", "position")
    assert summary["text_lost"] == {"text_encoder": dict.fromkeys(names, 48)}
    assert summary["text_limit"] == {"text_encoder": 77}
    assert f"text_encoder cuts prompts at 77 tokens: {lost}" in (out / "report.html").read_text()
    spans = [row for row in read_table(out / "probes.parquet") if row["pooling"] == "span"]
    assert {row["constituent"] for row in spans} == set(names)
    for row in spans:
        assert row["r2"] is row["accuracy"] is None
        assert row["reason"] == f"prompts are cut before {row['constituent']}"


def test_parts_lost_in_some_tasks_are_counted_apart(tmp_path: Path) -> None:
    lost = {"size": 20, "color": 48, "shape": 48}
    nothing_lost = SUMMARY.read(write_fake_run(tmp_path / "run", n_tasks=48, n_images=1))
    summary = replace(nothing_lost, text_lost={"clip": lost}, text_limit={"clip": 77})
    told = "clip cuts prompts at 77 tokens: size lost in 20, color, shape lost in 48 of 48 tasks."
    assert told in find(summary).notes
    assert not any("cuts prompts" in note for note in find(nothing_lost).notes)


@pytest.mark.parametrize("sites", [["--sites", "text_encoder.*"], ["--sites", ""], ["--sites"]])
def test_sites_without_an_image_stream_are_refused_before_any_image(
    tiny_folder: Folder, tmp_path: Path, sites: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(
        capsys, tiny_folder("sd15"), tmp_path / "run", *SIZE, *sites, family="shapes-single"
    )
    assert "--sites" in text
    assert "empty" in text or "e.g. 'unet." in text


def test_a_plan_of_text_sites_alone_names_an_image_site(tiny_model: Load) -> None:
    with pytest.raises(SiteError, match=r"e\.g\. 'transformer\..*:image'"):
        check_has_image_site(plan_capture(tiny_model("sd3"), sites="transformer.*:text"))
    check_has_image_site(plan_capture(tiny_model("sd3")))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--height=64"], "give both --height and --width"),
        (["--pipe-arg=width=64"], "give both --height and --width"),
    ],
)
def test_half_a_size_is_refused_where_the_pipeline_ignores_it(
    tiny_folder: Folder,
    tmp_path: Path,
    asked: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = refused(
        capsys, tiny_folder("sd15"), tmp_path / "run", *asked, "--steps=2", family="shapes-single"
    )
    assert "asked for" in text
    assert "64, the pipeline makes" in text
    assert told in text


def test_a_rounded_size_is_told_with_the_size_that_is_made(
    tiny_model: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("sd15")
    assert check_size(model, calibrated(model)) == []
    monkeypatch.setattr(model, "call", model.call | {"height": 33, "width": 33})
    told = "asked for height 33, width 33, the pipeline makes 32 x 32"
    assert check_size(model, calibrated(model)) == [told]
    monkeypatch.setattr(model, "call", {"num_inference_steps": 2})
    assert check_size(model, calibrated(model)) == []


@pytest.mark.parametrize("text", ["height=abc", "width=0", "height=-8", "width=64.5", "height="])
def test_a_size_that_is_no_count_is_refused_at_once(text: str) -> None:
    with pytest.raises(ConfigError, match="whole number of pixels"):
        LoadSettings(pipe_arg=(text,))
