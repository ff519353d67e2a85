"""Intervals, permutation p-values, many tests at once and over-dispersion."""

import numpy as np
import pytest
import scipy.stats

from t2iprobe.errors import DataError
from t2iprobe.stats import (
    benjamini_hochberg,
    bootstrap_interval,
    detectable_correlation,
    max_t_spearman,
    monte_carlo_p,
    overdispersion,
    spearman,
    split_half_r2,
    success_rate,
    wilson,
)


def test_wilson_never_has_width_zero():
    """Public bug reports, case 38: 12 of 12 and 0 of 10."""
    assert wilson(12, 12) == pytest.approx((0.7575, 1.0), abs=5e-5)
    assert wilson(0, 10) == pytest.approx((0.0, 0.278), abs=5e-4)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (12, 12), (499, 1000)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_wilson_equals_scipy(k, n, level):
    expected = scipy.stats.binomtest(k, n).proportion_ci(level, method="wilson")
    assert wilson(k, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_refuses_what_is_no_share():
    with pytest.raises(DataError, match="3 successes in 2 trials"):
        wilson(3, 2)
    with pytest.raises(DataError, match="trials > 0"):
        wilson(0, 0)


def test_success_rate_counts_tasks_not_images():
    """Public bug reports, case 38: the resampling unit is the prompt."""
    one = success_rate([1] * 12, [1] * 12)
    four = success_rate([4] * 12, [4] * 12)
    assert one.ci == four.ci == pytest.approx((0.7575, 1.0), abs=5e-5)
    assert (four.value, four.n, four.unit) == (1.0, 12, "task")
    assert "Wilson" in four.method
    alike = success_rate([4, 0] * 20, [4] * 40)  # images of a task agree: 40 trials, not 160
    assert alike.ci == pytest.approx(wilson(20 * 39 / 40, 39), abs=1e-3)
    spread = success_rate([2] * 40, [4] * 40)  # no variance between tasks: at most all images
    assert spread.ci == pytest.approx(wilson(80, 160))


def test_success_rate_without_images():
    assert np.isnan(success_rate([0, 0], [0, 0]).value)
    assert success_rate([0, 0], [0, 0]).reason == "no scored image in 2 tasks"
    some = success_rate([1, 0, 2], [2, 0, 2])
    assert some.value == 0.75
    assert some.n == 2
    assert some.reason == "tasks without a scored image left out: 1"


def test_success_rate_covers_when_tasks_differ():
    rng = np.random.default_rng(0)
    hits = naive_hits = 0
    for _ in range(300):
        k = rng.binomial(4, rng.beta(0.8, 0.4, size=48))
        ci = success_rate(k, np.full(48, 4)).ci
        hits += ci[0] <= 2 / 3 <= ci[1]
        naive = wilson(int(k.sum()), 4 * 48)
        naive_hits += naive[0] <= 2 / 3 <= naive[1]
    assert 0.92 <= hits / 300 <= 0.98
    assert naive_hits / 300 < 0.88


def test_monte_carlo_p():
    """Public bug reports, case 39: never 0; equal statistics count."""
    assert monte_carlo_p(1.0, np.zeros(99)) == 0.01
    assert monte_carlo_p(0.7, np.full(999, 0.7)) == 1.0
    assert monte_carlo_p(0.1 + 0.2, np.full(99, 0.3)) == 1.0  # equal but for rounding


def test_constant_labels_have_no_p_at_all():
    estimate = spearman(np.arange(20.0), np.ones(20))
    assert estimate.p is None
    assert estimate.reason


def test_bootstrap_interval_says_why_there_is_none():
    x = np.arange(12.0)
    ci, reason = bootstrap_interval(lambda i: x[i].mean(axis=1), np.arange(12), seed=0)
    se = x.std() / np.sqrt(12)
    assert ci == pytest.approx((5.5 - 1.96 * se, 5.5 + 1.96 * se), abs=0.15)
    assert reason == ""
    ci, reason = bootstrap_interval(lambda i: x[i].mean(axis=1), np.arange(12) // 4, seed=0)
    assert (ci, reason) == (None, "no interval for 3 units (at least 4)")
    ci, reason = bootstrap_interval(lambda i: np.ones(len(i)), np.arange(12), seed=0)
    assert (ci, reason) == (None, "no interval: every resample gives the same value")
    ci, reason = bootstrap_interval(lambda i: np.full(len(i), np.nan), np.arange(12), seed=0)
    assert (ci, reason) == (None, "no interval: 2000 of 2000 resamples are undefined")


def test_split_half_r2():
    rng = np.random.default_rng(0)
    total = np.ones(100)
    residual = np.stack([np.full(100, 0.5), np.full(100, 0.2)], axis=1) + rng.normal(
        0, 0.01, (100, 2)
    )
    first = np.arange(100) < 60
    estimate = split_half_r2(residual, total, first, seed=0)
    expected = (1 - residual[~first, 0].mean() + 1 - residual[first, 1].mean()) / 2
    assert estimate.value == pytest.approx(expected)
    assert estimate.ci[0] < expected < estimate.ci[1]
    assert estimate.ci[1] - estimate.ci[0] < 0.01
    few = split_half_r2(residual[:5], total[:5], np.arange(5) < 2, seed=0)
    assert few.ci is None
    assert few.reason == "too few tasks for an interval"


def test_benjamini_hochberg_equals_scipy_and_passes_undefined_over():
    p = np.random.default_rng(0).uniform(size=40) ** 3
    np.testing.assert_allclose(
        benjamini_hochberg(p), scipy.stats.false_discovery_control(p), atol=1e-12
    )
    with_holes = np.insert(p, [3, 17], np.nan)
    adjusted = benjamini_hochberg(with_holes)
    np.testing.assert_allclose(adjusted[~np.isnan(with_holes)], benjamini_hochberg(p))
    assert np.isnan(adjusted[[3, 18]]).all()


def test_max_t_is_family_wise_and_at_least_the_unadjusted():
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    sites = rng.normal(size=(60, 12))
    sites[:, 4] += 1.2 * y
    sites[:, 7] = 3.0
    result = max_t_spearman(sites, y, seed=0, n_permutations=999)
    assert result.values[4] == pytest.approx(scipy.stats.spearmanr(sites[:, 4], y).statistic)
    assert np.isnan(result.values[7])
    assert np.isnan(result.p_adjusted[7])
    assert result.n_sites == 11
    defined = np.arange(12) != 7
    assert (result.p_adjusted[defined] >= result.p[defined]).all()
    assert result.p_adjusted[4] == result.floor == 1 / 1000
    assert result.p_adjusted[defined].max() > 0.5


def test_max_t_holds_its_level_when_nothing_is_there():
    rng = np.random.default_rng(0)
    family = [
        np.min(
            max_t_spearman(
                rng.normal(size=(20, 8)), rng.normal(size=20), seed=s, n_permutations=199
            ).p_adjusted
        )
        for s in range(100)
    ]
    assert np.mean(np.array(family) <= 0.1) == pytest.approx(0.1, abs=0.09)


def test_max_t_of_one_site_is_spearmans_own_p_also_when_exact():
    x, y = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 3, 5, 4])
    result = max_t_spearman(x[:, None], y, seed=0)
    assert result.p_adjusted[0] == result.p[0] == pytest.approx(spearman(x, y).p)


