"""Decodability: how well targets are predicted on rows a probe did not see. Undefined is NaN.

R2 is 1 - residual / total, summed over rows and over the columns of a group before dividing, with
the total taken around the mean of the *training* targets: 0 is a probe that knows nothing, 1 a
perfect one, and it is negative when a probe is worse than the training mean. It is never clipped
and never replaced by a squared correlation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, nan

import numpy as np
from jaxtyping import Float, Integer, Real

from t2iprobe.probes.columns import ALL, Columns


@dataclass(frozen=True)
class Score:
    """One value with the number of rows behind it; NaN with a reason where it is not defined."""

    value: float
    n: int
    reason: str = ""


def r2(
    target: Real[np.ndarray, "n c"],
    prediction: Float[np.ndarray, "n c"],
    baseline: Float[np.ndarray, "..."] | None = None,
) -> Score:
    """R2 pooled over the columns.

    Args:
        target: (n, c).
        prediction: (n, c); rows with NaN (folds that could not be used) are left out.
        baseline: (c,) or (n, c) training means. Default: the mean of `target` itself, as
            scikit-learn does.

    Returns:
        NaN with a reason when no column of the target varies (a constant target has no variance to
        explain).

    Example:
        >>> y = np.array([[1.0], [2.0], [3.0]])
        >>> r2(y, y[::-1]).value
        -3.0
    """
    used = ~np.isnan(prediction).any(axis=1)
    observed, predicted = target[used], prediction[used]
    n = len(observed)
    if n == 0:
        return Score(nan, 0, "no row could be predicted")
    if not np.ptp(observed, axis=0).any():
        return Score(nan, n, "the target is constant" if n > 1 else "a single row has no variance")
    mean = observed.mean(axis=0) if baseline is None else baseline
    around = mean[used] if mean.shape == target.shape else mean
    residual = float(np.square(observed - predicted).sum())
    return Score(1.0 - residual / float(np.square(observed - around).sum()), n)


@dataclass(frozen=True)
class Accuracy:
    """How often the right columns are highest, beside what needs no probe.

    Attributes:
        value: share of rows whose k highest columns are exactly the k true ones; argmax when the
            group is one-hot.
        balanced: mean over columns of the share of their true rows in which they are among the k
            highest; for a one-hot group the usual balanced accuracy.
        majority: share of the most frequent true set among these rows: what the best constant
            answer gets.
        chance: expected share of exact hits when k columns are drawn blindly.
        n: rows with at least one true column.
        reason: why the values are NaN.
    """

    value: float
    balanced: float
    majority: float
    chance: float
    n: int
    reason: str = ""


def accuracy(target: Real[np.ndarray, "n c"], prediction: Float[np.ndarray, "n c"]) -> Accuracy:
    """Exact-set accuracy of one group of 0/1 columns, one-hot or multi-hot.

    The number k of true columns is taken from the target (1 for one-hot groups; the number of
    values that occur for multi-hot ones), so no threshold has to be chosen, and `chance` and
    `majority` use the same k. Ties go to the first column. Rows without a true column or with a NaN
    prediction are left out.

    Returns:
        NaN with a reason when fewer than two different sets occur: a constant answer would be
        perfect.
    """
    used = (target > 0.5).any(axis=1) & ~np.isnan(prediction).any(axis=1)
    true = target[used] > 0.5
    n, c = true.shape
    if n == 0:
        return Accuracy(nan, nan, nan, nan, 0, "no row to score")
    sets, counts = np.unique(true, axis=0, return_counts=True)
    majority = float(counts.max() / n)
    k = true.sum(axis=1)
    chance = float(np.mean([1.0 / comb(c, int(size)) for size in k]))
    if len(sets) < 2:
        return Accuracy(nan, nan, majority, chance, n, "all rows have the same answer")
    order = np.argsort(-prediction[used], axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(c)[None, :], axis=1)
    found = rank < k[:, None]
    occurs = true.any(axis=0)
    recall = (found & true).sum(axis=0)[occurs] / true.sum(axis=0)[occurs]
    exact = float((found == true).all(axis=1).mean())
    return Accuracy(exact, float(recall.mean()), majority, chance, n)


@dataclass(frozen=True)
class TaskDecodability:
    """Decodability of each task: 1 - residual / total over the target entries of its rows.

    Attributes:
        tasks: (t,) names in order of first appearance.
        groups: (g + 1,) the column groups, then "all".
        residual: (t, g + 1) squared errors summed over the task's rows and the group's columns.
        total: (t, g + 1) the same around the training mean.
        n_rows: (t,) rows (images) behind each task.
    """

    tasks: tuple[str, ...]
    groups: tuple[str, ...]
    residual: Float[np.ndarray, "t g"]
    total: Float[np.ndarray, "t g"]
    n_rows: Integer[np.ndarray, " t"]

    @property
    def values(self) -> Float[np.ndarray, "t g"]:
        """(t, g + 1) decodability; NaN where there is nothing to explain or nothing predicted."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(self.total > 0, 1.0 - self.residual / self.total, nan))

    def of_group(self, name: str) -> Float[np.ndarray, " t"]:
        """(t,) decodability of each task for one group."""
        return np.asarray(self.values[:, self.groups.index(name)])

    @classmethod
    def joined(cls, parts: "Sequence[TaskDecodability]") -> "TaskDecodability":
        """The groups of several side by side, over the tasks that all of them have.

        Args:
            parts: at least one; of a group that is in several of them ("all") the first is kept.
        """
        common = [task for task in parts[0].tasks if all(task in part.tasks for part in parts)]
        at = [[part.tasks.index(task) for task in common] for part in parts]
        names = tuple(name for part in parts for name in part.groups)
        return cls(
            tuple(common),
            names,
            np.concatenate([p.residual[rows] for p, rows in zip(parts, at, strict=True)], axis=1),
            np.concatenate([p.total[rows] for p, rows in zip(parts, at, strict=True)], axis=1),
            parts[0].n_rows[at[0]],
        )


def per_task_decodability(
    target: Real[np.ndarray, "n c"],
    prediction: Float[np.ndarray, "n c"],
    baseline: Float[np.ndarray, "n c"],
    tasks: Sequence[str],
    columns: Columns,
) -> TaskDecodability:
    """Decodability of each task, pooled over its seeds and over the columns of each group.

    All columns of a group count, not only the task's true one, so that mistaking one value for
    another costs as much as missing it. A task's rows share their targets, so that it is the total
    around the training mean that says what there was to explain; each task counts once, however
    many images it has. The value of a whole set of tasks is not the mean of these values but 1 -
    sum of residuals / sum of totals.

    Args:
        target: (n, c).
        prediction: (n, c); entries that are NaN are left out.
        baseline: (n, c) training mean of each row's fold.
        tasks: (n,) task of each row.
        columns: the groups of columns.
    """
    number: dict[str, int] = {}
    index = np.array([number.setdefault(task, len(number)) for task in tasks], dtype=np.intp)
    used = ~np.isnan(prediction)
    whole = [] if columns.names == (ALL,) else [np.ones((target.shape[1], 1))]
    members = np.concatenate([columns.members, *whole], axis=1)
    shape = (len(number), members.shape[1])
    residual, total = np.zeros(shape), np.zeros(shape)
    np.add.at(residual, index, np.where(used, np.square(target - prediction), 0.0) @ members)
    np.add.at(total, index, np.where(used, np.square(target - baseline), 0.0) @ members)
    n_rows = np.bincount(index[used.any(axis=1)], minlength=len(number))
    names = columns.names if not whole else (*columns.names, ALL)
    return TaskDecodability(tuple(number), names, residual, total, n_rows)
