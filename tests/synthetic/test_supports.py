"""Task supports: facts by brute force, the reference's counts, and requests that cannot be met."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from synthetic.supports import (
    SUPPORTS,
    all_combinations,
    count_combinations,
    make_support,
    min_connected,
)
from synthetic.supports.combos import count_components
from t2iprobe.errors import ConfigError


def components_by_scipy(rows):
    joined = csr_matrix(rows.T.astype(int) @ rows.astype(int))
    _, labels = connected_components(joined, directed=False)
    return len({labels[m] for m in np.flatnonzero(rows.any(axis=0))})


def as_sets(rows):
    return {frozenset(np.flatnonzero(row).tolist()) for row in rows}


def test_all_combinations_lists_every_subset_once_by_size():
    rows = all_combinations(6, 3)
    expected = [frozenset(c) for size in (1, 2, 3) for c in combinations(range(6), size)]
    assert [frozenset(np.flatnonzero(row).tolist()) for row in rows] == expected
    assert count_combinations(28, 6) == 499_177


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(2, 8), st.integers(0, 2**31))
def test_components_agree_with_scipy(count, modules, seed):
    rows = np.random.default_rng(seed).random((count, modules)) < 0.25
    assume(rows.any())
    assert count_components(rows) == components_by_scipy(rows)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["random", "balanced"]),
    st.integers(3, 9),
    st.integers(2, 4),
    st.floats(0, 1),
    st.integers(0, 99),
)
def test_drawn_supports_use_and_join_all_modules(name, modules, hot, where, seed):
    hot = min(hot, modules)
    fewest, total = min_connected(modules, hot), count_combinations(modules, hot)
    seen = fewest + int(where * (total - 1 - fewest))
    support = make_support(name, modules, hot, num_train_tasks=seen, seed=seed)
    assert len(support.seen) == seen
    assert len(support.held_out) == total - seen
    assert support.overlap == 0
    assert as_sets(support.seen) | as_sets(support.held_out) == as_sets(
        all_combinations(modules, hot)
    )
    assert support.unseen_modules == ()
    assert components_by_scipy(support.seen) == support.components == 1
    if name == "balanced":
        assert support.usage.max() - support.usage.min() <= 1


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SUPPORTS)),
    st.integers(2, 9),
    st.integers(1, 4),
    st.floats(0.01, 0.99),
    st.integers(0, 9),
)
def test_every_support_is_a_split_or_explains_itself(name, modules, hot, fraction, seed):
    assume(hot <= modules)
    fixed = name in ("connected", "disconnected", "omitted")
    try:
        support = make_support(name, modules, hot, None if fixed else fraction, seed=seed)
    except ConfigError as error:
        said = str(error)
    else:
        check_split(support, name, modules)
        return
    assert "\n" not in said
    assert len(said) > 20


def check_split(support, name, modules):
    assert len(support.seen)
    assert len(support.held_out)
    assert support.overlap == 0
    assert not as_sets(support.seen) & as_sets(support.held_out)
    assert support.components == components_by_scipy(support.seen)
    if name == "omitted":
        assert support.unseen_modules == (modules - 1,)
    else:
        assert support.unseen_modules == ()
    if name in ("disconnected", "disconnected-one"):
        assert support.components == 2 or modules == 2
    elif name != "omitted":
        assert support.components == 1


@pytest.mark.parametrize(
    ("name", "usage", "seen", "held_out"),
    [
        ("rare", [8, 7, 7, 7, 7, 6, 5, 1], 27, 9),
        ("unpopular_modules", [8, 7, 7, 7, 7, 6, 5, 1], 27, 9),
        ("omitted", [7, 7, 7, 7, 7, 7, 7, 0], 28, 8),
        ("connected", [5] * 8, 24, 10),
        ("disconnected", [4] * 8, 20, 10),
    ],
)
def test_reference_usage_at_eight_modules(name, usage, seen, held_out):
    support = make_support(name, 8, 2)
    assert (support.usage.tolist(), len(support.seen), len(support.held_out)) == (
        usage,
        seen,
        held_out,
    )


def test_reference_structure_of_popular_and_disconnected_one():
    popular = make_support("popular", 8, 2, 0.25, seed=3)
    assert popular.usage[:4].tolist() == [8, 8, 8, 8]
    assert sorted(popular.usage[4:].tolist()) in ([4, 4, 4, 5], [4, 4, 5, 5])
    assert not popular.held_out[:, :4].any()
    alone = make_support("pseudo_random_disconnected", 8, 2, 0.25)
    assert alone.usage[0] == 1
    assert sum(row[0] for row in alone.held_out) == 7
    assert (len(alone.seen), len(alone.held_out)) == (27, 9)


def test_reference_counts_at_sixteen_modules():
    counts = {
        n: len(make_support(n, 16, 3).seen)
        for n in ("random", "balanced", "popular", "rare", "omitted")
    }
    assert counts == {"random": 522, "balanced": 522, "popular": 522, "rare": 522, "omitted": 575}


def test_connected_is_the_ring_of_the_reference():
    pairs = {c for c in as_sets(make_support("connected", 8, 2).seen) if len(c) == 2}
    assert pairs == {frozenset((m, (m + d) % 8)) for m in range(8) for d in (1, 2)}


def test_half_a_million_combinations_are_balanced_in_seconds():
    support = make_support("balanced", 28, 6, 0.9999)
    assert support.usage.max() - support.usage.min() <= 1
    assert support.components == 1


def test_seed_changes_the_split_and_nothing_else_does():
    same = [make_support("random", 8, 2, 0.25, seed=5).seen for _ in range(2)]
    assert (same[0] == same[1]).all()
    assert as_sets(same[0]) != as_sets(make_support("random", 8, 2, 0.25, seed=6).seen)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("random", 8, 2, 0.01), "at least 0.027778"),  # nothing held out
        (
            ("random", 8, 2, 0.9),
            "at least 7 are needed",
        ),  # 3 combinations cannot join 8 modules
        (("random", 16, 3, 0.99), "at least 8 are needed"),
        (("ranodm", 8, 2), "did you mean 'random'"),
        (("random", 8, 1, 0.25), "--hot 2 or more"),
        (("random", 1, 1), "2 to 62"),
        (("random", 4, 5), "1 to the number of modules (4)"),
        (("connected", 4, 2), "at least 5 modules"),
        (("omitted", 8, 2, 0.25), "leave out --frac-ood"),
        (("popular", 8, 2, 0.99), "at least 8 seen"),
        (("random", 62, 6), "at most 5,000,000"),
        (("random", 8, 2, 0.25, 10), "not both"),
        (("random", 8, 2, None, 36), "1 to 35"),
    ],
)
def test_impossible_requests_say_what_is_possible(arguments, says):
    with pytest.raises(ConfigError) as caught:
        make_support(*arguments)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
