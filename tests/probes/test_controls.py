"""Shuffled labels and bag of words; the headline site's rule."""

import numpy as np
import pytest

from t2iprobe.errors import DataError
from t2iprobe.probes.controls import (
    SHUFFLED,
    bag_of_words,
    shuffle_between_tasks,
    with_controls,
    words,
)
from t2iprobe.probes.crossfit import cross_predict
from t2iprobe.probes.decodability import accuracy, r2
from t2iprobe.probes.headline import choose_headline, first_half, half_r2

TASKS = [f"t{t}" for t in range(40) for _ in range(3)]
FOLDS = np.repeat(np.arange(40) % 5, 3)


def task_targets() -> np.ndarray:
    return np.repeat(np.eye(4)[np.random.default_rng(0).integers(4, size=40)], 3, axis=0)


def test_labels_are_shuffled_between_tasks_not_images():
    Y = task_targets()
    shuffled = shuffle_between_tasks(Y, TASKS, seed=0)
    by_task = shuffled.reshape(40, 3, 4)
    assert (by_task == by_task[:, :1]).all()
    np.testing.assert_array_equal(shuffled.sum(axis=0), Y.sum(axis=0))
    assert (shuffled != Y).any()
    np.testing.assert_array_equal(shuffled, shuffle_between_tasks(Y, TASKS, seed=0))
    assert (shuffled != shuffle_between_tasks(Y, TASKS, seed=1)).any()


def test_shuffling_does_not_depend_on_the_order_of_rows_within_tasks():
    rows = [f"t{t}" for _ in range(3) for t in range(40)]
    Y = task_targets()
    across = np.concatenate([Y[::3]] * 3)
    a = shuffle_between_tasks(Y, TASKS, seed=0)[::3]
    np.testing.assert_array_equal(a, shuffle_between_tasks(across, rows, seed=0)[:40])


def test_targets_that_differ_inside_a_task_are_refused():
    Y = task_targets()
    Y[1] = 0
    with pytest.raises(DataError, match="belong to the task"):
        shuffle_between_tasks(Y, TASKS, seed=0)


def test_controls_in_the_same_solve_find_nothing_while_the_targets_are_found():
    Y = task_targets()
    rng = np.random.default_rng(1)
    X = Y @ rng.normal(size=(4, 30)) + 0.3 * rng.normal(size=(120, 30))
    both, groups = with_controls(Y, ["color"] * 4, TASKS, seed=0)
    assert groups == ("color",) * 4 + (SHUFFLED + "color",) * 4
    out = cross_predict(X, both, FOLDS, groups, groups=TASKS)
    assert r2(both[:, :4], out.predictions[:, :4], out.baseline[:, :4]).value > 0.9
    assert r2(both[:, 4:], out.predictions[:, 4:], out.baseline[:, 4:]).value < 0.1


def test_repeated_prompts_look_solved_when_rows_are_split_and_are_not_when_tasks_are():
    """Public bug reports, case 30: 20 prompts x 5 seeds, one vector a prompt, labels at random."""
    rng = np.random.default_rng(0)
    tasks = np.repeat([f"p{p}" for p in range(20)], 5).tolist()
    by_row, by_task = [], []
    for _ in range(8):
        X = np.repeat(rng.normal(size=(20, 64)), 5, axis=0)
        Y = np.repeat(np.eye(2)[rng.permutation(np.arange(20) % 2)], 5, axis=0)
        grouped = np.repeat(rng.permutation(20) % 5, 5)
        by_task.append(accuracy(Y, cross_predict(X, Y, grouped, groups=tasks).predictions).value)
        rows = np.arange(100) % 5
        by_row.append(accuracy(Y, cross_predict(X, Y, rows).predictions).value)
        with pytest.raises(DataError, match="20 of 20 groups are on both sides"):
            cross_predict(X, Y, rows, groups=tasks)
    assert np.mean(by_row) > 0.98
    assert 0.3 < np.mean(by_task) < 0.65


def test_bag_of_words():
    counts, vocabulary = bag_of_words(["A red cube, a ball.", "the T-shirt's red"])
    assert vocabulary == ("a", "ball", "cube", "red", "t-shirt's", "the")
    np.testing.assert_array_equal(counts, [[2, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1]])
    assert words("Ein größerer Würfel!") == ["ein", "größerer", "würfel"]


def test_bag_of_words_reads_presence_but_not_order():
    names = ["red", "blue", "green", "black"]
    pairs = [(a, b) for a in names for b in names if a != b] * 6
    counts, _ = bag_of_words([f"a {a} cube left of a {b} cube" for a, b in pairs])
    presence = np.array([[float(name in pair) for name in names] for pair in pairs])
    slot = np.array([[float(name == pair[0]) for name in names] for pair in pairs])
    folds = np.arange(len(pairs)) % 5
    Y = np.concatenate([presence, slot], axis=1)
    out = cross_predict(counts, Y, folds, ["presence"] * 4 + ["slot"] * 4)
    assert r2(presence, out.predictions[:, :4], out.baseline[:, :4]).value > 0.99
    assert r2(slot, out.predictions[:, 4:], out.baseline[:, 4:]).value < 0.5


def test_headline_is_chosen_on_one_half_and_valued_on_the_other():
    nan = float("nan")
    chosen = choose_headline({"a": (0.9, 0.5), "b": (0.8, 0.7), "c": (nan, 0.99), "d": (0.9, 0.7)})
    assert (chosen.site, chosen.other_site) == ("a", "b")  # ties go to the earlier candidate
    assert chosen.r2 == pytest.approx((0.5 + 0.8) / 2)
    assert chosen.n_candidates == 3
    none = choose_headline({"a": (nan, 0.2)})
    assert none.site is None
    assert np.isnan(none.r2)
    assert none.reason == "none of 1 candidates is defined on both halves"


def test_choice_among_noise_is_not_rewarded():
    """The best of 50 equal sites looks good where it was chosen; the headline does not take that."""
    rng = np.random.default_rng(0)
    naive, honest = [], []
    for _ in range(60):
        r2 = {f"s{s}": tuple(rng.normal(0.5, 0.1, size=2)) for s in range(50)}
        naive.append(max(np.mean(pair) for pair in r2.values()))
        honest.append(choose_headline(r2).r2)
    assert np.mean(naive) > 0.6
    assert np.mean(honest) == pytest.approx(0.5, abs=0.05)


def test_halves_follow_the_folds():
    assert first_half(np.array([0, 1, 2, 3, 4])).tolist() == [True, True, True, False, False]
    Y = task_targets()
    rng = np.random.default_rng(1)
    X = Y @ rng.normal(size=(4, 30)) + 2.0 * rng.normal(size=(120, 30))
    out = cross_predict(X, Y, FOLDS)
    first = first_half(FOLDS)
    values = half_r2(out.per_task(Y, TASKS), first[::3], ["all"])
    for value, half in zip(values, (first, ~first), strict=True):
        residual = np.square(Y - out.predictions)[half].sum()
        total = np.square(Y - out.baseline)[half].sum()
        assert value == pytest.approx(1 - residual / total, abs=1e-12)
