"""Every family of tiny pipelines goes through inspect, doctor and a small run, by the command line, offline."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matrix
import pytest
import tiny

from t2iprobe.cli.main import main

Folder = Callable[[str], Path]

ROOT = Path(__file__).parents[2]
MATRIX = [*matrix.NAMED, *matrix.MADE_ON]
LIKE_NO_OTHER = ["sag", "ideogram4", "bria_fibo2", "zimage_omni", "joyimage_plus"]
"""What a call has left in a module; one stream of two lengths; learned queries; a moving image; patches cut outside."""


def some_by_default(families: list[str]) -> list[Any]:
    """Every family as a parameter, slow but for some."""
    return [f if f in families else pytest.param(f, marks=pytest.mark.slow) for f in matrix.ALL]


OTHERS = {
    "unconditional": "takes no prompt",
    "labels": "takes no prompt",
    "img2img": "is an image-to-image pipeline and needs an image",
    "inpaint": "is an image-to-image pipeline and needs an image",
    "pix2pix": "seems to need an image",
    "controlnet": "needs a control image",
    "video": "makes videos",
    "audio": "makes sound",
}
"""Pipelines that make no image of a text alone, and how they are refused."""

NEED_MORE = {
    "ldm3d": "gives no image (its output has: rgb, depth)",
    "wuerstchen_prior": "gives no image (its output has: image_embeddings)",
    "super_resolution": "its call takes image: use a text-to-image checkpoint",
    "gligen gligen_boxes gligen_phrases": "fails on a prompt alone",
    "unidiffuser guidance_scale": "turn guidance off: --guidance 1",
}
"""Families, the part of their call that is left out, and how they are refused then."""

COMMANDS = {
    "inspect": ["inspect"],
    "doctor": ["doctor"],
    "plan": ["plan", "--model"],
    "run": ["run", "--model"],
}


TASKS = 48


def arguments(folder: Folder, family: str) -> list[str]:
    return [str(folder(family)), *extra(family)]


def extra(family: str) -> list[str]:
    return [f"--pipe-arg={text}" for text in tiny.pipe_args(family)]


WITHOUT_STREAM: dict[str, tuple[str, ...]] = {
    "stable_cascade": ("text_encoder.",),  # the decoder is given the states of the prior's encoder
    "ideogram4": ("unconditional_transformer.", "text_encoder.language_model.norm"),
    "chroma": ("transformer.distilled_guidance_layer",),
    "bria_fibo2": ("transformer.perceiver",),
    "zimage_omni": ("transformer.siglip_refiner.",),
}
"""Sites of the module tree that are not called with prompt or picture, by the beginning of their names."""


def widths(report: dict[str, Any]) -> dict[str, int | None]:
    """Widths of the sites inside modules, by path without the stream."""
    return {
        site["name"].partition(":")[0]: site["width"]
        for site in report["sites"]
        if site["class_name"] != "input"
    }


@pytest.mark.parametrize("family", [*MATRIX, *LIKE_NO_OTHER])
def test_inspect_tells_of_the_module_tree_without_weights(
    tiny_folder: Folder, family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Classes, numbers, prompt limits, sites and widths are those of the loaded model in trial calls."""
    assert main(["inspect", *arguments(tiny_folder, family), "--json", "--trial"]) == 0
    trial = json.loads(capsys.readouterr().out)
    assert trial["tried"], trial["notes"]
    seeing = [part for part in trial["denoisers"].values() if part["conditioning"]]
    assert seeing
    assert all(part["guidance"] for part in seeing)
    chosen = [site for site in trial["sites"] if site["default"]]
    assert 5 <= len(chosen) <= 26
    assert all(site["shape"] for site in trial["sites"])
    limits = [part["limit"] for part in trial["encoders"].values() if part["fed"] is not None]
    assert all(limit and limit >= 77 for limit in limits)
    bare = tmp_path / family
    shutil.copytree(tiny_folder(family), bare, ignore=shutil.ignore_patterns("*.safetensors"))
    assert main(["inspect", str(bare), "--json", *extra(family)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["class_name"] == trial["class_name"] == matrix.ALL[family][1]
    for key in ("parameters", "others", "missing"):
        assert report[key] == trial[key], key
    of_calls = {"fed", "guidance", "conditioning", "steps", "calls"}
    for kind in ("encoders", "denoisers"):
        assert report[kind].keys() == trial[kind].keys()
        for name, part in report[kind].items():
            for key in part.keys() - of_calls:
                assert part[key] == trial[kind][name][key], (name, key)
            assert all(part[key] is None for key in of_calls & part.keys())
    from_configs, from_calls = widths(report), widths(trial)
    unread = set(from_configs.keys() - from_calls.keys())
    assert all(name.startswith(WITHOUT_STREAM.get(family, ())) for name in unread), unread
    unlisted = set(from_calls.keys() - from_configs.keys())
    assert all("norm" in name.lower() for name in unlisted), unlisted
    shared = from_configs.keys() & from_calls.keys()
    assert {from_configs[name] in (None, from_calls[name]) for name in shared} == {True}
    known = [name for name in shared if from_configs[name] is not None]
    assert len(known) > len(shared) / 3


@pytest.mark.parametrize("family", some_by_default(MATRIX))
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
        str(TASKS),
        "--seeds",
        "1",
        "--folds",
        "3",
        "--resamples",
        "99",
        "--at",
        "1",
    ]
    code = main(["run", "--model", *arguments(folder, family), "--out", str(out), *small])
    assert code == 0
    summary: dict[str, object] = json.loads((out / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("family", some_by_default(list(matrix.NAMED)))
def test_run_to_summary(tiny_folder: Folder, family: str, tmp_path: Path) -> None:
    summary = run(tiny_folder, family, tmp_path / "run")
    assert summary["n_images"] == TASKS
    wide = family == "panorama"  # only square pictures are judged
    assert summary["n_unscored"] == TASKS * wide
    decodability = summary["decodability"]
    assert isinstance(decodability, dict)
    component = decodability["headline"]["site"].split(".")[0]
    assert component in ("unet", "image_unet", "transformer", "prior", "prior_prior", "decoder")


@pytest.mark.parametrize("family", ["sd15_flagged", "sd15_nan"])
@pytest.mark.slow
def test_a_run_of_unsound_frames_counts_them(
    tiny_folder: Folder, family: str, tmp_path: Path
) -> None:
    assert run(tiny_folder, family, tmp_path / "run")["n_unscored"] == TASKS


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers of libraries keep the stream of the test that loaded them, which is closed by now."""
    monkeypatch.setattr(logging, "raiseExceptions", False)


def refusal(capsys: pytest.CaptureFixture[str], command: str, more: list[str], out: Path) -> str:
    """What a command says of a checkpoint it cannot use: one line on stderr, exit code 2."""
    asked = [*COMMANDS[command], *more]
    asked += ["--out", str(out)] if command == "run" else []
    capsys.readouterr()  # what building the tiny pipeline printed
    assert main(asked) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    assert not (out / "summary.json").exists()
    return said[0]


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("command", list(COMMANDS))
@pytest.mark.parametrize("family", list(OTHERS))
def test_what_makes_no_image_of_a_text_is_refused_in_one_line(
    tiny_folder: Folder,
    family: str,
    command: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = refusal(capsys, command, arguments(tiny_folder, family), tmp_path)
    assert OTHERS[family] in text


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize("family", list(NEED_MORE))
def test_what_needs_more_than_a_prompt_is_told(
    tiny_folder: Folder, family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, change = family.partition(" ")
    call = tiny.FAMILIES[name].call
    left = {key: value for key, value in call.items() if key not in change.split()}
    given = [f"--pipe-arg={key}={value}" for key, value in left.items()]
    text = refusal(capsys, "doctor", [str(tiny_folder(name)), *given], tmp_path)
    assert NEED_MORE[family] in text


@pytest.mark.usefixtures("_quiet")
@pytest.mark.parametrize(
    ("part", "command"),
    [
        *(("text_encoder", command) for command in COMMANDS),
        *((part, "inspect") for part in ("tokenizer", "unet", "vae", "scheduler")),
    ],
)
def test_a_missing_component_is_named_in_one_line(
    tiny_folder: Folder, part: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(tiny_folder("sd15"), tmp_path / "half"))
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | {part: [None, None]}))
    shutil.rmtree(folder / part)
    arguments = [str(folder), *extra("sd15")]
    if command == "inspect":
        assert main(["inspect", *arguments]) == int(part == "unet")
        assert f"the checkpoint leaves out {part}; --trial" in capsys.readouterr().out
        arguments.append("--trial")
    text = refusal(capsys, command, arguments, tmp_path / "run")
    assert part in text


def test_readme_lists_the_families_of_the_matrix() -> None:
    """Their names and pipeline classes; scripts/capabilities.py writes the table."""
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts" / "capabilities.py", "--check"], check=False
    )
    assert ended.returncode == 0, "run scripts/capabilities.py"
