"""R2, accuracy and per-task decodability: closed forms, scikit-learn, and what is undefined."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, r2_score

from t2iprobe.probes.columns import Columns
from t2iprobe.probes.crossfit import cross_predict
from t2iprobe.probes.decodability import (
    accuracy,
    per_task_decodability,
    r2,
)


def test_negative_r2_is_kept():
    """Public bug reports, case 34: R2([1, 2, 3], [3, 2, 1]) = -3."""
    y = np.array([[1.0], [2.0], [3.0]])
    assert r2(y, y[::-1]).value == -3.0


@pytest.mark.parametrize("prediction", [-1.0, -1.0 + 1e-9])
def test_constant_target_is_undefined_whatever_the_prediction(prediction):
    """Public bug reports, case 34: y = [-1] * 4, exactly and nearly right."""
    score = r2(np.full((4, 1), -1.0), np.full((4, 1), prediction), np.array([0.3]))
    assert np.isnan(score.value)
    assert score.reason == "the target is constant"


def test_one_row_and_no_row_are_undefined():
    assert r2(np.ones((1, 2)), np.ones((1, 2))).reason == "a single row has no variance"
    assert r2(np.ones((2, 1)), np.full((2, 1), np.nan)).reason == "no row could be predicted"


def test_pooled_r2_is_scikit_learns_on_flattened_centred_columns():
    rng = np.random.default_rng(0)
    Y, P = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    mean = Y.mean(axis=0)
    expected = r2_score((Y - mean).ravel(), (P - mean).ravel())
    assert r2(Y, P).value == pytest.approx(expected, abs=1e-12)
    weighted = r2_score(Y, P, multioutput="variance_weighted")
    assert r2(Y, P).value == pytest.approx(weighted, abs=1e-12)


def test_total_is_around_the_training_mean():
    y, p = np.array([[1.0], [2.0]]), np.array([[1.0], [1.0]])
    assert r2(y, p, np.array([0.0])).value == pytest.approx(1 - 1 / 5)
    assert r2(y, p, np.array([[0.0], [2.0]])).value == pytest.approx(1 - 1 / 1)


def test_majority_and_balanced_accuracy_stand_beside_accuracy():
    """Public bug reports, case 34: 90/10 labels and a probe that always says the majority."""
    Y = np.eye(2)[[0] * 90 + [1] * 10]
    score = accuracy(Y, np.tile([0.9, 0.1], (100, 1)))
    assert (score.value, score.majority, score.balanced, score.chance) == (0.9, 0.9, 0.5, 0.5)


def test_accuracy_with_one_class_is_undefined():
    """Public bug reports, case 34: y_test = [1, 1, 1]."""
    score = accuracy(np.tile([0.0, 1.0], (3, 1)), np.tile([0.0, 1.0], (3, 1)))
    assert np.isnan(score.value)
    assert score.reason == "all rows have the same answer"
    assert accuracy(np.zeros((2, 3)), np.zeros((2, 3))).reason == "no row to score"


def test_one_hot_accuracy_equals_scikit_learn():
    rng = np.random.default_rng(0)
    y = rng.choice(4, size=200, p=[0.5, 0.3, 0.15, 0.05])
    P = np.eye(5)[y] + rng.normal(size=(200, 5))
    score = accuracy(np.eye(5)[y], P)
    assert score.value == pytest.approx((P.argmax(axis=1) == y).mean())
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        expected = balanced_accuracy_score(y, P.argmax(axis=1))
    assert score.balanced == pytest.approx(expected)
    assert score.chance == pytest.approx(1 / 5)


def test_multi_hot_accuracy_takes_the_k_highest():
    Y = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=float)
    P = np.array([[0.4, 0.3, 0.2, 0.1], [0.9, 0.1, 0.8, 0], [0.1, 0.9, 0.2, 0.3], [9, 9, 9, 9.0]])
    score = accuracy(Y, P)
    assert score.n == 3  # the row without a true column is left out
    assert score.value == pytest.approx(2 / 3)
    assert score.chance == pytest.approx((1 / 6 + 1 / 4 + 1 / 6) / 3)
    assert score.majority == pytest.approx(1 / 3)
    assert score.balanced == pytest.approx(np.mean([1, 1, 0, 1]))


def test_per_task_decodability_by_hand():
    Y = np.array([[1, 0, 1.0], [1, 0, 1], [0, 1, 0]])
    P = np.array([[1, 0, 0.5], [0.5, 0.5, 0.5], [0, 1, 0]])
    base = np.full((3, 3), 0.5)
    tasks = per_task_decodability(Y, P, base, ["b", "b", "a"], Columns.of(["c", "c", "s"], 3))
    assert tasks.tasks == ("b", "a")
    assert tasks.groups == ("c", "s", "all")
    np.testing.assert_allclose(tasks.residual, [[0.5, 0.5, 1.0], [0, 0, 0]])
    np.testing.assert_allclose(tasks.total, [[1.0, 0.5, 1.5], [0.5, 0.25, 0.75]])
    np.testing.assert_allclose(tasks.values, [[0.5, 0.0, 1 / 3], [1, 1, 1]])
    np.testing.assert_allclose(tasks.of_group("all"), [1 / 3, 1])
    assert tasks.n_rows.tolist() == [2, 1]


def test_per_task_sums_add_up_to_the_pooled_r2_and_ignore_missing_entries():
    rng = np.random.default_rng(0)
    Y, P = rng.normal(size=(40, 4)), rng.normal(size=(40, 4))
    base = np.zeros((40, 4))
    P[3, :2] = np.nan
    tasks = per_task_decodability(
        Y, P, base, [f"t{i % 7}" for i in range(40)], Columns.of(["a", "a", "b", "b"], 4)
    )
    scores = [r2(Y[:, at], P[:, at], base[:, at]).value for at in ([0, 1], [2, 3])]
    pooled = 1 - tasks.residual.sum(axis=0) / tasks.total.sum(axis=0)
    np.testing.assert_allclose(pooled[:2], scores)


def test_a_task_at_the_training_mean_is_undefined():
    tasks = per_task_decodability(
        np.ones((2, 1)), np.zeros((2, 1)), np.ones((2, 1)), ["a", "b"], Columns.of(None, 1)
    )
    assert np.isnan(tasks.values).all()
    assert tasks.groups == ("all",)


def test_out_of_fold_results_are_scored_by_group():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=(60, 2))
    Y = np.concatenate([np.eye(3)[y[:, 0]], np.eye(3)[y[:, 1]]], axis=1)
    X = Y @ rng.normal(size=(6, 20)) + rng.normal(size=(60, 20))
    out = cross_predict(X, Y, np.arange(60) % 5, ["slot/a"] * 3 + ["slot/b"] * 3)
    tasks = out.per_task(Y, [f"t{i}" for i in range(60)])
    assert tasks.groups == ("slot/a", "slot/b", "all")
    for group, at in (("slot/a", slice(3)), ("slot/b", slice(3, 6)), ("all", slice(6))):
        residual = np.square(Y - out.predictions)[:, at].sum(axis=1)
        total = np.square(Y - out.baseline)[:, at].sum(axis=1)
        np.testing.assert_allclose(tasks.of_group(group), 1 - residual / total)
    geometric = np.exp(np.log(out.alpha).mean(axis=0))
    assert out.typical_alpha() == pytest.approx(
        dict(zip(["slot/a", "slot/b"], geometric, strict=True))
    )
