"""What doctor and plan tell as run does: sizes that are not kept to, cut prompts, sites without a headline, notes."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from t2iprobe.cli.main import main

Folder = Callable[[str], Path]

TASKS = ["--family=shapes-single", "--tasks=48", "--seeds=1", "--folds=3", "--at=1"]
COMMANDS = {"doctor": ["doctor"], "plan": ["plan", *TASKS, "--model"]}
SIZE = ["--height=32", "--width=32", "--steps=2"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers of libraries keep the stream of the test that loaded them, which is closed by now."""
    monkeypatch.setattr(logging, "raiseExceptions", False)


@pytest.mark.parametrize("command", COMMANDS)
def test_half_a_size_is_refused(
    tiny_folder: Folder, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(tiny_folder("sd15"))
    capfd.readouterr()
    assert main([*COMMANDS[command], folder, "--height=64", "--steps=2"]) == 2
    said = capfd.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "asked for height 64, the pipeline makes" in said[0]
    assert "give both --height and --width" in said[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_size_that_is_rounded_is_told_once_and_in_our_words(
    tiny_folder: Folder, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(tiny_folder("flux"))
    capfd.readouterr()
    assert main([*COMMANDS[command], folder, "--height=35", "--width=35", "--steps=2"]) == 0
    said = capfd.readouterr()
    assert said.out.count("asked for height 35, width 35, the pipeline makes 32 x 32") == 1
    assert said.err == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_size_that_is_kept_needs_no_note(
    tiny_folder: Folder, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(tiny_folder("sd15"))
    capfd.readouterr()
    assert main([*COMMANDS[command], folder, *SIZE]) == 0
    said = capfd.readouterr().out
    assert "asked for" not in said
    assert ("the size is known: 32 x 32, as asked" in said) == (command == "doctor")


@pytest.mark.parametrize("command", COMMANDS)
def test_notes_about_the_model_are_told(
    tiny_folder: Folder, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(tiny_folder("sd15"))
    assert main([*COMMANDS[command], folder, *SIZE, "--dtype=fp16"]) == 0
    said = capfd.readouterr().out
    assert said.count("note") == 1
    assert "CPUs are slow in fp16" in said


def test_plan_tells_what_will_be_cut(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    family = tmp_path / "wordy.yaml"
    source = Path(__file__).parents[2] / "prompts" / "shapes-single.yaml"
    lines = [
        line.replace("template: ", "template: " + "very " * 80)
        for line in source.read_text().splitlines()
    ]
    family.write_text("\n".join(lines))
    folder = str(tiny_folder("sd15"))
    plan = ["plan", f"--family={family}", *TASKS[1:], "--model", folder, *SIZE]
    assert main(plan) == 0
    said = capfd.readouterr().out
    assert (
        "note    text_encoder cuts prompts at 77 tokens: size, color, shape, position lost" in said
    )


def test_plan_refuses_sites_that_a_run_refuses(
    tiny_folder: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = str(tiny_folder("sd15"))
    capfd.readouterr()
    assert main([*COMMANDS["plan"], folder, *SIZE, "--sites=text_encoder.*"]) == 2
    said = capfd.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "--sites names no site of a denoiser's image stream" in said[0]
