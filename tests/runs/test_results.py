"""Files of a finished run that were cut, changed or removed: named with what makes them again, or made again."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from worded_run import CONFIG, written

from t2iprobe.cli.main import main
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs import stages
from t2iprobe.runs.folder import RunFolder, read_json
from t2iprobe.runs.results import changed

Damage = Callable[[Path], object]


def _other_json(change: Callable[[dict[str, object]], object]) -> Damage:
    def damage(file: Path) -> None:
        content = json.loads(file.read_text())
        change(content)
        file.write_text(json.dumps(content))

    return damage


DAMAGES: dict[str, Damage] = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:200]),
    "empty": lambda file: file.write_bytes(b""),
    "no text": lambda file: file.write_bytes(b"\xff\xfe\x00"),
    "another type": lambda file: file.write_text("[]"),
    "a missing key": _other_json(lambda summary: summary.pop("success")),
    "a wrong type": _other_json(lambda summary: summary.update(decodability="high")),
    "another number": _other_json(lambda summary: summary.update(n_tasks=7)),
    "removed": lambda file: file.unlink(),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run."""
    folder = written(tmp_path_factory.mktemp("made") / "run", drawing.draw(CONFIG, None), {})
    stages.rerun(folder, CONFIG, "report")
    return folder


@pytest.fixture
def copy(made: RunFolder, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.path, tmp_path / "run"))


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_summary_is_named_with_what_makes_it_again(
    how: str, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[how](copy / "summary.json")
    for command in (["report", str(copy)], ["compare", str(copy), f"--out={tmp_path / 'out'}"]):
        capsys.readouterr()
        assert main(command) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert f"{copy / 'summary.json'} was" in line
        assert f"`t2iprobe correlate {copy}` makes it again" in line


def test_what_makes_it_again_does(
    made: RunFolder, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES["cut"](copy / "summary.json")
    assert main(["correlate", str(copy)]) == 0
    before, after = (read_json(path / "summary.json") for path in (made.path, copy))
    assert before | {"cost": 0} == after | {"cost": 0}
    assert changed(RunFolder(copy)) is None
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "first"),
    [("probes.parquet", "probe"), ("report.html", "report")],
)
def test_running_again_makes_it_and_all_after_it_again(
    name: str, first: str, made: RunFolder, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages before it are left alone; the folder is then as it was."""
    DAMAGES["cut"](copy / name)
    monkeypatch.setattr(stages, "resolved", lambda _: made.manifest["settings"])
    ran: list[str] = []
    run_stage = stages.run_stage
    monkeypatch.setattr(
        stages, "run_stage", lambda stage, *a, **k: (ran.append(stage), run_stage(stage, *a, **k))
    )
    folder = stages.run(type(CONFIG)(**(vars(CONFIG) | {"out": copy})))
    assert ran == list(stages.STAGES[stages.STAGES.index(first) :])
    if name != "report.html":
        assert (copy / name).read_bytes() == (made.path / name).read_bytes()
    assert all(folder.is_done(stage) for stage in stages.STAGES)
    ran.clear()
    stages.run(type(CONFIG)(**(vars(CONFIG) | {"out": copy})))
    assert ran == []


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"settings": {}}', '{"settings": 3, "stages": {}}', "\xff"]
)
def test_a_damaged_run_json_ends_in_one_line(
    content: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "run.json").write_bytes(content.encode("latin-1"))
    for command in (["report", str(copy)], ["compare", str(copy)], ["run", f"--out={copy}"]):
        capsys.readouterr()
        assert main(command) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert str(copy / "run.json") in line
        assert "put a copy back, or make the run again in another folder" in line
