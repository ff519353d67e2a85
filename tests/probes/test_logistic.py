"""The logistic probe: scikit-learn's results, honest flags, one warning, folds that cannot be scored."""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.probes.decodability import accuracy, r2
from t2iprobe.probes.folds import check_groups, fold_report
from t2iprobe.probes.logistic import MAX_C, FitInfo, Logistic, ProbeWarning, report_fits
from t2iprobe.registry import PROBES, probe


def classes(n: int = 120, d: int = 6, c: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(n) % c
    X = rng.normal(size=(c, d))[labels] + rng.normal(size=(n, d))
    return X, np.eye(c)[labels], (np.arange(n) // c) % 4


@pytest.mark.parametrize("c", [2, 3, 5])
def test_one_hot_groups_equal_multinomial_regression(c):
    X, Y, _ = classes(c=c)
    standard = StandardScaler().fit(X).transform(X)
    oracle = LogisticRegression(C=0.5, max_iter=1000).fit(standard, Y.argmax(axis=1))
    probe = Logistic(0.5, max_iter=1000).fit(X, Y)
    np.testing.assert_allclose(probe.predict(X), oracle.predict_proba(standard), atol=1e-4)
    np.testing.assert_allclose(probe.predict(X).sum(axis=1), 1.0)


def test_multi_hot_groups_equal_one_regression_a_column():
    X, Y, _ = classes()
    many = np.stack([Y[:, 0], Y[:, 0] + Y[:, 1], np.ones(len(Y)), np.zeros(len(Y))], axis=1)
    standard = StandardScaler().fit(X).transform(X)
    probe = Logistic(max_iter=1000).fit(X, many, ["a"] * 4)
    for c in (0, 1):
        oracle = LogisticRegression(max_iter=1000).fit(standard, many[:, c])
        expected = oracle.predict_proba(standard)[:, 1]
        np.testing.assert_allclose(probe.predict(X)[:, c], expected, atol=1e-4)
    np.testing.assert_allclose(probe.predict(X)[:, 2:], many[:, 2:], atol=1e-9)
    assert [fit.name for fit in probe.fits_] == ["a[0]", "a[1]", "a[2]", "a[3]"]


def test_separable_classes_are_flagged_and_the_penalty_stays_finite():
    """Public bug reports, case 35: X = [[-1], [1]] * 10 with matching labels and no penalty."""
    X = np.array([[-1.0], [1.0]] * 10)
    Y = np.eye(2)[(X[:, 0] > 0).astype(int)]
    probe = Logistic(float("inf"), max_iter=1000).fit(X, Y)
    assert probe.C_ == MAX_C
    assert np.isfinite(probe.coef_).all()
    assert probe.fits_[0].separable
    assert accuracy(Y, probe.predict(X)).value == 1.0


def test_overlapping_classes_are_not_flagged_separable():
    X, Y, _ = classes()
    probe = Logistic().fit(X, Y)
    assert not probe.fits_[0].separable
    assert probe.fits_[0].converged


def test_forty_layers_give_one_summary_line():
    """Public bug reports, case 35: 40 layers of features x 1e4 and few iterations."""
    X, Y, _ = classes(n=60)
    fits: list[FitInfo] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for layer in range(40):
            probe = Logistic(max_iter=2 if layer < 12 else 500).fit(X * 1e4, Y)
            fits += probe.fits_
    with pytest.warns(ProbeWarning) as found:
        line = report_fits(fits)
    assert len(found) == 1
    assert line == "12/40 probes did not converge (first: all): raise max_iter"
    assert sum(not fit.converged for fit in fits) == 12


def test_no_warning_when_all_converge():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert report_fits([FitInfo("a", True, False, 3)]) == ""


def test_out_of_fold_probabilities_equal_a_loop():
    X, Y, folds = classes()
    probe = Logistic(max_iter=1000)
    out = probe.cross_predict(X, Y, folds)
    for k in range(4):
        train = folds != k
        scaler = StandardScaler().fit(X[train])
        oracle = LogisticRegression(max_iter=1000).fit(
            scaler.transform(X[train]), Y[train].argmax(axis=1)
        )
        expected = oracle.predict_proba(scaler.transform(X[~train]))
        np.testing.assert_allclose(out.predictions[~train], expected, atol=1e-4)
    assert len(probe.fits_) == 4
    assert out.reasons == {}
    assert 0 < r2(Y, out.predictions, out.baseline).value < 1


def test_a_class_missing_in_training_is_named_and_its_fold_left_out():
    """Public bug reports, case 33: y = [1] * 5 + [2] * 4 + [3] in 5 folds."""
    y = np.array([1] * 5 + [2] * 4 + [3])
    folds = np.array([0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
    report = fold_report(y, folds)
    assert report.usable == (0, 1, 2, 3)
    assert str(report) == (
        "4 of 5 folds usable (fold 4: class 3 (1 sample, 5 folds) is not in training: "
        "use fewer folds or drop the class)"
    )
    X = np.random.default_rng(0).normal(size=(10, 2))
    out = Logistic().cross_predict(X, np.eye(3)[y - 1], folds)
    assert np.isnan(out.predictions[folds == 4]).all()
    assert not np.isnan(out.predictions[folds != 4]).any()
    assert "class 2 (1 sample, 5 folds)" in out.reasons[4]  # columns are numbered from 0
    assert r2(np.eye(3)[y - 1], out.predictions, out.baseline).n == 8


def test_one_class_folds_are_not_usable_and_none_left_is_an_error():
    """Public bug reports, case 33: groups a, b, b, c, c, d in 2 folds; one class a prompt."""
    y = np.array([1, 1, 0, 0, 2, 2])
    report = fold_report(y, np.array([0, 1, 1, 0, 0, 1]))
    assert report.usable == (0, 1)
    report = fold_report(y, np.array([0, 0, 0, 0, 1, 1]))
    assert report.usable == ()
    two_prompts = np.array([0, 0, 0, 1, 1, 1])
    with pytest.raises(DataError, match=r"all: 0 of 2 folds usable.*class 0 \(3 samples, 2 folds"):
        Logistic().cross_predict(np.ones((6, 2)), np.eye(2)[two_prompts], two_prompts)
    assert fold_report(np.array([0, 1, 0, 1, 1]), np.array([0, 0, 1, 1, 2])).excluded == {
        2: "only class 1 is in test: use fewer folds"
    }


def test_rows_of_a_group_on_both_sides_are_refused():
    """Public bug reports, case 30."""
    with pytest.raises(DataError, match=r"1 of 2 groups .*'t0' in folds 0, 1"):
        check_groups(np.array([0, 1, 2]), ["t0", "t0", "t1"])
    check_groups(np.array([0, 0, 2]), ["t0", "t0", "t1"])


def test_bad_input():
    X, Y, _ = classes()
    with pytest.raises(ConfigError, match="above 0"):
        Logistic(0.0)
    with pytest.raises(DataError, match="0 and 1"):
        Logistic().fit(X, Y * 0.5)


def test_both_probes_are_found_by_name():
    X, Y, folds = classes()
    for name in PROBES:
        out = probe(name)(X, Y, folds, ["color1"] * 3)
        assert out.predictions.shape == Y.shape
        assert r2(Y, out.predictions, out.baseline).value > 0.2
