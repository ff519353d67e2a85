"""Loading a diffusers pipeline from the zoo, a folder, a single file or the hub."""

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from t2iprobe.errors import ConfigError, MissingExtra, ModelError, unknown
from t2iprobe.models.advice import library_needed, why_not_loaded
from t2iprobe.models.arguments import call_arguments
from t2iprobe.models.complaints import complaints, plain_exceptions
from t2iprobe.models.faults import (
    check_code,
    check_configs,
    check_index,
    check_tokenizers,
    check_weights,
)
from t2iprobe.models.hub import fetch, fetch_configs
from t2iprobe.models.identity import identify
from t2iprobe.models.jsonfile import is_component, no_component, read_mapping
from t2iprobe.models.log_filters import hush
from t2iprobe.models.lora import load_lora, lora_file
from t2iprobe.models.meant import check_meant
from t2iprobe.models.model import SCHEDULER, Model, check_takes_prompt
from t2iprobe.models.names import local_folder
from t2iprobe.models.owncode import failed_in_code, own_code
from t2iprobe.models.schedulers import change_scheduler
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.shortage import is_out_of_memory, out_of_memory
from t2iprobe.models.single_file import header, load_parts, parts_in

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


_LOAD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
)
"""What diffusers and transformers raise at a folder that they cannot load."""


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
    check_meant(name, settings)
    if settings.single_file is None and Path(name).expanduser().is_file():
        settings = replace(settings, single_file=Path(name).expanduser())
    hush()
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
    try:
        replaced = apply_settings(pipe, settings, device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(
            f"loading {name}", str(device), _plain(dtype), settings.offload
        ) from error
    provenance = identify(name, folder, pipe, settings, device, dtype)
    return ready(name, folder, pipe, settings, provenance, replaced)


def ready(
    name: str,
    folder: Path,
    pipe: Any,
    settings: LoadSettings,
    provenance: dict[str, Any],
    replaced: Mapping[str, Any],
) -> Model:
    """A pipeline with how it is called: what its card says, then what the user says.

    Args:
        name: what the user called it.
        folder: where its card may be.
        pipe: the pipeline with its settings applied.
        settings: of the user.
        provenance: what a run folder has to remember.
        replaced: components that the settings replaced.

    Raises:
        ConfigError: the pipeline has no such argument.
        ModelError: the card is damaged.
    """
    card_file = folder / "card.json"
    card = read_mapping(card_file) if card_file.is_file() else None
    defaults = (card or {}).get("call", {})
    if not isinstance(defaults, dict):
        raise ModelError(f"{card_file}: 'call' has to be a mapping of pipeline arguments")
    arguments = call_arguments(pipe, defaults, settings)
    given = arguments.given | {part: f"--{part} {settings.scheduler}" for part in replaced}
    unset = arguments.unset | dict(replaced)
    return Model(name, pipe, arguments.call, provenance, card, given=given, unset=unset)


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
        ModelError: there is no such zoo model, folder or repository, or a file that goes with it cannot be read.
    """
    check_meant(name, settings)
    if settings.single_file is not None:
        header(settings.single_file)
    if settings.lora is not None:
        lora_file(settings.lora)
    return local_folder(name) or fetch_configs(name, settings)


def read_index(folder: Path) -> dict[str, Any]:
    """The model_index.json of a pipeline folder.

    Raises:
        ModelError: there is none, or it is not JSON.
    """
    file = folder / "model_index.json"
    if not file.is_file():
        looks = {
            "modular_model_index.json": "a modular pipeline, which has no call of its own",
            "config.json": "one component of a pipeline",
        }
        kind = next((what for name, what in looks.items() if (folder / name).is_file()), None)
        part = f" (this looks like {kind})" if kind else ""
        raise ModelError(
            f"{folder} has no model_index.json{part}; give the folder of a whole diffusers pipeline"
        )
    index = read_mapping(file)
    kind = index.get("_class_name")
    if not isinstance(kind, str) and not (is_component(kind) and kind != [None, None]):
        raise ModelError(f"{file} names no pipeline class (_class_name)")
    for name, value in index.items():
        half = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)
        if (half or (folder / name).is_dir()) and not is_component(value):  # else a setting
            raise ModelError(no_component(str(file), name, value))
    return index


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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

    if not settings.trust_remote_code:
        check_code(name, folder, index)
    restore_moved(index)
    parts: dict[str, Any] = {key: None for key, value in index.items() if value == [None, None]}
    if settings.single_file is not None:
        parts |= load_parts(settings.single_file, folder, index, dtype)
    parts |= given or {}
    kind = _pipeline_class(str(index["_class_name"]))
    if kind is not None:
        check_takes_prompt(kind, name)
    check_index(name, kind, index, parts)
    check_tokenizers(name, folder, index, parts)
    check_configs(name, folder, index, parts)
    version = tuple(int(x) for x in diffusers.__version__.split(".")[:2])
    options: dict[str, Any] = {
        "dtype" if version >= (0, 40) else "torch_dtype": dtype,
        **parts,
    }
    if settings.variant:
        options["variant"] = settings.variant
    if settings.trust_remote_code:
        options["trust_remote_code"] = True
    with complaints() as heard:
        try:
            with plain_exceptions(), own_code(name, folder):
                pipe = diffusers.DiffusionPipeline.from_pretrained(
                    str(folder), local_files_only=True, **options
                )
        except (ImportError, NameError) as error:
            failed = None if isinstance(error, ImportError) else failed_in_code(folder, error)
            if failed:
                raise ModelError(f"{name}: {failed}") from error
            raise MissingExtra(f"{name} needs a library: {library_needed(error)}") from error
        except _LOAD_ERRORS as error:
            if is_out_of_memory(error):
                raise out_of_memory(f"loading {name}", "cpu", _plain(dtype)) from error
            why = why_not_loaded(folder, index, settings, error, heard)
            raise ModelError(f"{name}: {why}") from error
    check_weights(name, pipe, heard)
    return pipe


def restore_moved(index: Mapping[str, Any]) -> None:
    """Put modules of pipelines that diffusers moved under `deprecated` where a checkpoint names them: the old place."""
    import diffusers

    for moved in {str(value[0]) for value in index.values() if is_component(value)}:
        place = f"diffusers.pipelines.deprecated.{moved}"
        at_home = "." in moved or hasattr(diffusers.pipelines, moved)
        if not at_home and importlib.util.find_spec(place):
            setattr(diffusers.pipelines, moved, importlib.import_module(place))


def _pipeline_class(name: str) -> type | None:
    """The class of diffusers with that name; None where it is of elsewhere, or needs a library that is missing.

    Raises:
        ModelError: diffusers has something else under that name.
    """
    import diffusers

    try:
        found = getattr(diffusers, name, None)
    except (ImportError, RuntimeError):
        return None
    if found is None:
        return None
    if not (isinstance(found, type) and issubclass(found, diffusers.DiffusionPipeline)):
        raise ModelError(f"{name}, the _class_name of model_index.json, is no class of a pipeline")
    return found


def apply_settings(pipe: Any, settings: LoadSettings, device: torch.device) -> dict[str, Any]:
    """Put scheduler, LoRA, tiling, device and offloading in place.

    Returns:
        The components that were replaced, by name.

    Raises:
        ConfigError: a setting does not fit the pipeline.
        ModelError: the LoRA does not fit it.
    """
    replaced = {}
    if settings.scheduler is not None:
        replaced[SCHEDULER] = change_scheduler(pipe, settings.scheduler)
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
    return replaced
