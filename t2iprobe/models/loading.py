"""Loading a diffusers pipeline from the zoo, a folder, a single file or the hub."""

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from t2iprobe.errors import ConfigError, ModelError, unknown
from t2iprobe.models import zoo
from t2iprobe.models.arguments import call_arguments, check_takes_prompt
from t2iprobe.models.cards import card_in
from t2iprobe.models.classes import library_class
from t2iprobe.models.foreign import ForeignError, foreign, is_out_of_memory, out_of_memory
from t2iprobe.models.hub import fetch, fetch_configs
from t2iprobe.models.identity import identify
from t2iprobe.models.index import is_component, read_index
from t2iprobe.models.log_filters import hush, overheard
from t2iprobe.models.lora import load_lora, lora_file
from t2iprobe.models.model import SCHEDULER, Model
from t2iprobe.models.names import local_folder
from t2iprobe.models.problems import (
    check_configs,
    check_index,
    check_tokenizers,
    check_weights,
    explain_loading,
)
from t2iprobe.models.remote_code import check_trust, remote_code
from t2iprobe.models.schedulers import change_scheduler
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.single_file import header, load_parts, parts_in

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


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
    check_settings(name, settings)
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
    except ForeignError as failure:
        if not is_out_of_memory(failure):
            raise
        raise out_of_memory(
            f"loading {name}", str(device), _plain(dtype), settings.offload
        ) from failure
    provenance = identify(name, folder, pipe, settings, device, dtype)
    return ready(name, folder, pipe, settings, provenance, replaced)


def check_settings(name: str, settings: LoadSettings) -> None:
    """Refuse what would be passed over.

    Raises:
        ConfigError: a revision of what is no hub repository, a variant of a zoo model, or two files of weights.
        ModelError: the name is no model's.
    """
    what = "a model of the embedded zoo" if name in zoo.names() else "on this machine"
    if settings.revision is not None and local_folder(name) is not None:
        raise ConfigError(
            f"--revision {settings.revision} names a state of a hub repository, and {name} is {what}; leave it out"
        )
    if settings.variant is not None and name in zoo.names():
        raise ConfigError(
            f"--variant {settings.variant}: {name} has one set of weights; leave it out"
        )
    if settings.single_file is not None and Path(name).expanduser().is_file():
        raise ConfigError(
            f"--single-file {settings.single_file} and --model {name} are both files of weights; give as --model the"
            " folder or hub id with the configuration"
        )


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
    card = card_in(folder)
    arguments = call_arguments(pipe, {} if card is None else card.call, settings)
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
    check_settings(name, settings)
    if settings.single_file is not None:
        header(settings.single_file)
    if settings.lora is not None:
        lora_file(settings.lora)
    return local_folder(name) or fetch_configs(name, settings)


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
    """The pipeline of a folder; components that are given are not read, and may be without values.

    Raises:
        ModelError: the folder is broken, or was written by another version; one line says what to do.
        MissingExtra: it needs a library that is not installed.
    """
    import diffusers

    check_trust(name, folder, index, settings.trust_remote_code)
    restore_moved(index)
    parts: dict[str, Any] = {key: None for key, value in index.items() if value == [None, None]}
    if settings.single_file is not None:
        parts |= load_parts(settings.single_file, folder, index, dtype)
    parts |= given or {}
    pipeline = library_class("diffusers", str(index["_class_name"]))
    if pipeline is not None:
        if not issubclass(pipeline, diffusers.DiffusionPipeline):
            raise ModelError(
                f"{pipeline.__name__}, the _class_name of model_index.json, is no class of a pipeline"
            )
        check_takes_prompt(pipeline, name)
    check_index(name, pipeline, index, parts)
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
    try:
        with overheard() as logged, foreign("from_pretrained"), remote_code(name, folder):
            pipe = diffusers.DiffusionPipeline.from_pretrained(
                str(folder), local_files_only=True, **options
            )
    except ForeignError as failure:
        if is_out_of_memory(failure):
            raise out_of_memory(f"loading {name}", "cpu", _plain(dtype)) from failure
        raise explain_loading(name, folder, index, settings, failure.error) from failure
    if given is None:
        check_weights(name, folder, pipe, logged)
    return pipe


def restore_moved(index: Mapping[str, Any]) -> None:
    """Put modules of pipelines that diffusers moved under `deprecated` where a checkpoint names them: the old place."""
    import diffusers

    for moved in {str(value[0]) for value in index.values() if is_component(value)}:
        place = f"diffusers.pipelines.deprecated.{moved}"
        at_home = "." in moved or hasattr(diffusers.pipelines, moved)
        if not at_home and importlib.util.find_spec(place):
            setattr(diffusers.pipelines, moved, importlib.import_module(place))


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
    with foreign(f"moving {type(pipe).__name__} to {device}"):
        if settings.offload == "model":
            pipe.enable_model_cpu_offload(device=device)
        elif settings.offload == "sequential":
            pipe.enable_sequential_cpu_offload(device=device)
        elif getattr(pipe, "hf_device_map", None) is None:
            pipe.to(device)
    return replaced
