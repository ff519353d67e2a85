"""Folds that ask for composition: combinations are new in the test part, their values are not.

`task_folds` keeps every scene (in all its wordings) on one side, and every value of every
constituent in every training part. `pair_folds` is stricter: the test part holds out value pairs of
one thing (every "red square", in whatever position). `declared_fold` holds out what the family
itself declares. All seeds of a task share its row, so they can never be on two sides.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from t2iprobe.errors import ConfigError, DataError, unknown
from t2iprobe.families.tasks import Family, Task
from t2iprobe.seeding import derive

_TRIES = 32

Mark = tuple[str, str, str]  # sense ("as worded" or "in the scene"), constituent, value


@dataclass(frozen=True)
class Fold:
    """One split. Indices are positions in the list of tasks, sorted.

    Attributes:
        train: tasks to fit on.
        test: tasks to predict; no task of them, no other wording of their scenes, is in `train`.
    """

    train: Int64[np.ndarray, " n_train"]
    test: Int64[np.ndarray, " n_test"]


def task_folds(tasks: Sequence[Task], n_folds: int, seed: int) -> list[Fold]:
    """Folds grouped by scene: every task is tested once, every value is in every training part.

    A value counts both as worded ("color1 is red") and in the scene ("the left object is red").
    Fold sizes differ by at most twice the largest number of given tasks that share a scene.

    Args:
        tasks: n tasks of one family.
        n_folds: 2 or more.
        seed: equal seeds give equal folds, whatever the order of the tasks.

    Raises:
        ConfigError: n_folds < 2.
        DataError: there are fewer scenes than folds, or some value cannot be in every training
            part; the text names the value, its count and what to change.
    """
    _check_n_folds(n_folds)
    scenes: dict[str, list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        scenes[task.scene_id].append(row)
    if len(scenes) < n_folds:
        raise DataError(
            f"{len(scenes)} scenes cannot make {n_folds} folds; draw more tasks or use fewer folds"
        )
    marks = {
        scene: sorted({mark for row in rows for mark in _marks(tasks[row])})
        for scene, rows in scenes.items()
    }
    counts = Counter(mark for found in marks.values() for mark in found)
    _refuse_single(counts, n_folds)
    fold_of = _assign(marks, {scene: len(rows) for scene, rows in scenes.items()}, n_folds, seed)
    fold = np.array([fold_of[task.scene_id] for task in tasks])
    return [Fold(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(n_folds)]


def pair_folds(
    family: Family, tasks: Sequence[Task], kinds: tuple[str, str], n_folds: int, seed: int
) -> list[Fold]:
    """Folds that hold out value pairs of one thing, e.g. every "red square" in whatever position.

    The pairs are dealt to folds like a Latin square, so that each value keeps other partners in
    training. A task with several things has several pairs; it is tested once, in the smallest fold
    that holds out one of them, and it is in the training part of exactly those folds that hold out
    none. So train and test together can be less than all tasks.

    Args:
        family: the tasks' family; its `binding` says which constituents are one thing.
        tasks: n tasks.
        kinds: two kinds that the family binds, e.g. ("color", "shape").
        n_folds: 2 or more.
        seed: equal seeds give equal folds.

    Raises:
        ConfigError: n_folds < 2, or the family does not bind these kinds.
        DataError: a training part would be empty or lack a value.
    """
    _check_n_folds(n_folds)
    bound = {"+".join(pair) for pair in family.bound_pairs}
    if "+".join(kinds) not in bound:
        raise ConfigError(f"{unknown('pair of kinds', '+'.join(kinds), bound)} (of {family.name})")
    fold_of = _deal_pairs(family, kinds, n_folds, seed)
    held = np.zeros((len(tasks), n_folds), dtype=bool)
    for row, task in enumerate(tasks):
        for pair in family.things(task.scene, kinds):
            held[row, fold_of[pair]] = True
    tested = _test_once(tasks, held, seed)
    folds = [Fold(np.flatnonzero(~held[:, f]), np.flatnonzero(tested == f)) for f in range(n_folds)]
    _require_values(tasks, folds)
    return folds


def declared_fold(family: Family, tasks: Sequence[Task]) -> Fold:
    """The split that the family declares under `hold_out`: training shows none of these.

    Raises:
        DataError: the family declares none, one part would be empty, or a value would be missing in
            training.
    """
    held = np.array([family.is_held_out(task) for task in tasks], dtype=bool)
    if not held.any() or held.all():
        raise DataError(
            f"{int(held.sum())} of {len(tasks)} tasks of {family.name!r} show a combination under "
            "hold_out; a split needs tasks on both sides"
        )
    fold = Fold(np.flatnonzero(~held), np.flatnonzero(held))
    _require_values(tasks, [fold])
    return fold


def scene_overlap(tasks: Sequence[Task], fold: Fold) -> int:
    """Number of scenes that are on both sides of a fold; 0 for every fold made here."""
    train, test = ({tasks[row].scene_id for row in part} for part in (fold.train, fold.test))
    return len(train & test)


def fold_index(folds: Sequence[Fold], n: int) -> Int64[np.ndarray, " n"]:
    """For each of n tasks the number of the fold that tests it, -1 where none does."""
    index = np.full(n, -1)
    for number, fold in enumerate(folds):
        index[fold.test] = number
    return index


def _check_n_folds(n_folds: int) -> None:
    if n_folds < 2:
        raise ConfigError(f"got {n_folds} folds; a split needs 2 or more")


def _marks(task: Task) -> Iterable[Mark]:
    yield from (("as worded", name, value) for name, value in task.values.items())
    yield from (("in the scene", name, value) for name, value in task.scene.items())


def _refuse_single(counts: Counter[Mark], n_folds: int) -> None:
    """A value that one scene alone has is missing in training when that scene is tested."""
    single = [mark for mark, count in sorted(counts.items()) if count < 2]
    if single:
        raise DataError(
            f"{_name(single[0])} is in 1 scene, and of {n_folds} folds none would have it in its "
            f"training part while that scene is tested{_more(single)}; draw more tasks or drop "
            "the value"
        )


def _name(mark: Mark) -> str:
    sense, constituent, value = mark
    return f"{constituent} = {value!r}{' (in the scene)' if sense == 'in the scene' else ''}"


def _more(marks: list[Mark]) -> str:
    rest = ", ".join(_name(mark) for mark in marks[1:4])
    dots = ", ..." if len(marks) > 4 else ""
    return f" ({len(marks) - 1} more: {rest}{dots})" if rest else ""


def _assign(
    marks: dict[str, list[Mark]], sizes: dict[str, int], n_folds: int, seed: int
) -> dict[str, int]:
    """A fold for every scene; several keyed tries, since a greedy deal can fail on small sets."""
    missing: list[Mark] = []
    for attempt in range(_TRIES):
        order = sorted(marks, key=lambda scene: derive("folds", seed, attempt, scene))
        fold_of = _deal_scenes(order, marks, sizes, n_folds)
        places: dict[Mark, set[int]] = defaultdict(set)
        for scene, found in marks.items():
            for mark in found:
                places[mark].add(fold_of[scene])
        missing = sorted(mark for mark, folds in places.items() if len(folds) < 2)
        if not missing:
            return fold_of
    raise DataError(
        f"no {n_folds} folds of {len(marks)} scenes found in {_TRIES} tries that keep "
        f"{_name(missing[0])} in every training part{_more(missing)}; draw more tasks or ask for "
        "another number of folds"
    )


def _deal_scenes(
    order: list[str], marks: dict[str, list[Mark]], sizes: dict[str, int], n_folds: int
) -> dict[str, int]:
    """Deal scenes, those with rare values first, to the fold that has least of their values.

    Cost of a fold: sum over the scene's values of (count in the fold / count in all), so rare
    values weigh most. Only folds whose size is at most the smallest size plus the largest scene are
    open.
    """
    total = Counter(mark for found in marks.values() for mark in found)
    column = {mark: i for i, mark in enumerate(total)}
    weight = np.array([1.0 / total[mark] for mark in total])
    share: Float64[np.ndarray, "n_folds n_marks"] = np.zeros((n_folds, len(total)))
    size = np.zeros(n_folds)
    slack = max(sizes.values())
    fold_of = {}
    for scene in sorted(order, key=lambda scene: min(total[mark] for mark in marks[scene])):
        columns = [column[mark] for mark in marks[scene]]
        cost = share[:, columns].sum(axis=1) + size * 1e-9
        cost[size > size.min() + slack] = np.inf
        fold = int(np.argmin(cost))
        share[fold, columns] += weight[columns]
        size[fold] += sizes[scene]
        fold_of[scene] = fold
    return fold_of


def _deal_pairs(
    family: Family, kinds: tuple[str, str], n_folds: int, seed: int
) -> dict[tuple[str, ...], int]:
    """Value pair -> fold: (i + j) mod n_folds over keyed orders of the two vocabularies."""
    values = {constituent.kind: constituent.values for constituent in family.constituents}
    rows, columns = (
        sorted(values[kind], key=lambda value: derive("pairs", seed, kind, value)) for kind in kinds
    )
    return {(a, b): (i + j) % n_folds for i, a in enumerate(rows) for j, b in enumerate(columns)}


def _test_once(
    tasks: Sequence[Task], held: Bool[np.ndarray, "n n_folds"], seed: int
) -> Int64[np.ndarray, " n"]:
    """For each task the fold that tests it: of those that hold out a pair of it, the smallest."""
    scenes: dict[str, list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        scenes[task.scene_id].append(row)
    tested = np.full(len(tasks), -1)
    size = np.zeros(held.shape[1])
    for scene in sorted(scenes, key=lambda scene: derive("pair test", seed, scene)):
        rows = scenes[scene]
        fold = int(np.argmin(np.where(held[rows[0]], size, np.inf)))
        tested[rows] = fold
        size[fold] += len(rows)
    return tested


def _require_values(tasks: Sequence[Task], folds: Sequence[Fold]) -> None:
    """Every value of the tasks is in every training part."""
    counts = Counter(mark for task in tasks for mark in _marks(task))
    for number, fold in enumerate(folds):
        missing = sorted(
            counts.keys() - {mark for row in fold.train for mark in _marks(tasks[row])}
        )
        if missing:
            raise DataError(
                f"{_name(missing[0])} ({counts[missing[0]]} tasks) is not in the training part of "
                f"fold {number}{_more(missing)}; draw more tasks, or change what is held out"
            )
