"""The settings of the synthetic commands: frozen dataclasses, one docstring per field, no heavy imports."""

from dataclasses import dataclass, fields
from math import isfinite, sqrt
from pathlib import Path
from typing import Literal

from t2iprobe.errors import ConfigError, unknown

RECIPES: dict[str, dict[str, float]] = {
    "paper": {"rate": 3e-4, "weight_decay": 0.003, "warmup": 0, "floor": 1.0},
    "fast": {"rate": 1e-2, "weight_decay": 0.003, "warmup": 0.05, "floor": 0.0},
}


@dataclass(frozen=True)
class TrainSettings:
    """One student on one task family."""

    out: Path
    """Run folder; running again with the same settings continues, a finished run does nothing."""

    config: Path | None = None
    """A YAML file of settings under the same names; the command line wins over it."""

    task: str = "hyperteacher"
    """Task family: hyperteacher (regression) or preference (imitation on a grid)."""

    modules: int = 16
    """M, the number of modules."""

    hot: int = 3
    """K, the largest number of modules active in one task."""

    weights: str = "discrete"
    """Weights of active modules: discrete (0.5, 0.6 ... 1.0), khot (1), or continuous."""

    encoding: str = "identity"
    """How the student is told the task; `t2iprobe synthetic list` shows all."""

    support: str = "random"
    """Which combinations are trained on; `t2iprobe synthetic list` shows all."""

    frac_ood: float | None = None
    """Fraction of combinations to hold out, above 0 and below 1; 0.25 when nothing is said."""

    train_tasks: int | None = None
    """Number of combinations to train on, instead of --frac-ood."""

    student: str = "mlp"
    """Network: mlp, transformer or hypernetwork."""

    width: int = 256
    """Width of the hidden layers, or of the residual stream of a transformer."""

    depth: int = 2
    """Number of hidden layers or blocks."""

    heads: int = 4
    """Attention heads (transformer)."""

    feedforward: int = 1024
    """Inner width of a block (transformer)."""

    recipe: str = "paper"
    """paper (AdamW at a constant rate) or fast (Muon and AdamW, 30 times the rate, warm-up, cosine to 0)."""

    steps: int = 5000
    """Optimiser steps, at least 1."""

    batch_tasks: int = 128
    """Tasks per step."""

    samples: int = 16
    """Input-output pairs per task (hyperteacher)."""

    lr: float | None = None
    """Learning rate in place of the recipe's."""

    weight_decay: float | None = None
    """Decoupled weight decay of matrices in place of the recipe's; biases and norms are never decayed."""

    inputs: int = 16
    """Input entries (hyperteacher)."""

    hidden: tuple[int, ...] = (16,)
    """Widths of the teacher's hidden layers (hyperteacher)."""

    outputs: int = 16
    """Output entries (hyperteacher)."""

    bias: bool = True
    """Whether modules have biases (hyperteacher)."""

    scale: float = sqrt(3.0)
    """Variance scale of the teacher's weights: variance is this divided by the fan-in (hyperteacher)."""

    features: int = 16
    """Kinds of objects, at least the number of modules (preference)."""

    objects: int = 4
    """Objects on the grid, 1 to 10 (preference)."""

    horizon: int = 8
    """Steps of an episode and of the plan (preference)."""

    discount: float = 0.9
    """Discount of rewards, 0 to below 1 (preference)."""

    planner: str = "stationary"
    """stationary acts on the full-horizon values at every step as the reference does; finite is the true optimum."""

    seed: int = 1
    """Seed of everything that has no seed of its own."""

    teacher_seed: int | None = None
    """Seed of the task family's weights."""

    split_seed: int | None = None
    """Seed of the split into seen and held-out combinations."""

    encoding_seed: int | None = None
    """Seed of the encoding's random map."""

    data_seed: int | None = None
    """Seed of the training, test and held-out draws, each a stream of its own."""

    student_seed: int | None = None
    """Seed of the student's initial weights."""

    eval_every: int = 500
    """Steps between evaluations; the last step is always evaluated."""

    eval_tasks: int = 1024
    """Tasks in each of the test and held-out sets."""

    probe_tasks: int = 2048
    """Training-distribution tasks that linear probes are fitted on; 0 leaves the probes out."""

    probe_rows: str = "mean"
    """Activation of a task that is probed: mean over its samples, or last (the reference's choice)."""

    checkpoint_every: int = 500
    """Steps between checkpoints."""

    device: str = "cpu"
    """Where the student trains: cpu, cuda, cuda:1, mps."""

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            got = getattr(self, name)
            if got not in allowed:
                raise ConfigError(unknown(name.replace("_", " "), got, allowed))
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least 1"
                )
        if self.frac_ood is not None and not 0 < self.frac_ood < 1:
            raise ConfigError(f"--frac-ood {self.frac_ood:g}: must be above 0 and below 1")
        for name in ("lr", "weight_decay", "scale", "discount"):
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and value >= 0):
                raise ConfigError(
                    f"--{name.replace('_', '-')} {value:g}: must be a finite number, 0 or more"
                )
        if self.probe_tasks < 0 or self.probe_tasks == 1:
            raise ConfigError(
                f"--probe-tasks {self.probe_tasks}: must be 0 (no probes), or 2 or more"
            )
        if self.samples < 2 and self.task == "hyperteacher":
            raise ConfigError("--samples 1: R2 needs at least 2 samples per task")

    def seeds(self) -> dict[str, int]:
        """The seed of each role."""
        roles = ("teacher", "split", "encoding", "data", "student")
        chosen = {role: getattr(self, f"{role}_seed") for role in roles}
        return {role: self.seed if value is None else value for role, value in chosen.items()}

    @property
    def learning_rate(self) -> float:
        """The peak learning rate in use."""
        if self.lr is not None:
            return self.lr
        gentle = self.task == "preference" or (
            self.student == "transformer" and self.recipe == "fast"
        )
        return RECIPES[self.recipe]["rate"] / (3 if gentle else 1)

    @property
    def decay(self) -> float:
        """The weight decay in use."""
        if self.weight_decay is not None:
            return self.weight_decay
        return 0.001 if self.task == "preference" else RECIPES[self.recipe]["weight_decay"]


