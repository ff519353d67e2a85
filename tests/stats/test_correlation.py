"""Correlations and AUROC against scipy and scikit-learn, and the cases users reported."""

import warnings

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score

from t2iprobe.errors import DataError
from t2iprobe.stats import (
    StatisticsWarning,
    auroc,
    fisher_interval,
    pearson,
    spearman,
    stratified_spearman,
)
from t2iprobe.stats.correlation import row_correlation

FAST = {"n_resamples": 400, "n_permutations": 499}


@pytest.mark.parametrize(
    ("x", "y", "value"),
    [
        ([0.5, 0.5, 0.6, 0.9], [0, 1, 1, 1], 0.5443),
        ([2, 1, 1, 1, 1], [1, 2, 2, 2, 2], -1.0),
        ([2, 2, 3, 3, 2], [2, 3, 2, 2, 2], -0.4082),
    ],
)
def test_spearman_is_right_with_ties(x, y, value):
    """Public bug reports, case 36."""
    assert spearman(x, y).value == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize("seed", range(5))
def test_values_equal_scipy(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(5, size=40).astype(float), rng.integers(3, size=40).astype(float)
    assert spearman(x, y, **FAST).value == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    assert pearson(x, y, **FAST).value == pytest.approx(scipy.stats.pearsonr(x, y).statistic)
    labels = (y > 0).astype(float)
    assert auroc(x, labels, **FAST).value == pytest.approx(roc_auc_score(labels, x))


def test_two_rows_have_no_interval_and_p_one():
    """Public bug reports, case 37."""
    two = spearman([1, 2], [3, 4])
    assert (two.value, two.ci, two.p) == (1.0, None, 1.0)
    assert "2 tasks" in two.reason


def test_three_rows_have_no_interval():
    three = spearman([1, 2, 3], [1, 3, 2])
    assert three.value == pytest.approx(0.5)
    assert three.ci is None
    assert three.p == pytest.approx(1.0)  # |r| is 0.5 or 1 in all 6 orders
    assert spearman([1, 2, 3], [1, 2, 3]).p == pytest.approx(2 / 6)


def test_four_perfect_rows_have_the_exact_p():
    """Public bug reports, case 37: 2 / 24, not 0."""
    four = spearman([1, 2, 3, 4], [10, 20, 30, 40])
    assert four.value == 1.0
    assert four.p == pytest.approx(2 / 24)
    assert four.at_floor
    assert four.ci is None
    assert "perfect" in four.reason
    assert "smallest this test can give" in str(four)


def test_fisher_interval_of_four_rows():
    """Public bug reports, case 37: r = 0.8, n = 4."""
    four = spearman([1, 2, 3, 4], [1, 2, 4, 3])
    assert four.value == pytest.approx(0.8)
    assert four.ci == pytest.approx((-0.697, 0.996), abs=5e-4)
    assert "Fisher" in four.method
    assert fisher_interval(0.8, 3) is None
    assert fisher_interval(1.0, 10) is None


def test_fisher_interval_equals_scipy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=30)
    y = x + rng.normal(size=30)
    expected = scipy.stats.pearsonr(x, y).confidence_interval()
    ci = pearson(x, y, interval="fisher", **FAST).ci
    assert ci == pytest.approx((expected.low, expected.high), abs=1e-10)


def test_constant_layers_void_only_their_own_pairs():
    """Public bug reports, case 37: columns 0, 0, i, -i."""
    i = np.arange(10.0)
    rows = np.stack([0 * i, 0 * i, i, -i])
    matrix = np.stack([row_correlation(np.broadcast_to(row, rows.shape), rows) for row in rows])
    assert matrix[2, 3] == pytest.approx(-1.0)
    assert np.isnan(matrix[:2]).all()
    assert np.isnan(matrix[:, :2]).all()


def test_undefined_values_have_a_reason():
    constant = spearman([1, 2, 3, 4], [1, 1, 1, 1])
    assert np.isnan(constant.value)
    assert constant.p is None
    assert constant.reason == "y does not vary"
    assert str(constant) == "undefined (y does not vary)"
    named = spearman([1, 2, 3], [1, 1, 1], names=("decodability", "success"))
    assert named.reason == "success does not vary"
    assert spearman([], []).reason == "0 rows, at least 2 are needed"
    assert auroc([1, 2, 3], [1, 1, 1]).reason == "only one class of labels"


def test_undefined_rows_are_left_out_and_counted():
    nan = float("nan")
    estimate = spearman([1, 2, nan, 4, 5, 7], [1, 2, 3, 4, 5, nan])
    assert estimate.n == 4
    assert "2 of 6 rows undefined and left out" in estimate.reason


def test_exact_p_equals_scipys_enumeration():
    x, y = [1.0, 4, 2, 8, 5], [2.0, 3, 9, 7, 6]
    result = scipy.stats.permutation_test(
        (y,),
        lambda v: abs(scipy.stats.pearsonr(x, v).statistic),
        permutation_type="pairings",
        alternative="greater",
        n_resamples=np.inf,
    )
    assert pearson(x, y).p == pytest.approx(result.pvalue)


