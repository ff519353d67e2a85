"""Trains one student, or several of equal shape side by side, on tasks drawn fresh at every step.

A step depends on its number, the seeds and the weights alone, so a run that was killed continues from its last
checkpoint as if nothing had happened.
"""

import json
from dataclasses import dataclass
from math import cos, isfinite, pi
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from synthetic.measures import loss
from synthetic.optimisers import make_optimisers
from synthetic.problems import Batch, Problem, make_problem, stack
from synthetic.settings import PROBLEM_FREE, RECIPES, TrainSettings
from synthetic.students import STUDENTS
from synthetic.students.layers import Sizes
from t2iprobe.errors import ConfigError, DataError
from t2iprobe.registry import resolve
from t2iprobe.runs.folder import atomic
from t2iprobe.seeding import generator

SHARED = (
    "student", "width", "depth", "heads", "feedforward", "recipe", "steps", "batch_tasks", "samples", "eval_every",
    "eval_tasks", "checkpoint_every", "device", "task",
)  # fmt: skip


@dataclass
class Cost:
    """What training has used so far, over all restarts."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


class Trainer:
    """Students of equal shape (members), their problems and their optimisers.

    Attributes:
        members: the settings of each.
        problems: the problem of each; members that differ in nothing a problem depends on share one.
        student: the stacked network.
        step: optimiser steps done.
        losses: (e,) sum of each member's losses since the last call of `mean_losses`, over `losses_of` steps.
        cost: time used in training steps.
    """

    def __init__(self, members: list[TrainSettings]) -> None:
        self.members = members
        self.shared = members[0]
        self._check_alike()
        made: dict[tuple[object, ...], Problem] = {}
        keys = [_problem_key(member) for member in members]
        for key, member in zip(keys, members, strict=True):
            if key not in made:
                made[key] = make_problem(member)
        self._unique = list(made.values())
        self._which = [list(made).index(key) for key in keys]
        self.problems = [self._unique[i] for i in self._which]
        self.device = usable_device(self.shared.device)
        self.student = _make_student(members, self.problems).to(self.device)
        self.optimisers = make_optimisers(
            self.student, self.shared.recipe, self.shared.learning_rate, self.shared.decay
        )
        self.step = 0
        self.losses = torch.zeros(len(members), device=self.device)
        self.losses_of = 0
        self.cost = Cost()

    def _check_alike(self) -> None:
        for name in SHARED:
            values = {getattr(member, name) for member in self.members}
            if len(values) > 1:
                raise ConfigError(
                    f"students side by side must agree in {name}, got {sorted(map(str, values))}"
                )
        for name in ("learning_rate", "decay"):
            if len({getattr(member, name) for member in self.members}) > 1:
                raise ConfigError(f"students side by side must agree in {name.replace('_', ' ')}")

    def draw(self, split: str, number: int) -> Batch:
        """A training-sized batch for every member."""
        drawn = [problem.draw(split, number, self.shared.batch_tasks) for problem in self._unique]
        return stack([drawn[i] for i in self._which]).to(self.device)

    def train_step(self) -> None:
        """One optimiser step."""
        wall, cpu = perf_counter(), process_time()
        rate = learning_rate_at(self.step, self.shared)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * group["factor"]
        batch = self.draw("train", self.step)
        self.student.zero_grad(set_to_none=True)
        losses = loss(self.student(batch.z, batch.x), batch)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        for optimiser in self.optimisers:
            optimiser.step()
        self.losses += losses.detach()
        self.losses_of += 1
        self.step += 1
        self.cost.wall_s += perf_counter() - wall
        self.cost.cpu_s += process_time() - cpu

    def mean_losses(self) -> list[float]:
        """The loss of each member before a step, averaged since the last call.

        Raises:
            ConfigError: one of them is not finite.
        """
        means = (self.losses / max(1, self.losses_of)).tolist()
        self.losses.zero_()
        self.losses_of = 0
        if not all(map(isfinite, means)):
            raise ConfigError(
                f"the training diverged before step {self.step}: the loss is not finite; "
                f"give a lower --lr than {self.shared.learning_rate:g}"
            )
        return means

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """Predictions (e, n, t, o) for stacked tasks, in pieces of 256 tasks, on the CPU."""
        pieces = []
        for start in range(0, batch.x.shape[1], 256):
            z = batch.z[:, start : start + 256].to(self.device)
            x = batch.x[:, start : start + 256].to(self.device)
            pieces.append(self.student(z, x).cpu())
        return torch.cat(pieces, dim=1)

    @torch.no_grad()
    def activations(self, batch: Batch, last: bool) -> dict[str, Tensor]:
        """Each task's activation (e, n, d) at every recorded layer: mean over scored samples, or the last one."""
        pieces: dict[str, list[Tensor]] = {}
        for start in range(0, batch.x.shape[1], 256):
            tape: dict[str, Tensor] = {}
            part = slice(start, start + 256)
            self.student(batch.z[:, part].to(self.device), batch.x[:, part].to(self.device), tape)
            scored = batch.scored[:, part].unsqueeze(-1).float()
            for name, activation in tape.items():
                value = activation.cpu()
                pooled = (
                    value[:, :, -1] if last else (value * scored).sum(dim=2) / scored.sum(dim=2)
                )
                pieces.setdefault(name, []).append(pooled)
        return {name: torch.cat(parts, dim=1) for name, parts in pieces.items()}

    def draw_set(self, split: str, num_tasks: int, baselines: bool = False) -> Batch:
        """The first tasks of a split for every member, on the CPU."""
        drawn = [problem.draw_many(split, num_tasks, baselines) for problem in self._unique]
        return stack([drawn[i] for i in self._which])


