"""Named experiments: which students are trained, and what is drawn against what.

To add one: write a function that lists its cells and add a line to PRESETS.
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from synthetic.settings import SweepSettings, TrainSettings
from t2iprobe.errors import ConfigError, unknown

Axes = dict[str, Any]


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
class Preset:
    """A named experiment.

    Attributes:
        title: one line.
        question: what the figure answers.
        x: the axis drawn horizontally.
        line: the axis that makes separate lines; empty for one.
        log_x: whether x is drawn on a logarithmic scale.
        axes: the values of every axis at a size (the seeds are added).
        base: settings at a size that differ from the size's own.
    """

    title: str
    question: str
    x: str
    line: str
    log_x: bool
    axes: Callable[[str], dict[str, tuple[Any, ...]]]
    base: Callable[[str], dict[str, Any]] = lambda _: {}


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
ENCODINGS = (
    "identity",
    "orthogonal",
    "language",
    "language-embedded",
    "invertible",
    "invertible-strong",
    "interval-shuffle",
    "fewshot",
)
SUPPORTS = (
    "random",
    "balanced",
    "connected",
    "disconnected",
    "disconnected-one",
    "popular",
    "rare",
    "omitted",
)


def _tasks(size: str) -> dict[str, tuple[Any, ...]]:
    sizes = {
        "smoke": ((6, 2),),
        "cpu": ((16, 3),),
        "paper": tuple(product((8, 16, 24, 32), (2, 3, 4, 5, 6, 7))),
    }
    return {"modules_hot": sizes[size], "frac_ood": FRACTIONS[size]}


def _width(size: str) -> dict[str, tuple[Any, ...]]:
    widths = {
        "smoke": (8, 16),
        "cpu": (32, 64, 128, 256, 512),
        "paper": (128, 256, 512, 1024, 2048),
    }
    encodings = {
        "smoke": ("identity", "interval-shuffle"),
        "cpu": ("identity", "language-embedded", "invertible-strong", "interval-shuffle"),
        "paper": ENCODINGS,
    }
    depths = {"smoke": (2,), "cpu": (2,), "paper": (2, 4)}
    return {"encoding": encodings[size], "depth": depths[size], "width": widths[size]}


def _encodings(size: str) -> dict[str, tuple[Any, ...]]:
    return {
        "encoding": ENCODINGS if size != "smoke" else ("identity", "language-embedded", "fewshot")
    }


def _support(size: str) -> dict[str, tuple[Any, ...]]:
    return {"support": SUPPORTS if size != "smoke" else ("random", "disconnected", "omitted")}


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


PRESETS: dict[str, Preset] = {
    "tasks": Preset(
        "Number of training tasks",
        "How does success on held-out combinations change with the share of combinations seen?",
        "seen", "modules_hot", True, _tasks,
    ),
    "width": Preset(
        "Model size and encodings",
        "Do wider students compose better, whatever the way the task is told?",
        "width", "encoding", True, _width,
    ),
    "encodings": Preset(
        "Encodings",
        "How does the way the task is told change what is learned?",
        "encoding", "", False, _encodings,
    ),
    "support": Preset(
        "Task support",
        "Which sets of training tasks allow composition?",
        "support", "", False, _support,
    ),
    "popularity": Preset(
        "Popular and rare modules",
        "What does it cost when some modules are seen often and others hardly ever?",
        "seen", "support", True, _popularity,
    ),
    "law": Preset(
        "Tasks needed as the number of modules grows",
        "How many training tasks does composition take, with more and more modules?",
        "seen", "modules", True, _law, _law_base,
    ),
    "transformer": Preset(
        "Transformer: number of training tasks",
        "Does a transformer compose as a multilayer perceptron does, with as many tasks?",
        "seen", "student", True, _transformer, _transformer_base,
    ),
}  # fmt: skip

APPROXIMATION = "approximation"
APPROXIMATION_TITLE = "A network written down: neurons needed for a given error"


def cells(settings: SweepSettings) -> Iterator[Cell]:
    """The students of a sweep, in a fixed order: every seed of a place before the next place.

    Raises:
        ConfigError: the preset is unknown or does not fit the task family.
    """
    preset = get(settings.preset)
    base = (
        SIZES[settings.size]
        | TASK_SIZES.get((settings.task, settings.size), {})
        | preset.base(settings.size)
    )
    axes = preset.axes(settings.size)
    for place in product(*axes.values()):
        named = dict(zip(axes, place, strict=True))
        if settings.task == "preference" and named.get("encoding") == "fewshot":
            continue  # few-shot pairs are samples of a function; the grid has none (C2)
        for seed in SEEDS[settings.size]:
            name = (
                "-".join(f"{axis}={_short(value)}" for axis, value in named.items())
                + f"-seed={seed}"
            )
            resolved = base | _resolve(named)
            made = TrainSettings(
                out=settings.out / "runs" / name,
                task=settings.task,
                seed=seed,
                device=settings.device,
                **resolved,
            )
            if settings.task == "preference" and made.features < made.modules:
                made = replace(made, features=made.modules)
            yield Cell(name, named | {"seed": seed}, made)


def axes_of(name: str, size: str) -> tuple[str, ...]:
    """What a sweep varies, without the seed; nothing for the approximation, which trains no students."""
    return () if name == APPROXIMATION else tuple(get(name).axes(size))


def get(name: str) -> Preset:
    """A preset by name.

    Raises:
        ConfigError: no preset has this name.
    """
    if name not in PRESETS:
        raise ConfigError(unknown("sweep", name, [*PRESETS, APPROXIMATION]))
    return PRESETS[name]


def _resolve(named: Axes) -> dict[str, Any]:
    """Settings from a place on the axes; two axes stand for more than one setting."""
    resolved = dict(named)
    if "modules_hot" in resolved:
        resolved["modules"], resolved["hot"] = resolved.pop("modules_hot")
    if "tasks_per_module" in resolved:
        resolved["train_tasks"] = resolved.pop("tasks_per_module") * resolved["modules"]
    if resolved.get("support") in ("connected", "disconnected", "omitted"):
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
