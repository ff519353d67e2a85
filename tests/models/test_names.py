"""A mistyped model is told in one line, before any heavy library is loaded; an empty path is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from t2iprobe.cli.main import main
from t2iprobe.errors import ModelError
from t2iprobe.models import zoo
from t2iprobe.models.names import local_folder


def test_zoo_names_folders_and_hub_ids_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "file.safetensors").touch()
    assert local_folder("shapes-mmdit") == zoo.path("shapes-mmdit")
    assert local_folder("owner/name") == Path("owner/name")
    assert local_folder("owner/other") is None
    assert local_folder("black-forest-labs/FLUX.1-dev") is None
    for name, text in {
        "shapes-mmdt": "did you mean shapes-mmdit",
        "./owner/nam": "did you mean",
        "": "unknown model ''",
        "a/b/c": "unknown model",
        "file.safetensors": "cannot be read as safetensors",
        "own er/name": "unknown model",
    }.items():
        with pytest.raises(ModelError, match=text):
            local_folder(name)


@pytest.mark.parametrize("command", ["inspect", "doctor", "plan --model", "run --model"])
def test_a_mistyped_name_is_told_before_torch_is_loaded(command: str, tmp_path: Path) -> None:
    script = (
        "import sys; from t2iprobe.cli.main import main; code = main(sys.argv[1:]);"
        "print(code, 'torch' in sys.modules, 'diffusers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *command.split(), "shapes-unnet"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.split() == ["2", "False", "False"]
    assert "did you mean shapes-unet" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("given", [["--out", ""], ["--out="], ["--lora", ""], ["--single-file="]])
def test_an_empty_path_is_refused(
    given: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *given]) == 2
    line = capsys.readouterr().err
    assert f"{given[0].rstrip('=')} is empty" in line
    assert not list(tmp_path.iterdir())
