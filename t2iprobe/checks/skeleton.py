"""The modules of a pipeline folder on the meta device, from its configs alone: weights with a shape and no values."""

import inspect
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import diffusers
import torch
from torch import nn

from t2iprobe.errors import first_line
from t2iprobe.models.classes import component_class
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.index import components, read_index, read_mapping
from t2iprobe.models.loading import apply_settings, build_pipeline, ready
from t2iprobe.models.log_filters import hush, overheard
from t2iprobe.models.model import Model
from t2iprobe.models.problems import check_configs
from t2iprobe.models.remote_code import check_trust
from t2iprobe.models.settings import LoadSettings


@dataclass(frozen=True)
class Skeleton:
    """The modules of a pipeline folder without values.

    Attributes:
        modules: by component, on the meta device.
        missing: component -> why it cannot be built.
    """

    modules: dict[str, nn.Module]
    missing: dict[str, str]


def skeleton(name: str, folder: Path, trusted: bool = False) -> Skeleton:
    """Every component of a folder that is a module; no weight is read or takes memory.

    Args:
        name: what the user called the checkpoint.
        folder: the pipeline folder.
        trusted: whether code that lies in the folder may be run.

    Raises:
        ModelError: the folder is no pipeline, a config is not JSON, or code of its own is not trusted or no Python.
    """
    hush()
    index = read_index(folder)
    check_trust(name, folder, index, trusted)
    modules: dict[str, nn.Module] = {}
    missing: dict[str, str] = {}
    for part, (library, kind_name) in components(index).items():
        config = folder / part / "config.json"
        if library is None or not config.is_file():
            continue
        settings = read_mapping(config)
        try:
            kind = component_class(folder / part, library, kind_name)
            if kind is None:
                missing[part] = _no_class(library, kind_name)
            elif issubclass(kind, nn.Module):
                modules[part] = _build(kind, settings)
        except ForeignError as failure:
            missing[part] = (
                f"{kind_name} cannot be built from {config}: {first_line(failure.error)}"
            )
    return Skeleton(modules, missing)


def _no_class(library: str, kind_name: str) -> str:
    """Why a class is not known."""
    installed = find_spec(library.partition(".")[0]) is not None
    if installed or hasattr(diffusers.pipelines, library):
        return f"{library} has no class {kind_name} that can be imported"
    return (
        f"no library called {library} is installed, so {kind_name} is unknown; code of a hub repository is fetched"
        " with --trust-remote-code only"
    )


def _build(kind: Any, settings: Mapping[str, Any]) -> nn.Module:
    """A module without values; in float32, whatever its weights are stored in.

    Raises:
        ForeignError: the config does not fit the class.
    """
    settings = _in_float32(settings)
    with overheard(), foreign(f"making {kind.__name__}"), torch.device("meta"):
        if hasattr(kind, "config_class"):
            module: nn.Module = kind(kind.config_class.from_dict(settings))
        else:
            module = kind.from_config(settings)
        return module.eval().to("meta")


def _in_float32(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A config without the number format that its weights are stored in, in any of its parts."""
    return {
        key: _in_float32(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in ("dtype", "torch_dtype")
    }


def weightless_model(
    name: str, folder: Path, modules: Mapping[str, nn.Module], settings: LoadSettings
) -> Model:
    """The pipeline of a folder with modules without values: it has roles and settings, and cannot be called.

    Raises:
        ModelError: it cannot be put together, or is not a text-to-image pipeline.
        ConfigError: a setting does not fit it.
        MissingExtra: it needs a library that is not installed.
    """
    check_configs(name, folder, read_index(folder), ())
    settings = replace(
        settings, single_file=None, lora=None, offload="none", variant=None, vae_tiling=False
    )
    with TemporaryDirectory() as copy:
        index = _without_modules(folder, Path(copy), modules)
        pipe = build_pipeline(name, Path(copy), index, torch.float32, settings, modules)
    replaced = apply_settings(pipe, settings, torch.device("meta"))
    return ready(name, folder, pipe, settings, {}, replaced)


def _without_modules(
    folder: Path, target: Path, modules: Mapping[str, nn.Module]
) -> dict[str, Any]:
    """Copy a pipeline folder but for its modules; returns the index of the copy.

    A module that its pipeline can do without, or whose code is the checkpoint's own, stands there as absent: diffusers
    would look for its weights, or for a library of that name, although it is given.
    """
    index = read_index(folder)
    kind = getattr(diffusers, str(index["_class_name"]), None)
    parameters = inspect.signature(kind.__init__).parameters if kind is not None else {}
    for name in modules:
        optional = name in parameters and parameters[name].default is not inspect.Parameter.empty
        if optional or (folder / name / f"{index[name][0]}.py").is_file():
            index[name] = [None, None]
    weights = shutil.ignore_patterns("*.safetensors", "*.bin", "*.ckpt", "*.pt")
    for item in folder.iterdir():
        if item.name in modules:
            (target / item.name).mkdir()
        elif item.is_dir():
            shutil.copytree(item, target / item.name, ignore=weights)
        elif item.suffix in (".json", ".py"):
            shutil.copy(item, target)
    (target / "model_index.json").write_text(json.dumps(index))
    return index