def test_detectable_correlation_has_the_power_it_says():
    """Four times in five the test of a normal pair with this Spearman correlation is significant."""
    assert detectable_correlation(192) == pytest.approx(0.2066, abs=5e-4)
    assert np.isnan(detectable_correlation(3))
    rng = np.random.default_rng(0)
    for n in (40, 192):
        pearson = 2 * np.sin(np.pi * detectable_correlation(n) / 6)
        x = rng.normal(size=(2000, n))
        y = pearson * x + np.sqrt(1 - pearson**2) * rng.normal(size=(2000, n))
        ranks = [scipy.stats.rankdata(part, axis=1) for part in (x, y)]
        rho = scipy.stats.pearsonr(*ranks, axis=1).statistic
        p = 2 * scipy.stats.t.sf(np.abs(rho) * np.sqrt((n - 2) / (1 - rho**2)), n - 2)
        assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.03)


def test_detectable_correlation_holds_for_success_of_four_images():
    """Success of four images has many ties; the run's own permutation test still has the power."""
    n = 192
    least = detectable_correlation(n)
    rng = np.random.default_rng(1)
    edges = scipy.stats.norm.ppf([0.2, 0.4, 0.6, 0.8])

    def pair(weight: float, size: tuple[int, ...]):
        x = rng.normal(size=size)
        y = weight * x + np.sqrt(1 - weight**2) * rng.normal(size=size)
        return x, np.searchsorted(edges, y) / 4

    weights = np.linspace(0.15, 0.3, 16)
    found = [scipy.stats.spearmanr(*pair(w, (200_000,))).statistic for w in weights]
    weight = float(np.interp(least, found, weights))
    hits = [
        spearman(*pair(weight, (n,)), seed=s, n_permutations=199, n_resamples=99).p <= 0.05
        for s in range(400)
    ]
    assert np.mean(hits) == pytest.approx(0.8, abs=0.06)


