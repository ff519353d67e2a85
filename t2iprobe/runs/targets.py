"""What the probes of a run predict: every applicable coding side by side, with shuffled copies as a control.

Where a text encoder cut the prompts, targets that speak of what it lost are left out (`Cuts`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t2iprobe.families.codings import applicable, encode
from t2iprobe.places import Place
from t2iprobe.probes.controls import SHUFFLED, with_controls
from t2iprobe.runs.outcomes import slots_behind
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


@dataclass(frozen=True)
class Lost:
    """What is lost at a site.

    Attributes:
        rows: group name -> (n images,) whether the prompt was cut before something that the group speaks of. Only
            groups of which something is lost.
        before: group name -> the constituents that were cut off, for a sentence.
    """

    rows: Mapping[str, NDArray[np.bool_]]
    before: Mapping[str, str]


NOTHING_LOST = Lost({}, {})


class Cuts:
    """What the text encoders of a run cut off, for every place.

    What a denoiser receives, its conditioning, lacks what every encoder lost. Where only some of them lost it, nothing
    tells by which of them the denoiser is fed, and nothing is taken for lost.

    Args:
        drawn: the tasks of the run.
        encoders: task id -> what each text encoder made of its prompt, as `ActivationReader.encoders` gives it.
        targets: what the probes predict.
    """

    def __init__(
        self, drawn: RunTasks, encoders: Mapping[str, Mapping[str, Any]], targets: Targets
    ) -> None:
        self._drawn, self._targets = drawn, targets
        self._lost = {task: found.get("lost", {}) for task, found in encoders.items()}
        self._names = {name for found in encoders.values() for name in found.get("tokens", {})}
        self._of = cache(self._look_up)

    def of(self, place: Place) -> Lost:
        """What is lost at a place; nothing in the streams of a denoiser."""
        if place.site.component in self._names:
            return self._of((place.site.component,))
        return self._of(tuple(sorted(self._names)) if place.site.is_conditioning else ())

    def _look_up(self, encoders: tuple[str, ...]) -> Lost:
        """What all of some encoders lost."""
        gone = {
            task: set.intersection(*(set(lost.get(name, ())) for name in encoders))
            for task, lost in self._lost.items()
            if encoders
        }
        family = self._drawn.family
        rows, before = {}, {}
        for group in self._targets.groups if any(gone.values()) else ():
            missing = {
                task.id: [
                    slot
                    for slot in slots_behind(family, task, group.coding, group.constituent)
                    if slot in gone[task.id]
                ]
                for task in self._drawn.tasks
            }
            cut = np.array([bool(missing[task]) for task in self._targets.task_ids])
            if cut.any():
                rows[group.name] = cut
                parts = dict.fromkeys(slot for slots in missing.values() for slot in slots)
                before[group.name] = " or ".join(parts)
        return Lost(rows, before)
