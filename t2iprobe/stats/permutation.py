"""Permutation p-values. A Monte Carlo p is never 0: the observed arrangement counts as a draw."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from t2iprobe.seeding import derive
from t2iprobe.stats.resampling import Arrangements, arrangements


@dataclass(frozen=True)
class Permutation:
    """Result of a permutation test.

    Attributes:
        p: the p-value; None when no unit could be exchanged.
        floor: the smallest p this test could have given: 1 / (m + 1) for m random arrangements; for
            all of them, the share that reaches the most extreme statistic.
        n: how many arrangements were looked at.
        exact: whether these are all there are.
    """

    p: float | None
    floor: float | None
    n: int
    exact: bool

    @property
    def method(self) -> str:
        """The test in words."""
        if self.p is None:
            return "no permutation possible"
        return f"{'exact' if self.exact else 'Monte Carlo'} permutation, {self.n} arrangements"


def monte_carlo_p(observed: float, null: Float[np.ndarray, " m"]) -> float:
    """(b + 1) / (m + 1), b how many of the m null statistics are at least as large.

    Equal ones count, up to rounding (Phipson and Smyth 2010, *Permutation p-values should never be
    zero*).

    Example:
        >>> monte_carlo_p(1.0, np.zeros(99)), monte_carlo_p(0.0, np.zeros(999))
        (0.01, 1.0)
    """
    return float((_reached(null, observed).sum() + 1) / (len(null) + 1))


def _reached(null: Float[np.ndarray, "..."], observed: float) -> Shaped[np.ndarray, "..."]:
    scale = max(abs(observed), float(np.abs(null).max(initial=0.0)))
    return np.asarray(null >= observed - 1e-10 * scale)


def linear_null(
    a: Float[np.ndarray, "n m"], b: Float[np.ndarray, " n"], plan: Arrangements, seed: int
) -> Float[np.ndarray, "k m"]:
    """sum_i a_i b_pi(i) for every arrangement pi: the form of correlations and of the AUROC."""
    rng = np.random.default_rng(derive("permutation", seed))
    return np.concatenate([b[index] @ a for index in plan.chunks(rng)])


def permutation_test(
    a: Float[np.ndarray, " n"],
    b: Float[np.ndarray, " n"],
    units: Shaped[np.ndarray, " n"],
    *,
    n_permutations: int,
    seed: int,
    strata: Shaped[np.ndarray, " n"] | None = None,
) -> Permutation:
    """Two-sided test of sum_i a_i b_i against handing b to other units.

    Args:
        a: (n,) centred scores, or centred within strata.
        b: (n,) scores that are permuted.
        units: (n,) unit of each row; the rows of a unit move together.
        n_permutations: random arrangements when there are too many to try all.
        seed: run seed.
        strata: as in `arrangements`.
    """
    plan = arrangements(units, n_permutations, strata)
    if not plan.movable:
        return Permutation(None, None, 0, True)
    null = np.abs(linear_null(a[:, None], b, plan, seed)[:, 0])
    observed = abs(float(a @ b))
    if plan.exact:
        p = float(_reached(null, observed).mean())
        floor = float(_reached(null, float(null.max())).mean())
    else:
        p, floor = monte_carlo_p(observed, null), 1.0 / (plan.n + 1)
    return Permutation(p, floor, plan.n, plan.exact)
