"""A pipeline without the checkpoint's weights, built from the configs in its folder."""

import inspect
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import diffusers
import torch
from torch import nn

from t2iprobe.checks.classes import NoClass, find_class
from t2iprobe.checks.shortcuts import shorten
from t2iprobe.checks.stand_ins import light
from t2iprobe.errors import first_line
from t2iprobe.models.arguments import check_takes_prompt
from t2iprobe.models.index import is_component, read_index, read_mapping
from t2iprobe.models.loading import (
    apply_settings,
    build_pipeline,
    ready,
)
from t2iprobe.models.log_filters import hush, overheard
from t2iprobe.models.model import Model, timestep_name
from t2iprobe.models.problems import check_configs
from t2iprobe.models.remote_code import check_trust
from t2iprobe.models.settings import LoadSettings


@dataclass(frozen=True)
class Skeleton:
    """The modules of a pipeline folder with stand-ins for large weights.

    Attributes:
        modules: by component.
        shadows: codecs and denoisers once more, on the meta device.
        missing: component -> why it cannot be built.
    """

    modules: dict[str, nn.Module]
    shadows: dict[str, nn.Module]
    missing: dict[str, str]


def skeleton(name: str, folder: Path, trusted: bool = False) -> Skeleton:
    """Every component of a folder that is a module; no weight is read, and large ones take no memory.

    Args:
        name: what the user called the checkpoint.
        folder: the pipeline folder.
        trusted: whether code that lies in the folder may be run.

    Raises:
        ModelError: the folder is no pipeline, a config is not JSON, or code of its own is not trusted.
    """
    hush()
    found = Skeleton({}, {}, {})
    index = read_index(folder)
    check_trust(name, folder, index, trusted)
    for part, value in index.items():
        config = folder / part / "config.json"
        if not is_component(value) or value[0] is None or not config.is_file():
            continue
        settings = read_mapping(config)
        try:
            kind = find_class(folder / part, str(value[0]), str(value[1]))
            if issubclass(kind, nn.Module):
                _add(found, part, kind, settings)
        except NoClass as reason:
            found.missing[part] = str(reason)
        except _BUILD_ERRORS as error:
            found.modules.pop(part, None)
            found.missing[part] = f"{value[1]} cannot be built from {config}: {first_line(error)}"
    return found


_BUILD_ERRORS = (TypeError, ValueError, LookupError, AttributeError, RuntimeError, ImportError)
"""What constructors raise at a config that does not fit them, or without a library that they need."""


def _add(found: Skeleton, part: str, kind: Any, settings: dict[str, Any]) -> None:
    """Build a component, and its shadow where shapes are asked of it."""
    with overheard():
        # Two encoders of one config must not get the same weights.
        module = light(partial(_build, kind, settings), crc32(part.encode()))
        found.modules[part] = module
        if hasattr(kind, "decode") or timestep_name(module) is not None:
            found.shadows[part] = _shadow(kind, settings)


def light_model(
    name: str, folder: Path, found: Skeleton, settings: LoadSettings, every_call: bool = False
) -> Model:
    """The pipeline of a folder with the modules of its skeleton, ready for trial calls and for nothing else.

    With `every_call` no call of a denoiser is answered from an earlier one.

    Raises:
        ModelError: it cannot be put together, or is not a text-to-image pipeline.
        ConfigError: a setting does not fit it.
        MissingExtra: it needs a library that is not installed.
    """
    check_configs(name, folder, read_index(folder), ())
    settings = replace(settings, single_file=None, lora=None, offload="none", variant=None)
    with TemporaryDirectory() as copy, quiet():
        index = _without_modules(folder, Path(copy), set(found.modules))
        pipe = build_pipeline(name, Path(copy), index, torch.float32, settings, found.modules)
    check_takes_prompt(type(pipe), name)
    replaced = apply_settings(pipe, settings, torch.device("cpu"))
    facts = {"dtype": "float32", "device": "cpu"}
    model = ready(name, folder, pipe, settings, facts, replaced)
    rest = model.modules.keys() - model.denoisers.keys()
    codecs = {part: shadow for part, shadow in found.shadows.items() if part in rest}
    shorten(model, codecs, every_call)
    return model


def _without_modules(folder: Path, target: Path, modules: set[str]) -> dict[str, Any]:
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


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of the library: it prints whole modules it is given, and how each call was understood."""
    from diffusers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _shadow(kind: Any, settings: dict[str, Any]) -> nn.Module:
    with torch.device("meta"):
        return _build(kind, settings).eval().to("meta")


def _build(kind: Any, settings: dict[str, Any]) -> nn.Module:
    settings = _in_float32(settings)
    if hasattr(kind, "config_class"):
        module: nn.Module = kind(kind.config_class.from_dict(settings))
    else:
        module = kind.from_config(settings)
    return module


def _in_float32(settings: dict[str, Any]) -> dict[str, Any]:
    """A config without the number format that its weights are stored in, in any of its parts."""
    return {
        key: _in_float32(value) if isinstance(value, dict) else value
        for key, value in settings.items()
        if key not in ("dtype", "torch_dtype")
    }
