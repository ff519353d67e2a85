"""The files that each stage left in a run folder, held against what lies there now."""

from collections.abc import Collection
from hashlib import blake2b
from pathlib import Path

from t2iprobe.errors import DataError
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.records import RESULTS

FILES = {
    stage: tuple(file.name for file in RESULTS if file.stage == stage)
    for stage in ("generate", "score", "probe", "correlate")
} | {"report": ("report.html",)}
"""Stage -> what it leaves. Images and shards are looked at by themselves; figures are in the report too."""


def digests(folder: RunFolder, stage: str) -> dict[str, str]:
    """File name -> hash of what a stage left; files that are not there are left out."""
    paths = [folder.path / name for name in FILES[stage]]
    return {
        path.name: blake2b(path.read_bytes(), digest_size=16).hexdigest()
        for path in paths
        if path.is_file()
    }


def changed(folder: RunFolder, stages: Collection[str] = tuple(FILES)) -> tuple[str, Path] | None:
    """The first stage with a file that is not as the stage left it, and that file; None where all are.

    A stage that has not finished is not looked at.
    """
    for stage in FILES:
        if stage in stages and folder.has_results(stage):
            now = digests(folder, stage)
            for name, before in folder.stage(stage).get("files", {}).items():
                if now.get(name) != before:
                    return stage, folder.path / name
    return None


def require_unchanged(folder: RunFolder, stages: Collection[str] = tuple(FILES)) -> None:
    """Nothing, when the files of some stages are as they were left.

    Raises:
        DataError: one is not; the line says what makes it again.
    """
    found = changed(folder, stages)
    if found is not None:
        stage, path = found
        again = f"t2iprobe {stage} {folder.path}"
        if stage == "generate":
            again = folder.manifest.get("command", "t2iprobe run")
        what = "was cut or changed" if path.exists() else "was removed"
        raise DataError(f"{path} {what} since the run wrote it: `{again}` makes it again")
