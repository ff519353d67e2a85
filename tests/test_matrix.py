"""Every family of tiny pipelines goes through inspect, doctor and a small run, by the command line, offline."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny

from t2iprobe.cli import main

Folder = Callable[[str], Path]

MATRIX = (
    "sd15",
    "sd15_safety",
    "sdxl",
    "sd3",
    "sd3_no_t5",
    "flux",
    "pixart_sigma",
    "sana",
    "qwenimage",
    "zimage",
    "kandinsky22",
    "deepfloyd_if",
    "stable_cascade",
    "auraflow",
    "lumina2",
    "chroma",
    "cogview4",
    "hunyuandit",
    "lcm",
)
QUICK = ("sd15", "flux", "kandinsky22")


def arguments(folder: Folder, family: str) -> list[str]:
    return [str(folder(family)), *extra(family)]


def extra(family: str) -> list[str]:
    return [f"--pipe-arg={text}" for text in tiny.pipe_args(family)]


@pytest.mark.parametrize("family", MATRIX)
def test_inspect_tells_the_same_without_weights(
    tiny_folder: Folder,
    family: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from t2iprobe.models import light

    monkeypatch.setattr(light, "LARGE", 64)  # so that nearly every weight is stood in for
    assert main(["inspect", *arguments(tiny_folder, family), "--json", "--trial"]) == 0
    tried = json.loads(capsys.readouterr().out)
    bare = tmp_path / family
    shutil.copytree(tiny_folder(family), bare, ignore=shutil.ignore_patterns("*.safetensors"))
    assert main(["inspect", str(bare), "--json", *extra(family)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["tried"], report["notes"]
    for key in report.keys() - {"name", "notes"}:
        assert report[key] == tried[key], key
    assert all(part["guidance"] for part in report["denoisers"].values())
    chosen = [site for site in report["sites"] if site["default"]]
    assert 5 <= len(chosen) <= 26
    assert all(site["shape"] for site in report["sites"])
    limits = [part["limit"] for part in report["encoders"].values() if part["fed"] is not None]
    assert all(limit and limit >= 77 for limit in limits)


@pytest.mark.parametrize("family", MATRIX)
def test_doctor_passes(
    tiny_folder: Folder, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", *arguments(tiny_folder, family)])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize("family", ["sd15_flagged", "sd15_nan"])
def test_doctor_fails_on_unsound_frames(
    tiny_folder: Folder, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *arguments(tiny_folder, family)]) == 1
    assert {"sd15_flagged": "safety checker", "sd15_nan": "NaN in decode"}[
        family
    ] in capsys.readouterr().out


def run(folder: Folder, family: str, out: Path) -> dict[str, object]:
    small = [
        "--family",
        "shapes-single",
        "--tasks",
        "72",
        "--seeds",
        "1",
        "--folds",
        "4",
        "--resamples",
        "99",
        "--at",
        "0,1",
    ]
    code = main(["run", "--model", *arguments(folder, family), "--out", str(out), *small])
    assert code == 0
    summary: dict[str, object] = json.loads((out / "summary.json").read_text())
    return summary


@pytest.mark.parametrize(
    "family",
    [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in MATRIX],
)
def test_run_to_summary(tiny_folder: Folder, family: str, tmp_path: Path) -> None:
    summary = run(tiny_folder, family, tmp_path / "run")
    assert summary["n_images"] == 72
    assert summary["n_unscored"] == 0
    decodability = summary["decodability"]
    assert isinstance(decodability, dict)
    component = decodability["headline"]["site"].split(".")[0]
    assert component in ("unet", "transformer", "prior_prior", "decoder")


@pytest.mark.parametrize(("family", "count"), [("sd15_flagged", 72), ("sd15_nan", 72)])
@pytest.mark.slow
def test_a_run_of_unsound_frames_counts_them(
    tiny_folder: Folder, family: str, count: int, tmp_path: Path
) -> None:
    assert run(tiny_folder, family, tmp_path / "run")["n_unscored"] == count
