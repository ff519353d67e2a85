"""The preference grid against an independent, plain-Python dynamic programme in float64."""

from functools import cache

import numpy as np
import pytest
import torch

from synthetic.grid import (
    ACTIONS,
    LAYOUT,
    MOVES,
    ROOMS,
    Boards,
    demonstrate,
    draw_boards,
    observe,
    plan,
)
from synthetic.preference import PreferenceGrid
from synthetic.supports import make_support
from synthetic.teacher import draw_task_latents
from t2iprobe.errors import ConfigError


def drawn(count, seed=0, objects=4, features=16):
    grid = PreferenceGrid(8, features, objects, seed=1)
    rng = torch.Generator().manual_seed(seed)
    z = draw_task_latents(
        torch.from_numpy(make_support("random", 8, 2).seen), count, "discrete", rng
    )
    boards = grid.draw_boards(count, rng)
    return grid, z, boards


def coordinates(cell):
    flat = int(ROOMS.cells[cell])
    return flat // 7, flat % 7


def episode_by_recursion(start, objects, worth, horizon, discount, stationary=True):
    """Actions, values and rewards by recursion over (row, column, set of objects), written without tables."""

    def move(place, action, left):
        row, column = place[0] + MOVES[action][0], place[1] + MOVES[action][1]
        if LAYOUT[row][column] == "#":
            row, column = place
        for i in left:
            if objects[i] == (row, column):
                return (row, column), left - {i}, worth[i]
        return (row, column), left, 0.0

    @cache
    def value(place, left, steps):
        return 0.0 if steps == 0 else max(q(place, left, steps))

    def q(place, left, steps):
        after = [move(place, action, left) for action in range(5)]
        return [reward + discount * value(new, rest, steps - 1) for new, rest, reward in after]

    place, left = start, frozenset(range(len(objects)))
    actions, values, rewards, over = [], [], [], False
    for step in range(horizon):
        options = q(place, left, horizon if stationary else horizon - step)
        action = int(np.argmax(options))
        place, left, reward = move(place, action, left)
        actions.append(action)
        values.append(options)
        rewards.append(0.0 if over else reward)
        over = over or action == 0
    return actions, values, rewards


@pytest.mark.parametrize("stationary", [True, False])
def test_episodes_equal_an_independent_recursion(stationary):
    grid, z, boards = drawn(24)
    worth = grid.worth(z, boards)
    found = demonstrate(boards, worth, 8, 0.9, stationary)
    for b in range(24):
        objects = [coordinates(cell) for cell in boards.objects[b]]
        expected = episode_by_recursion(
            coordinates(boards.agent[b]), objects, worth[b].tolist(), 8, 0.9, stationary
        )
        assert found.actions[b].tolist() == expected[0]
        assert np.allclose(found.values[b].numpy(), expected[1], atol=1e-12)
        assert np.allclose(found.rewards[b].numpy(), expected[2], atol=1e-12)


def test_values_of_every_state_are_the_horizon_optimum():
    grid, z, boards = drawn(2, seed=5, objects=2, features=8)
    last, kept = (
        plan(boards, grid.worth(z, boards), 4, 0.9),
        plan(boards, grid.worth(z, boards), 4, 0.9, keep=True),
    )
    assert len(last) == 1
    assert len(kept) == 4
    assert torch.equal(last[0], kept[-1])
    assert (
        kept[0] <= kept[1] + 1e-12
    ).all()  # a longer horizon can only earn more: staying is free


def test_finite_horizon_plan_earns_what_it_promises_and_at_least_as_much():
    grid, z, boards = drawn(400, seed=2)
    worth = grid.worth(z, boards)
    discounts = 0.9 ** torch.arange(8, dtype=torch.float64)
    stationary, finite = (demonstrate(boards, worth, 8, 0.9, flag) for flag in (True, False))
    promised = stationary.values[:, 0].max(dim=1).values
    earned = [(episodes.rewards * discounts).sum(dim=1) for episodes in (stationary, finite)]
    assert (earned[0] <= promised + 1e-9).all()
    assert (earned[0] < promised - 1e-9).any()  # greedy on the full horizon is not the optimum
    assert torch.allclose(earned[1], promised)


