"""Within groups of tasks and over all of them, side by side: they may disagree (Simpson)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Integer

from t2iprobe.seeding import derive
from t2iprobe.stats.correlation import N_PERMUTATIONS, average_ranks, row_correlation, spearman
from t2iprobe.stats.estimate import Estimate, StatisticsWarning, undefined
from t2iprobe.stats.intervals import MIN_UNITS, N_RESAMPLES, percentile_interval
from t2iprobe.stats.permutation import permutation_test
from t2iprobe.stats.resampling import rows_by_unit


@dataclass(frozen=True)
class Stratified:
    """Spearman correlations within strata and pooled.

    Attributes:
        by_stratum: each stratum's own.
        within: the headline: the correlation of ranks taken, and centred, within strata.
        pooled: over all rows, strata ignored.
        warning: one sentence when `within` and `pooled` have opposite signs; else empty.
    """

    by_stratum: dict[str, Estimate]
    within: Estimate
    pooled: Estimate
    warning: str


def stratified_spearman(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    strata: Sequence[str],
    *,
    unit: str = "task",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    n_permutations: int = N_PERMUTATIONS,
) -> Stratified:
    """Correlation in each stratum, within all strata, and pooled; warns when the sign flips.

    The value within strata correlates ranks / (size + 1) - 1/2, taken in each stratum; a stratum
    that does not vary in x or y adds nothing. Its p-value permutes units within strata only, its
    interval resamples them within strata.

    Args:
        x: (n,) no NaN.
        y: (n,) no NaN.
        strata: (n,) stratum of each row.
        unit: name of the unit; a row is one.
        seed: run seed.
        n_resamples: bootstrap resamples.
        n_permutations: random permutations.
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    names = tuple(dict.fromkeys(strata))
    number = np.array([names.index(stratum) for stratum in strata], dtype=np.intp)

    def one(rows: Bool[np.ndarray, " n"]) -> Estimate:
        return spearman(
            a[rows],
            b[rows],
            unit=unit,
            seed=seed,
            n_resamples=n_resamples,
            n_permutations=n_permutations,
        )

    by_stratum = {name: one(number == s) for s, name in enumerate(names)}
    pooled = one(np.ones(len(a), dtype=bool))
    within = _within(a, b, number, unit, seed, n_resamples, n_permutations)
    warning = ""
    if within.value * pooled.value < 0:
        warning = (
            f"the sign flips: {within.value:+.3f} within {len(names)} strata, "
            f"{pooled.value:+.3f} pooled; the pooled value also compares strata with each other"
        )
        warnings.warn(warning, StatisticsWarning, stacklevel=2)
    return Stratified(by_stratum, within, pooled, warning)


def _within(
    a: Float[np.ndarray, " n"],
    b: Float[np.ndarray, " n"],
    number: Integer[np.ndarray, " n"],
    unit: str,
    seed: int,
    n_resamples: int,
    n_permutations: int,
) -> Estimate:
    blocks = rows_by_unit(number)
    method = f"Spearman within {len(blocks)} strata (ranks centred in each)"
    u, v = _ranks_within(a[None, :], b[None, :], blocks)
    value = float(row_correlation(u, v)[0])
    if np.isnan(value):
        return undefined("x or y does not vary inside any stratum", len(a), unit, method)
    test = permutation_test(
        u[0], v[0], np.arange(len(a)), n_permutations=n_permutations, seed=seed, strata=number
    )
    rng = np.random.default_rng(derive("bootstrap", seed))
    index = np.empty((n_resamples, len(a)), dtype=np.intp)
    for rows in blocks:
        index[:, rows] = rows[rng.integers(len(rows), size=(n_resamples, len(rows)))]
    draws = row_correlation(*_ranks_within(a[index], b[index], blocks))
    ci, reason = percentile_interval(draws)
    if max(len(rows) for rows in blocks) < MIN_UNITS:
        ci, reason = None, f"no interval for strata of fewer than {MIN_UNITS} {unit}s"
    method = f"{method}; 95% percentile bootstrap within strata; {test.method} within strata"
    return Estimate(value, ci, test.p, len(a), unit, method, reason, test.floor)


def _ranks_within(
    a: Float[np.ndarray, "b n"],
    b: Float[np.ndarray, "b n"],
    blocks: list[Integer[np.ndarray, " _"]],
) -> tuple[Float[np.ndarray, "b n"], Float[np.ndarray, "b n"]]:
    """Centred ranks in (-1/2, 1/2) inside each block; 0 where the block is constant in a or b."""
    u, v = np.zeros(a.shape), np.zeros(b.shape)
    for rows in blocks:
        varies = (np.ptp(a[:, rows], axis=1) > 0) & (np.ptp(b[:, rows], axis=1) > 0)
        for ranks, values in ((u, a), (v, b)):
            centred = average_ranks(values[:, rows]) / (len(rows) + 1) - 0.5
            ranks[:, rows] = np.where(varies[:, None], centred, 0.0)
    return u, v
