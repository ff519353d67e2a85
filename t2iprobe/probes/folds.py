"""Checks on folds: what belongs together stays together, and what can be scored is counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Integer, Shaped

from t2iprobe.errors import DataError


def check_groups(folds: Integer[np.ndarray, " n"], groups: Sequence[object]) -> None:
    """Nothing, when all rows of each group (images of a task, tasks of a scene) are in one fold.

    A text encoder gives the same activation for every seed of a prompt: rows of one task on both
    sides of a split let a probe look the answer up.

    Raises:
        DataError: a group is spread over several folds; the message names the first and counts
            them.
    """
    seen: dict[object, set[int]] = {}
    for fold, group in zip(folds.tolist(), groups, strict=True):
        seen.setdefault(group, set()).add(fold)
    spread = {group: found for group, found in seen.items() if len(found) > 1}
    if spread:
        group, found = next(iter(spread.items()))
        where = ", ".join(map(str, sorted(found)))
        raise DataError(
            f"{len(spread)} of {len(seen)} groups are on both sides of the split "
            f"(for example {group!r} in folds {where}): put all rows of a group in one fold"
        )


@dataclass(frozen=True)
class FoldReport:
    """Which folds can be scored, and why the others cannot.

    Attributes:
        usable: fold numbers with every class of the labels in training and at least two classes in
            test.
        excluded: fold number -> reason, with the class, its number of samples, and what to do.
    """

    usable: tuple[int, ...]
    excluded: dict[int, str]

    def __str__(self) -> str:
        reasons = "; ".join(f"fold {fold}: {reason}" for fold, reason in self.excluded.items())
        total = len(self.usable) + len(self.excluded)
        return f"{len(self.usable)} of {total} folds usable" + (f" ({reasons})" if reasons else "")


def fold_report(labels: Shaped[np.ndarray, " n"], folds: Integer[np.ndarray, " n"]) -> FoldReport:
    """Which folds can be scored for a classification of these labels.

    Example:
        >>> fold_report(np.array([0, 1, 0, 1, 1]), np.array([0, 0, 1, 1, 2])).excluded
        {2: 'only class 1 is in test: use fewer folds'}
    """
    classes, counts = np.unique(labels, return_counts=True)
    numbers = np.unique(folds)
    excluded: dict[int, str] = {}
    for fold in numbers.tolist():
        test: Bool[np.ndarray, " n"] = folds == fold
        missing = np.setdiff1d(classes, labels[~test])
        if len(missing):
            name, count = missing[0], int(counts[classes == missing[0]][0])
            samples = f"{count} sample{'s' if count > 1 else ''}, {len(numbers)} folds"
            excluded[fold] = (
                f"class {name} ({samples}) is not in training: use fewer folds or drop the class"
            )
        elif len(np.unique(labels[test])) < 2:
            excluded[fold] = f"only class {labels[test][0]} is in test: use fewer folds"
    usable = tuple(fold for fold in numbers.tolist() if fold not in excluded)
    return FoldReport(usable, excluded)
