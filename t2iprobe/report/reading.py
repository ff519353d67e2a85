"""Everything a report needs of one run folder, as records; nothing here computes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2iprobe.errors import DataError
from t2iprobe.runs.folder import read_json
from t2iprobe.runs.records import (
    CORRELATION,
    DECODABILITY,
    HEADLINE,
    MANIFEST,
    PROBES,
    RESULTS,
    SCORES,
    SUMMARY,
    TASKS,
    Correlation,
    DecodabilityRow,
    Manifest,
    ProbeRow,
    ScoreRow,
    Summary,
    TaskRow,
)

STAGE_OF_FILE = {file.name: file.stage for file in RESULTS if file is not HEADLINE}
STAGES = ("generate", "score", "probe", "correlate")


@dataclass(frozen=True)
class TaskPoint:
    """One task as a point: decodability of all its parts, share of its scored images that are right, times seen."""

    task_id: str
    decodability: float | None
    success: float | None
    seen: int | None


@dataclass(frozen=True)
class RunData:
    """Everything a report needs of one run folder."""

    folder: Path
    run: Manifest
    summary: Summary
    correlation: Correlation
    tasks: tuple[TaskRow, ...]
    scores: tuple[ScoreRow, ...]
    probes: tuple[ProbeRow, ...]
    decodability: tuple[DecodabilityRow, ...]

    @property
    def running_order(self) -> tuple[str, ...]:
        """The sites in the order in which the model runs them; empty for a folder that does not say."""
        return () if self.run.capture is None else tuple(self.run.capture.sites)

    def image(self, task_id: str, image_index: int) -> Path:
        """Where the image lies (it may be missing: a run can drop its images)."""
        return self.folder / "images" / f"{task_id}-{image_index}.png"

    def task_points(self, coding: str) -> list[TaskPoint]:
        """Decodability of a coding and success of every task, in the order of the task list."""
        outcomes: dict[str, list[bool]] = {task.id: [] for task in self.tasks}
        for score in self.scores:
            if score.outcome != "unscored":
                outcomes.setdefault(score.task_id, []).append(score.outcome == "right")
        wanted = (
            row for row in self.decodability if row.coding == coding and row.constituent == "all"
        )
        read = {row.task_id: row.decodability for row in wanted}
        return [
            TaskPoint(
                task.id, read.get(task.id), sum(hits) / len(hits) if hits else None, task.seen
            )
            for task in self.tasks
            for hits in (outcomes[task.id],)
        ]


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        DataError: the file is absent, no JSON, or holds something else.
    """
    data = read_json(path)
    if not isinstance(data, dict):
        raise DataError(f"{path} holds a {type(data).__name__}, not an object: run its stage again")
    return data


def missing_stage(folder: Path, run: Mapping[str, Any]) -> str | None:
    """The first stage up to `correlate` that has not finished, by run.json and by the files; None when all have."""
    absent = {stage for name, stage in STAGE_OF_FILE.items() if not (folder / name).is_file()}
    for stage in STAGES:
        status = run.get("stages", {}).get(stage, {}).get("status")
        if stage in absent or status not in (None, "done", "stopped"):
            return stage
    return None


def require_run(folder: Path) -> dict[str, Any]:
    """The content of run.json of a folder.

    Raises:
        DataError: there is no such folder, or it is not a run folder.
    """
    if not folder.is_dir():
        what = "is a file, not a run folder" if folder.exists() else "does not exist"
        raise DataError(
            f"{folder} {what}: give the folder a run wrote (the --out of `t2iprobe run`)"
        )
    path = folder / "run.json"
    if not path.is_file():
        raise DataError(
            f"{folder} is not a run folder: it has no run.json; give the --out of `t2iprobe run`"
        )
    return read_object(path)


def read_run(folder: Path) -> RunData:
    """Everything a report needs.

    Raises:
        DataError: not a run folder, a stage that has not finished (named), or a malformed table.
    """
    require_run(folder)
    for name, stage in STAGE_OF_FILE.items():
        if not (folder / name).is_file():
            raise DataError(
                f"{folder} has no {name}: its stage '{stage}' has not finished; "
                "run `t2iprobe run` with the same --out and settings to continue"
            )
    return RunData(
        folder=folder,
        run=MANIFEST.read(folder),
        summary=SUMMARY.read(folder),
        correlation=CORRELATION.read(folder),
        tasks=tuple(TASKS.read(folder)),
        scores=tuple(SCORES.read(folder)),
        probes=tuple(PROBES.read(folder)),
        decodability=tuple(DECODABILITY.read(folder)),
    )
