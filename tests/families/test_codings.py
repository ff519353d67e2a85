"""Codings: what each column says, by hand on single tasks and as properties of whole families."""

import numpy as np
import pytest

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.families.codings import CODINGS, applicable, encode
from t2iprobe.families.reading import load_family


@pytest.fixture(scope="module")
def pair():
    return load_family("shapes-pair")


@pytest.fixture(scope="module")
def two_wordings(pair):
    """ "a red circle right of a blue square" and "a blue square left of a red circle"."""
    words = {"color1": "red", "shape1": "circle", "relation": "right of"}
    first = pair.task(words | {"color2": "blue", "shape2": "square"})
    return [first, pair.task(pair.scene_rule.other(first.values))]


def hot(targets, row):
    return {c for c, value in zip(targets.columns, targets.matrix[row], strict=True) if value}


def test_what_applies(pair):
    assert applicable(pair) == CODINGS == ("slot", "scene", "presence", "binding")
    assert applicable(load_family("shapes-single")) == ("slot", "binding")


def test_slot_follows_the_wording(pair, two_wordings):
    targets = encode(pair, two_wordings, "slot")
    assert hot(targets, 0) == {
        "color1=red", "shape1=circle", "relation=right of", "color2=blue", "shape2=square",
    }  # fmt: skip
    assert hot(targets, 1) == {
        "color1=blue", "shape1=square", "relation=left of", "color2=red", "shape2=circle",
    }  # fmt: skip
    assert targets.matrix.shape == (2, 10 + 6 + 4 + 10 + 6)


def test_scene_is_one_for_both_wordings(pair, two_wordings):
    targets = encode(pair, two_wordings, "scene")
    assert hot(targets, 0) == hot(targets, 1) == {
        "color1=blue", "shape1=square", "relation=left of", "color2=red", "shape2=circle",
    }  # fmt: skip
    assert "relation=right of" not in targets.columns
    assert targets.matrix.shape == (2, 10 + 6 + 2 + 10 + 6)


def test_presence_says_what_occurs(pair, two_wordings):
    targets = encode(pair, two_wordings, "presence")
    assert hot(targets, 0) == hot(targets, 1) == {
        "color=red", "color=blue", "shape=circle", "shape=square", "relation=left of",
    }  # fmt: skip


def test_binding_tells_apart_what_presence_does_not(pair, two_wordings):
    values = two_wordings[0].values
    crossed = pair.task(values | {"shape1": values["shape2"], "shape2": values["shape1"]})
    tasks = [two_wordings[0], crossed]
    presence, binding = (encode(pair, tasks, coding) for coding in ("presence", "binding"))
    assert hot(presence, 0) == hot(presence, 1)
    assert hot(binding, 0) == {"color+shape=red+circle", "color+shape=blue+square"}
    assert hot(binding, 1) == {"color+shape=red+square", "color+shape=blue+circle"}
    assert binding.matrix.shape == (2, 60)


@pytest.mark.parametrize("name", ["shapes-pair", "shapes-single"])
def test_every_coding_is_consistent_over_its_whole_family(name):
    family = load_family(name)
    tasks = family.tasks()
    for coding in applicable(family):
        targets = encode(family, tasks, coding)
        assert targets.matrix.dtype == np.float32
        assert set(np.unique(targets.matrix)) == {0.0, 1.0}
        assert len(targets.columns) == len(set(targets.columns)) == targets.matrix.shape[1]
        assert (targets.matrix.sum(axis=0) > 0).all(), "no column is always 0"
        for group in set(targets.constituents):
            of_group = np.array([constituent == group for constituent in targets.constituents])
            per_row = targets.matrix[:, of_group].sum(axis=1)
            assert (per_row >= 1).all()
            if coding in ("slot", "scene"):
                assert (per_row == 1).all()


def test_columns_do_not_depend_on_the_tasks_given(pair):
    few, many = encode(pair, pair.tasks()[:3], "scene"), encode(pair, pair.tasks()[::50], "scene")
    assert few.columns == many.columns
    assert encode(pair, [], "scene").matrix.shape == (0, 34)


def test_groups_of_three_give_every_pair(pair):
    single = load_family("shapes-single")
    targets = encode(single, single.tasks()[:1], "binding")
    assert hot(targets, 0) == {
        "size+color=small+red", "size+shape=small+circle", "color+shape=red+circle",
    }  # fmt: skip


def test_wrong_codings_and_tasks_are_refused(pair):
    single = load_family("shapes-single")
    with pytest.raises(ConfigError, match="unknown coding 'scen': did you mean 'scene'"):
        encode(pair, [], "scen")
    with pytest.raises(ConfigError, match=r"'scene'.*family shapes-single"):
        encode(single, [], "scene")
    with pytest.raises(DataError, match="is of the family 'shapes-single', not 'shapes-pair'"):
        encode(pair, single.tasks()[:1], "slot")
