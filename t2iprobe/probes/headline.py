"""The headline site, by a rule fixed before looking: chosen on half the folds, valued on the rest.

The best of many sites looks better than it is. So the folds are cut into two halves by their
number; the best candidate of the first half is valued on the second and the best of the second on
the first; the headline R2 is the mean of these two values. The site that the report names is the
one chosen on the first half. Ties go to the earlier candidate, undefined candidates are passed
over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Bool, Integer

from t2iprobe.probes.decodability import TaskDecodability

Candidate = TypeVar("Candidate")
"""What stands for a candidate, such as its name or its `t2iprobe.places.Place`."""


@dataclass(frozen=True)
class Choice(Generic[Candidate]):
    """The chosen site and its value.

    Attributes:
        site: chosen on the first half; None when no candidate is defined on both halves.
        other_site: chosen on the second half; the choice is stable when it is the same.
        r2: mean of the value of `site` on the second half and of `other_site` on the first; NaN with a reason when
            undefined.
        n_candidates: how many were defined on both halves.
        reason: why `r2` is undefined.
    """

    site: Candidate | None
    other_site: Candidate | None
    r2: float
    n_candidates: int
    reason: str = ""


def choose_headline(r2: Mapping[Candidate, tuple[float, float]]) -> Choice[Candidate]:
    """The headline site from the R2 of every candidate on both halves of the folds.

    Example:
        >>> chosen = choose_headline({"a@0": (0.9, 0.5), "b@0": (0.8, 0.7)})
        >>> chosen.site, chosen.other_site, round(chosen.r2, 3)
        ('a@0', 'b@0', 0.65)
    """
    defined = {site: pair for site, pair in r2.items() if not np.isnan(pair).any()}
    if not defined:
        return Choice(None, None, nan, 0, f"none of {len(r2)} candidates is defined on both halves")
    site = max(defined, key=lambda candidate: defined[candidate][0])
    other = max(defined, key=lambda candidate: defined[candidate][1])
    second, first = defined[site][1], defined[other][0]
    return Choice(site, other, (second + first) / 2, len(defined))


def first_half(folds: Integer[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Which rows are in the first half of the folds (the larger one when their number is odd)."""
    labels, fold = np.unique(folds, return_inverse=True)
    return np.asarray(fold < (len(labels) + 1) // 2)


def half_r2(
    tasks: TaskDecodability, first: Bool[np.ndarray, " t"], groups: Sequence[str]
) -> tuple[float, float]:
    """R2 of some groups together over the tasks of each half; NaN where a half has nothing to explain.

    Args:
        tasks: of one site.
        first: (t,) whether each task is in the first half of the folds.
        groups: names of `tasks.groups`.
    """
    at = [tasks.groups.index(group) for group in groups]
    values = []
    for half in (first, ~first):
        total = float(tasks.total[half][:, at].sum())
        residual = float(tasks.residual[half][:, at].sum())
        values.append(1.0 - residual / total if total > 0 else nan)
    return values[0], values[1]
