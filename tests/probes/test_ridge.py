"""Ridge against scikit-learn, the leave-one-fold-out identity against refitting, and what must be refused."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
from sklearn.preprocessing import StandardScaler

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.probes.crossfit import cross_predict
from t2iprobe.probes.decodability import r2
from t2iprobe.probes.ridge import Ridge, fit_transfer
from t2iprobe.probes.selection import choose, default_alphas, leave_fold_out_losses
from t2iprobe.probes.spectral import Scaler, decompose

ALPHAS = [1e-3, 0.1, 1.0, 30.0, 1e3, 1e6]


def problem(n: int, d: int, c: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(3, 30, d) + rng.normal(size=d) * 10
    W = rng.normal(size=(d, c)) / X.std(axis=0)[:, None] / np.sqrt(d)
    W[:, -1] = 0.0  # a target without any signal
    return X, X @ W + rng.normal(size=(n, c)) * 0.5, rng.permutation(np.arange(n) % 5)


SHAPES = [pytest.param(60, 20, id="d<n"), pytest.param(40, 90, id="d>n"), (50, 50)]


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("solver", ["auto", "primal", "dual"])
@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_estimator_equals_scikit_learn(n, d, solver, standardise, alpha):
    X, Y, _ = problem(n, d)
    probe = Ridge(alpha, standardise=standardise, solver=solver).fit(X[5:], Y[5:])
    scaler = StandardScaler(with_std=standardise).fit(X[5:])
    oracle = SklearnRidge(alpha=alpha, solver="svd").fit(scaler.transform(X[5:]), Y[5:])
    expected = oracle.predict(scaler.transform(X[:5]))
    np.testing.assert_allclose(probe.predict(X[:5]), expected, atol=1e-6, rtol=1e-6)
    scale = scaler.scale_ if standardise else np.ones(d)
    np.testing.assert_allclose(probe.coef_.T * scale, oracle.coef_, atol=1e-6)
    np.testing.assert_allclose(probe.train_mean_, Y[5:].mean(axis=0))


@pytest.mark.parametrize(("n", "d"), [(60, 7), (60, 30), (40, 90)])
def test_leave_fold_out_losses_equal_refitting(n, d):
    """Both sides of the identity: blocks of 12 rows against 7 features (by scores) and against 30, 90 (by rows)."""
    X, Y, folds = problem(n, d)
    standard = Scaler.fit(X).transform(X)
    losses = leave_fold_out_losses(decompose(standard), Y - Y.mean(axis=0), folds, np.array(ALPHAS))
    for row, alpha in zip(losses, ALPHAS, strict=True):
        model = SklearnRidge(alpha=alpha, solver="svd")
        held_out = cross_val_predict(model, standard, Y, groups=folds, cv=LeaveOneGroupOut())
        np.testing.assert_allclose(row, np.square(Y - held_out).sum(axis=0), rtol=1e-6)


def test_blocks_of_unequal_size_use_either_side_and_agree_with_refitting():
    X, Y, _ = problem(60, 12)
    folds = np.array([0] * 40 + [1] * 12 + [2] * 8)
    standard = Scaler.fit(X).transform(X)
    losses = leave_fold_out_losses(decompose(standard), Y - Y.mean(axis=0), folds, np.array([3.0]))
    expected = cross_val_predict(
        SklearnRidge(alpha=3.0), standard, Y, groups=folds, cv=LeaveOneGroupOut()
    )
    np.testing.assert_allclose(losses[0], np.square(Y - expected).sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize(("n", "d"), [(60, 7), (60, 30), (40, 90)])
def test_cross_predict_equals_a_nested_loop_of_scikit_learn(n, d):
    X, Y, folds = problem(n, d)
    groups = ["a", "a", "b", "b", "noise"]
    out = cross_predict(X, Y, folds, groups, ALPHAS)
    for k in range(5):
        train, test = folds != k, folds == k
        scaler = StandardScaler().fit(X[train])
        standard, mean = scaler.transform(X[train]), Y[train].mean(axis=0)
        losses = {}
        for alpha in ALPHAS:
            held_out = cross_val_predict(
                SklearnRidge(alpha=alpha),
                standard,
                Y[train],
                groups=folds[train],
                cv=LeaveOneGroupOut(),
            )
            losses[alpha] = np.square(Y[train] - held_out).sum(axis=0)
        for g, columns in enumerate(([0, 1], [2, 3], [4])):
            best = min(ALPHAS, key=lambda alpha: losses[alpha][columns].sum())
            assert out.alpha[k, g] == best
            oracle = SklearnRidge(alpha=best).fit(standard, Y[train][:, columns])
            expected = oracle.predict(scaler.transform(X[test]))
            np.testing.assert_allclose(
                out.predictions[np.ix_(test, columns)],
                expected.reshape(-1, len(columns)),
                atol=1e-6,
            )
        np.testing.assert_allclose(out.baseline[test], np.tile(mean, (test.sum(), 1)), atol=1e-12)
    assert out.columns.names == ("a", "b", "noise")
    assert np.median(out.alpha[:, 2]) > np.median(
        out.alpha[:, 0]
    )  # no signal asks for a larger penalty


def test_primal_and_dual_give_the_same_out_of_fold_predictions():
    X, Y, folds = problem(60, 40)
    primal, dual = (cross_predict(X, Y, folds, solver=s).predictions for s in ("primal", "dual"))
    np.testing.assert_allclose(primal, dual, atol=1e-7)


def test_targets_do_not_influence_each_other():
    X, Y, folds = problem(60, 20)
    groups = ["a", "b", "c", "d", "e"]
    together = cross_predict(X, Y, folds, groups)
    alone = cross_predict(X, Y[:, 2:3], folds, ["c"])
    np.testing.assert_allclose(together.predictions[:, 2:3], alone.predictions, atol=1e-10)


def test_float16_features_do_not_overflow_and_constants_become_zero():
    """Public bug reports, case 7: 100,000 times 10.0 in float16."""
    X = np.full((100_000, 1), 10.0, np.float16)
    scaler = Scaler.fit(X)
    assert scaler.mean[0] == 10.0
    scaled = scaler.transform(X)
    assert scaled.dtype == np.float64
    assert (scaled == 0).all()


def test_the_scale_of_a_hardly_varying_feature_is_a_tenth_of_the_median():
    X = np.random.default_rng(0).normal(size=(200, 5)) * [1e-4, 0.05, 1.0, 2.0, 50.0]
    scale = StandardScaler().fit(X).scale_
    expected = np.maximum(scale, 0.1 * np.median(scale))
    assert (expected > scale).tolist() == [True, True, False, False, False]
    np.testing.assert_allclose(1 / Scaler.fit(X).inverse_scale, expected)
    # what does not vary has no say in the median
    with_a_constant = np.column_stack([X, np.ones(200)])
    np.testing.assert_allclose(1 / Scaler.fit(with_a_constant).inverse_scale[:5], expected)


def test_a_unit_that_wakes_up_in_held_out_rows_does_not_ruin_the_probe():
    """A rectified unit that fired once, barely, in training: its standard deviation says nothing about its size."""
    rng = np.random.default_rng(0)
    X, X_held = rng.normal(size=(400, 10)), rng.normal(size=(200, 10))
    W = rng.normal(size=(10, 2))
    X, X_held = np.column_stack([X, np.zeros(400)]), np.column_stack([X_held, np.zeros(200)])
    X[7, -1], X_held[::4, -1] = 1e-3, 1.0
    Y, Y_held = X[:, :10] @ W + rng.normal(size=(400, 2)), X_held[:, :10] @ W
    predicted = Ridge(1.0).fit(X, Y).predict(X_held)
    assert np.square(predicted - Y_held).mean() < 0.1 * Y_held.var()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_features_that_vary_by_rounding_only_are_constant(dtype):
    rng = np.random.default_rng(0)
    X = np.full((50_000, 2), 0.1, dtype)
    X[::2, 0] = np.nextafter(X[0, 0], dtype(1))
    X[:, 1] = rng.normal(size=50_000)
    scaler = Scaler.fit(X)
    assert scaler.inverse_scale[0] == 0
    assert scaler.inverse_scale[1] == pytest.approx(1.0, abs=0.02)


def test_float16_is_solved_as_its_float64_copy():
    X, Y, folds = problem(60, 20)
    half = X.astype(np.float16)
    a = cross_predict(half, Y, folds).predictions
    np.testing.assert_allclose(
        a, cross_predict(half.astype(np.float64), Y, folds).predictions, atol=1e-9
    )


def test_all_features_constant_predicts_the_training_mean():
    _, Y, folds = problem(60, 3)
    out = cross_predict(np.full((60, 4), 7.0), Y, folds)
    np.testing.assert_allclose(out.predictions, out.baseline)


def test_test_rows_change_neither_scale_nor_penalty_nor_weights():
    """Public bug reports, case 30: an outlier in the test fold leaves the other rows' training alone."""
    X, Y, folds = problem(60, 20)
    spoiled = X.copy()
    row = np.flatnonzero(folds == 0)[0]
    spoiled[row] = 1e6
    before, after = cross_predict(X, Y, folds), cross_predict(spoiled, Y, folds)
    others = (folds == 0) & (np.arange(60) != row)
    np.testing.assert_array_equal(before.predictions[others], after.predictions[others])
    np.testing.assert_array_equal(before.alpha[0], after.alpha[0])


