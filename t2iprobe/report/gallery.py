"""The images a reader should look at: the tasks that went worst and best, with what the scorer said."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from t2iprobe.report.layers import ordered
from t2iprobe.report.reading import RunData, TaskPoint
from t2iprobe.runs.records import ScoreRow, TaskRow

N_TASKS, N_IMAGES, LARGEST = 6, 4, 256
MARKS = {True: "✓", False: "✗", None: "–"}
SPOKEN = {True: "right", False: "not right", None: "cannot be told"}


@dataclass(frozen=True)
class Shot:
    """One image: a data URI (None when the file is gone) and its outcome."""

    uri: str | None
    outcome: str
    index: int


@dataclass(frozen=True)
class Said:
    """What the scorer said, and of which images."""

    outcome: str
    reason: str
    images: str


@dataclass(frozen=True)
class Tick:
    """One constituent over the images of a task: what was asked, and a mark with its spoken form per image."""

    constituent: str
    asked: str
    marks: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Exhibit:
    """One task of the gallery."""

    task: TaskRow
    success: float | None
    decodability: float | None
    shots: tuple[Shot, ...]
    ticks: tuple[Tick, ...]
    said: tuple[Said, ...]


def choose(
    rows: Sequence[TaskPoint], n_tasks: int = N_TASKS
) -> tuple[list[TaskPoint], list[TaskPoint]]:
    """The worst and the best tasks by success, ties by decodability (lowest first, highest first), then by id.

    A task without a failure is never among the worst, one without a success never among the best, and none is in both:
    with few tasks the best list gets what the worst list leaves.
    """
    scored = [(row.success, _known(row), row) for row in rows if row.success is not None]
    failed = [item for item in scored if item[0] < 1.0]
    failed.sort(key=lambda item: (item[0], item[1], item[2].task_id))
    worst = [row for _, _, row in failed[: min(n_tasks, (len(scored) + 1) // 2)]]
    rest = [item for item in scored if item[0] > 0.0 and item[2] not in worst]
    rest.sort(key=lambda item: (-item[0], -item[1], item[2].task_id))
    return worst, [row for _, _, row in rest[:n_tasks]]


def exhibit(run: RunData, row: TaskPoint) -> Exhibit:
    """One task with its images and marks."""
    task = next(task for task in run.tasks if task.id == row.task_id)
    scores = sorted(
        (s for s in run.scores if s.task_id == row.task_id), key=lambda score: score.image_index
    )
    scores = scores[:N_IMAGES]
    return Exhibit(
        task=task,
        success=row.success,
        decodability=row.decodability,
        shots=tuple(_shot(run, score) for score in scores),
        ticks=tuple(_ticks(task, scores)),
        said=tuple(_said(scores)),
    )


def data_uri(path: Path) -> str | None:
    """The image at most 256 pixels wide and high as a data URI; None when the file is missing or broken.

    Small images stay PNG; larger ones, where PNG would make the page heavy, become JPEG.
    """
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    except (FileNotFoundError, UnidentifiedImageError, OSError):
        return None
    large = max(image.size) > LARGEST
    if large:
        image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG" if large else "PNG", **({"quality": 88} if large else {}))
    kind = "jpeg" if large else "png"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def _shot(run: RunData, score: ScoreRow) -> Shot:
    uri = data_uri(run.image(score.task_id, score.image_index))
    return Shot(uri, score.outcome, score.image_index)


def _said(scores: Sequence[ScoreRow]) -> list[Said]:
    """Equal verdicts once, with the images they are about."""
    kinds = ordered((score.outcome, score.reason) for score in scores)
    return [
        Said(
            outcome,
            reason,
            ", ".join(
                str(s.image_index) for s in scores if (s.outcome, s.reason) == (outcome, reason)
            ),
        )
        for outcome, reason in kinds
    ]


def _ticks(task: TaskRow, scores: Sequence[ScoreRow]) -> list[Tick]:
    names = ordered(name for score in scores for name in score.constituents)
    return [
        Tick(
            constituent=name,
            asked=task.values.get(name, ""),
            marks=tuple(
                (MARKS[score.constituents.get(name)], SPOKEN[score.constituents.get(name)])
                for score in scores
            ),
        )
        for name in names
    ]


def _known(row: TaskPoint) -> float:
    return 0.0 if row.decodability is None else row.decodability
