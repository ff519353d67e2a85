"""Drawing tasks: balanced, keyed, and a smaller run is the beginning of a larger one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.families.reading import load_family
from t2iprobe.families.sampling import draw_tasks

PAIR = load_family("shapes-pair")
SINGLE = load_family("shapes-single")


@pytest.fixture(scope="module")
def long_tail():
    """30% of the scenes unseen, the others seen 1 to some thousand times."""
    rng = np.random.default_rng(0)
    counts = np.ceil(rng.pareto(0.7, size=PAIR.n_scenes)).astype(int)
    counts[rng.random(PAIR.n_scenes) < 0.3] = 0
    return [int(count) for count in counts]


def counts_of(tasks, counts):
    return np.array([counts[PAIR.scene_index[task.scene_id]] for task in tasks])


@pytest.mark.parametrize("family", [PAIR, SINGLE], ids=["pair", "single"])
@pytest.mark.parametrize("n", [10, 48, 192])
def test_every_value_occurs_almost_equally_often(family, n):
    tasks = draw_tasks(family, n, seed=0)
    assert len({task.scene_id for task in tasks}) == n
    for constituent in family.constituents:
        seen = Counter(task.values[constituent.name] for task in tasks)
        even = n / len(constituent.values)
        assert all(abs(seen[value] - even) <= 2 for value in constituent.values)


@settings(max_examples=10, deadline=None)
@given(small=st.integers(1, 150), more=st.integers(0, 150), seed=st.integers(0, 2**32))
def test_a_larger_draw_begins_with_the_smaller_one(small, more, seed):
    assert draw_tasks(SINGLE, small + more, seed)[:small] == draw_tasks(SINGLE, small, seed)


def test_a_larger_draw_over_strata_begins_with_the_smaller_one(long_tail):
    assert draw_tasks(PAIR, 300, 1, long_tail)[:100] == draw_tasks(PAIR, 100, 1, long_tail)


def test_seeds_give_different_tasks():
    assert draw_tasks(PAIR, 50, seed=0) != draw_tasks(PAIR, 50, seed=1)


def test_second_wordings_come_only_after_every_scene():
    tasks = draw_tasks(PAIR, PAIR.n_tasks, seed=0)
    assert {task.id for task in tasks} == {task.id for task in PAIR.tasks()}
    assert len({task.scene_id for task in tasks[: PAIR.n_scenes]}) == PAIR.n_scenes


def test_half_of_the_tasks_are_unseen_and_the_seen_ones_span_the_counts(long_tail):
    drawn = counts_of(draw_tasks(PAIR, 200, 0, long_tail), long_tail)
    assert (drawn == 0).sum() == 100
    seen = np.sort([count for count in long_tail if count])
    edges = [seen[round(len(seen) * q / 5) - 1] for q in range(1, 6)]
    ranks = np.searchsorted(seen, drawn[drawn > 0], side="left") / len(seen)
    assert ranks.min() < 0.2
    assert ranks.max() > 0.9
    assert drawn.max() <= edges[-1]
    # The upper two fifths give two fifths of the seen tasks.
    assert (drawn > edges[2]).sum() == pytest.approx(40, abs=2)


def test_inside_a_fifth_the_counts_are_not_biased():
    """Counts 1 to n, all different: the mean rank of the seen tasks is that of the seen scenes."""
    counts = list(range(1, PAIR.n_scenes + 1))
    drawn = counts_of(draw_tasks(PAIR, 600, 0, counts), counts)
    assert drawn.mean() / PAIR.n_scenes == pytest.approx(0.5, abs=0.03)


def test_values_stay_balanced_over_strata(long_tail):
    tasks = draw_tasks(PAIR, 192, 0, long_tail)
    for constituent in PAIR.constituents:
        seen = Counter(task.values[constituent.name] for task in tasks)
        assert min(seen.values()) >= 0.8 * 192 / len(constituent.values)


@pytest.mark.parametrize("n_unseen", [0, 5, 6_480])
def test_where_one_side_runs_out_the_other_goes_on(n_unseen):
    counts = [0] * n_unseen + [3] * (PAIR.n_scenes - n_unseen)
    drawn = counts_of(draw_tasks(PAIR, 100, 0, counts), counts)
    assert (drawn == 0).sum() == min(n_unseen, 100)


@pytest.mark.parametrize("n", [0, -1])
def test_fewer_than_one_task_is_refused(n):
    with pytest.raises(ConfigError, match=f"got {n} tasks; ask for 1 to 12960"):
        draw_tasks(PAIR, n, seed=0)


def test_more_tasks_than_the_family_has_are_refused():
    with pytest.raises(ConfigError, match=r"got 601 tasks; the family 'shapes-single' has 600"):
        draw_tasks(SINGLE, 601, seed=0)


@pytest.mark.parametrize("counts", [[], [1, 2], [-1] + [0] * 6_479])
def test_scene_counts_of_another_family_are_refused(counts):
    with pytest.raises(DataError, match="needs 6480 counts >= 0"):
        draw_tasks(PAIR, 10, 0, counts)
