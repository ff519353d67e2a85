"""Pearson and Spearman correlation and the AUROC, each with an interval and a p-value by task."""

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Shaped
from scipy.stats import rankdata

from t2iprobe.errors import DataError
from t2iprobe.stats.estimate import Estimate, undefined
from t2iprobe.stats.intervals import MIN_UNITS, N_RESAMPLES, bootstrap_interval, fisher_interval
from t2iprobe.stats.permutation import permutation_test
from t2iprobe.stats.resampling import Draws

Interval = Literal["auto", "bootstrap", "fisher"]
N_PERMUTATIONS = 9999
_FEW_UNITS = 10  # below this the bootstrap of a correlation is too narrow; Fisher's z is used


class Settings(TypedDict, total=False):
    """Keyword arguments of `spearman` and `pearson`.

    Attributes:
        units: (n,) unit of each row when a unit has several; units are resampled and permuted
            whole. Default: a row is a unit.
        unit: name of the unit. Default: "task".
        seed: run seed of bootstrap and permutation. Default: 0.
        interval: "bootstrap" (percentile, by unit), "fisher" (z, standard error 1 / sqrt(n - 3),
            approximate), or "auto" (the default): Fisher's below 10 units, where a bootstrap is too
            narrow, and when the rows are units; else bootstrap.
        n_resamples: bootstrap resamples. Default: `N_RESAMPLES`.
        n_permutations: random permutations for p; all are tried when there are at most 8!.
        names: what x and y are called where the reason speaks of them. Default: "x" and "y".
    """

    units: Sequence[object] | None
    unit: str
    seed: int
    interval: Interval
    n_resamples: int
    n_permutations: int
    names: tuple[str, str]


Rows = Float[np.ndarray, "b n"]


