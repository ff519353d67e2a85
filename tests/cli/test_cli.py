"""Bad input ends in one clear line and exit code 2; nothing is half-written."""

from pathlib import Path

import pytest

from t2iprobe.cli.main import COMMANDS, main
from t2iprobe.cli.parsing import parse
from t2iprobe.runs.config import RunConfig

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


def _error(argv: list[str], capsys: Capture) -> str:
    """The single line on stderr of a command that has to fail with 2; a busy machine may say before that it loads."""
    assert main(argv) == 2
    said = capsys.readouterr().err.strip().splitlines()
    lines = [line for line in said if not line.endswith(" s so far")]
    assert len(lines) == 1, lines
    assert lines[0].startswith("t2iprobe: error: ")
    return lines[0]


def test_overview_names_every_command(capsys: Capture) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: Capture) -> None:
    try:
        code = main([name, "--help"])
    except SystemExit as stop:
        code = stop.code
    assert code == 0
    assert f"t2iprobe {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["rum"], ["unknown command 'rum'", "'run'"]),
        (["run", "--model", "shapes-mmdt"], ["'shapes-mmdt'", "shapes-mmdit"]),
        (["run", "--family", "shape-pair"], ["unknown family 'shape-pair'", "'shapes-pair'"]),
        (["run", "--tasks", "0"], ["--tasks 0", "1 or more"]),
        (["run", "--tasks", "many"], ["--tasks", "'many'", "t2iprobe run --help"]),
        (["run", "--steps", "2.5"], ["--steps '2.5': must be a whole number", "run --help"]),
        (["doctor", "--guidance", "high"], ["--guidance 'high': must be a number"]),
        (["run", "--seeds", ""], ["--seeds '': must be a whole number"]),
        (["run", "--guidance", "-3"], ["--guidance -3", "0 or more"]),
        (["run", "--pipe-arg", "guidance_scale=-1"], ["guidance_scale=-1", "0 or more"]),
        (["run", "--pipe-arg", "true_cfg_scale=nan"], ["true_cfg_scale=nan", "finite"]),
        (["run", "--pipe-arg", "prior_num_inference_steps=0"], ["steps=0", "1 or more"]),
        (["inspect", "shapes-mmdit", "--images", "0"], ["--images 0", "1 or more"]),
        (["run", "--taks", "5"], ["--taks", "did you mean --tasks?"]),
        (["run", "--tsks", "5", "--sead", "1"], ["--tsks", "--sead", "--tasks", "--seed"]),
        (["run", "--dtype", "fp8"], ["'fp8'", "bf16"]),
        (["run", "--at"], ["Missing value", "'--at'"]),
        (["synthetic", "train"], ["--out", "t2iprobe synthetic train --help"]),
        (["synthetic", "sweep", "width", "--size", "smal"], ["'smal'", "smoke"]),
        (["run", "--seeds", "-1"], ["--seeds -1", "1 or more"]),
        (["run", "--seeds", "99999999999999999999"], ["--seeds 9999", "10000 or less"]),
        (["run", "--folds", "2"], ["--folds 2", "3 or more"]),
        (["run", "--at", "1.5"], ["--at 1.5", "from 0 to 1"]),
        (["run", "--at", ""], ["--at"]),
        (["run", "--steps", "0"], ["--steps 0", "1 or more"]),
        (["run", "--height", "-8"], ["--height -8", "1 or more"]),
        (["run", "--guidance", "nan"], ["--guidance nan", "finite"]),
        (["run", "--tasks", "20000"], ["20000", "12960"]),
        (["run", "--scorer", "pixel"], ["unknown scorer 'pixel'", "'pixels'"]),
        (["run", "--sites", "nowhere.*"], ["nowhere.*"]),
        (["run", "--config", "missing.yaml"], ["missing.yaml"]),
        (["compare", "no-such-run"], ["no-such-run"]),
        (["report", "no-such-run"], ["no-such-run"]),
        (["families", "show", "shape-pair"], ["'shapes-pair'"]),
        (["families", "draw"], ["unknown action 'draw'"]),
    ],
)
def test_bad_input(argv: list[str], parts: list[str], capsys: Capture) -> None:
    line = _error(argv, capsys)
    for part in parts:
        assert part in line
    assert not [path for path in Path().rglob("*") if path.is_file()]


@pytest.mark.parametrize("command", ["run", "plan", "inspect", "doctor"])
def test_every_command_that_takes_one_model_takes_it_first(command: str, capsys: Capture) -> None:
    assert main([command, "shapes-mmditt"]) == 2
    assert "shapes-mmditt" in capsys.readouterr().err


def test_a_folder_that_is_no_pipeline(tmp_path: Path, capsys: Capture) -> None:
    assert "model_index.json" in _error(["run", "--model", str(tmp_path)], capsys)


def test_a_broken_family_file(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\n\ttemplate: x\n")
    line = _error(["run", "--family", str(file), "--out", str(tmp_path / "run")], capsys)
    assert "mine.yaml" in line and "line 2" in line


def test_a_folder_that_holds_something_else(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    assert "--out" in _error(["run", "--out", str(tmp_path)], capsys)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_an_unwritable_folder(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in _error(["run", "--out", str(tmp_path / "file" / "run")], capsys)


def test_a_configuration_file_with_an_unknown_setting(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("task: 5\n")
    line = _error(["run", "--config", str(file)], capsys)
    assert "unknown key 'task'" in line and "'tasks'" in line


def test_the_command_line_wins_over_the_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("tasks: 5\nsites: [a, b]\nvae_tiling: true\nat: 0,0.5\n")
    config = parse(RunConfig, ["--config", str(file), "--tasks", "7"], "run", "")
    assert (config.tasks, config.sites, config.vae_tiling, config.at) == (
        7,
        ("a", "b"),
        True,
        "0,0.5",
    )


def test_a_configuration_file_with_an_impossible_switch(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("vae_tiling: on\n")
    line = _error(["run", "--config", str(file)], capsys)
    assert "line 1" in line and "true or false" in line


def test_a_pipeline_argument_is_repeated_and_the_command_line_wins(tmp_path: Path) -> None:
    config = parse(RunConfig, ["--pipe-arg", "a=1", "--pipe-arg=b=x"], "run", "")
    assert config.pipe_arg == ("a=1", "b=x")
    file = tmp_path / "run.yaml"
    file.write_text("pipe_arg: [a=1, b=x]\n")
    assert parse(RunConfig, ["--config", str(file)], "run", "").pipe_arg == ("a=1", "b=x")
    wins = parse(RunConfig, ["--config", str(file), "--pipe-arg", "c=2"], "run", "")
    assert wins.pipe_arg == ("c=2",)
