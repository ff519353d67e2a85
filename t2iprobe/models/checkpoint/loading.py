"""Loading a diffusers pipeline from the zoo, a folder, a single file or the hub."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from t2iprobe.errors import ConfigError, MissingExtra, ModelError, unknown
from t2iprobe.models.checkpoint.complaints import complaints
from t2iprobe.models.checkpoint.faults import check_index, check_tokenizers, check_weights
from t2iprobe.models.checkpoint.hub import fetch, fetch_configs, missing_files
from t2iprobe.models.checkpoint.identity import identify, quantisation
from t2iprobe.models.checkpoint.lora import load_lora
from t2iprobe.models.checkpoint.names import local_folder
from t2iprobe.models.checkpoint.single_file import header, load_parts, parts_in
from t2iprobe.models.model import Model, call_arguments, check_takes_prompt
from t2iprobe.models.settings import LoadSettings

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

# Modules that diffusers moved under `pipelines.deprecated`, while checkpoints still name the old place.
_MOVED = ("wuerstchen", "unclip")


def load_model(name: str, settings: LoadSettings | None = None) -> Model:
    """Load a checkpoint.

    Args:
        name: a zoo name, a folder with a model_index.json, a hub id, or a .safetensors file inside such a folder.
        settings: how to load and call it.

    Raises:
        ModelError: it is unknown, unreachable, broken, or not a text-to-image pipeline; one line says which and what
            to do.
        ConfigError: a setting does not fit this checkpoint or this machine.
        MissingExtra: the checkpoint needs a library that is not installed.
    """
    settings = settings or LoadSettings()
    if settings.single_file is None and Path(name).expanduser().is_file():
        settings = replace(settings, single_file=Path(name).expanduser())
    silence_bars()
    device = pick_device(settings.device)
    dtype = pick_dtype(settings.dtype, device)
    if settings.offload != "none" and device.type == "cpu":
        raise ConfigError(
            f"--offload {settings.offload} keeps idle parts off a GPU, and this computes on the CPU; leave it out"
        )
    folder = find_folder(name, settings)
    index = read_index(folder)
    pipe = build_pipeline(name, folder, index, dtype, settings)
    check_takes_prompt(type(pipe), name)
    apply_settings(pipe, settings, device)
    provenance = identify(name, folder, pipe, settings, device, dtype)
    return ready(name, folder, pipe, settings, provenance)


def ready(
    name: str, folder: Path, pipe: Any, settings: LoadSettings, provenance: dict[str, Any]
) -> Model:
    """A pipeline with how it is called: what its card says, then what the user says.

    Raises:
        ConfigError: the pipeline has no such argument.
    """
    card_file = folder / "card.json"
    card = json.loads(card_file.read_text()) if card_file.is_file() else None
    asked = {
        "num_inference_steps": settings.steps,
        "guidance_scale": settings.guidance,
        "height": settings.height,
        "width": settings.width,
        "negative_prompt": settings.negative_prompt,
    }
    call = call_arguments(pipe, (card or {}).get("call", {}), asked, settings.pipe_arg)
    return Model(name, pipe, call, provenance, card)


def silence_bars() -> None:
    """Local weights load in a moment; the bars of two libraries would only push our own off the screen."""
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()


def pick_device(name: str) -> torch.device:
    """The torch device for auto, cpu, cuda, cuda:1 or mps.

    Raises:
        ConfigError: this machine has no such device.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 or mps") from error
    available = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if (device.index or 0) >= available.get(device.type, 0):
        raise ConfigError(f"device {name!r} is not on this machine; use auto or cpu")
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format: auto is bf16 on GPUs that have it, else fp16; fp32 on the CPU.

    Raises:
        ConfigError: the name is unknown.
    """
    if name != "auto":
        if name not in DTYPES:
            raise ConfigError(unknown("dtype", name, ["auto", *DTYPES]))
        return DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.float16 if device.type == "mps" else torch.float32


def find_folder(name: str, settings: LoadSettings) -> Path:
    """The local folder of a checkpoint; a hub repository is fetched first.

    Raises:
        ModelError: there is no such zoo model, folder or repository.
    """
    folder = local_folder(name)
    if folder is not None or settings.single_file is None:
        return folder or fetch(name, settings)
    index = read_index(fetch_configs(name, settings))
    return fetch(name, settings, parts_in(settings.single_file, index))


def find_configs(name: str, settings: LoadSettings) -> Path:
    """A folder with the configs and tokenizers of a checkpoint; of a hub repository no weight is fetched.

    Raises:
        ModelError: there is no such zoo model, folder or repository.
    """
    return local_folder(name) or fetch_configs(name, settings)


def read_index(folder: Path) -> dict[str, Any]:
    """The model_index.json of a pipeline folder.

    Raises:
        ModelError: there is none, or it is not JSON.
    """
    file = folder / "model_index.json"
    if not file.is_file():
        part = (
            " (this looks like one component of a pipeline)"
            if (folder / "config.json").is_file()
            else ""
        )
        raise ModelError(
            f"{folder} has no model_index.json{part}; give the folder of a whole diffusers pipeline"
        )
    try:
        index = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ModelError(f"{file}, line {error.lineno}: not JSON ({error.msg})") from error
    if not isinstance(index, dict) or "_class_name" not in index:
        raise ModelError(f"{file} names no pipeline class (_class_name)")
    return index


def is_component(value: Any) -> bool:
    """Whether an entry of model_index.json is a component: a pair of two names, or of two nulls."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and (all(isinstance(x, str) for x in value) or value == [None, None])
    )


