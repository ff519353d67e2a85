"""Intervals for shares, correlations, ratios and anything that can be resampled by task."""

from collections.abc import Callable
from math import atanh, isnan, nan, sqrt, tanh

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Shaped
from scipy.special import ndtri

from t2iprobe.errors import DataError
from t2iprobe.seeding import derive
from t2iprobe.stats.estimate import Estimate, undefined
from t2iprobe.stats.resampling import Draws, bootstrap_values

MIN_UNITS = 4  # with 3 units or fewer an interval says nothing
N_RESAMPLES = 2000


def wilson(successes: int | float, trials: int | float, level: float = 0.95) -> tuple[float, float]:
    """Score interval of a share (Wilson 1927); never of width 0, also when all succeed or none.

    Args:
        successes: number of successes; need not be whole (effective numbers).
        trials: number of independent trials > 0.
        level: confidence level.

    Raises:
        DataError: no trial, or more successes than trials.

    Example:
        >>> [round(bound, 4) for bound in wilson(12, 12)]
        [0.7575, 1.0]
    """
    if not (trials > 0 and 0 <= successes <= trials):
        raise DataError(
            f"{successes} successes in {trials} trials: need 0 <= successes <= trials, trials > 0"
        )
    z2 = float(ndtri((1 + level) / 2)) ** 2
    share = successes / trials
    centre = share + z2 / (2 * trials)
    half = sqrt(z2 * (share * (1 - share) + z2 / (4 * trials)) / trials)
    low = 0.0 if successes == 0 else (centre - half) / (1 + z2 / trials)
    high = 1.0 if successes == trials else (centre + half) / (1 + z2 / trials)
    return low, high


def fisher_interval(r: int | float, n: int, level: float = 0.95) -> tuple[float, float] | None:
    """tanh(atanh(r) +- z / sqrt(n - 3)); None for n <= 3 or |r| = 1, where it is not defined.

    Example:
        >>> [round(bound, 3) for bound in fisher_interval(0.8, 4)]
        [-0.697, 0.996]
    """
    if n < MIN_UNITS or isnan(r) or abs(r) >= 1 - 1e-12:
        return None
    half = float(ndtri((1 + level) / 2)) / sqrt(n - 3)
    return tanh(atanh(r) - half), tanh(atanh(r) + half)


def bootstrap_interval(
    statistic: Callable[[Draws], Float[np.ndarray, " b"]],
    units: Shaped[np.ndarray, " n"],
    *,
    seed: int,
    n_resamples: int = N_RESAMPLES,
    level: float = 0.95,
) -> tuple[tuple[float, float] | None, str]:
    """Percentile interval over resamples of whole units, and the reason when there is none.

    Args:
        statistic: from a (b, n) matrix of row numbers to (b,) values, one a resample; NaN where
            undefined.
        units: (n,) unit (task) of each row.
        seed: run seed.
        n_resamples: number of resamples.
        level: confidence level.
    """
    n_units = len(np.unique(units))
    if n_units < MIN_UNITS:
        return None, f"no interval for {n_units} units (at least {MIN_UNITS})"
    rng = np.random.default_rng(derive("bootstrap", seed))
    values = bootstrap_values(statistic, units, n_resamples, rng)
    return percentile_interval(values, level)


def percentile_interval(
    draws: Float[np.ndarray, " b"], level: float = 0.95
) -> tuple[tuple[float, float] | None, str]:
    """Quantiles of the defined draws; None with a reason when most are not, or all are equal."""
    values = draws[~np.isnan(draws)]
    if len(values) < len(draws) / 2:
        return (
            None,
            f"no interval: {len(draws) - len(values)} of {len(draws)} resamples are undefined",
        )
    if np.ptp(values) < 1e-12:
        return None, "no interval: every resample gives the same value"
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return (float(low), float(high)), ""


