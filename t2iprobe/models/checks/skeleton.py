"""A pipeline without the checkpoint's weights, built from the configs in its folder."""

import importlib
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

from t2iprobe.models.checkpoint.complaints import complaints
from t2iprobe.models.checkpoint.faults import check_configs
from t2iprobe.models.checkpoint.jsonfile import read_mapping
from t2iprobe.models.checkpoint.loading import (
    apply_settings,
    build_pipeline,
    is_component,
    read_index,
    ready,
)
from t2iprobe.models.checks.light import light
from t2iprobe.models.checks.shortcuts import shorten
from t2iprobe.models.hush import hush
from t2iprobe.models.model import Model, check_takes_prompt, timestep_name
from t2iprobe.models.settings import LoadSettings


@dataclass(frozen=True)
class Skeleton:
    """The modules of a pipeline folder with stand-ins for large weights.

    Attributes:
        modules: by component.
        codecs: those that decode pictures once more, on the meta device.
        missing: component -> why it cannot be built.
    """

    modules: dict[str, nn.Module]
    codecs: dict[str, nn.Module]
    missing: dict[str, str]


def skeleton(folder: Path) -> Skeleton:
    """Every component of a folder that is a module; no weight is read, and large ones take no memory.

    Raises:
        ModelError: the folder is no pipeline, or a config is not JSON.
    """
    hush()
    found = Skeleton({}, {}, {})
    for name, value in read_index(folder).items():
        config = folder / name / "config.json"
        if not is_component(value) or value[0] is None or not config.is_file():
            continue
        settings = read_mapping(config)
        kind = _class(str(value[0]), str(value[1]))
        if kind is None:
            found.missing[name] = f"{value[0]} has no class {value[1]}"
        elif issubclass(kind, nn.Module):
            try:
                # Two encoders of one config must not get the same weights.
                with complaints():
                    build = partial(_build, kind, settings)
                    found.modules[name] = light(build, crc32(name.encode()))
                if hasattr(kind, "decode") and timestep_name(found.modules[name]) is None:
                    found.codecs[name] = _shadow(kind, settings)
            except _BUILD_ERRORS as error:
                found.modules.pop(name, None)
                found.missing[name] = (
                    f"{kind.__name__} cannot be built from {config}: {_line(error)}"
                )
    return found


_BUILD_ERRORS = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    ImportError,
)
"""What constructors raise at a config that does not fit them."""


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
    used = {name: codec for name, codec in found.codecs.items() if name in model.modules}
    shorten(model, used, every_call)
    return model


def _without_modules(folder: Path, target: Path, modules: set[str]) -> dict[str, Any]:
    """Copy a pipeline folder but for its modules; returns the index of the copy.

    A module that its pipeline can do without stands there as absent: the library would look for its weights although
    it is given.
    """
    index = read_index(folder)
    kind = getattr(diffusers, str(index["_class_name"]), None)
    parameters = inspect.signature(kind.__init__).parameters if kind is not None else {}
    for name in modules:
        if name in parameters and parameters[name].default is not inspect.Parameter.empty:
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
        return _build(kind, settings).eval()


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


def _line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
