"""Putting another scheduler into a pipeline, wherever it keeps its own."""

from difflib import get_close_matches
from typing import Any

from t2iprobe.errors import ConfigError, MissingExtra, first_line
from t2iprobe.models.classes import library_class
from t2iprobe.models.foreign import ForeignError, foreign, missing_library


def change_scheduler(pipe: Any, name: str) -> Any:
    """Put a scheduler of another class into a pipeline, with the settings of the one it has; returns that one.

    Raises:
        ConfigError: there is no such class, it cannot be made from the checkpoint's settings, or the pipeline has
            several schedulers and none that is plainly the one.
        MissingExtra: the class needs a library that is not installed.
    """
    held = [key for key, part in pipe.components.items() if hasattr(part, "set_timesteps")]
    if "scheduler" not in held:
        raise ConfigError(
            f"{type(pipe).__name__} has no one scheduler to replace (it has {', '.join(held) or 'none'}); leave"
            " --scheduler out"
        )
    kind = _scheduler_class(name)
    try:
        with foreign(f"{name}.from_config"):
            new = kind.from_config(pipe.scheduler.config)
    except ForeignError as failure:
        library = missing_library(failure.error)
        if library:
            raise MissingExtra(f"--scheduler {name} needs {library}; pip install it") from failure
        raise ConfigError(
            f"--scheduler {name} cannot take over the settings of {type(pipe.scheduler).__name__}:"
            f" {first_line(failure.error)}; use one of the same kind, or leave it out"
        ) from failure
    return put_scheduler(pipe, new)


def put_scheduler(pipe: Any, new: Any) -> Any:
    """Replace the scheduler of a pipeline and of the pipelines inside it that share it; returns the one replaced."""
    import diffusers

    old = pipe.scheduler
    inside = [part for part in vars(pipe).values() if isinstance(part, diffusers.DiffusionPipeline)]
    for holder in (pipe, *inside):
        if getattr(holder, "scheduler", None) is old:
            holder.scheduler = new
    return old


def _scheduler_class(name: str) -> Any:
    """The class of diffusers with a name.

    Raises:
        ConfigError: there is none; near ones are named.
        MissingExtra: it needs a library that is not installed.
    """
    import diffusers

    kind: Any = library_class("diffusers", name)
    if name.endswith("Scheduler") and getattr(kind, "_backends", None):
        raise MissingExtra(f"--scheduler {name} needs {', '.join(kind._backends)}; pip install it")
    if kind is None or not hasattr(kind, "set_timesteps"):
        known = [n for n in dir(diffusers) if n.endswith("Scheduler")]
        near = _near(name, known)
        hint = (
            f"; did you mean {' or '.join(near)}?" if near else "; give a class name of diffusers"
        )
        raise ConfigError(f"unknown scheduler {name!r}{hint}")
    return kind


def _near(name: str, known: list[str]) -> list[str]:
    """Up to three classes that a short or misspelt name of a scheduler can mean, whatever its case."""
    plain = {n.lower().removesuffix("scheduler"): n for n in known}
    short = name.lower().removesuffix("scheduler")
    return [plain[key] for key in get_close_matches(short, plain, n=3, cutoff=0.4)]