def build_pipeline(
    name: str,
    folder: Path,
    index: dict[str, Any],
    dtype: torch.dtype,
    settings: LoadSettings,
    given: Mapping[str, Any] | None = None,
) -> Any:
    """The pipeline of a folder; components that are given are not read.

    Raises:
        ModelError: the folder is broken, or was written by another version; one line says what to do.
        MissingExtra: it needs a library that is not installed.
    """
    import diffusers

    for moved in _MOVED:
        named = any(is_component(v) and v[0] == moved for v in index.values())
        if named and not hasattr(diffusers.pipelines, moved):
            old = importlib.import_module(f"diffusers.pipelines.deprecated.{moved}")
            setattr(diffusers.pipelines, moved, old)
    parts: dict[str, Any] = {key: None for key, value in index.items() if value == [None, None]}
    if settings.single_file is not None:
        parts |= load_parts(settings.single_file, folder, index, dtype)
    parts |= given or {}
    kind = _pipeline_class(str(index["_class_name"]))
    if kind is not None:
        check_takes_prompt(kind, name)
    check_index(name, kind, index, parts)
    check_tokenizers(name, folder, index, parts)
    version = tuple(int(x) for x in diffusers.__version__.split(".")[:2])
    options: dict[str, Any] = {
        "dtype" if version >= (0, 40) else "torch_dtype": dtype,
        **parts,
    }
    if settings.variant:
        options["variant"] = settings.variant
    if settings.trust_remote_code:
        options["trust_remote_code"] = True
    try:
        with complaints() as heard:
            pipe = diffusers.DiffusionPipeline.from_pretrained(
                str(folder), local_files_only=True, **options
            )
    except (ImportError, NameError) as error:
        raise MissingExtra(f"{name} needs a library: {_library(error)}") from error
    except (
        OSError,
        ValueError,
        AttributeError,
        RuntimeError,
        TypeError,
        KeyError,
        SafetensorError,
    ) as error:
        raise ModelError(f"{name}: {_load_advice(folder, index, settings, error)}") from error
    check_weights(name, pipe, heard)
    return pipe


def _pipeline_class(name: str) -> type | None:
    """The class of diffusers with that name; None where it is of elsewhere, or needs a library that is missing."""
    import diffusers

    try:
        found = getattr(diffusers, name, None)
    except (ImportError, RuntimeError):
        return None
    known = isinstance(found, type) and issubclass(found, diffusers.DiffusionPipeline)
    return found if known else None


def _library(error: ImportError | NameError) -> str:
    """What to install, as an error of a library that misses another one says it."""
    if error.name:
        return f"{error.name} is not installed; pip install {error.name}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


def _load_advice(
    folder: Path, index: dict[str, Any], settings: LoadSettings, error: Exception
) -> str:
    """Why a folder cannot be loaded and what to do, in one line."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "custom code" in str(error) or "trust_remote_code" in str(error):
        return "it brings Python code of its own; read it, then pass --trust-remote-code"
    if isinstance(error, AttributeError) or "has no class" in text or "has no attribute" in text:
        import diffusers

        wanted = index.get("_diffusers_version", "unknown")
        return f"{text}; it was written by diffusers {wanted}, installed is {diffusers.__version__}"
    missing = missing_files(folder)
    if missing:
        return f"{missing[0]} is missing ({len(missing)} in all); copy or download the whole folder again"
    for file in sorted(folder.glob("*/*.safetensors")):
        try:
            header(file)
        except ModelError as broken:
            return str(broken)
    for config in sorted(folder.glob("*/config.json")):
        method = quantisation(json.loads(config.read_text()))
        if method:
            return (
                f"its {config.parent.name} is quantised with {method}: {text[:200]}; use a machine that {method} runs"
                " on, or a checkpoint that is not quantised"
            )
    variants = sorted(
        {
            file.name.split(".")[-2]
            for file in folder.glob("*/*.*.safetensors")
            if "-of-" not in file.name.split(".")[-2]
        }
    )
    if variants and settings.variant not in variants:
        return f"its weights are saved as variant {' or '.join(variants)}; pass --variant {variants[0]}"
    return text[:300]


def _near_schedulers(name: str, known: list[str]) -> list[str]:
    """Up to three classes that a short or misspelt name of a scheduler can mean, whatever its case."""
    plain = {n.lower().removesuffix("scheduler"): n for n in known}
    short = name.lower().removesuffix("scheduler")
    return [plain[key] for key in get_close_matches(short, plain, n=3, cutoff=0.4)]


def apply_settings(pipe: Any, settings: LoadSettings, device: torch.device) -> None:
    """Put scheduler, LoRA, tiling, device and offloading in place."""
    import diffusers

    if settings.scheduler is not None:
        kind = getattr(diffusers, settings.scheduler, None)
        if kind is None or not hasattr(kind, "set_timesteps"):
            known = [n for n in dir(diffusers) if n.endswith("Scheduler")]
            near = _near_schedulers(settings.scheduler, known)
            raise ConfigError(
                f"unknown scheduler {settings.scheduler!r}; near: {', '.join(near) or 'none'}"
            )
        pipe.scheduler = kind.from_config(pipe.scheduler.config)
    if settings.lora is not None:
        load_lora(pipe, settings.lora)
    if settings.vae_tiling:
        if not hasattr(getattr(pipe, "vae", None), "enable_tiling"):
            raise ConfigError(
                f"{type(pipe).__name__} has no VAE that decodes in tiles; leave --vae-tiling out"
            )
        pipe.vae.enable_tiling()
    for part in getattr(pipe, "components", {}).values():
        if isinstance(part, torch.nn.Module):
            part.eval()
    if settings.offload == "model":
        pipe.enable_model_cpu_offload(device=device)
    elif settings.offload == "sequential":
        pipe.enable_sequential_cpu_offload(device=device)
    elif getattr(pipe, "hf_device_map", None) is None:
        pipe.to(device)
