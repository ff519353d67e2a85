"""A task family with its support, encoding and streams of data: everything a student meets.

Training, test, held-out and probe draws come from streams of their own: no two share noise. A draw depends on the
data seed, the split and its number alone, so any step can be drawn again after a restart.
Axis letters: b tasks, t samples or steps, m modules, z entries of the encoding, o outputs, a actions.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from synthetic.encodings import DrawsPairs, Encoding, make_encoding
from synthetic.preference import PreferenceGrid
from synthetic.settings import TrainSettings
from synthetic.supports import Support, make_support
from synthetic.teacher import HyperTeacher, draw_task_latents
from t2iprobe.seeding import generator

SPLITS = ("train", "test", "held_out", "probe")
BLIND_TASKS = 128


@dataclass(frozen=True)
class Batch:
    """Tasks with their samples; stacked batches have a leading axis of members.

    Attributes:
        x: (b, t, i) inputs.
        y: (b, t, o) targets, or (b, t) actions.
        z: (b, z) what the student is told about the task.
        task_latents: (b, m) the true weights of the modules.
        scored: (b, t) which samples count.
        best: (b, t, a) all optimal actions; empty for regression.
        additive: (b, t, o) the prediction of the additive baseline; empty in training.
        blind: (b, t, o) the prediction of the baseline that does not know the task; empty in training.
    """

    x: Tensor
    y: Tensor
    z: Tensor
    task_latents: Tensor
    scored: Tensor
    best: Tensor
    additive: Tensor
    blind: Tensor

    def to(self, device: str) -> "Batch":
        """The same batch on a device."""
        return Batch(*(getattr(self, item.name).to(device) for item in fields(self)))


def stack(batches: list[Batch]) -> Batch:
    """Batches of equal shape side by side, one per member."""
    return Batch(*(torch.stack([getattr(b, item.name) for b in batches]) for item in fields(Batch)))


def join(batches: list[Batch]) -> Batch:
    """Batches one after the other."""
    return Batch(*(torch.cat([getattr(b, item.name) for b in batches]) for item in fields(Batch)))


class Problem(ABC):
    """What one student learns: subclasses know how samples of a task are made."""

    out_dim: int
    x_dim: int

    def __init__(self, settings: TrainSettings, examples: DrawsPairs | None) -> None:
        seeds = settings.seeds()
        self.settings = settings
        self.data_seed = seeds["data"]
        self.support: Support = make_support(
            settings.support,
            settings.modules,
            settings.hot,
            settings.frac_ood,
            settings.train_tasks,
            seeds["split"],
        )
        self.encoding: Encoding = make_encoding(
            settings.encoding, settings.modules, seeds["encoding"], examples
        )
        self._seen = torch.from_numpy(self.support.seen)
        self._held_out = torch.from_numpy(self.support.held_out)

    def draw(self, split: str, number: int, num_tasks: int, baselines: bool = False) -> Batch:
        """Batch `number` of a split's stream.

        Args:
            split: "train", "test" and "probe" draw seen combinations, "held_out" the others.
            number: which batch; equal numbers give equal batches.
            num_tasks: b.
            baselines: add what the additive and the blind baseline predict.
        """
        rng = generator("data", self.data_seed, split, number)
        rows = self._held_out if split == "held_out" else self._seen
        latents = draw_task_latents(rows, num_tasks, self.settings.weights, rng)
        z = self.encoding(latents, generator("encode", self.data_seed, split, number))
        return self._samples(latents, z, rng, baselines)

    def draw_many(self, split: str, num_tasks: int, baselines: bool = False) -> Batch:
        """The first tasks of a split's stream, drawn in batches of at most 256."""
        size = min(num_tasks, 256)
        numbers = range(-(-num_tasks // size))
        sizes = [min(size, num_tasks - number * size) for number in numbers]
        return join(
            [self.draw(split, n, b, baselines) for n, b in zip(numbers, sizes, strict=True)]
        )

    def _blind_latents(self) -> Float[Tensor, "k m"]:
        """Training tasks that the blind baseline averages over."""
        rng = generator("data", self.data_seed, "blind", 0)
        return draw_task_latents(self._seen, BLIND_TASKS, self.settings.weights, rng)

    @abstractmethod
    def _samples(self, latents: Tensor, z: Tensor, rng: torch.Generator, baselines: bool) -> Batch:
        """The samples of drawn tasks."""


class HyperteacherProblem(Problem):
    """Regression of a hyperteacher."""

    def __init__(self, settings: TrainSettings) -> None:
        self.teacher = HyperTeacher(
            settings.modules,
            settings.hot,
            settings.inputs,
            settings.hidden,
            settings.outputs,
            settings.bias,
            settings.scale,
            settings.seeds()["teacher"],
        )
        self.x_dim, self.out_dim = settings.inputs, settings.outputs
        super().__init__(settings, self.teacher)

    def _samples(self, latents: Tensor, z: Tensor, rng: torch.Generator, baselines: bool) -> Batch:
        x, y = self.teacher.draw_pairs(latents, self.settings.samples, rng)
        empty = y.new_zeros(len(y), 0)
        additive = blind = empty
        if baselines:
            additive = torch.einsum("bm,mbto->bto", latents, self.teacher.single_modules(x))
            tasks = self._blind_latents()
            blind = torch.stack([self.teacher(task.expand(len(x), -1), x) for task in tasks]).mean(
                dim=0
            )
        scored = torch.ones(y.shape[:2], dtype=torch.bool)
        return Batch(x, y, z, latents, scored, empty, additive, blind)


class PreferenceProblem(Problem):
    """Imitation of the optimal policy on the preference grid."""

    def __init__(self, settings: TrainSettings) -> None:
        self.grid = PreferenceGrid(
            settings.modules,
            settings.features,
            settings.objects,
            settings.horizon,
            settings.discount,
            settings.planner == "stationary",
            settings.seeds()["teacher"],
        )
        self.x_dim, self.out_dim = self.grid.input_dim, self.grid.output_dim
        super().__init__(settings, None)

    def _samples(self, latents: Tensor, z: Tensor, rng: torch.Generator, baselines: bool) -> Batch:
        boards = self.grid.draw_boards(len(latents), rng)
        episodes = self.grid.demonstrate(latents, boards)
        x = self.grid.observe(boards, episodes)
        additive = blind = x.new_zeros(len(x), 0)
        if baselines:
            units = torch.eye(self.settings.modules)
            singles = torch.stack(
                [self.grid.values_along(unit, boards, episodes) for unit in units]
            )
            additive = torch.einsum("bm,mbta->bta", latents.double(), singles).float()
            tasks = self._blind_latents()
            blind = (
                torch.stack([self.grid.values_along(task, boards, episodes) for task in tasks])
                .mean(dim=0)
                .float()
            )
        return Batch(
            x, episodes.actions, z, latents, episodes.scored, episodes.best, additive, blind
        )


PROBLEMS: dict[str, type[HyperteacherProblem] | type[PreferenceProblem]] = {
    "hyperteacher": HyperteacherProblem,
    "preference": PreferenceProblem,
}


def make_problem(settings: TrainSettings) -> Problem:
    """The problem of a run's settings."""
    return PROBLEMS[settings.task](settings)