def success_rate(
    successes: npt.ArrayLike, trials: npt.ArrayLike, *, level: float = 0.95, unit: str = "task"
) -> Estimate:
    """Share of successes over all tasks, with an interval that takes the task for the unit.

    Images of one task are alike, so the number of trials is divided by the design effect, the
    variance of the share between tasks over that of independent images (Rao and Scott 1992), and
    Wilson's interval is taken at this effective number. When all images succeed or none does,
    nothing is known of the variance, and the number of tasks is used.

    Args:
        successes: (t,) successes of each task.
        trials: (t,) scored images of each task; tasks without any are left out and counted in
            `reason`.
        level: confidence level.
        unit: name of the unit.
    """
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    scored = n > 0
    left_out = int((~scored).sum())
    reason = f"{unit}s without a scored image left out: {left_out}" if left_out else ""
    k, n = k[scored], n[scored]
    t, images = len(k), float(n.sum())
    method = f"Wilson {level:.0%} at the effective number of images, clustered by {unit}"
    if t == 0:
        return undefined(f"no scored image in {left_out} {unit}s", 0, unit, method)
    share = float(k.sum()) / images
    effective = float(t)
    if 0 < share < 1 and t > 1:
        variance = t / (t - 1) * float(np.square(k - share * n).sum()) / images**2
        effective = images if variance == 0 else min(images, share * (1 - share) / variance)
    return Estimate(
        share, wilson(share * effective, effective, level), None, t, unit, method, reason
    )


def split_half_r2(
    residual: Float[np.ndarray, "t 2"],
    total: Float[np.ndarray, " t"],
    first: Bool[np.ndarray, " t"],
    *,
    seed: int,
    n_resamples: int = N_RESAMPLES,
    level: float = 0.95,
) -> Estimate:
    """The headline R2 (`t2iprobe.probes.headline`) with a bootstrap interval by task.

    Each half is resampled in itself. The choice of sites is held fixed, so the interval is that of
    the value at the chosen sites.

    Args:
        residual: (t, 2) squared errors of each task at the site chosen on the first half and at the
            other one.
        total: (t,) the same around the training mean.
        first: (t,) whether a task is in the first half of the folds.
        seed: run seed.
        n_resamples: number of resamples.
        level: confidence level.
    """
    method = f"mean of two half-split R2; {level:.0%} percentile bootstrap over tasks"
    rng = np.random.default_rng(derive("bootstrap", seed))
    value, draws = 0.0, np.zeros(n_resamples)
    for column, half in ((0, ~first), (1, first)):
        r, s = residual[half, column], total[half]
        if not s.sum() > 0:
            return undefined(
                "a half of the folds has nothing to explain", len(total), "task", method
            )
        value += (1.0 - float(r.sum() / s.sum())) / 2
        index = rng.integers(len(s), size=(n_resamples, len(s)))
        draws += (1.0 - r[index].sum(axis=1) / s[index].sum(axis=1)) / 2
    if min(first.sum(), (~first).sum()) < MIN_UNITS:
        return Estimate(
            value, None, None, len(total), "task", method, "too few tasks for an interval"
        )
    ci, reason = percentile_interval(draws, level)
    return Estimate(value, ci, None, len(total), "task", method, reason)


def detectable_correlation(n: int, *, power: float = 0.8, level: float = 0.95) -> float:
    """The smallest Spearman correlation that n tasks find with this power, two-sided; NaN for n <= 3.

    By Fisher's z with the variance that Fieller, Hartley and Pearson (1957) give for ranks:
    tanh((z_(1+level)/2 + z_power) sqrt(1.06 / (n - 3))). If success is measured with reliability
    rho, the correlation with true success has to be larger still, by 1 / sqrt(rho) (Spearman's
    correction for attenuation).

    Example:
        >>> round(detectable_correlation(192), 3)
        0.207
    """
    if n < MIN_UNITS:
        return nan
    return tanh((float(ndtri((1 + level) / 2)) + float(ndtri(power))) * sqrt(1.06 / (n - 3)))
