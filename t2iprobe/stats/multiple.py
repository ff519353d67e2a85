"""Many sites at once: p-values that stay honest when the best of them is looked at."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from t2iprobe.stats.correlation import N_PERMUTATIONS, average_ranks, row_correlation
from t2iprobe.stats.permutation import linear_null
from t2iprobe.stats.resampling import arrangements


def benjamini_hochberg(p: npt.ArrayLike) -> Float[np.ndarray, " m"]:
    """Adjusted p-values that control the false discovery rate (Benjamini and Hochberg 1995).

    Undefined ones (NaN) stay so and do not count among the tests.

    Example:
        >>> benjamini_hochberg([0.01, 0.02, float("nan"), 0.5]).round(3)
        array([0.03, 0.03,  nan, 0.5 ])
    """
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(-values[known], kind="stable")]
    m = len(order)
    scaled = values[order] * m / np.arange(m, 0, -1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return adjusted


@dataclass(frozen=True)
class MaxT:
    """Correlations of many sites with one outcome, with family-wise p-values.

    Attributes:
        values: (m,) Spearman correlations; NaN for a site that does not vary.
        p: (m,) unadjusted two-sided permutation p.
        p_adjusted: (m,) p of the largest |correlation| over all sites, at least `p`.
        floor: the smallest p this test could have given.
        n_sites: sites that are defined.
    """

    values: Float[np.ndarray, " m"]
    p: Float[np.ndarray, " m"]
    p_adjusted: Float[np.ndarray, " m"]
    floor: float
    n_sites: int


def max_t_adjusted(
    observed: Float[np.ndarray, " m"], null: Float[np.ndarray, "k m"]
) -> Float[np.ndarray, " m"]:
    """Single-step max-T p-values: (b + 1) / (k + 1), b the draws whose maximum reaches the site's.

    Westfall and Young (1993), algorithm 2.5, with the observed arrangement counted.

    Args:
        observed: statistics >= 0, larger is more extreme; NaN stays NaN.
        null: the same under k joint permutations of the outcome.
    """
    defined = ~np.isnan(observed)
    adjusted = np.full(observed.shape, np.nan)
    if defined.any():
        largest = null[:, defined].max(axis=1)
        reached = largest[:, None] >= observed[defined] * (1 - 1e-10)
        adjusted[defined] = (reached.sum(axis=0) + 1) / (len(null) + 1)
    return adjusted


def max_t_spearman(
    sites: Float[np.ndarray, "n m"],
    outcome: Float[np.ndarray, " n"],
    *,
    seed: int,
    n_permutations: int = N_PERMUTATIONS,
) -> MaxT:
    """Spearman of each site's decodability with success by task, adjusted for looking at all.

    One permutation of the tasks' outcomes serves all sites at once, so that their dependence is
    kept.

    Args:
        sites: (n, m) one column a site, one row a task; no NaN.
        outcome: (n,) no NaN.
        seed: run seed.
        n_permutations: random permutations; all are tried when there are at most 8!.
    """
    ranks, target = average_ranks(sites.T), average_ranks(outcome)
    values = row_correlation(ranks, np.broadcast_to(target, ranks.shape))
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norm = np.sqrt(np.square(centred).sum(axis=1) * np.square(target - target.mean()).sum())
    a = np.divide(centred.T, norm, out=np.zeros_like(centred.T), where=norm > 0)
    plan = arrangements(np.arange(len(outcome)), n_permutations)
    null = np.abs(linear_null(a, target, plan, seed))
    if plan.exact:
        null = null[1:]  # the first of all arrangements is the observed one, which is counted below
    observed = np.abs(values)
    hits = (null >= observed * (1 - 1e-10)).sum(axis=0)
    p = np.where(np.isnan(values), np.nan, (hits + 1) / (len(null) + 1))
    adjusted = max_t_adjusted(observed, null)
    return MaxT(values, p, adjusted, 1.0 / (len(null) + 1), int((~np.isnan(values)).sum()))
