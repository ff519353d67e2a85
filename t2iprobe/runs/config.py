"""Settings: frozen dataclasses, one docstring per field. tyro turns them into the command line.

A setting is spelled once, here. The docstring is its help text, the name is its flag and its key in a
`--config` file, and the resolved values are stored in run.json.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from t2iprobe.activations.pooling import DEFAULT_POOLING, pooling_help
from t2iprobe.errors import ConfigError
from t2iprobe.models.settings import LoadSettings
from t2iprobe.registry import PROBES, SCORERS, choices
from t2iprobe.runs.budget import parse_duration

DEFAULT_MODEL = "shapes-mmdit"

LIMITS = {
    "tasks": (1, 10**6),
    "seeds": (1, 10**4),
    "seed": (0, 2**63 - 1),
    "batch_size": (1, 10**4),
    "folds": (3, 10**3),  # one of two has no second half to value the headline site on
    "resamples": (99, 10**6),
}
"""Least and most of each count: beyond the most a typing mistake would fill memory before anything is said."""


@dataclass(frozen=True)
class OneModel(LoadSettings):
    """A model named as the only argument, and how it is loaded."""

    model: Annotated[Positional[str], arg(metavar="MODEL")] = DEFAULT_MODEL
    """A model of the embedded zoo (`t2iprobe models`), a local diffusers folder or a hub id."""


@dataclass(frozen=True)
class RunSettings:
    """What a run asks for, the most used first: the help of the commands keeps this order."""

    model: str = DEFAULT_MODEL
    """A model of the embedded zoo (`t2iprobe models`), a local diffusers folder, a hub id, or a .safetensors file."""
    family: str = "shapes-pair"
    """A built-in task family (`t2iprobe families`) or a path to a YAML file."""
    tasks: int = 192
    """Number of tasks to draw from the family."""
    seeds: int = 4
    """Images per task, each with a noise seed of its own."""
    out: Path | None = None
    """The run folder; runs/<model>-<family> when not given."""
    budget: str | None = None
    """Make as many whole tasks as fit into 50% of this time (90s, 30m, 1h30m), loading included; the rest is for
    scoring, probing and the report. The same command again makes more of them."""
    config: Path | None = None
    """A YAML file of settings under the same names; the command line wins over it."""
    sites: tuple[str, ...] = ("default",)
    """Where to read: default, all, or globs over site names, e.g. 'transformer.*' (`t2iprobe inspect` lists them)."""
    at: str = "0,0.25,0.5,0.75,1"
    """Denoising steps to read: fractions of the schedule, e.g. 0,0.5,1, or step indices, e.g. 2,5,9."""
    pooling: Annotated[
        tuple[str, ...], arg(help=f"How activations are pooled, {pooling_help()}.")
    ] = DEFAULT_POOLING
    """How each place is pooled: names of `t2iprobe.activations.pooling`, for both streams."""
    batch_size: int = 16
    """Images generated at a time at most, in whole tasks; the task list fixes the batches."""
    seed: int = 0
    """Seed of the whole run: which tasks, which noise, which folds."""
    scorer: Annotated[str, arg(help=f"The judge of the images ({choices(SCORERS)}).")] = "pixels"
    """The judge of the images, one of `t2iprobe.registry.SCORERS`."""
    probe: Annotated[str, arg(help=f"The linear probe ({choices(PROBES)}).")] = "ridge"
    """The linear probe, one of `t2iprobe.registry.PROBES`."""
    folds: int = 5
    """Cross-validation folds; no scene is ever in two of them."""
    resamples: int = 2000
    """Bootstrap resamples and permutations behind every interval and p-value."""


@dataclass(frozen=True)
class RunConfig(LoadSettings, RunSettings):
    """One run: a model, a task family, what to read, and how to judge it. Of two bases the last one's fields lead."""

    def __post_init__(self) -> None:
        """Reject numbers that cannot be meant.

        Raises:
            ConfigError: a count is outside its limits, or the budget is no time.
        """
        super().__post_init__()
        for name, (low, high) in LIMITS.items():
            given = getattr(self, name)
            if given < low:
                raise ConfigError(f"--{flag(name)} {given}: must be {low} or more")
            if given > high:
                raise ConfigError(f"--{flag(name)} {given}: must be {high} or less")
        if self.budget is not None:
            parse_duration(self.budget)

    @property
    def steps_to_read(self) -> tuple[float, ...]:
        """The numbers in `at`.

        Raises:
            ConfigError: one of them is no number.
        """
        try:
            return tuple(float(part) for part in self.at.split(",") if part.strip())
        except ValueError:
            raise ConfigError(
                f"--at {self.at}: give numbers with commas between them, e.g. 0,0.5,1"
            ) from None

    @property
    def folder(self) -> Path:
        """The run folder: `out`, or a name made from the model and the family."""
        if self.out is not None:
            return self.out
        return Path("runs") / f"{Path(self.model).stem}-{Path(self.family).stem}"


# Settings that say where or how loudly a run works, not what it computes.
NOT_PART_OF_THE_RESULT = frozenset({"out", "yes", "config", "local", "budget"})


def flag(name: str) -> str:
    """The command-line spelling of a setting."""
    return name.replace("_", "-")


def resolved(config: RunConfig) -> dict[str, Any]:
    """Every setting that the results depend on, as JSON values."""
    values = {k: v for k, v in asdict(config).items() if k not in NOT_PART_OF_THE_RESULT}
    return {k: _plain(v) for k, v in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def from_resolved(values: dict[str, Any], folder: Path) -> RunConfig:
    """The settings stored in a run folder."""
    tuples = {f.name for f in fields(RunConfig) if isinstance(f.default, tuple)}
    paths = {"single_file", "lora"}
    kept = {k: v for k, v in values.items() if k in {f.name for f in fields(RunConfig)}}
    for name in tuples & kept.keys():
        kept[name] = tuple(kept[name])
    for name in paths & kept.keys():
        kept[name] = None if kept[name] is None else Path(kept[name])
    return RunConfig(**(kept | {"out": folder}))


def check_same(stored: dict[str, Any], asked: dict[str, Any], folder: Path) -> None:
    """Refuse to continue a run folder under other settings.

    Raises:
        ConfigError: names every setting that differs, with both values.
    """
    if "pooling" in asked and "model" in stored:  # a run of before it could be chosen
        stored = {"pooling": list(DEFAULT_POOLING)} | stored
    changed = [
        f"--{flag(k)} was {stored.get(k)!r}, now {asked.get(k)!r}"
        for k in sorted(stored.keys() | asked.keys())
        if stored.get(k) != asked.get(k)
    ]
    if len(stored.keys() & asked.keys()) < len(stored.keys() | asked.keys()) / 2:
        raise ConfigError(f"{folder} holds a run of another kind: give another --out")
    if changed:
        grow = {"tasks", "seeds"} & {k for k in stored if stored[k] != asked.get(k)}
        why = "folds and batches are drawn for all tasks at once, so a run does not grow; "
        raise ConfigError(
            f"{folder} holds a run with other settings ({'; '.join(changed)}): {why if grow else ''}"
            "give the same settings to continue it, or another --out for a new run"
        )
