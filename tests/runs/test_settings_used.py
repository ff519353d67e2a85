"""Settings that would do nothing are refused, or said to do nothing; characters that no name has are refused."""

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import tiny

from t2iprobe.cli.main import main
from t2iprobe.errors import ConfigError
from t2iprobe.models.settings import WEIGHTS_ONLY, LoadSettings
from t2iprobe.runs.config import RunConfig, check_same, resolved

Folder = Callable[[str], Path]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["inspect", "doctor"])
def test_a_revision_of_what_is_no_repository_is_refused(
    command: str, tiny_folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in ("shapes-mmdit", str(tiny_folder("sd15"))):
        line = refused([command, model, "--revision", "main"], capsys)
        assert "--revision main names a state of a hub repository" in line
        assert model in line


def test_a_variant_of_a_zoo_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(["inspect", "shapes-mmdit", "--variant", "fp16"], capsys)
    assert "has one set of weights" in line


def test_two_files_of_weights_are_refused(
    tiny_folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    (file,) = (tiny_folder("sd15") / "unet").glob("*.safetensors")
    line = refused(["doctor", str(file), "--single-file", str(file)], capsys)
    assert "are both files of weights" in line


def test_inspect_says_which_settings_of_weights_it_did_not_need(
    tiny_folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(tiny_folder("sd15"))
    asked = ["--variant", "fp16", "--dtype", "bf16", "--vae-tiling"]
    found = told(["inspect", model, *asked], capsys)
    assert "so --variant and --dtype and --vae-tiling changed nothing: --trial loads them" in found
    assert "changed nothing" not in told(["inspect", model], capsys)
    assert set(WEIGHTS_ONLY) <= {field.name for field in fields(LoadSettings)}


@pytest.mark.parametrize(
    ("family", "asked", "unheeded"),
    [
        ("flux_schnell", ["--guidance=3"], ["--guidance 3.0"]),
        ("flux", ["--guidance=3"], []),
        ("flux", ["--negative-prompt=ugly"], ["--negative-prompt ugly"]),
        ("flux", ["--negative-prompt=ugly", "--pipe-arg=true_cfg_scale=4"], []),
        ("flux", ["--pipe-arg=true_cfg_scale=4"], ["--pipe-arg true_cfg_scale=4"]),
        ("sd15", ["--guidance=1", "--negative-prompt=ugly"], ["--negative-prompt ugly"]),
        ("sd15", ["--guidance=1"], []),
        (
            "qwenimage",
            ["--pipe-arg=true_cfg_scale=1", "--negative-prompt=ugly"],
            ["--negative-prompt ugly"],
        ),
        ("unidiffuser", ["--guidance=1"], []),
    ],
)
def test_guidance_that_changes_nothing_is_said_to(
    family: str,
    asked: list[str],
    unheeded: list[str],
    tiny_folder: Folder,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Distilled and embedded guidance, true guidance with and without its second half, guidance turned off.

    Where guidance is a further call, the first one is the same with it and without.
    """
    options = [argument.removeprefix("--pipe-arg=").lstrip("-") for argument in asked]
    typed = {option.split("=")[0].replace("-", "_") for option in options}
    own = [x for x in tiny.pipe_args(family) if x.split("=")[0] not in {*typed, "guidance_scale"}]
    size = [f"--pipe-arg={argument}" for argument in own]
    found = told(["inspect", str(tiny_folder(family)), "--trial", *size, *asked], capsys)
    assert found.count("changes nothing: this pipeline") == len(unheeded)
    for setting in unheeded:
        assert f"{setting} changes nothing: this pipeline makes the same image without it" in found


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--out", "a\0b"],
        ["run", "--family", "a\x07"],
        ["run", "--config", "\0"],
        ["run", "--negative-prompt", "a\x00b"],
        ["run", "--out=\udc80"],
        ["inspect", "a\x1b[31m"],
        ["compare", "a\0"],
        ["report", "\0"],
        ["families", "show", "\0"],
    ],
)
def test_characters_that_no_name_has_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(arguments, capsys)
    assert re.search(r"has the control character U\+[0-9A-F]{4}; remove it", line)
    assert line.isprintable()


@pytest.mark.parametrize(
    "written", ['out: "a\\0b"', "out: a\x07b", 'negative_prompt: "a\\nb"', "model: a\0"]
)
def test_they_are_refused_in_a_configuration_file_too(
    written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(written)
    line = refused(["run", "--config", str(file)], capsys)
    assert f"{file}, line 1" in line
    assert line.isprintable()


@pytest.mark.parametrize("more", [{"tasks": 200}, {"seeds": 9}, {"tasks": 200, "seeds": 1}])
def test_more_tasks_or_seeds_are_refused_with_the_reason(more: dict[str, int]) -> None:
    stored, asked = resolved(RunConfig()), resolved(RunConfig(**more))
    with pytest.raises(
        ConfigError, match=r"a run does not grow; give the same .* or another --out"
    ):
        check_same(stored, asked, Path("run"))
    with pytest.raises(ConfigError) as caught:
        check_same(stored, stored | {"probe": "logistic"}, Path("run"))
    assert "grow" not in str(caught.value)


def test_a_run_of_before_poolings_could_be_chosen_goes_on() -> None:
    asked = resolved(RunConfig())
    stored = {name: value for name, value in asked.items() if name != "pooling"}
    check_same(stored, asked, Path("run"))
    with pytest.raises(ConfigError, match=r"--pooling was \['mean', 'grid', 'eot', 'span'\], now"):
        check_same(stored, asked | {"pooling": ["grid", "eot"]}, Path("run"))
