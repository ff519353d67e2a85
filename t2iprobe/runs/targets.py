"""What the probes of a run predict: every applicable coding side by side, with shuffled copies as a control."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from t2iprobe.families.codings import applicable, encode
from t2iprobe.probes.controls import SHUFFLED, with_controls
from t2iprobe.runs.run_tasks import RunTasks

ALL = "all"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Target columns of one constituent in one coding."""

    coding: str
    constituent: str

    @property
    def name(self) -> str:
        """The name of the group among all columns."""
        return f"{self.coding}/{self.constituent}"


@dataclass(frozen=True)
class Targets:
    """What the probes predict, one row for each image, shuffled copies last.

    Attributes:
        Y: (n, 2c) targets.
        column_groups: group name of each column.
        groups: the groups without the shuffled ones.
        task_ids: (n,) task of each image.
        folds: (n,) fold of each image.
    """

    Y: Array
    column_groups: tuple[str, ...]
    groups: tuple[Group, ...]
    task_ids: list[str]
    folds: NDArray[np.int64]

    @classmethod
    def of(cls, drawn: RunTasks, task_ids: list[str], seed: int) -> "Targets":
        """Every applicable coding of the tasks behind the images."""
        row = {task.id: i for i, task in enumerate(drawn.tasks)}
        images = np.array([row[task_id] for task_id in task_ids])
        blocks, labels = [], []
        for coding in applicable(drawn.family):
            targets = encode(drawn.family, drawn.tasks, coding)
            blocks.append(targets.matrix.astype(np.float64))
            labels += [Group(coding, name) for name in targets.constituents]
        Y = np.concatenate(blocks, axis=1)[images]
        Y, names = with_controls(Y, [group.name for group in labels], task_ids, seed)
        folds = np.array(drawn.folds)[images]
        return cls(Y, names, tuple(dict.fromkeys(labels)), task_ids, folds)

    def columns(self, names: set[str]) -> NDArray[np.intp]:
        """Positions of the columns of some groups, with their shuffled copies."""
        wanted = names | {SHUFFLED + name for name in names}
        return np.flatnonzero([name in wanted for name in self.column_groups])

    def of_coding(self, coding: str) -> list[str]:
        """The names of the groups of a coding."""
        return [group.name for group in self.groups if group.coding == coding]
