"""Speed of the synthetic core: CPU milliseconds per step beside the reference's, and ratios to plain torch modules.

    OMP_NUM_THREADS=1 python scripts/bench_synthetic.py [--quick] [--target] [--out bench.json]

CPU time of the process is measured, so other jobs on the machine matter little. Each pair is measured in turn, several
times, and the fastest of each counts. The reference numbers are those of the paper's JAX code on one core of a two-core
AMD EPYC, with its faster flags where they were tried; another machine has others.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import process_time

import torch
from torch import nn

from synthetic.grid import MOVES, ROOMS
from synthetic.measures import score
from synthetic.preference import PreferenceGrid
from synthetic.problems import Batch, make_problem
from synthetic.runs import member_of
from synthetic.settings import TrainSettings
from synthetic.training import Trainer

REFERENCE_MS = {
    "mlp 256x2": 20.5,
    "mlp 1024x4": 639.2,
    "transformer 128x2": 426.2,
    "few-shot mlp 256x2": 73.0,
    "preference data": 23.6,
    "preference mlp 256x2": 46.6,
}
LIMIT_MS = {
    "mlp 256x2": 20.0,
    "mlp 1024x4": 600.0,
    "transformer 128x2": 213.0,
    "preference data": 5.9,
}


def cpu_ms(step: Callable[[], object], repeats: int) -> float:
    """CPU milliseconds of one call, over some repeats."""
    start = process_time()
    for _ in range(repeats):
        step()
    return 1000 * (process_time() - start) / repeats


def fastest(steps: dict[str, Callable[[], object]], repeats: int, rounds: int) -> dict[str, float]:
    """The fastest round of each, measured in turn."""
    for step in steps.values():
        step()
    found = {name: float("inf") for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            found[name] = min(found[name], cpu_ms(step, repeats))
    return found


def plain_mlp(sizes: list[int]) -> nn.Sequential:
    """Linear and ReLU modules as one would write them."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def plain_step(settings: TrainSettings, seed: int = 0) -> Callable[[], None]:
    """One training step of plain modules on the same data."""
    problem = make_problem(settings)
    torch.manual_seed(seed)
    sizes = [
        problem.encoding.dim + problem.x_dim,
        *[settings.width] * settings.depth,
        problem.out_dim,
    ]
    network = plain_mlp(sizes)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.decay
    )
    number = 0

    def step() -> None:
        nonlocal number
        batch = problem.draw("train", number, settings.batch_tasks)
        number += 1
        z = batch.z.unsqueeze(1).expand(-1, batch.x.shape[1], -1)
        predicted = network(torch.cat([z, batch.x], dim=2))
        if batch.y.is_floating_point():
            loss = nn.functional.mse_loss(predicted, batch.y)
        else:
            loss = nn.functional.cross_entropy(predicted[batch.scored], batch.y[batch.scored])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def plain_transformer_step(settings: TrainSettings) -> Callable[[], None]:
    """One training step of torch's own encoder layers with a causal mask, on the same data."""
    problem = make_problem(settings)
    width = settings.width
    layer = nn.TransformerEncoderLayer(
        width, settings.heads, settings.feedforward, 0.0, "gelu", batch_first=True, norm_first=True
    )
    body = nn.TransformerEncoder(layer, settings.depth, enable_nested_tensor=False)
    parts = nn.ModuleList(
        [nn.Linear(problem.encoding.dim, width), nn.Linear(problem.x_dim, width), body]
    )
    parts.append(nn.Linear(width, problem.out_dim))
    mask = nn.Transformer.generate_square_subsequent_mask(settings.samples + 1)
    optimiser = torch.optim.AdamW(parts.parameters(), lr=settings.learning_rate)
    number = 0

    def step() -> None:
        nonlocal number
        batch = problem.draw("train", number, settings.batch_tasks)
        number += 1
        tokens = torch.cat([parts[0](batch.z).unsqueeze(1), parts[1](batch.x)], dim=1)
        predicted = parts[3](parts[2](tokens, mask=mask, is_causal=True)[:, 1:])
        optimiser.zero_grad()
        nn.functional.mse_loss(predicted, batch.y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def plain_grid_data(grid: PreferenceGrid, latents: torch.Tensor) -> None:
    """The same value iteration, task by task and state by state set, with a transition table made for each task."""
    rng = torch.Generator().manual_seed(0)
    boards = grid.draw_boards(len(latents), rng)
    worth = grid.worth(latents, boards)
    num_sets = 2**grid.num_objects
    for b in range(len(latents)):
        following = torch.zeros(num_sets, len(ROOMS.cells), len(MOVES), dtype=torch.long)
        reward = torch.zeros(num_sets, len(ROOMS.cells), len(MOVES), dtype=torch.float64)
        for left in range(num_sets):
            arrived, remains = ROOMS.move, torch.full_like(ROOMS.move, left)
            for i in range(grid.num_objects):
                if left >> i & 1:
                    here = arrived == boards.objects[b, i]
                    remains = torch.where(here, left & ~(1 << i), remains)
                    reward[left][here] = worth[b, i]
            following[left] = remains * len(ROOMS.cells) + arrived
        values = torch.zeros(num_sets * len(ROOMS.cells), dtype=torch.float64)
        for _ in range(grid.horizon):
            values = (reward + grid.discount * values[following]).amax(dim=2).flatten()


def step_pairs(quick: bool) -> dict[str, tuple[dict[str, Callable[[], object]], int]]:
    """What is measured: our step and the plain one, and how often."""
    here = Path()
    small = TrainSettings(out=here, modules=8, hot=2)
    large = TrainSettings(out=here, width=1024, depth=4)
    former = TrainSettings(out=here, student="transformer", width=128, depth=2, feedforward=1024)
    fewshot = TrainSettings(out=here, modules=8, hot=2, encoding="fewshot")
    grid = TrainSettings(out=here, task="preference", modules=8, hot=2)
    pairs: dict[str, tuple[dict[str, Callable[[], object]], int]] = {
        "mlp 256x2": ({"ours": Trainer([small]).train_step, "plain": plain_step(small)}, 10),
        "transformer 128x2": (
            {"ours": Trainer([former]).train_step, "plain": plain_transformer_step(former)},
            2,
        ),
        "few-shot mlp 256x2": (
            {"ours": Trainer([fewshot]).train_step, "plain": plain_step(fewshot)},
            4,
        ),
        "preference mlp 256x2": (
            {"ours": Trainer([grid]).train_step, "plain": plain_step(grid)},
            5,
        ),
    }
    if not quick:
        pairs["mlp 1024x4"] = ({"ours": Trainer([large]).train_step, "plain": plain_step(large)}, 1)
    return pairs


def in_turn(steps: list[Callable[[], object]]) -> None:
    """Every step once."""
    for step in steps:
        step()


def stacks(rounds: int) -> list[dict[str, float]]:
    """16 students side by side against one after the other, and against plain modules one after the other."""
    rows: list[dict[str, float]] = []
    for width, tasks in ((8, 8), (32, 8), (32, 128), (64, 128)):
        members = [
            TrainSettings(
                out=Path(), modules=8, hot=2, width=width, batch_tasks=tasks, student_seed=i
            )
            for i in range(16)
        ]
        alone: list[Callable[[], object]] = [Trainer([member]).train_step for member in members]
        plain: list[Callable[[], object]] = [plain_step(m, i) for i, m in enumerate(members)]
        steps: dict[str, Callable[[], object]] = {
            "stacked": Trainer(members).train_step,
            "one_after_the_other": partial(in_turn, alone),
            "plain": partial(in_turn, plain),
        }
        found = fastest(steps, 3, rounds)
        ratio = found["one_after_the_other"] / found["stacked"]
        rows.append(
            {
                "width": width,
                "batch_tasks": tasks,
                **found,
                "ratio": ratio,
                "over_plain": found["plain"] / found["stacked"],
            }
        )
    return rows


def held_out_r2(trainer: Trainer, tasks: Batch) -> float:
    """The paper's R2 of a single student on held-out tasks."""
    value = score(trainer.predict(tasks)[0], member_of(tasks, 0))["r2"]
    assert isinstance(value, float)
    return value


def time_to_target(
    paper_steps: int = 10_000, fast_steps: int = 1000, seed: int = 4
) -> dict[str, float]:
    """CPU seconds of the fast recipe to the held-out R2 of 10,000 paper steps (M = 16, K = 3).

    Training alone is timed. The paper's code takes 10,000 / 45.4 = 220 CPU seconds for those steps on its machine;
    its own R2 at 10,000 steps is not known for this task, so the target is measured here, with its recipe. The seed is
    not the one on which the fast recipe's rate was chosen (1).
    """
    paper = Trainer([TrainSettings(out=Path(), steps=paper_steps, seed=seed)])
    tasks = paper.draw_set("held_out", 1024)
    while paper.step < paper_steps:
        paper.train_step()
    target = held_out_r2(paper, tasks)
    fast = Trainer([TrainSettings(out=Path(), steps=fast_steps, recipe="fast", seed=seed)])
    reached = 0.0
    while fast.step < fast_steps and reached < target:
        fast.train_step()
        if fast.step % 50 == 0:
            reached = held_out_r2(fast, tasks)
    return {
        "target_r2": target,
        "paper_cpu_s": paper.cost.cpu_s,
        "reached_r2": reached,
        "fast_steps": fast.step,
        "fast_cpu_s": fast.cost.cpu_s,
        "reference_cpu_s": paper_steps / 45.4,
        "share_of_reference": fast.cost.cpu_s * 45.4 / paper_steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="few repeats, without the large network"
    )
    parser.add_argument(
        "--target", action="store_true", help="also time both recipes to one R2 (4 CPU minutes)"
    )
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 2 if arguments.quick else 4
    print(
        f"{'CPU ms per step':<24}{'ours':>8}{'plain':>8}{'ratio':>7}{'paper code':>12}{'limit':>7}"
    )
    rows: dict[str, object] = {}
    pairs = step_pairs(arguments.quick)
    data = make_problem(TrainSettings(out=Path(), task="preference", modules=8, hot=2))
    latents = data.draw("train", 0, 128).task_latents
    grid = PreferenceGrid(seed=1)
    eighth = latents[:16]
    data_steps: dict[str, Callable[[], object]] = {
        "ours": lambda: data.draw("train", 0, 128),
        "plain": lambda: plain_grid_data(grid, eighth),
    }
    pairs["preference data"] = (data_steps, 1 if arguments.quick else 3)
    for name, (steps, repeats) in pairs.items():
        found = fastest(steps, repeats, rounds)
        if name == "preference data":
            found["plain"] *= len(latents) / len(eighth)
        ratio = found["plain"] / found["ours"]
        rows[name] = {**found, "ratio": ratio, "reference": REFERENCE_MS[name]}
        limit = f"{LIMIT_MS[name]:.1f}" if name in LIMIT_MS else "-"
        print(
            f"{name:<24}{found['ours']:>8.2f}{found['plain']:>8.2f}{ratio:>7.2f}{REFERENCE_MS[name]:>12.1f}{limit:>7}",
            flush=True,
        )
    print("\n16 students, CPU ms per step of all")
    print(
        f"{'width':>6}{'tasks':>7}{'stacked':>9}{'in turn':>9}{'ratio':>7}{'plain':>9}{'ratio':>7}"
    )
    rows["stacks"] = found_stacks = stacks(rounds)
    for row in found_stacks:
        print(
            "{width:>6}{batch_tasks:>7}{stacked:>9.1f}{one_after_the_other:>9.1f}{ratio:>7.2f}{plain:>9.1f}{over_plain:>7.2f}".format(
                **row
            )
        )
    if arguments.target:
        rows["target"] = found_target = time_to_target()
        print("\ntime to the paper recipe's held-out R2 after 10,000 steps, M = 16, K = 3")
        print("\n".join(f"  {name:<20}{value:>10.3f}" for name, value in found_target.items()))
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
