"""The run folder: where every stage reads what the earlier ones left.

Every write goes to a temporary name in the same folder and is then renamed, so a file is either whole or absent.
Nothing is pickled: JSON, JSON lines, PNG, safetensors and parquet only.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from t2iprobe.errors import DataError
from t2iprobe.runs.config import check_same

SCHEMA_VERSION = 2
READABLE = (1, 2)
"""Schema 1 differs in the types of table columns alone: they followed from the values."""
_PARTS = ("settings", "stages")
_MENDED = "put a copy back, or make the run again in another folder"
Row = dict[str, Any]

PACKAGES = (
    "t2iprobe",
    "torch",
    "diffusers",
    "transformers",
    "accelerate",
    "tokenizers",
    "safetensors",
    "numpy",
    "scipy",
    "scikit-learn",
    "datasets",
    "pillow",
    "ftfy",
)
"""Packages that can change a number; a run carries their versions, so that it can be traced."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; rename it to `path` when the block ends without an exception."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all; NaN is refused, undefined values must be null."""
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """The value in a JSON file.

    Raises:
        DataError: the file is absent or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist: is {path.parent} a run folder?") from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path} was cut or changed, it is not valid JSON (line {error.lineno}: {error.msg}): {_MENDED}"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path} was cut or changed, it is no text: {_MENDED}") from None