def average_ranks(x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Ranks along the last axis, 1 for the smallest; equal values share the mean of their ranks."""
    return np.asarray(rankdata(x, axis=-1), dtype=np.float64)


def row_correlation(x: Rows, y: Rows) -> Float[np.ndarray, " b"]:
    """Pearson correlation of each row of x with the same row of y; NaN where one is constant."""
    x0 = x - x.mean(axis=-1, keepdims=True)
    y0 = y - y.mean(axis=-1, keepdims=True)
    varies = (np.ptp(x, axis=-1) > 0) & (np.ptp(y, axis=-1) > 0)
    norm = np.sqrt(np.square(x0).sum(axis=-1) * np.square(y0).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.where(varies & (norm > 0), (x0 * y0).sum(axis=-1) / norm, np.nan)
    return np.asarray(np.clip(r, -1.0, 1.0))


def row_auroc(scores: Rows, labels: Rows) -> Float[np.ndarray, " b"]:
    """AUROC of each row: share of (positive, negative) pairs in order, ties half."""
    positive = labels > 0.5
    n1 = positive.sum(axis=-1).astype(np.float64)
    n0 = labels.shape[-1] - n1
    above = (average_ranks(scores) * positive).sum(axis=-1) - n1 * (n1 + 1) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where((n1 > 0) & (n0 > 0), above / (n1 * n0), np.nan))


def pearson(x: npt.ArrayLike, y: npt.ArrayLike, **settings: Unpack[Settings]) -> Estimate:
    """Pearson correlation; arguments as in `spearman`."""
    return _correlation("Pearson", x, y, **settings)


def spearman(x: npt.ArrayLike, y: npt.ArrayLike, **settings: Unpack[Settings]) -> Estimate:
    """Spearman correlation: Pearson's of the average ranks, which is right with ties.

    Args:
        x: (n,) one value a row; rows with NaN in either are left out and counted in `reason`.
        y: (n,).
        **settings: see `Settings`.

    Returns:
        NaN with a reason for fewer than 2 rows or when x or y does not vary; no interval for 3
        units or fewer.

    Raises:
        DataError: x and y differ in length.

    Example:
        >>> round(spearman([0.5, 0.5, 0.6, 0.9], [0, 1, 1, 1]).value, 4)
        0.5443
    """
    return _correlation("Spearman", x, y, **settings)


def auroc(
    scores: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    units: Sequence[object] | None = None,
    unit: str = "task",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    n_permutations: int = N_PERMUTATIONS,
) -> Estimate:
    """AUROC of scores for labels 0 and 1; p tests 0.5. Other arguments as in `spearman`."""
    a, b, unit_of, note = _prepare(scores, labels, units)
    n_units = len(np.unique(unit_of))
    method = f"AUROC, ties half; 95% percentile bootstrap by {unit}"
    if not np.isin(b, (0.0, 1.0)).all():
        raise DataError("AUROC needs labels 0 and 1")
    if not len(b) or np.ptp(b) == 0:
        return undefined(_join("only one class of labels", note), n_units, unit, method)
    value = float(row_auroc(a[None, :], b[None, :])[0])
    ci, why = bootstrap_interval(
        lambda index: row_auroc(a[index], b[index]), unit_of, seed=seed, n_resamples=n_resamples
    )
    ranks = average_ranks(a)
    test = permutation_test(
        ranks - ranks.mean(), b, unit_of, n_permutations=n_permutations, seed=seed
    )
    method = f"{method}; {test.method}"
    return Estimate(value, ci, test.p, n_units, unit, method, _join(why, note), test.floor)


def _prepare(
    x: npt.ArrayLike, y: npt.ArrayLike, units: Sequence[object] | None
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Shaped[np.ndarray, " n"], str]:
    """Rows without NaN as float64, the unit number of each, and a note on the rows left out."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or (units is not None and len(units) != len(a)):
        raise DataError(
            f"x has shape {a.shape}, y {b.shape}: one value a row in each, and one unit a row"
        )
    number: dict[object, int] = {}
    labels: Sequence[object] = range(len(a)) if units is None else units
    unit_of = np.array([number.setdefault(label, len(number)) for label in labels], dtype=np.intp)
    used = ~(np.isnan(a) | np.isnan(b))
    missing = int((~used).sum())
    note = f"{missing} of {len(a)} rows undefined and left out" if missing else ""
    return a[used], b[used], unit_of[used], note


def _correlation(
    name: Literal["Pearson", "Spearman"],
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    units: Sequence[object] | None = None,
    unit: str = "task",
    seed: int = 0,
    interval: Interval = "auto",
    n_resamples: int = N_RESAMPLES,
    n_permutations: int = N_PERMUTATIONS,
    names: tuple[str, str] = ("x", "y"),
) -> Estimate:
    a, b, unit_of, note = _prepare(x, y, units)
    n_units = len(np.unique(unit_of))
    if len(a) < 2:
        return undefined(_join(f"{len(a)} rows, at least 2 are needed", note), n_units, unit, name)
    for values, which in zip((a, b), names, strict=True):
        if np.ptp(values) == 0:
            return undefined(_join(f"{which} does not vary", note), n_units, unit, name)
    scale: Callable[[Float[np.ndarray, ...]], Float[np.ndarray, ...]] = (
        average_ranks if name == "Spearman" else np.asarray
    )
    u, v = scale(a), scale(b)
    value = float(row_correlation(u[None, :], v[None, :])[0])
    test = permutation_test(
        u - u.mean(), v - v.mean(), unit_of, n_permutations=n_permutations, seed=seed
    )
    fisher = interval == "fisher" or (
        interval == "auto" and n_units < _FEW_UNITS and n_units == len(a)
    )
    if n_units < MIN_UNITS:
        ci, why, how = (
            None,
            f"no interval for {n_units} {unit}s (at least {MIN_UNITS})",
            "no interval",
        )
    elif fisher:
        ci, how = fisher_interval(value, n_units), "95% interval by Fisher's z"
        why = "" if ci else "no interval for a perfect correlation"
    else:

        def statistic(index: Draws) -> Float[np.ndarray, " b"]:
            return row_correlation(scale(a[index]), scale(b[index]))

        ci, why = bootstrap_interval(statistic, unit_of, seed=seed, n_resamples=n_resamples)
        how = f"95% percentile bootstrap by {unit}, {n_resamples} resamples"
    method = f"{name}; {how}; {test.method} by {unit}"
    return Estimate(value, ci, test.p, n_units, unit, method, _join(why, note), test.floor)


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