def test_estimator_chooses_per_group_as_cross_predict_does():
    X, Y, folds = problem(60, 20)
    groups = ["a", "a", "b", "b", "noise"]
    train = folds != 0
    out = cross_predict(X, Y, folds, groups, ALPHAS)
    probe = Ridge(ALPHAS).fit(X[train], Y[train], folds[train], groups)
    np.testing.assert_array_equal(probe.alpha_[[0, 2, 4]], out.alpha[0])
    np.testing.assert_allclose(probe.predict(X[~train]), out.predictions[~train], atol=1e-8)


def test_equal_losses_take_the_largest_penalty():
    losses = np.array([[1.0, 3.0], [1.0, 2.0], [1.0, 2.5]])
    chosen = choose(losses, np.eye(2), np.array([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal(chosen, [100.0, 10.0])


def test_default_alphas_reach_from_least_squares_to_the_mean():
    alphas = default_alphas(768, 480)
    assert alphas[0] == pytest.approx(0.1)
    assert alphas[-1] == pytest.approx(1e6)
    assert alphas[-1] >= 768 * 480
    X, _, folds = problem(60, 20)
    noise = np.random.default_rng(3).normal(size=(60, 5))
    out = cross_predict(X, noise, folds)
    assert (out.alpha >= 1e3).all()  # nothing to find: shrunk towards the mean
    assert r2(noise, out.predictions, out.baseline).value == pytest.approx(0.0, abs=0.1)


def test_transfer_to_held_out_rows():
    X, Y, _ = problem(80, 20)
    Y[:60, 1] = 0.25
    transfer = fit_transfer(X[:60], Y[:60], X[60:], column_groups=["m0", "m1", "m2", "m3", "m4"])
    scaler = StandardScaler().fit(X[:60])
    oracle = SklearnRidge(alpha=1.0).fit(scaler.transform(X[:60]), Y[:60])
    np.testing.assert_allclose(
        transfer.predictions, oracle.predict(scaler.transform(X[60:])), atol=1e-6
    )
    np.testing.assert_allclose(transfer.predictions[:, 1], 0.25, atol=1e-12)
    assert transfer.alpha["m2"] == 1.0


def test_bad_input_is_refused_with_what_to_do():
    X, Y, folds = problem(40, 5)
    with pytest.raises(ConfigError, match="above 0"):
        Ridge(0.0).fit(X, Y)
    with pytest.raises(ConfigError, match="above 0"):
        cross_predict(X, Y, folds, alphas=[])
    with pytest.raises(DataError, match="no folds"):
        Ridge([1.0, 2.0]).fit(X, Y)
    with pytest.raises(DataError, match="at least 3 folds, or give a single alpha"):
        cross_predict(X, Y, folds % 2)
    cross_predict(X, Y, folds % 2, alphas=[1.0])
    with pytest.raises(DataError, match="1 fold"):
        cross_predict(X, Y, folds * 0)
    with pytest.raises((DataError, TypeError), match=r"must agree|Type-check"):  # shapes may be run
        cross_predict(X[:-1], Y, folds)
    with pytest.raises(DataError, match="2 column groups for 5 target columns"):
        cross_predict(X, Y, folds, ["a", "b"])
    X[3, 2] = np.nan
    with pytest.raises(DataError, match="1 of 40 rows"):
        cross_predict(X, Y, folds)
