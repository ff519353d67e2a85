"""The run folder: whole files or none, and no mixing of settings."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.runs.config import RunConfig, check_same, from_resolved, resolved
from t2iprobe.runs.folder import RunFolder, atomic, intact_png, read_table, write_json, write_table


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"x": 1})
    with pytest.raises(RuntimeError), atomic(file) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(file.read_text()) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_settings_survive_the_round_trip(tmp_path: Path) -> None:
    config = RunConfig(tasks=7, sites=("a.*", "b"), lora=Path("x.safetensors"), out=tmp_path)
    stored = json.loads(json.dumps(resolved(config)))
    assert from_resolved(stored, tmp_path) == config


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    RunFolder.open(tmp_path, resolved(RunConfig(tasks=7)))
    with pytest.raises(ConfigError, match=r"--tasks was 7, now 8.*--out"):
        RunFolder.open(tmp_path, resolved(RunConfig(tasks=8)))
    RunFolder.open(tmp_path, resolved(RunConfig(tasks=7, out=tmp_path)))


def test_only_differences_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        check_same({"a": 1, "b": 2}, {"a": 1, "b": 3}, Path("run"))
    assert "--a" not in str(caught.value)


def test_a_table_keeps_types_and_nulls(tmp_path: Path) -> None:
    rows = [{"task_id": "a", "ok": True, "r2": 0.5}, {"task_id": "b", "ok": None, "r2": None}]
    write_table(tmp_path / "t.parquet", rows)
    assert read_table(tmp_path / "t.parquet") == rows


def test_a_cut_or_empty_png_is_not_intact(tmp_path: Path) -> None:
    from PIL import Image

    file = tmp_path / "a.png"
    Image.effect_noise((32, 32), 50).save(file)
    assert intact_png(file)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    assert not intact_png(file)
    file.write_bytes(b"")
    assert not intact_png(file)
    assert not intact_png(tmp_path / "absent.png")


def _hold(
    path: Path,
    ready: "multiprocessing.synchronize.Event",
    stop: "multiprocessing.synchronize.Event",
) -> None:
    with RunFolder(path).locked():
        ready.set()
        stop.wait(20)


def test_two_commands_cannot_hold_one_folder(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, stop))
    other.start()
    assert ready.wait(20)
    try:
        with pytest.raises(DataError, match="in use"), RunFolder(tmp_path).locked():
            pass
    finally:
        stop.set()
        other.join()
    with RunFolder(tmp_path).locked():
        pass


def test_leftovers_of_a_kill_are_removed(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    leftover = tmp_path / "images" / f".a.png.{os.getpid()}.part"
    leftover.write_text("half")
    with RunFolder(tmp_path).locked():
        assert leftover.exists()  # the folder holds no run: it is not ours to clean
    (tmp_path / "run.json").write_text("{}")
    with RunFolder(tmp_path).locked():
        assert not leftover.exists()