def test_monte_carlo_p_agrees_with_the_t_test_and_never_is_zero():
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    y = 0.3 * x + rng.normal(size=60)
    estimate = pearson(x, y, n_permutations=4999)
    assert estimate.p == pytest.approx(scipy.stats.pearsonr(x, y).pvalue, abs=0.02)
    sure = pearson(x, x + 0.01 * y, n_permutations=499)
    assert sure.p == 1 / 500 == sure.p_floor
    assert sure.at_floor
    assert "p <= 0.002" in str(sure)


def test_p_is_uniform_when_nothing_is_there():
    rng = np.random.default_rng(0)
    p = [
        spearman(rng.normal(size=20), rng.integers(5, size=20), n_resamples=2, n_permutations=199).p
        for _ in range(200)
    ]
    assert np.mean(np.array(p) <= 0.1) == pytest.approx(0.1, abs=0.06)


def test_images_of_a_task_are_not_independent():
    """With tasks as units, 8 copies of each row change neither p nor interval by much; as rows they would."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=25)
    y = 0.4 * x + rng.normal(size=25)
    tasks = np.repeat(np.arange(25), 8).tolist()
    alone = spearman(x, y, interval="bootstrap")
    copies = spearman(np.repeat(x, 8), np.repeat(y, 8), units=tasks)
    rows = spearman(np.repeat(x, 8), np.repeat(y, 8), **FAST)
    assert copies.n == 25
    assert copies.p == pytest.approx(alone.p, abs=0.02)
    assert copies.ci == pytest.approx(alone.ci, abs=1e-9)
    assert rows.p < copies.p / 4
    assert rows.ci[1] - rows.ci[0] < (copies.ci[1] - copies.ci[0]) / 2


def test_units_of_unequal_size_are_resampled_whole():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, size=30)
    tasks = np.repeat([f"t{t}" for t in range(30)], sizes).tolist()
    x = np.repeat(rng.normal(size=30), sizes)
    y = (x + rng.normal(size=len(x)) > 0).astype(float)
    estimate = auroc(x, y, units=tasks, **FAST)
    assert estimate.n == 30
    assert estimate.ci[0] < estimate.value < estimate.ci[1]
    assert estimate.p <= 0.01


def test_a_unit_that_cannot_be_exchanged_gives_no_p():
    estimate = pearson([1, 2, 3, 4, 6], [1, 2, 3, 5, 4], units=["a", "a", "b", "b", "b"])
    assert estimate.p is None
    assert "no permutation possible" in estimate.method


def test_bootstrap_interval_covers():
    rng = np.random.default_rng(1)
    true, hits = 0.5, 0
    for trial in range(100):
        x = rng.normal(size=60)
        y = true * x + np.sqrt(1 - true**2) * rng.normal(size=60)
        ci = pearson(x, y, interval="bootstrap", seed=trial, n_resamples=300, n_permutations=1).ci
        hits += ci[0] <= true <= ci[1]
    assert 86 <= hits <= 100


def test_same_seed_same_result():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50))
    assert spearman(x, y, seed=3, **FAST) == spearman(x, y, seed=3, **FAST)
    assert spearman(x, y, seed=3, **FAST).ci != spearman(x, y, seed=4, **FAST).ci


def test_simpsons_paradox_is_reported_with_the_value_within_types_in_front():
    """Public bug reports, case 41."""
    x = [0.90, 0.92, 0.94, 0.60, 0.62, 0.64]
    y = [0.10, 0.20, 0.30, 0.70, 0.80, 0.90]
    with pytest.warns(StatisticsWarning, match="sign flips"):
        result = stratified_spearman(x, y, ["A"] * 3 + ["B"] * 3)
    assert result.by_stratum["A"].value == pytest.approx(1.0)
    assert result.by_stratum["B"].value == pytest.approx(1.0)
    assert result.within.value == pytest.approx(1.0)
    assert result.pooled.value == pytest.approx(-0.543, abs=5e-4)
    assert "+1.000 within 2 strata, -0.543 pooled" in result.warning
    assert result.within.p == pytest.approx(2 / 36)
    assert result.within.ci is None


def test_strata_of_one_size_and_one_stratum_agree_with_spearman():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = stratified_spearman(x, y, ["A"] * 40, **FAST)
    assert one.within.value == pytest.approx(one.pooled.value)
    assert one.warning == ""
    assert one.within.ci[0] < one.within.value < one.within.ci[1]
    shifted = stratified_spearman(
        x + np.repeat([0, 99], 20), y + np.repeat([0, 99], 20), ["A"] * 20 + ["B"] * 20, **FAST
    )
    assert shifted.pooled.value > shifted.within.value


def test_a_constant_stratum_adds_nothing():
    x = [1.0, 2, 3, 4, 5, 6, 7, 8]
    y = [1.0, 2, 3, 4, 0, 0, 0, 0]
    with pytest.warns(StatisticsWarning, match="sign flips"):
        result = stratified_spearman(x, y, ["A"] * 4 + ["B"] * 4, **FAST)
    assert result.within.value == pytest.approx(1.0)
    assert result.by_stratum["B"].reason == "y does not vary"
    none = stratified_spearman([1.0, 2], [0.0, 0.0], ["A", "A"])
    assert none.within.reason == "x or y does not vary inside any stratum"


def test_bad_input():
    with pytest.raises(DataError, match="one value a row"):
        spearman([1, 2, 3], [1, 2])
    with pytest.raises(DataError, match="labels 0 and 1"):
        auroc([1, 2, 3], [0, 1, 2])