def test_walls_stop_and_the_agent_starts_apart_from_objects():
    assert len(ROOMS.cells) == 19
    assert ROOMS.move[:, 0].tolist() == list(range(19))
    boards = draw_boards(500, 4, 16, torch.Generator().manual_seed(0))
    places = torch.cat([boards.agent.unsqueeze(1), boards.objects], dim=1)
    assert all(len(set(row.tolist())) == 5 for row in places)
    repeated = sum(len(set(row.tolist())) < 4 for row in boards.features) / 500
    assert repeated == pytest.approx(0.38, abs=0.08)  # kinds repeat


def test_statistics_are_the_references():
    grid, z, boards = drawn(3000, seed=9)
    episodes = grid.demonstrate(z, boards)
    scored = episodes.scored
    assert scored.sum(dim=1).double().mean() == pytest.approx(5.68, abs=0.3)
    assert (episodes.actions[:, 0] == 0).double().mean() == pytest.approx(0.158, abs=0.04)
    shares = torch.bincount(episodes.actions[scored], minlength=5) / scored.sum()
    assert shares.tolist() == pytest.approx([0.11, 0.25, 0.20, 0.24, 0.20], abs=0.04)
    ties = (episodes.best.sum(dim=2) > 1)[scored].double().mean()
    assert ties == pytest.approx(0.179, abs=0.05)
    assert episodes.best.gather(2, episodes.actions.unsqueeze(2)).all()


def test_ties_go_to_the_lowest_action():
    boards = Boards(torch.tensor([0]), torch.tensor([[1, 2]]), torch.tensor([[0, 1]]))
    episodes = demonstrate(boards, torch.tensor([[-1.0, -1.0]], dtype=torch.float64), 8, 0.9)
    assert episodes.actions[0, 0] == 0  # nothing is as good as any way around objects of no use
    assert episodes.scored[0].tolist() == [True] + [False] * 7  # "nothing" ends it


def test_observation_by_hand():
    boards = Boards(torch.tensor([0]), torch.tensor([[3, 7]]), torch.tensor([[2, 0]]))
    seen = observe(boards, torch.tensor([[0, 3]]), torch.tensor([[3, 2]]), num_features=4)[0].view(
        2, 49, 6
    )
    assert seen.square().mean(dim=(1, 2)).tolist() == pytest.approx([1, 1], abs=1e-3)
    marks = (seen > 0).sum(dim=(1, 2)).tolist()
    assert marks == [30 + 1 + 2, 30 + 1 + 1]
    assert seen[0, ROOMS.cells[3], 2] > 0
    assert seen[1, ROOMS.cells[3], 2] == 0  # collected
    assert seen[1, ROOMS.cells[3], 4] > 0  # the agent stands there now
    assert (seen[0, :, 5] > 0).tolist() == ROOMS.walls.bool().tolist()


def test_worth_is_a_mixture_and_equal_kinds_are_worth_exactly_the_same():
    grid = PreferenceGrid(8, 16, 4, seed=1)
    boards = Boards(torch.tensor([0]), torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 5, 2, 0]]))
    z = torch.zeros(1, 8)
    z[0, 1], z[0, 4] = 0.5, 1.0
    worth = grid.worth(z, boards)[0]
    assert worth[0] == worth[1]
    assert worth[2].item() == pytest.approx((0.5 * grid.basis[1, 2] + grid.basis[4, 2]).item())


def test_values_along_are_the_demonstrators_own_for_its_own_task():
    grid, z, boards = drawn(1, seed=4)
    episodes = grid.demonstrate(z, boards)
    assert torch.allclose(grid.values_along(z[0], boards, episodes), episodes.values)


def test_bad_sizes():
    with pytest.raises(ConfigError, match="at least the number of modules"):
        PreferenceGrid(8, 4)
    with pytest.raises(ConfigError, match="1 to 10"):
        PreferenceGrid(8, 16, 12)
    with pytest.raises(ConfigError, match="below 1"):
        PreferenceGrid(8, 16, 4, discount=1.0)
    assert len(ACTIONS) == 5
