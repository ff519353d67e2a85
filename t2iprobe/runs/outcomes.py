"""Success and decodability of each task, side by side: what the statistics of a run work on."""

from collections import defaultdict
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from t2iprobe.families.reading import Family, Task
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.records import (
    DECODABILITY,
    HEADLINE,
    OUTCOMES,
    PROBES,
    SCORES,
    DecodabilityRow,
)
from t2iprobe.runs.run_tasks import RunTasks

Array = NDArray[np.float64]


class Draws(TypedDict):
    """How the statistics of a run draw their resamples."""

    seed: int
    n_resamples: int
    n_permutations: int


def draws(config: RunConfig) -> Draws:
    """The draws that a run's settings ask for."""
    return Draws(seed=config.seed, n_resamples=config.resamples, n_permutations=config.resamples)


@dataclass(frozen=True)
class Success:
    """How often the images of each task are right.

    Attributes:
        right: (t,) images in which every constituent is right.
        scored: (t,) images that could be judged.
        clean: (t,) images that show clean objects (right or wrong, not malformed).
    """

    right: NDArray[np.int64]
    scored: NDArray[np.int64]
    clean: NDArray[np.int64]

    @property
    def share(self) -> Array:
        """(t,) right among scored; NaN where nothing was scored."""
        return divide(self.right, self.scored)

    @property
    def share_of_clean(self) -> Array:
        """(t,) right among clean; NaN where nothing is clean."""
        return divide(self.right, self.clean)


class Outcomes:
    """The tables of a finished probe stage, joined by task in the order of the task list."""

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self._path = folder.path
        self.drawn: RunTasks = drawing.read(folder, config)
        self.scores = SCORES.read(folder.path)
        self._decodability: dict[tuple[str, str], dict[str, DecodabilityRow]] = defaultdict(dict)
        for row in DECODABILITY.read(folder.path):
            self._decodability[row.coding, row.constituent][row.task_id] = row

    @property
    def family(self) -> Family:
        """The family of the run."""
        return self.drawn.family

    @property
    def tasks(self) -> list[Task]:
        """The tasks of the run."""
        return self.drawn.tasks

    def counts(self) -> dict[str, int]:
        """How many images there are of each outcome."""
        return {outcome: sum(row.outcome == outcome for row in self.scores) for outcome in OUTCOMES}

    def success(self) -> Success:
        """Success of each task."""
        of_task: dict[str, dict[str, int]]
        of_task = {task.id: dict.fromkeys(OUTCOMES, 0) for task in self.tasks}
        for row in self.scores:
            of_task[row.task_id][row.outcome] += 1
        rows = [[of_task[task.id][outcome] for outcome in OUTCOMES] for task in self.tasks]
        counts = np.array(rows, dtype=np.int64)
        right, wrong, malformed = counts[:, 0], counts[:, 1], counts[:, 2]
        return Success(right, right + wrong + malformed, right + wrong)

    def constituent_success(self, coding: str, group: str) -> Array:
        """(t,) share of a task's images with the slots behind a target group right; NaN if none can tell."""
        hits: dict[str, list[bool]] = defaultdict(list)
        slots = {task.id: slots_behind(self.family, task, coding, group) for task in self.tasks}
        for row in self.scores:
            right = [row.constituents[slot] for slot in slots[row.task_id]]
            if None not in right:
                hits[row.task_id].append(all(right))
        return np.array([np.mean(hits[t.id]) if hits[t.id] else np.nan for t in self.tasks])

    def decodability(self, coding: str, group: str, column: str = "decodability") -> Array:
        """(t,) a column of decodability.parquet; NaN where it is undefined."""
        rows = self._decodability[coding, group]
        values = [
            getattr(rows[task.id], column) if task.id in rows else None for task in self.tasks
        ]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    def why_not_read(self, coding: str, group: str) -> str:
        """Why decodability is undefined in every task: what the probe at the headline site says."""
        at = HEADLINE.read(self._path).denoiser
        wanted = (coding, group, "image", at.site, at.pooling, at.step)
        for row in PROBES.read(self._path):
            place = (row.coding, row.constituent, row.stream, row.site, row.pooling, row.step)
            if row.reason and place == wanted:
                return row.reason
        return "it cannot be read in any task"

    def why_not_judged(self) -> str:
        """Why success, or what it is made of, is undefined in every task."""
        success = self.success()
        if not success.scored.any():
            return "no image could be scored"
        if not success.clean.any():
            return "no clean picture to judge"
        return "no picture in which it can be judged"

    def groups(self, coding: str) -> list[str]:
        """The target groups of a coding, without "all"."""
        return [group for name, group in self._decodability if name == coding and group != "all"]

    @property
    def codings(self) -> list[str]:
        """The codings that were probed."""
        return list(dict.fromkeys(coding for coding, _ in self._decodability))

    @property
    def seen(self) -> Array | None:
        """(t,) how often each task's scene was seen in training; None when nothing is known."""
        if any(count is None for count in self.drawn.seen):
            return None
        return np.array(self.drawn.seen, dtype=np.float64)


def slots_behind(family: Family, task: Task, coding: str, group: str) -> tuple[str, ...]:
    """The slots of the prompt that a target group speaks of.

    In the scene coding the colour of the left object is that of the object named second when the
    prompt says "right of".
    """
    if coding == "slot":
        return (group,)
    if coding == "scene":
        swap = {} if family.scene_rule is None or task.is_canonical else family.scene_rule.swap
        return (swap.get(group, group),)
    if coding == "presence":
        return family.kinds[group]
    first, second = group.split("+")
    return tuple(name for pair in family.bound_pairs[first, second] for name in pair)


def divide(numerator: NDArray[np.int64], denominator: NDArray[np.int64]) -> Array:
    """The ratio, NaN where the denominator is 0."""
    out = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out
