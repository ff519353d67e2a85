"""Which tasks a run asks for: a keyed sample in which every value occurs, and unseen scenes too.

The sample is an order over all tasks, cut after n: with the same seed a larger run begins with the
smaller one's tasks.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
from jaxtyping import Float64, Int64

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.families.tasks import Family, Task
from t2iprobe.seeding import derive

_QUANTILES = 5
_WINDOW = 512  # candidates for one draw: enough to balance, at a cost that does not grow


def draw_tasks(
    family: Family, n: int, seed: int, scene_counts: Sequence[int] | None = None
) -> list[Task]:
    """Different tasks, n of them: a prefix of what a larger n with the same seed gives.

    Scenes come once each in a random wording before any comes in its second wording. Each draw
    takes, among random candidates, the task whose values (as worded and in the scene) have been
    drawn least.

    Args:
        family: where tasks come from.
        n: how many, 1 to `family.n_tasks`.
        seed: the draw's seed.
        scene_counts: how often each scene of `family.scenes()` was seen in training, 0 = held out.
            With it draws alternate between unseen scenes and seen ones, and the seen ones go round
            the fifths of the counts; where one side runs out, the other goes on alone.

    Raises:
        ConfigError: n < 1 or larger than the family.
        DataError: scene_counts does not have one count >= 0 per scene.
    """
    if n < 1:
        raise ConfigError(f"got {n} tasks; ask for 1 to {family.n_tasks}")
    if n > family.n_tasks:
        raise ConfigError(
            f"got {n} tasks; the family {family.name!r} has {family.n_tasks}, the most to ask for"
        )
    balance = _Balance(family)
    drawn: list[Task] = []
    for tasks in _rounds(family, seed):
        pools = [_Pool(stratum, balance) for stratum in _strata(family, tasks, scene_counts)]
        for pool in _turns(pools):
            drawn.append(pool.draw())
            if len(drawn) == n:
                return drawn
    return drawn


def _rounds(family: Family, seed: int) -> Iterator[list[Task]]:
    """The first wording of every scene, then the second, each in keyed random order."""
    wordings: dict[str, deque[Task]] = defaultdict(deque)
    for task in sorted(family.tasks(), key=lambda task: derive("tasks", seed, task.id)):
        wordings[task.scene_id].append(task)
    while wordings:
        yield [left.popleft() for left in wordings.values()]
        wordings = {scene: left for scene, left in wordings.items() if left}


def _strata(
    family: Family, tasks: list[Task], scene_counts: Sequence[int] | None
) -> list[list[Task]]:
    """All tasks as one stratum, or those of unseen scenes and then fifths of the seen by count."""
    if scene_counts is None:
        return [tasks]
    if len(scene_counts) != family.n_scenes or min(scene_counts) < 0:
        raise DataError(
            f"got {len(scene_counts)} scene counts, the smallest {min(scene_counts, default=0)}; "
            f"the family {family.name!r} needs {family.n_scenes} counts >= 0, in scene order"
        )
    count = {task.id: scene_counts[family.scene_index[task.scene_id]] for task in tasks}
    by_count = sorted((task for task in tasks if count[task.id]), key=lambda task: count[task.id])
    fifth = {task.id: i * _QUANTILES // len(by_count) for i, task in enumerate(by_count)}
    strata: list[list[Task]] = [[] for _ in range(_QUANTILES + 1)]
    for task in tasks:
        strata[fifth.get(task.id, -1) + 1].append(task)
    return strata


def _turns(pools: list["_Pool"]) -> Iterator["_Pool"]:
    """Which stratum is next, until all are empty: by turns the first and one of the rest."""
    first, rest = pools[0], deque(pools[1:])
    for take_first in cycle((True, False)):
        while rest and not rest[0]:
            rest.popleft()
        if first and (take_first or not rest):
            yield first
        elif rest:
            yield rest[0]
            rest.rotate(-1)
        elif not first:
            return


class _Balance:
    """How often each value was drawn, in units of an even draw from its constituent."""

    def __init__(self, family: Family) -> None:
        marks = [
            (sense, c.name, value)
            for sense in range(2)
            for c in family.constituents
            for value in c.values
        ]
        self._columns = {mark: i for i, mark in enumerate(marks)}
        sizes = [len(c.values) for c in family.constituents for _ in c.values]
        self._unit: Float64[np.ndarray, " n_marks"] = np.array(sizes * 2, dtype=np.float64)
        self.load: Float64[np.ndarray, " n_marks"] = np.zeros(len(marks))

    def columns(self, task: Task) -> list[int]:
        """The marks of a task: its values as worded, then those of its scene."""
        worded = [self._columns[0, name, value] for name, value in task.values.items()]
        return worded + [self._columns[1, name, value] for name, value in task.scene.items()]

    def add(self, columns: Int64[np.ndarray, " n_values"]) -> None:
        """Count one drawn task."""
        self.load[columns] += self._unit[columns]


class _Pool:
    """A stratum's tasks in random order, from which the most needed of the first few is drawn."""

    def __init__(self, tasks: list[Task], balance: _Balance) -> None:
        self._tasks = tasks
        self._balance = balance
        self._columns = np.array([balance.columns(task) for task in tasks], dtype=np.int64)
        self._left = list(range(len(tasks)))

    def __bool__(self) -> bool:
        return bool(self._left)

    def draw(self) -> Task:
        """Remove and return one task; ties go to the earlier one in the random order."""
        window = self._left[:_WINDOW]
        need = self._balance.load[self._columns[window]].sum(axis=1)
        chosen = self._left.pop(int(np.argmin(need)))
        self._balance.add(self._columns[chosen])
        return self._tasks[chosen]
