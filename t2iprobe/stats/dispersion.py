"""Does success differ between tasks by more than chance, and how reliably is it measured?"""

from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Integer

from t2iprobe.errors import DataError
from t2iprobe.seeding import derive
from t2iprobe.stats.estimate import Estimate, undefined
from t2iprobe.stats.intervals import N_RESAMPLES, bootstrap_interval
from t2iprobe.stats.permutation import monte_carlo_p
from t2iprobe.stats.resampling import Draws


@dataclass(frozen=True)
class Dispersion:
    """Variation of success between tasks.

    Attributes:
        ratio: variance between tasks over that of a binomial with one common share, with the
            p-value of "no more than that"; 1 is what chance alone gives.
        sd: standard deviation of the tasks' true success, chance removed; 0 when the estimate of
            its square is negative.
        reliability: share of the variance of measured per-task success that is not chance, in [0,
            1]. No correlation with measured success can be expected beyond its square root.
    """

    ratio: Estimate
    sd: Estimate
    reliability: Estimate

    @property
    def differs(self) -> bool:
        """Whether success differs between tasks beyond chance, at 5%."""
        return self.ratio.p is not None and self.ratio.p <= 0.05


def overdispersion(
    successes: npt.ArrayLike,
    trials: npt.ArrayLike,
    *,
    seed: int = 0,
    n_permutations: int = 9999,
    n_resamples: int = N_RESAMPLES,
) -> Dispersion:
    """Test and size of the between-task variation of success, k in n images of each task.

    The statistic is X^2 / (t - 1), X^2 = sum_i (k_i - n_i s)^2 / (n_i s (1 - s)), s the overall
    share. Its null is exact given the total: the successes are dealt out to the images at random
    (multivariate hypergeometric), and p = (b + 1) / (m + 1). The variance of the true shares is
    estimated by that of k_i / n_i minus the mean of the unbiased binomial parts (k_i / n_i)(1 - k_i
    / n_i) / (n_i - 1), over tasks with at least 2 images.

    Args:
        successes: (t,) whole numbers.
        trials: (t,) scored images; tasks without any are left out.
        seed: run seed.
        n_permutations: random deals.
        n_resamples: bootstrap resamples of tasks for the two intervals.

    Raises:
        DataError: successes that are not between 0 and the trials.
    """
    k, n = np.asarray(successes), np.asarray(trials)
    if k.shape != n.shape or (k < 0).any() or (k > n).any() or (k != np.floor(k)).any():
        raise DataError("successes must be whole numbers between 0 and the trials of the same task")
    k, n = k[n > 0].astype(np.int64), n[n > 0].astype(np.int64)
    ratio = _ratio(k, n, seed, n_permutations)
    several = n > 1
    return Dispersion(ratio, *_moments(k[several], n[several], seed, n_resamples))


def _ratio(
    k: Integer[np.ndarray, " t"], n: Integer[np.ndarray, " t"], seed: int, n_permutations: int
) -> Estimate:
    method = f"Pearson X2 / (t - 1); Monte Carlo deals of the successes, {n_permutations} draws"
    if len(k) < 2:
        return undefined(f"{len(k)} tasks, at least 2 are needed", len(k), "task", method)
    share = float(k.sum() / n.sum())
    if share in (0.0, 1.0):
        return undefined(f"all tasks have success {share:.0f}", len(k), "task", method)
    rng = np.random.default_rng(derive("overdispersion", seed))
    deals = rng.multivariate_hypergeometric(
        n, int(k.sum()), size=n_permutations, method="marginals"
    )

    def statistic(counts: Integer[np.ndarray, "b t"]) -> Float[np.ndarray, " b"]:
        squares = np.square(counts - n * share) / (n * share * (1 - share))
        return np.asarray(squares.sum(axis=1) / (len(n) - 1))

    observed = float(statistic(k[None, :])[0])
    p = monte_carlo_p(observed, statistic(deals))
    floor = 1.0 / (n_permutations + 1)
    return Estimate(observed, None, p, len(k), "task", method, p_floor=floor)


def _moments(
    k: Integer[np.ndarray, " t"], n: Integer[np.ndarray, " t"], seed: int, n_resamples: int
) -> tuple[Estimate, Estimate]:
    method = f"moments; 95% percentile bootstrap over tasks, {n_resamples} resamples"
    if len(k) < 2:
        missing = undefined("at least 2 tasks with 2 images are needed", len(k), "task", method)
        return missing, missing
    share = k / n
    chance = share * (1 - share) / (n - 1)

    def parts(index: Draws) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
        observed = share[index].var(axis=1, ddof=1)
        return observed, np.maximum(observed - chance[index].mean(axis=1), 0.0)

    def sd(index: Draws) -> Float[np.ndarray, " b"]:
        return np.asarray(np.sqrt(parts(index)[1]))

    def reliability(index: Draws) -> Float[np.ndarray, " b"]:
        observed, true = parts(index)
        return np.asarray(true / np.where(observed > 0, observed, nan))

    everything = np.arange(len(k))
    observed, true = (float(part[0]) for part in parts(everything[None, :]))
    if observed == 0:
        reason = f"all tasks have success {share[0]:.3g}"
        return (
            Estimate(0.0, None, None, len(k), "task", method, reason),
            undefined(reason, len(k), "task", method),
        )
    estimates = []
    for statistic, value in ((sd, sqrt(true)), (reliability, true / observed)):
        ci, reason = bootstrap_interval(statistic, everything, seed=seed, n_resamples=n_resamples)
        estimates.append(Estimate(value, ci, None, len(k), "task", method, reason))
    return estimates[0], estimates[1]
