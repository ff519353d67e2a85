"""A pipeline's modules without their weights, built on the meta device from the configs in its folder."""

import importlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from t2iprobe.errors import ModelError
from t2iprobe.models.loading import is_component, read_index


def skeleton(folder: Path) -> dict[str, nn.Module]:
    """Every component of a folder that is a module, by name; no weight is read and none takes memory.

    Raises:
        ModelError: a component's class or config cannot be used.
    """
    found: dict[str, nn.Module] = {}
    for name, value in read_index(folder).items():
        if not is_component(value) or value[0] is None:
            continue
        config = folder / name / "config.json"
        if not config.is_file():
            continue
        kind = _class(str(value[0]), str(value[1]))
        if kind is None or not issubclass(kind, nn.Module):
            continue
        with torch.device("meta"):
            found[name] = _build(kind, config)
    return found


def _class(library: str, name: str) -> Any:
    """A class by the library's or the pipeline module's name that model_index.json gives."""
    places = [
        library,
        f"diffusers.pipelines.{library}",
        f"diffusers.pipelines.deprecated.{library}",
    ]
    for place in places:
        try:
            found = getattr(importlib.import_module(place), name, None)
        except ImportError:
            continue
        if found is not None:
            return found
    return None


def _build(kind: Any, config: Path) -> nn.Module:
    settings = json.loads(config.read_text())
    try:
        if hasattr(kind, "config_class"):
            module: nn.Module = kind(kind.config_class.from_dict(settings))
        else:
            module = kind.from_config(settings)
    except (TypeError, ValueError, KeyError, AttributeError, NotImplementedError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"{config}: {kind.__name__} cannot be built from it: {text[:200]}"
        ) from error
    return module
