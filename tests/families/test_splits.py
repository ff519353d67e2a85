"""Folds: no scene on both sides, every value in training, everything tested once; or a clear refusal."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.families.reading import load_family
from t2iprobe.families.splits import (
    declared_fold,
    fold_index,
    pair_folds,
    scene_overlap,
    task_folds,
)
from t2iprobe.families.tasks import Constituent, Family, Task
from t2iprobe.families.template import Template

PAIR = load_family("shapes-pair")
SINGLE = load_family("shapes-single")


def marks(tasks, rows):
    """Values as worded and in the scene."""
    worded = {("worded", *item) for row in rows for item in tasks[row].values.items()}
    return worded | {("scene", *item) for row in rows for item in tasks[row].scene.items()}


def task(name, scene=None, **values):
    return Task(name, "hand", values, name, values, scene or name)


def check(tasks, folds):
    everything = range(len(tasks))
    assert sorted(row for fold in folds for row in fold.test) == list(everything)
    for fold in folds:
        assert sorted([*fold.train, *fold.test]) == list(everything)
        assert scene_overlap(tasks, fold) == 0
        assert marks(tasks, fold.train) == marks(tasks, everything)


@settings(max_examples=40, deadline=None)
@given(
    family=st.sampled_from([PAIR, SINGLE]),
    n=st.integers(60, 400),
    n_folds=st.integers(2, 10),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_folds_of_random_samples(family, n, n_folds, seed, data):
    picked = data.draw(st.randoms(use_true_random=False)).sample(family.tasks(), n)
    try:
        folds = task_folds(picked, n_folds, seed)
    except DataError:
        # Only where some value truly is in one scene alone.
        scenes = {}
        for one in picked:
            for mark in marks([one], [0]):
                scenes.setdefault(mark, set()).add(one.scene_id)
        assert min(len(found) for found in scenes.values()) == 1
        return
    assert len(folds) == n_folds
    check(picked, folds)
    sizes = [len(fold.test) for fold in folds]
    largest = max(sum(a.scene_id == b.scene_id for a in picked) for b in picked)
    assert max(sizes) - min(sizes) <= 2 * largest


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=7, unique=True
    ),
    seed=st.integers(0, 100),
)
def test_on_tiny_sets_a_refusal_means_that_no_balanced_split_exists(rows, seed):
    tasks = [task(f"t{i}", a=str(a), b=str(b)) for i, (a, b) in enumerate(rows)]
    try:
        check(tasks, task_folds(tasks, 2, seed))
    except DataError:
        for sides in product((0, 1), repeat=len(tasks)):
            sides = np.array(sides)
            if abs(2 * sides.sum() - len(tasks)) > 1:
                continue
            parts = [marks(tasks, np.flatnonzero(sides == side)) for side in (0, 1)]
            assert parts[0] != parts[1], "a perfectly balanced split was missed"


def test_folds_depend_on_the_seed_and_not_on_the_order():
    tasks = PAIR.tasks()[::61]
    first = task_folds(tasks, 5, seed=0)
    order = np.random.default_rng(0).permutation(len(tasks))
    shuffled = task_folds([tasks[i] for i in order], 5, seed=0)
    for fold, other in zip(first, shuffled, strict=True):
        assert sorted(order[other.test]) == list(fold.test)
    again, other = task_folds(tasks, 5, seed=0), task_folds(tasks, 5, seed=1)
    assert all(np.array_equal(a.test, b.test) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a.test, b.test) for a, b in zip(first, other, strict=True))


def test_the_whole_family_splits_evenly():
    folds = task_folds(PAIR.tasks(), 5, seed=0)
    assert max(len(fold.test) for fold in folds) - min(len(fold.test) for fold in folds) <= 4
    # Values are spread evenly too: each of ten colors is a tenth of every test part, within 2%.
    for fold in folds:
        reds = sum(PAIR.tasks()[row].values["color1"] == "red" for row in fold.test)
        assert abs(reds / len(fold.test) - 0.1) < 0.02


def test_a_value_in_one_scene_is_named_with_its_count_and_the_fix():
    tasks = [task(f"t{i}", y=y, x=str(i % 2)) for i, y in enumerate("1111122223")]
    with pytest.raises(DataError) as caught:
        task_folds(tasks, 5, seed=0)
    message = str(caught.value)
    assert "y = '3'" in message
    assert "1 scene" in message
    assert "5 folds" in message
    assert "draw more tasks or drop the value" in message


def test_small_groups_that_can_be_split_are_split():
    scenes = zip("abbccd", [1, 1, 0, 0, 2, 2], strict=True)
    tasks = [task(f"t{i}", scene=s, y=str(y)) for i, (s, y) in enumerate(scenes)]
    folds = task_folds(tasks, 2, seed=0)
    check(tasks, folds)
    assert [len(fold.test) for fold in folds] == [3, 3]


def test_values_that_meet_in_a_ring_cannot_be_split_in_two():
    """Each value is in two of three scenes; two folds would need every pair of scenes apart."""
    tasks = [task("t0", a="x", b="y"), task("t1", a="x", b="z"), task("t2", a="w", b="z")]
    tasks += [task("t3", a="w", b="v"), task("t4", a="u", b="v"), task("t5", a="u", b="y")]
    check(tasks, task_folds(tasks, 2, seed=0))  # a ring of six alternates
    odd = [task("t0", a="1", b="1", c="1"), task("t1", a="1", b="2", c="2")]
    odd += [task("t2", a="2", b="1", c="2"), task("t3", a="2", b="2", c="1")]
    with pytest.raises(DataError, match=r"no 2 folds of 4 scenes found.*in every training part"):
        task_folds(odd, 2, seed=0)


@pytest.mark.parametrize("n_folds", [1, 0, -3])
def test_fewer_than_two_folds_are_refused(n_folds):
    with pytest.raises(ConfigError, match="2 or more"):
        task_folds(PAIR.tasks()[:10], n_folds, seed=0)
    with pytest.raises(ConfigError, match="2 or more"):
        pair_folds(PAIR, PAIR.tasks()[:10], ("color", "shape"), n_folds, seed=0)


def test_fewer_scenes_than_folds_are_refused():
    first = PAIR.tasks()[0]
    both = [first, PAIR.task(PAIR.scene_rule.other(first.values))]
    with pytest.raises(DataError, match="1 scenes cannot make 2 folds"):
        task_folds(both, 2, seed=0)


def test_a_model_that_memorises_prompts_gains_nothing():
    """20 prompts x 5 seeds, one vector per prompt, labels random per prompt: accuracy stays near one half."""
    rng = np.random.default_rng(0)
    correct = []
    for seed in range(20):
        tasks = [task(f"{seed}-{i}", y=str(i % 2)) for i in range(20)]
        vectors = rng.normal(size=(20, 64))
        labels = rng.integers(0, 2, size=20)
        for fold in task_folds(tasks, 5, seed):
            # Nearest neighbour, the strongest memory: rows of one prompt are equal for all seeds.
            train, test = np.repeat(fold.train, 5), np.repeat(fold.test, 5)
            nearest = (vectors[test] @ vectors[train].T).argmax(axis=1)
            correct += list(labels[train][nearest] == labels[test])
    assert len(correct) == 20 * 100
    assert abs(np.mean(correct) - 0.5) < 0.1


@pytest.mark.parametrize("n_folds", [2, 5, 7])
def test_pair_folds_hold_out_whole_pairs(n_folds):
    tasks = PAIR.tasks()[::7]
    folds = pair_folds(PAIR, tasks, ("color", "shape"), n_folds, seed=3)
    assert sorted(row for fold in folds for row in fold.test) == list(range(len(tasks)))
    for fold in folds:
        trained = {pair for row in fold.train for pair in pairs(tasks[row])}
        assert all(set(pairs(tasks[row])) - trained for row in fold.test), "a pair is really new"
        assert marks(tasks, fold.train) == marks(tasks, range(len(tasks)))
        assert scene_overlap(tasks, fold) == 0
    assert max(len(fold.test) for fold in folds) < 1.1 * min(len(fold.test) for fold in folds)


def pairs(one):
    return [(one.values[f"color{i}"], one.values[f"shape{i}"]) for i in (1, 2)]


def test_pair_folds_need_kinds_that_are_bound():
    with pytest.raises(ConfigError, match=r"unknown pair of kinds 'color\+relation'"):
        pair_folds(PAIR, PAIR.tasks(), ("color", "relation"), 5, seed=0)


def test_too_few_tasks_for_pair_folds_name_the_missing_value():
    with pytest.raises(DataError, match=r"is not in the training part of fold \d"):
        pair_folds(PAIR, PAIR.tasks()[::3000], ("color", "shape"), 2, seed=0)


def grid(hold_out=({"row": "2", "column": "3"},)):
    """A 4x4 grid of cells, two cells a scene, in either order."""
    digits = ("1", "2", "3", "4")
    names = ("row1", "column1", "row2", "column2")
    return Family(
        name="grid",
        description="cells",
        template=Template.parse("{row1} {column1} and {row2} {column2}"),
        constituents=tuple(Constituent(name, digits, name[:-1]) for name in names),
        binding=(("row1", "column1"), ("row2", "column2")),
        hold_out=hold_out,
    )


def test_a_declared_combination_is_in_no_training_task_in_any_position():
    family = grid()
    tasks = family.tasks()
    fold = declared_fold(family, tasks)
    assert len(fold.test) == 2 * 16 - 1
    assert len(fold.train) + len(fold.test) == 256
    assert scene_overlap(tasks, fold) == 0
    assert not any("2 3" in part for row in fold.train for part in tasks[row].prompt.split(" and "))


def test_a_family_without_held_out_combinations_has_no_declared_fold():
    with pytest.raises(DataError, match="0 of 256 tasks of 'grid'"):
        declared_fold(grid(hold_out=()), grid().tasks())


def test_holding_out_every_partner_of_a_value_is_refused():
    everything = tuple({"row": "2", "column": column} for column in "1234")
    with pytest.raises(DataError, match=r"row1 = '2' \(\d+ tasks\) is not in the training part"):
        declared_fold(grid(everything), grid().tasks())


def test_fold_index_gives_each_task_its_fold():
    tasks = PAIR.tasks()[::61]
    folds = task_folds(tasks, 5, seed=0)
    index = fold_index(folds, len(tasks) + 1)
    assert index[-1] == -1
    assert all((index[fold.test] == number).all() for number, fold in enumerate(folds))