CHOICES: dict[str, tuple[str, ...]] = {
    "task": ("hyperteacher", "preference"),
    "weights": ("discrete", "khot", "continuous"),
    "student": ("mlp", "transformer", "hypernetwork"),
    "recipe": tuple(RECIPES),
    "planner": ("stationary", "finite"),
    "probe_rows": ("mean", "last"),
}

PROBLEM_FREE = {
    "out", "config", "student", "width", "depth", "heads", "feedforward", "recipe", "steps", "lr", "weight_decay",
    "seed", "student_seed", "eval_every", "eval_tasks", "probe_tasks", "probe_rows", "checkpoint_every", "device",
    "batch_tasks",
}  # fmt: skip
"""What the problem of a student (its tasks, their encoding, the streams of data) does not depend on."""

AT_LEAST_ONE = (
    "modules", "hot", "steps", "batch_tasks", "samples", "width", "depth", "heads", "feedforward", "inputs",
    "outputs", "features", "objects", "horizon", "eval_every", "eval_tasks", "checkpoint_every",
)  # fmt: skip


@dataclass(frozen=True)
class SweepSettings:
    """A named experiment of the paper."""

    preset: str
    """Name of the experiment; `t2iprobe synthetic list` shows all."""

    out: Path
    """Folder of the sweep; running again continues with what is missing."""

    config: Path | None = None
    """A YAML file of settings under the same names; the command line wins over it."""

    size: Literal["smoke", "cpu", "paper"] = "cpu"
    """smoke: seconds; cpu: about 30 minutes on two cores; paper: the paper's settings, one GPU."""

    task: Literal["hyperteacher", "preference"] = "hyperteacher"
    """Task family."""

    device: str = "cpu"
    """Where students train: cpu, cuda, cuda:1, mps."""

    stack: Literal["auto", "yes", "no"] = "auto"
    """Train students of equal shape side by side; auto does so on a GPU, where it is faster."""


@dataclass(frozen=True)
class ReportSettings:
    """The report of a finished run or sweep."""

    folder: Path
    """Folder of a run or of a sweep."""


@dataclass(frozen=True)
class ListSettings:
    """Names that can be chosen."""


def as_record(settings: TrainSettings) -> dict[str, object]:
    """The settings as JSON-ready values."""
    record: dict[str, object] = {}
    for item in fields(settings):
        value = getattr(settings, item.name)
        record[item.name] = (
            str(value)
            if isinstance(value, Path)
            else list(value)
            if isinstance(value, tuple)
            else value
        )
    return record