def test_overdispersion_finds_nothing_in_binomial_success():
    rng = np.random.default_rng(0)
    found = [
        overdispersion(rng.binomial(4, 0.7, 60), np.full(60, 4), seed=s, n_permutations=199)
        for s in range(60)
    ]
    assert np.mean([d.differs for d in found]) <= 0.15
    assert np.mean([d.ratio.value for d in found]) == pytest.approx(1.0, abs=0.1)


def test_overdispersion_measures_the_spread_of_true_success():
    rng = np.random.default_rng(0)
    share = rng.beta(2, 1, size=2000)
    trials = rng.integers(2, 7, size=2000)
    result = overdispersion(rng.binomial(trials, share), trials, n_permutations=199)
    assert result.differs
    assert result.ratio.p == result.ratio.p_floor == 1 / 200
    assert result.sd.value == pytest.approx(np.sqrt(2 / 36), abs=0.015)
    assert result.sd.ci[0] < np.sqrt(2 / 36) < result.sd.ci[1]
    four = overdispersion(rng.binomial(4, share), np.full(2000, 4), n_permutations=9)
    chance = np.mean(share * (1 - share)) / 4
    assert four.reliability.value == pytest.approx(share.var() / (share.var() + chance), abs=0.04)


def test_overdispersion_test_equals_the_chi_square_test_for_many_images():
    rng = np.random.default_rng(2)
    trials = np.full(12, 200)
    k = rng.binomial(trials, rng.normal(0.5, 0.03, size=12))
    table = np.stack([k, trials - k])
    result = overdispersion(k, trials, n_permutations=4999)
    expected = scipy.stats.chi2_contingency(table, correction=False)
    assert result.ratio.value * 11 == pytest.approx(expected.statistic)
    assert result.ratio.p == pytest.approx(expected.pvalue, abs=0.02)


def test_overdispersion_undefined():
    everything = overdispersion([4, 4, 4], [4, 4, 4])
    assert everything.ratio.reason == "all tasks have success 1"
    assert everything.sd.value == 0.0
    assert np.isnan(everything.reliability.value)
    assert not everything.differs
    single = overdispersion([1, 0, 1, 1], [1, 1, 1, 1])
    assert single.reliability.reason == "at least 2 tasks with 2 images are needed"
    even = overdispersion([2, 2, 2, 1, 2, 3], [4] * 6)
    assert even.sd.value == 0.0
    assert even.reliability.value == 0.0
    with pytest.raises(DataError, match="between 0 and the trials"):
        overdispersion([5], [4])
