"""Tiny random pipelines of many families, written to disk offline: the structure of the real ones, noise for images."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pipelines
import torch
from pipelines import parts

COMPLETE = (0, 42)
"""The diffusers from which on every family can be built; with an older one some are skipped."""

SMALL = {"height": 32, "width": 32, "num_inference_steps": 2}


@dataclass(frozen=True)
class Tiny:
    """One family: how to build its pipeline, the call that suits it, what a user would meet it for."""

    build: Callable[[], Any]
    call: dict[str, Any] = field(default_factory=dict)


FAMILIES: dict[str, Tiny] = {}


def load_builders() -> None:
    """Know every family: each file of pipelines/ adds its own."""
    for module in iter_modules(pipelines.__path__):
        import_module(f"pipelines.{module.name}")


def family(name: str, **call: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def keep(build: Callable[[], Any]) -> Callable[[], Any]:
        FAMILIES[name] = Tiny(build, call)
        return build

    return keep


def pipe_args(name: str) -> tuple[str, ...]:
    """The call of a family as the command line takes it."""
    return tuple(f"{key}={value}" for key, value in FAMILIES[name].call.items())


def save(name: str, folder: Path) -> Path:
    """Write a family's pipeline to folder/name."""
    path = folder / name
    if path.exists():
        return path
    torch.manual_seed(0)
    pipe = FAMILIES[name].build()
    for part in pipe.components.values():
        if isinstance(part, torch.nn.Module):
            part.eval()
            parts.wake(part)
            if hasattr(part, "post_init") and not hasattr(part, "all_tied_weights_keys"):
                # transformers 5 cannot load it; newer releases of diffusers mended theirs
                raise AttributeError(f"{type(part).__name__} has no attribute set by post_init")
    pipe.save_pretrained(path)
    index_file = path / "model_index.json"
    index = json.loads(index_file.read_text())
    for key, part in pipe.components.items():
        home = type(part).__module__.split(".")
        if index.get(key, [""])[0] == "diffusers" and "deprecated" in home:
            # hub repositories name the module that such a class was in
            index[key] = [home[home.index("deprecated") + 1], type(part).__name__]
    index_file.write_text(json.dumps(index))
    return path


def lacking(error: Exception) -> str | None:
    """What an older diffusers lacks of a family; None where the error is another, or diffusers new enough for all."""
    installed = version("diffusers")
    newer = tuple(int(part) for part in installed.split(".")[:2]) >= COMPLETE
    line = str(error).strip().splitlines()[-1] if str(error).strip() else ""
    if newer or not ("cannot import name" in line or "has no attribute" in line):
        return None
    return f"diffusers {installed} with transformers {version('transformers')}: {line.partition(' (/')[0]}"
