"""Value iteration on a grid of four rooms with objects to collect, for many tasks at once.

A state is a cell and the set of objects still there. Where a move leads depends on the walls alone, so one table of
(cell, action) -> cell is shared by all tasks; a task only says where its objects lie and what each is worth.
Arriving (or staying) at a cell whose object is still there collects it:

    V_0 = 0,   Q_{n+1}(cell, set, action) = U_{n+1}(move(cell, action), set),   V_n = max_action Q_n,
    U_{n+1}(cell, set) = worth(object) + discount V_n(cell, set - object)    with an object of the set at the cell,
                         discount V_n(cell, set)                             without.

Axis letters: b tasks, c cells, s object sets, n objects, a actions. All planning is float64.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

LAYOUT = ("#######", "#  #  #", "#  #  #", "##   ##", "#  #  #", "#  #  #", "#######")
ACTIONS = ("nothing", "up", "right", "down", "left")
MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))
NOTHING = 0


@dataclass(frozen=True)
class Rooms:
    """The grid as tables.

    Attributes:
        size: the side of the grid, walls included.
        walls: (size * size,) 1 where there is a wall.
        cells: (c,) flat positions of the free cells.
        move: (c, a) the free cell an action leads to; a wall keeps the agent where it is.
    """

    size: int
    walls: Float[Tensor, " g"]
    cells: Int[Tensor, " c"]
    move: Int[Tensor, "c a"]


def four_rooms() -> Rooms:
    """The 7 x 7 grid of the paper: 19 free cells."""
    size = len(LAYOUT)
    walls = torch.tensor([[float(mark == "#") for mark in line] for line in LAYOUT])
    cells = torch.nonzero(walls.flatten() == 0).flatten()
    number = {int(cell): i for i, cell in enumerate(cells)}
    move = [
        [number.get(int(cell) + down * size + right, i) for down, right in MOVES]
        for i, cell in enumerate(cells)
    ]
    return Rooms(size, walls.flatten(), cells, torch.tensor(move))


ROOMS = four_rooms()


@dataclass(frozen=True)
class Boards:
    """Where things are in each of b tasks.

    Attributes:
        agent: (b,) the cell where the agent starts.
        objects: (b, n) the cells of the objects, all different and not the agent's.
        features: (b, n) the kind of each object; kinds may repeat.
    """

    agent: Int[Tensor, " b"]
    objects: Int[Tensor, "b n"]
    features: Int[Tensor, "b n"]


def draw_boards(
    num_tasks: int, num_objects: int, num_features: int, rng: torch.Generator
) -> Boards:
    """Boards with the agent and the objects on different cells, drawn uniformly; kinds with replacement."""
    places = torch.rand(num_tasks, len(ROOMS.cells), generator=rng).argsort(dim=1)[
        :, : num_objects + 1
    ]
    features = torch.randint(num_features, (num_tasks, num_objects), generator=rng)
    return Boards(places[:, 0], places[:, 1:], features)


def plan(
    boards: Boards, worth: Float[Tensor, "b n"], horizon: int, discount: float, keep: bool = False
) -> list[Float[Tensor, "c b s"]]:
    """The arrival values U_horizon of every cell and object set, by value iteration.

    Args:
        boards: the tasks.
        worth: float64 reward for collecting each object.
        horizon: the number of backups, at least 1.
        discount: in [0, 1).
        keep: give U_1 ... U_horizon instead of the last one alone.
    """
    num_tasks, num_objects = worth.shape
    sets = torch.arange(2**num_objects)
    bits = 2 ** torch.arange(num_objects)
    present = (sets.unsqueeze(0) & bits.unsqueeze(1)) > 0  # (n, s)
    without = torch.where(present, sets & ~bits.unsqueeze(1), sets)  # (n, s)
    tasks = torch.arange(num_tasks).view(-1, 1, 1)
    here = (boards.objects.unsqueeze(2) * num_tasks + tasks) * len(sets)
    source, target = (here + without).flatten(), (here + sets).flatten()
    gain = (worth.unsqueeze(2) * present).flatten()
    value = torch.zeros(len(ROOMS.cells), num_tasks, len(sets), dtype=torch.float64)
    arrivals = []
    for backup in range(horizon):
        arrival = discount * value
        arrival.view(-1)[target] = gain + arrival.view(-1)[source]
        if keep or backup == horizon - 1:
            arrivals.append(arrival)
        if backup < horizon - 1:
            value = _best_move(arrival)
    return arrivals


def _best_move(arrival: Float[Tensor, "c b s"]) -> Float[Tensor, "c b s"]:
    """The largest arrival value among the five moves from each cell."""
    best = arrival.clone()
    for action in range(1, len(ACTIONS)):
        torch.maximum(best, arrival.index_select(0, ROOMS.move[:, action]), out=best)
    return best


@dataclass(frozen=True)
class Episodes:
    """What a planner does on each board.

    Attributes:
        actions: (b, t) the action taken, the lowest of the best ones.
        best: (b, t, a) whether an action is within 1e-9 of the best one.
        values: (b, t, a) Q of every action in the state of the step.
        cells: (b, t) where the agent is before the action.
        sets: (b, t) which objects are there before the action, as bits.
        scored: (b, t) the steps up to and including the first "nothing", which ends the episode.
        rewards: (b, t) what each action earned; 0 once the episode is over.
    """

    actions: Int[Tensor, "b t"]
    best: Tensor
    values: Float[Tensor, "b t a"]
    cells: Int[Tensor, "b t"]
    sets: Int[Tensor, "b t"]
    scored: Tensor
    rewards: Float[Tensor, "b t"]


def demonstrate(
    boards: Boards,
    worth: Float[Tensor, "b n"],
    horizon: int,
    discount: float,
    stationary: bool = True,
) -> Episodes:
    """Episodes of the planner's actions.

    Args:
        boards: the tasks.
        worth: float64 reward for collecting each object.
        horizon: steps of an episode and backups of the plan.
        discount: in [0, 1).
        stationary: act at every step on the Q of the full horizon, as the reference does; otherwise on the Q of the
            steps that are left, the true finite-horizon optimum (1 to 2% of episodes differ).
    """
    arrivals = plan(boards, worth, horizon, discount, keep=not stationary)
    cell = boards.agent
    objects = torch.full_like(cell, 2 ** worth.shape[1] - 1)
    bits = 2 ** torch.arange(worth.shape[1])
    over = torch.zeros(len(cell), dtype=torch.bool)
    rows = torch.arange(len(cell))
    columns: list[tuple[Tensor, ...]] = []
    for step in range(horizon):
        arrival = arrivals[-1 if stationary else horizon - 1 - step]
        values = arrival[ROOMS.move[cell], rows.unsqueeze(1), objects.unsqueeze(1)]
        top = values.max(dim=1, keepdim=True).values
        action = values.argmax(dim=1)
        arrived = ROOMS.move[cell, action]
        collected = (boards.objects == arrived.unsqueeze(1)) & ((objects.unsqueeze(1) & bits) > 0)
        reward = (collected * worth).sum(dim=1) * ~over
        columns.append((action, values >= top - 1e-9, values, cell, objects, ~over, reward))
        over = over | (action == NOTHING)
        objects = objects & ~(collected * bits).sum(dim=1)
        cell = arrived
    return Episodes(*(torch.stack(column, dim=1) for column in zip(*columns, strict=True)))


def observe(
    boards: Boards, cells: Int[Tensor, "b t"], sets: Int[Tensor, "b t"], num_features: int
) -> Float[Tensor, "b t d"]:
    """What the student sees: one channel per kind of object, one for the agent, one for walls, scaled to RMS 1.

    The vector runs over rows, columns and channels, with d = size * size * (num_features + 2). Every entry is 0 or the
    same positive number, because no two things lie on one cell.
    """
    channels = num_features + 2
    walls = torch.zeros(ROOMS.size**2, channels)
    walls[:, -1] = ROOMS.walls
    dim = walls.numel()
    num_objects = boards.objects.shape[1]
    there = (sets.unsqueeze(2) & (2 ** torch.arange(num_objects))) > 0
    marks = ROOMS.walls.sum() + 1 + there.sum(dim=2)
    level = torch.rsqrt(marks / dim + 1e-6).unsqueeze(2)
    seen = walls.flatten() * level
    seen.scatter_(2, (ROOMS.cells[cells] * channels + num_features).unsqueeze(2), level)
    where = (ROOMS.cells[boards.objects] * channels + boards.features).unsqueeze(1)
    return seen.scatter_(2, where.expand(there.shape), there * level)
