"""Named experiments: which students are trained, and what is drawn against what.

To add one: write a function that lists the values of its axes and add a line to SWEEPS. An axis is the name of a
setting of `t2iprobe synthetic train`; its values may be numbers or names.
"""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from synthetic.settings import SweepSettings, TrainSettings
from synthetic.supports import FIXED, SUPPORTS
from synthetic.sweeps.table import measure_of, sweep_table, tasks_needed
from t2iprobe.errors import ConfigError, unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Axes = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One student of a sweep.

    Attributes:
        name: folder name, made of its place on the axes.
        axes: its place: what is varied, and the seed.
        settings: how it is trained.
    """

    name: str
    axes: Axes
    settings: TrainSettings


@dataclass(frozen=True)
class Sweep(ABC):
    """A named experiment: students to train or rows that need no training, their table and their figure.

    Attributes:
        title: one line.
        question: what the figure answers.
    """

    title: str
    question: str

    trains: ClassVar[bool] = True
    """Whether it has students at all."""

    def cells(self, settings: SweepSettings) -> Iterator[Cell]:  # noqa: ARG002
        """The students to train, in a fixed order.

        Raises:
            ConfigError: the experiment does not fit the task family.
        """
        return iter(())

    def untrained(self, settings: SweepSettings) -> list[Row]:  # noqa: ARG002
        """The rows that need no student."""
        return []

    def facts(self, rows: list[Row]) -> dict[str, Any]:  # noqa: ARG002
        """What summary.json says beyond the counts, from the finished rows."""
        return {}

    @abstractmethod
    def table(self, rows: list[Row], size: str) -> tuple[list[str], list[list[str]]]:
        """Header and cells of the table for readers."""

    @abstractmethod
    def figure(self, rows: list[Row]) -> "Figure":
        """The figure of the report."""


@dataclass(frozen=True)
class TrainedSweep(Sweep):
    """Students over a grid of settings.

    Attributes:
        x: the axis drawn horizontally: a numeric one as curves, names as columns.
        line: the axis that makes separate lines; empty for one.
        log_x: whether x is drawn on a logarithmic scale.
        axes: the values of every axis at a size (the seeds are added).
        base: settings at a size that differ from the size's own.
        law: the figure and the summary say how many combinations each value of `line` needs to beat the additive
            baseline.
    """

    x: str
    line: str
    log_x: bool
    axes: Callable[[str], dict[str, tuple[Any, ...]]]
    base: Callable[[str], dict[str, Any]] = lambda _: {}
    law: bool = False

    def cells(self, settings: SweepSettings) -> Iterator[Cell]:
        """The students: every seed of a place on the axes before the next place."""
        base = (
            SIZES[settings.size]
            | TASK_SIZES.get((settings.task, settings.size), {})
            | self.base(settings.size)
        )
        axes = self.axes(settings.size)
        for place in product(*axes.values()):
            named = dict(zip(axes, place, strict=True))
            if settings.task == "preference" and named.get("encoding") == "fewshot":
                continue  # few-shot pairs are samples of a function; the grid has none
            for seed in SEEDS[settings.size]:
                place_name = "-".join(f"{axis}={_short(value)}" for axis, value in named.items())
                name = f"{place_name}-seed={seed}"
                student = TrainSettings(
                    out=settings.out / "runs" / name,
                    task=settings.task,
                    seed=seed,
                    device=settings.device,
                    **(base | _resolve(named)),
                )
                if settings.task == "preference" and student.features < student.modules:
                    student = replace(student, features=student.modules)
                yield Cell(name, named | {"seed": seed}, student)

    def facts(self, rows: list[Row]) -> dict[str, Any]:
        """Where the sweep is about a law: the combinations needed, by value of the line axis."""
        if not self.law:
            return {}
        needed = tasks_needed(rows, self.line, measure_of(rows))
        return {"tasks_needed": {str(value): count for value, count in needed.items()}}

    def table(self, rows: list[Row], size: str) -> tuple[list[str], list[list[str]]]:
        """One row per place, averaged over its seeds."""
        return sweep_table(rows, tuple(self.axes(size)))

    def figure(self, rows: list[Row]) -> "Figure":
        """Scores along x; beside it decodability against held-out score, or the combinations needed."""
        from synthetic import figures

        return figures.sweep_figure(rows, self.x, self.line, self.log_x, self.law)


@dataclass(frozen=True)
class ApproximationSweep(Sweep):
    """A network written down for the hyperteacher, by number of modules and of pieces; nothing is trained."""

    trains: ClassVar[bool] = False

    MODULES: ClassVar = {"smoke": (4, 6), "cpu": (8, 16, 32), "paper": (8, 16, 32, 48)}
    PIECES: ClassVar = {
        "smoke": (4, 8),
        "cpu": (4, 8, 16, 32, 64),
        "paper": (4, 8, 16, 32, 64, 128, 256),
    }
    TASKS: ClassVar = {"smoke": 64, "cpu": 256, "paper": 1024}
    COLUMNS: ClassVar = ("modules", "pieces", "neurons", "error_bound", "error_found")

    def cells(self, settings: SweepSettings) -> Iterator[Cell]:
        """None.

        Raises:
            ConfigError: the task family is not the hyperteacher.
        """
        if settings.task != "hyperteacher":
            raise ConfigError(
                "the approximation is of the hyperteacher: leave out --task preference"
            )
        return iter(())

    def untrained(self, settings: SweepSettings) -> list[Row]:
        """Neurons, guaranteed error, and the largest error on held-out tasks, of every network."""
        import torch

        from synthetic.problems import HyperteacherProblem
        from synthetic.students.constructed import construct

        rows = []
        for modules in self.MODULES[settings.size]:
            student = TrainSettings(
                out=settings.out, modules=modules, hot=2, inputs=8, hidden=(8,), outputs=8
            )
            problem = HyperteacherProblem(student)
            batch = problem.draw("held_out", 0, self.TASKS[settings.size])
            x, latents = batch.x.double(), batch.task_latents.double()
            exact = problem.teacher(latents, x)
            for pieces in self.PIECES[settings.size]:
                network = construct(problem.teacher, pieces=pieces)
                with torch.no_grad():
                    error = (network(latents, x) - exact).abs().max().item()
                rows.append(
                    {
                        "cell": f"modules={modules}-pieces={pieces}",
                        "modules": modules,
                        "pieces": pieces,
                        "neurons": network.neurons,
                        "error_bound": network.error,
                        "error_found": error,
                        "status": "done",
                        "reason": "",
                    }
                )
        return rows

    def table(self, rows: list[Row], size: str) -> tuple[list[str], list[list[str]]]:  # noqa: ARG002
        """One row per network."""
        header = [name.replace("_", " ") for name in self.COLUMNS]
        values = [[row[name] for name in self.COLUMNS] for row in rows]
        cells = [[f"{v:.2g}" if isinstance(v, float) else str(v) for v in row] for row in values]
        return header, cells

    def figure(self, rows: list[Row]) -> "Figure":
        """Error by pieces, neurons by error."""
        from synthetic import figures

        return figures.approximation_figure(rows)


SIZES: dict[str, dict[str, Any]] = {
    "smoke": {
        "modules": 6, "hot": 2, "steps": 40, "width": 32, "batch_tasks": 32, "samples": 8, "eval_tasks": 64,
        "probe_tasks": 96, "eval_every": 40, "checkpoint_every": 40, "recipe": "fast",
    },
    "cpu": {"modules": 16, "hot": 3, "steps": 1000, "width": 256, "recipe": "fast", "eval_every": 200},
    "paper": {
        "modules": 16, "hot": 3, "steps": 300_000, "width": 1024, "depth": 4, "eval_every": 1000, "checkpoint_every":
        5000,
    },
}  # fmt: skip

TASK_SIZES: dict[tuple[str, str], dict[str, Any]] = {
    ("preference", "smoke"): {"features": 8, "horizon": 4, "objects": 2},
    ("preference", "cpu"): {"modules": 8, "hot": 2, "steps": 2000},
    ("preference", "paper"): {"features": 32, "depth": 2, "steps": 3_000_000, "eval_every": 10_000},
}

SEEDS = {"smoke": (1, 2), "cpu": (1, 2, 3), "paper": (1, 2, 3)}
FRACTIONS = {
    "smoke": (0.25, 0.5, 0.9),
    "cpu": (0.25, 0.5, 0.75, 0.9, 0.95, 0.98),
    "paper": (0.125, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99),
}


def _tasks(size: str) -> dict[str, tuple[Any, ...]]:
    sizes = {
        "smoke": ((6, 2),),
        "cpu": ((16, 3),),
        "paper": tuple(product((8, 16, 24, 32), (2, 3, 4, 5, 6, 7))),
    }
    return {"modules_hot": sizes[size], "frac_ood": FRACTIONS[size]}


def _all_encodings() -> tuple[str, ...]:
    from synthetic.encodings import ENCODINGS  # torch, which a list of names does without

    return tuple(ENCODINGS)


def _width(size: str) -> dict[str, tuple[Any, ...]]:
    widths = {
        "smoke": (8, 16),
        "cpu": (32, 64, 128, 256, 512),
        "paper": (128, 256, 512, 1024, 2048),
    }
    encodings = {
        "smoke": ("identity", "interval-shuffle"),
        "cpu": ("identity", "language-embedded", "invertible-strong", "interval-shuffle"),
        "paper": _all_encodings(),
    }
    depths = {"smoke": (2,), "cpu": (2,), "paper": (2, 4)}
    return {"encoding": encodings[size], "depth": depths[size], "width": widths[size]}


def _encodings(size: str) -> dict[str, tuple[Any, ...]]:
    few = ("identity", "language-embedded", "fewshot")
    return {"encoding": few if size == "smoke" else _all_encodings()}


def _support(size: str) -> dict[str, tuple[Any, ...]]:
    few = ("random", "disconnected", "omitted")
    return {"support": few if size == "smoke" else tuple(SUPPORTS)}


def _popularity(size: str) -> dict[str, tuple[Any, ...]]:
    fractions = {"smoke": (0.25,), "cpu": (0.25, 0.5, 0.75), "paper": (0.25, 0.5, 0.75)}
    return {"support": ("balanced", "popular", "rare"), "frac_ood": fractions[size]}


def _law(size: str) -> dict[str, tuple[Any, ...]]:
    students = {"smoke": ("mlp",), "cpu": ("mlp",), "paper": ("mlp", "transformer")}
    hot = {"smoke": (2,), "cpu": (3,), "paper": (4, 5, 6)}
    modules = {"smoke": (5, 6), "cpu": (8, 12, 16, 20, 24), "paper": tuple(range(10, 30, 2))}
    per_module = {"smoke": (1, 2), "cpu": (1, 2, 4, 8, 16), "paper": (1, 2, 4, 8, 16, 32, 64)}
    return {
        "student": students[size],
        "hot": hot[size],
        "modules": modules[size],
        "tasks_per_module": per_module[size],
    }


def _law_base(size: str) -> dict[str, Any]:
    return {"support": "balanced"} | ({"steps": 700} if size == "cpu" else {})


def _transformer(size: str) -> dict[str, tuple[Any, ...]]:
    fractions = {"smoke": (0.25, 0.5), "cpu": (0.25, 0.75, 0.95), "paper": FRACTIONS["paper"]}
    return {"student": ("transformer",), "frac_ood": fractions[size]}


def _transformer_base(size: str) -> dict[str, Any]:
    shapes = {
        "smoke": {"width": 16, "depth": 1, "heads": 2, "feedforward": 32},
        "cpu": {"width": 128, "depth": 2, "feedforward": 512, "steps": 1000},
        "paper": {"width": 256, "depth": 4, "feedforward": 1024},
    }
    return shapes[size]


SWEEPS: dict[str, Sweep] = {
    "tasks": TrainedSweep(
        "Number of training tasks",
        "How does success on held-out combinations change with the share of combinations seen?",
        "seen", "modules_hot", True, _tasks,
    ),
    "width": TrainedSweep(
        "Model size and encodings",
        "Do wider students compose better, whatever the way the task is told?",
        "width", "encoding", True, _width,
    ),
    "encodings": TrainedSweep(
        "Encodings",
        "How does the way the task is told change what is learned?",
        "encoding", "", False, _encodings,
    ),
    "support": TrainedSweep(
        "Task support",
        "Which sets of training tasks allow composition?",
        "support", "", False, _support,
    ),
    "popularity": TrainedSweep(
        "Popular and rare modules",
        "What does it cost when some modules are seen often and others hardly ever?",
        "seen", "support", True, _popularity,
    ),
    "law": TrainedSweep(
        "Tasks needed as the number of modules grows",
        "How many training tasks does composition take, with more and more modules?",
        "seen", "modules", True, _law, _law_base, law=True,
    ),
    "transformer": TrainedSweep(
        "Transformer: number of training tasks",
        "Does a transformer compose as a multilayer perceptron does, with as many tasks?",
        "seen", "student", True, _transformer, _transformer_base,
    ),
    "approximation": ApproximationSweep(
        "A network written down: neurons needed for a given error",
        "How many neurons does a network take that is written down, not trained?",
    ),
}  # fmt: skip


def get(name: str) -> Sweep:
    """A sweep by name.

    Raises:
        ConfigError: no sweep has this name.
    """
    if name not in SWEEPS:
        raise ConfigError(unknown("sweep", name, SWEEPS))
    return SWEEPS[name]


def _resolve(named: Axes) -> dict[str, Any]:
    """Settings from a place on the axes; two axes stand for more than one setting."""
    resolved = dict(named)
    if "modules_hot" in resolved:
        resolved["modules"], resolved["hot"] = resolved.pop("modules_hot")
    if "tasks_per_module" in resolved:
        resolved["train_tasks"] = resolved.pop("tasks_per_module") * resolved["modules"]
    if resolved.get("support") in FIXED:
        resolved.pop("frac_ood", None)
    return resolved


def _short(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def command(settings: TrainSettings) -> str:
    """The command line that trains this student, with what differs from the defaults."""
    usual = TrainSettings(out=Path())
    words = ["t2iprobe", "synthetic", "train"]
    for name, value in vars(settings).items():
        if value == getattr(usual, name) or name in ("config", "device"):
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{flag}")
        elif isinstance(value, tuple):
            words += [f"--{flag}", *map(str, value)]
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)