def learning_rate_at(step: int, settings: TrainSettings) -> float:
    """The rate of a step (0-based): linear warm-up, then a cosine that ends at the floor with the last step."""
    recipe = RECIPES[settings.recipe]
    peak = settings.learning_rate
    warmup = int(recipe["warmup"] * settings.steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, settings.steps - warmup)
    floor = recipe["floor"]
    return peak * (floor + (1 - floor) * 0.5 * (1 + cos(pi * progress)))


def _problem_key(settings: TrainSettings) -> tuple[object, ...]:
    seeds = settings.seeds()
    roles = ("teacher", "split", "encoding", "data")
    seed_names = {f"{role}_seed" for role in roles}
    rest = (
        value
        for name, value in sorted(vars(settings).items())
        if name not in PROBLEM_FREE | seed_names
    )
    return (*rest, *(seeds[role] for role in roles))


def _make_student(members: list[TrainSettings], problems: list[Problem]) -> nn.Module:
    sizes = {
        Sizes(
            problem.encoding.dim,
            problem.encoding.vocabulary,
            problem.x_dim,
            problem.out_dim,
            member.width,
            member.depth,
            member.heads,
            member.feedforward,
        )
        for member, problem in zip(members, problems, strict=True)
    }
    if len(sizes) > 1:
        raise ConfigError(
            f"students side by side must have equal shapes, got {len(sizes)} different ones"
        )
    rngs = [generator("student", member.seeds()["student"]) for member in members]
    student: nn.Module = resolve("student", STUDENTS, members[0].student)(sizes.pop(), rngs)
    return student


def usable_device(name: str) -> str:
    """The device, when it is there.

    Raises:
        ConfigError: it is no device, or none that this machine has.
    """
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise ConfigError(
            f"--device {name!r}: not a device; use cpu, cuda, cuda:1 or mps"
        ) from None
    if kind not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"--device {name}: use cpu, cuda, cuda:1 or mps")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {name}: no CUDA device is visible; use --device cpu")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"--device {name}: no Apple GPU is visible; use --device cpu")
    return name


def save_checkpoint(trainer: Trainer, path: Path) -> None:
    """Write what is needed to continue into one safetensors file: parameters, moments, step and cost."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainer.student.named_parameters():
        tensors[f"parameter/{name}"] = parameter.detach().cpu().contiguous()
        for optimiser in trainer.optimisers:
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = value.detach().cpu().contiguous()
    state = {
        "step": trainer.step,
        "losses": trainer.losses.tolist(),
        "losses_of": trainer.losses_of,
        "wall_s": trainer.cost.wall_s,
        "cpu_s": trainer.cost.cpu_s,
    }
    with atomic(path) as temporary:
        save_file(tensors, temporary, metadata={"state": json.dumps(state)})


def load_checkpoint(trainer: Trainer, path: Path) -> None:
    """Put a saved state into a trainer made with the same settings.

    Raises:
        DataError: the file is damaged or does not fit this student.
    """
    try:
        with safe_open(path, framework="pt") as file:
            _restore(trainer, path, file)
    except SafetensorError as error:
        raise DataError(f"{path} is damaged ({error}): delete it to train from the start") from None


def _restore(trainer: Trainer, path: Path, file: Any) -> None:
    """Put what an open file holds into a trainer."""
    if "state" not in (file.metadata() or {}):
        raise DataError(f"{path} is no checkpoint: delete it to train from the start")
    state = json.loads(file.metadata()["state"])
    names = set(file.keys())
    for name, parameter in trainer.student.named_parameters():
        if f"parameter/{name}" not in names:
            raise DataError(
                f"{path} is a checkpoint of another student (no {name}): give another --out"
            )
        with torch.no_grad():
            parameter.copy_(file.get_tensor(f"parameter/{name}"))
        state_of = {
            key.split("/")[0]: file.get_tensor(key).to(trainer.device)
            for key in names
            if key.split("/", 1)[1] == name and not key.startswith("parameter/")
        }
        for optimiser in trainer.optimisers:
            if state_of and any(
                parameter is p for group in optimiser.param_groups for p in group["params"]
            ):
                optimiser.state[parameter] = state_of
    trainer.step, trainer.losses_of = state["step"], state["losses_of"]
    trainer.losses.copy_(torch.tensor(state["losses"]))
    trainer.cost.wall_s, trainer.cost.cpu_s = state["wall_s"], state["cpu_s"]


def save_member(trainer: Trainer, member: int, path: Path) -> None:
    """Write the weights of one member alone, as a student of one."""
    tensors = {
        name: parameter.detach()[member : member + 1].cpu().contiguous()
        for name, parameter in trainer.student.named_parameters()
    }
    with atomic(path) as temporary:
        save_file(tensors, temporary)
