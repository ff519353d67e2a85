"""Entries of model_index.json and settings of components that are of a wrong type: one line that names them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2iprobe.cli.main import main

Folder = Callable[[str], Path]
COMMANDS = (["inspect"], ["doctor", "--steps=1"])
PYTHONS_OWN = (
    "subscriptable",
    "unpack",
    "unsupported operand",
    "object has no",
    "got an unexpected",
)


@pytest.fixture
def change(tiny_folder: Folder, tmp_path: Path) -> Callable[[str, str, Any], Path]:
    """A copy of a tiny pipeline in which one entry of one JSON file is another."""

    def changed(file: str, key: str, value: Any) -> Path:
        folder = Path(shutil.copytree(tiny_folder("sd15"), tmp_path / "model"))
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | {key: value}))
        return folder

    return changed


def said(command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    code = main([command[0], str(folder), *command[1:]])
    found = capsys.readouterr()
    assert code == 2
    (line,) = found.err.strip().splitlines()
    assert not any(words in line for words in PYTHONS_OWN)
    return line


@pytest.mark.parametrize("part", ["unet", "safety_checker"])
@pytest.mark.parametrize(
    "value", [3, True, "abc", {"a": 1}, ["diffusers"], [3, 4], ["diffusers", ""], ["a", "b", "c"]]
)
def test_an_entry_that_is_no_component_is_named(
    part: str,
    value: Any,
    change: Callable[[str, str, Any], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that its class needs, with a folder of its own, and one that it can do without."""
    folder = change("model_index.json", part, value)
    for command in COMMANDS:
        line = said(command, folder, capsys)
        assert f"{part} has to be [library, class]" in line
        assert f"it is {json.dumps(value)}" in line


@pytest.mark.parametrize("value", [3, None, [3, 4], [None, None], ["diffusers", ""]])
def test_a_class_that_is_no_name_is_refused(
    value: Any, change: Callable[[str, str, Any], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = change("model_index.json", "_class_name", value)
    for command in COMMANDS:
        assert "names no pipeline class (_class_name)" in said(command, folder, capsys)


def test_a_class_that_diffusers_has_not_is_named_with_its_version(
    change: Callable[[str, str, Any], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = change("model_index.json", "_class_name", "NewestPipeline")
    line = said(COMMANDS[1], folder, capsys)
    assert "has no pipeline class NewestPipeline" in line
    assert "update diffusers" in line


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("unet/config.json", "act_fn", [1]),
        ("unet/config.json", "out_channels", None),
        ("text_encoder/config.json", "hidden_size", "16"),
        ("text_encoder/config.json", "hidden_act", None),
        ("scheduler/scheduler_config.json", "beta_end", "0.1"),
    ],
)
def test_a_setting_without_which_a_component_can_be_made_is_named(
    file: str,
    key: str,
    value: Any,
    change: Callable[[str, str, Any], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = change(file, key, value)
    assert main(["doctor", str(folder)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    part, name = file.split("/")
    assert f"its {part} (" in line
    assert f"{key} in its {name} is {json.dumps(value)}, without which it can be made: " in line


def test_a_modular_pipeline_is_said_to_be_one(
    tiny_folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(tiny_folder("sd15"), tmp_path / "model"))
    (folder / "model_index.json").rename(folder / "modular_model_index.json")
    for command in (
        *COMMANDS,
        ["plan", "--model"],
        ["run", f"--out={tmp_path / 'run'}", "--model"],
    ):
        capsys.readouterr()
        assert main([*command, str(folder)]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "this looks like a modular pipeline" in line
        assert "give the folder of a whole diffusers pipeline" in line
    assert not (tmp_path / "run").exists()