def write_table(path: Path, rows: list[Row]) -> None:
    """Write rows as parquet that `datasets`, pandas and polars read."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    with atomic(path) as temporary:
        Dataset.from_list(rows).to_parquet(str(temporary))


def read_table(path: Path) -> list[Row]:
    """The rows of a parquet table.

    Raises:
        DataError: the table is absent or damaged.
    """
    from pyarrow import ArrowInvalid, parquet

    if not path.exists():
        raise DataError(f"{path} does not exist: the stage that writes it has not run yet")
    try:
        rows: list[Row] = parquet.read_table(path).to_pylist()
    except (ArrowInvalid, OSError) as error:
        raise DataError(
            f"{path} is damaged ({str(error).splitlines()[0][:80]}): delete it and run its command again"
        ) from None
    return rows


@dataclass(frozen=True)
class RunFolder:
    """One run on disk: paths, run.json, and the state of each stage."""

    path: Path

    @classmethod
    def open(
        cls, path: Path, settings: Mapping[str, Any], command: str | None = None
    ) -> "RunFolder":
        """A new run folder, or an earlier one that was made with the same settings.

        Args:
            path: the folder.
            settings: everything its results depend on.
            command: the command line that makes it; that of this process when not given.

        Raises:
            ConfigError: the folder holds a run with other settings.
            DataError: the folder holds something that is no run.
        """
        folder = cls(path)
        if folder.accepts(settings):
            return folder
        write_json(
            folder.manifest_path,
            {
                "schema_version": SCHEMA_VERSION,
                "settings": dict(settings),
                "command": command or shlex.join(["t2iprobe", *sys.argv[1:]]),
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": versions(),
                "git_commit": git_commit(),
                "model": None,
                "stages": {},
                "counts": {},
            },
        )
        return folder

    def accepts(self, settings: Mapping[str, Any]) -> bool:
        """Whether a run with these settings is here already; False where a new one can be made. Writes nothing.

        Raises:
            ConfigError: the folder holds a run with other settings.
            DataError: the folder holds something that is no run.
        """
        if self.manifest_path.exists():
            check_same(self.manifest["settings"], dict(settings), self.path)
            return True
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file: give the name of a new or empty folder")
        if self.path.is_dir() and any(entry.name != ".lock" for entry in self.path.iterdir()):
            raise DataError(
                f"{self.path} is not empty and holds no run.json: give a new folder with --out"
            )
        return False

    @classmethod
    def existing(cls, path: Path) -> "RunFolder":
        """A run folder that is already there.

        Raises:
            DataError: the folder has no run.json, or one of another schema version.
        """
        folder = cls(path)
        schema = folder.manifest.get("schema_version")
        if schema not in READABLE:
            raise DataError(
                f"{folder.manifest_path} has schema version {schema!r}, and this t2iprobe reads {SCHEMA_VERSION}: "
                "read it with the t2iprobe that wrote it, or run it again"
            )
        return folder

    @property
    def manifest_path(self) -> Path:
        """Where run.json lies."""
        return self.path / "run.json"

    @property
    def manifest(self) -> dict[str, Any]:
        """The content of run.json."""
        value = read_json(self.manifest_path)
        parts = [value.get(name) for name in _PARTS] if isinstance(value, dict) else [None]
        if not all(isinstance(part, dict) for part in parts):
            raise DataError(
                f"{self.manifest_path} is not the description of a run ({', '.join(_PARTS)}): {_MENDED}"
            )
        return dict(value)

    def update(self, **parts: Any) -> None:
        """Replace top-level entries of run.json."""
        write_json(self.manifest_path, self.manifest | parts)

    def stage(self, name: str) -> dict[str, Any]:
        """What run.json says of a stage; empty when it has not started."""
        state: dict[str, Any] = self.manifest["stages"].get(name, {})
        return state

    def set_stage(self, name: str, status: str | None = None, **facts: Any) -> None:
        """Record the state of a stage in run.json, and facts about it; without a status it keeps the one it has."""
        stages = self.manifest["stages"]
        known = {} if status is None else {"status": status}
        stages[name] = stages.get(name, {}) | known | facts
        self.update(stages=stages)

    def is_done(self, name: str) -> bool:
        """Whether a stage has finished."""
        return self.stage(name).get("status") == "done"

    def has_results(self, name: str) -> bool:
        """Whether a stage left whole results: it has finished, or a budget stopped it after whole tasks."""
        return self.stage(name).get("status") in ("done", "stopped")

    def image(self, task_id: str, image_index: int) -> Path:
        """Where one image lies. Names come from ids, never from prompts."""
        return self.path / "images" / f"{task_id}-{image_index}.png"

    def shard(self, batch: int) -> Path:
        """Where the activations of one batch lie. The shard is written last: it says that the batch is whole."""
        return self.path / "activations" / f"{batch:06d}.safetensors"

    def shards(self) -> list[Path]:
        """Every shard, in the order of the task list."""
        return sorted((self.path / "activations").glob("*.safetensors"))

    def is_whole(self) -> bool:
        """Whether a run whose images were all made still has every image and every shard."""
        state = self.stage("generate")
        if state.get("status") != "done":
            return True
        n_images = len(list((self.path / "images").glob("*.png")))
        return n_images == self.manifest["counts"]["images_done"] and len(
            self.shards()
        ) == state.get("batches")

    def discard_if_empty(self) -> None:
        """Remove a run in which nothing was made yet, so that a mistake in its settings leaves nothing behind."""
        if not any(self.path.rglob("*.png")) and not self.shards():
            for name in ("run.json", "tasks.jsonl", ".lock"):
                (self.path / name).unlink(missing_ok=True)
            if not any(self.path.iterdir()):
                self.path.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder: two commands never write into one run at a time.

        Raises:
            DataError: another process holds it.
        """
        from filelock import FileLock, Timeout

        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise DataError(
                f"{self.path} is in use by another t2iprobe command: wait for it, or give another --out"
            ) from None
        try:
            if self.manifest_path.exists():  # never in a folder of something else
                for leftover in self.path.rglob(
                    ".*.part"
                ):  # of a run that was killed while writing
                    leftover.unlink()
            yield
        finally:
            lock.release()


def intact_png(path: Path) -> bool:
    """Whether a PNG is there and whole; a file cut short by a full disk or a kill is not."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
    except (OSError, SyntaxError):
        return False
    return True


def versions() -> dict[str, str | None]:
    """The version of Python and of every package that can change a number; None for one that is not installed."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_commit() -> str | None:
    """The commit of the checkout this package runs from; None for an installed package."""
    source = Path(__file__).parent.parent
    try:
        log = subprocess.run(
            ["git", "-C", str(source), "log", "-1", "--format=%H", "--", str(source)],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return log.stdout.strip() or None
