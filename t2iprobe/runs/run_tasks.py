"""Which tasks a run asks for, and how they are written to and read from the run folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from t2iprobe.errors import DataError
from t2iprobe.families.reading import Family, Task, load_family
from t2iprobe.families.sampling import draw_tasks
from t2iprobe.families.splits import fold_index, task_folds
from t2iprobe.models.cards import Card
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.progress import console
from t2iprobe.runs.records import TASKS, TaskRow, Tokens


@dataclass(frozen=True)
class RunTasks:
    """The tasks of a run, with the fold of each and how often its scene was seen in training (None: unknown)."""

    family: Family
    tasks: list[Task]
    folds: list[int]
    seen: list[int | None]

    @property
    def fold_overlap(self) -> int:
        """Number of scenes with tasks in more than one fold; 0 for every run."""
        folds: dict[str, set[int]] = {}
        for task, fold in zip(self.tasks, self.folds, strict=True):
            folds.setdefault(task.scene_id, set()).add(fold)
        return sum(len(found) > 1 for found in folds.values())


def draw(config: RunConfig, card: Card | None) -> RunTasks:
    """Draw the tasks a run asks for, over seen and unseen scenes where the model card says which they are."""
    family = load_family(config.family)
    counts = _scene_counts(family, card)
    tasks = draw_tasks(family, config.tasks, config.seed, counts)
    folds = fold_index(task_folds(tasks, config.folds, config.seed), len(tasks)).tolist()
    seen = [None if counts is None else counts[family.scene_index[t.scene_id]] for t in tasks]
    return RunTasks(family, tasks, folds, seen)


def restrict(drawn: RunTasks, ids: set[str], config: RunConfig) -> RunTasks:
    """Some tasks of a run, as if it had asked for them alone: folds are made anew.

    Raises:
        DataError: they are too few for the folds.
    """
    rows = [row for row, task in enumerate(drawn.tasks) if task.id in ids]
    if len(rows) == len(drawn.tasks):
        return drawn
    tasks = [drawn.tasks[row] for row in rows]
    folds = fold_index(task_folds(tasks, config.folds, config.seed), len(tasks)).tolist()
    return RunTasks(drawn.family, tasks, folds, [drawn.seen[row] for row in rows])


def can_be_probed(drawn: RunTasks, ids: set[str], config: RunConfig) -> bool:
    """Whether some tasks of a run are enough for its folds."""
    try:
        restrict(drawn, ids, config)
    except DataError:
        return False
    return True


def _scene_counts(family: Family, card: Card | None) -> tuple[int, ...] | None:
    if card is None:
        return None
    if card.family != family.name or len(card.scene_counts) != family.n_scenes:
        console.print(
            f"note: {card.name} was trained on the family {card.family}; nothing is known of how often it saw "
            f"{family.name}"
        )
        return None
    return card.scene_counts


def write(folder: RunFolder, drawn: RunTasks, encoders: Mapping[str, Mapping[str, Any]]) -> None:
    """Write tasks.jsonl.

    Args:
        folder: the run.
        drawn: its tasks.
        encoders: for each task id, what each text encoder made of the prompt: token spans, tokens lost.
    """
    rows = (
        TaskRow(
            id=task.id,
            prompt=task.prompt,
            values=task.values,
            scene=task.scene,
            scene_id=task.scene_id,
            fold=fold,
            seen=seen,
            spans=drawn.family.spans(task),
            encoders=Tokens(**encoders.get(task.id, {})),
        )
        for task, fold, seen in zip(drawn.tasks, drawn.folds, drawn.seen, strict=True)
    )
    TASKS.write(folder.path, rows)


def read(folder: RunFolder, config: RunConfig) -> RunTasks:
    """The tasks of a run folder."""
    family = load_family(config.family)
    rows = TASKS.read(folder.path)
    return RunTasks(
        family,
        [family.task(row.values) for row in rows],
        [row.fold for row in rows],
        [row.seen for row in rows],
    )
