"""A pipeline's modules without the checkpoint's weights, built from the configs in its folder."""

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from t2iprobe.errors import ModelError
from t2iprobe.models.loading import is_component, read_index

_WEIGHTS = ("*.safetensors", "*.bin", "*.ckpt", "*.pt", "*.index.json")


def skeleton(folder: Path, device: str = "meta") -> dict[str, nn.Module]:
    """Every component of a folder that is a module, by name; no weight is read.

    Args:
        folder: a pipeline folder.
        device: "meta", where weights take no memory, or "cpu", where they are random.

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
        with torch.device(device), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found[name] = _build(kind, config)
            if device != "meta":
                _open_gates(found[name])
    return found


def random_checkpoint(folder: Path, target: Path) -> None:
    """Write a copy of a pipeline folder with random weights in place of its own."""
    shutil.copytree(folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_WEIGHTS))
    for name, module in skeleton(folder, "cpu").items():
        module.save_pretrained(target / name)  # type: ignore[operator]


def _open_gates(module: nn.Module) -> None:
    """Give matrices that start at zero small random values: closed gates would keep text from the image."""
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() >= 2 and weight.numel() and not weight.any():
                weight.normal_(std=0.5 * weight.shape[-1] ** -0.5)


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
