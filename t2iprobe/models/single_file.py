"""Checkpoints whose weights are in one .safetensors file: what such a file holds, and loading it.

A file in the original layout of a model holds its denoiser, and often its codec and its text encoders too; a file in
diffusers' own layout holds one component. What the file lacks, and every configuration, comes from a pipeline folder.
"""

import inspect
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from t2iprobe.errors import ModelError, first_line
from t2iprobe.models.classes import library_class, module_classes
from t2iprobe.models.foreign import ForeignError, foreign, is_out_of_memory, out_of_memory
from t2iprobe.models.hub import missing_files
from t2iprobe.models.log_filters import overheard
from t2iprobe.models.model import TIMESTEP_NAMES

# Where the original layouts keep a codec, and what marks weights that need a number kept beside them to be read.
_CODEC_PREFIXES = ("first_stage_model.", "vae.")
_SCALE_SUFFIXES = ("scale_weight", "weight_scale", "scaled_fp8", ".absmax", ".quant_map")


def header(file: Path) -> dict[str, torch.Size]:
    """Names and shapes of the tensors of a .safetensors file; no weight is read.

    Raises:
        ModelError: there is no such file, it has another format, or it is cut off.
    """
    if file.is_dir():
        raise ModelError(f"{file} is a folder; give one .safetensors file")
    if not file.is_file():
        raise ModelError(f"{file} does not exist; give a .safetensors file")
    if file.suffix != ".safetensors":
        raise ModelError(
            f"{file} is no .safetensors file; other formats are not read, some of them run code when they are opened:"
            " convert it first"
        )
    try:
        with foreign(f"opening {file.name}"), safe_open(file, "pt") as tensors:
            names = tensors.keys()
            shapes = {name: torch.Size(tensors.get_slice(name).get_shape()) for name in names}
    except ForeignError as failure:
        why = first_line(failure.error)
        raise ModelError(
            f"{file} cannot be read as safetensors: {why}; copy or download it again"
        ) from failure
    if not shapes:
        raise ModelError(f"{file} holds no weights")
    return shapes


def pipeline_around(file: Path) -> Path | None:
    """The pipeline folder that a weight file lies in, directly or inside a component; None where there is none."""
    near = (file.resolve().parent, file.resolve().parent.parent)
    return next((folder for folder in near if (folder / "model_index.json").is_file()), None)


def how_to_load(file: Path) -> str:
    """One line for a weight file that was given without a configuration; names the family where the file tells.

    Raises:
        ModelError: the file cannot be read.
    """
    known = _reference(header(file))
    where = known or "the folder with its model_index.json, or a hub id"
    like = f" looks like {known}: it" if known else ""
    return f"{file}{like} holds weights and no configuration; give it as --single-file, with --model {where}"


def _reference(shapes: Mapping[str, torch.Size]) -> str | None:
    """The repository whose configuration diffusers would take for such a file; None where nothing tells it."""
    from diffusers.loaders import single_file_utils as utils

    skeleton = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    family = utils.infer_diffusers_model_type(skeleton)
    if family == "v1" and utils.CHECKPOINT_KEY_NAMES["v1"] not in shapes:
        return None  # what diffusers takes anything for that it does not know
    found: str = utils.DIFFUSERS_DEFAULT_PIPELINE_PATHS[family]["pretrained_model_name_or_path"]
    return found


def parts_in(file: Path, index: Mapping[str, Any]) -> dict[str, type]:
    """The components of a pipeline that a file holds, with their classes.

    Args:
        file: the weights.
        index: the model_index.json of the pipeline: component -> (library, class).

    Raises:
        ModelError: the file cannot be read, or holds quantised weights.
    """
    shapes = header(file)
    scales = [name for name in shapes if name.endswith(_SCALE_SUFFIXES)]
    if scales:
        raise ModelError(
            f"{file} holds quantised weights with scales of their own ({scales[0]}), which diffusers would ignore;"
            " give a file in bf16, fp16 or fp32"
        )
    return {name: kind for name, kind in module_classes(index).items() if _holds(kind, shapes)}


def _is_denoiser(kind: type) -> bool:
    return bool(set(TIMESTEP_NAMES) & set(inspect.signature(kind.forward).parameters))  # type: ignore[attr-defined]


def _holds(kind: type, shapes: Mapping[str, torch.Size]) -> bool:
    """Whether a file with these tensors has the weights of a class; the denoiser's are in every file."""
    from diffusers import ModelMixin
    from diffusers.loaders import single_file_utils as utils

    if issubclass(kind, ModelMixin):
        codec = hasattr(kind, "from_single_file") and hasattr(kind, "decode")
        return _is_denoiser(kind) or (
            codec and any(key.startswith(_CODEC_PREFIXES) for key in shapes)
        )
    is_t5 = "T5" in kind.__name__ and utils.is_t5_in_single_file(shapes)
    return bool(is_t5 or utils.is_clip_model_in_single_file(kind, shapes))


def load_parts(
    file: Path, folder: Path, index: Mapping[str, Any], dtype: torch.dtype
) -> dict[str, Any]:
    """The components that a file holds, loaded with the configurations of a folder.

    Args:
        file: the weights.
        folder: the pipeline folder; only its configurations are needed for these components.
        index: its model_index.json.
        dtype: number format of the weights.

    Raises:
        ModelError: the file cannot be read, or does not fit the folder.
    """
    from safetensors.torch import load_file

    kinds = parts_in(file, index)
    if not any(_is_denoiser(kind) for kind in kinds.values()):
        raise ModelError(
            f"{index['_class_name']} cannot be loaded from a single file; give the folder of the whole pipeline"
        )
    weights = load_file(file)
    parts: dict[str, Any] = _left_out(file, folder, index, kinds)
    for name in sorted(kinds, key=lambda name: not _is_denoiser(kinds[name])):
        kind = kinds[name]
        try:
            with overheard() as logged:
                parts[name] = _load(name, kind, weights, folder, dtype)
        except ForeignError as failure:
            if is_out_of_memory(failure):
                doing = f"loading {file}"
                raise out_of_memory(doing, "cpu", str(dtype).removeprefix("torch.")) from failure
            why = first_line(failure.error, 160)
            raise ModelError(_does_not_fit(file, folder, name, why)) from failure
        missing = [key for key, weight in parts[name].named_parameters() if weight.is_meta]
        if missing:
            why = f"{len(missing)} weights are not in the file, such as {missing[0]}"
            raise ModelError(_does_not_fit(file, folder, name, why))
        if any("were not used" in line for line in logged):
            raise ModelError(_does_not_fit(file, folder, name, "the file holds weights beyond it"))
    return parts


def _left_out(
    file: Path, folder: Path, index: Mapping[str, Any], held: Collection[str]
) -> dict[str, None]:
    """Components of which neither the file nor the folder has weights, as long as the pipeline can do without them."""
    pipeline = library_class("diffusers", str(index["_class_name"]))
    optional = getattr(pipeline, "_optional_components", ())
    lacking = dict.fromkeys(entry.split("/")[0] for entry in missing_files(folder))
    needed = [name for name in lacking if name not in held and name not in optional]
    if needed:
        raise ModelError(
            f"neither {file} nor {folder} has weights of {', '.join(needed)}; give as --model a folder with them"
        )
    return dict.fromkeys(name for name in lacking if name not in held)


def _does_not_fit(file: Path, folder: Path, name: str, why: str) -> str:
    known = _reference(header(file))
    hint = f"it looks like a file of {known}" if known else "give the folder of the same family"
    return f"{file} does not fit the {name} of {folder}: {why}; {hint}"


def _load(
    name: str, kind: Any, weights: Mapping[str, torch.Tensor], folder: Path, dtype: torch.dtype
) -> Any:
    """One component. The conversions of diffusers take entries out of the mapping they get, so each has a copy."""
    from accelerate import init_empty_weights
    from diffusers import ModelMixin
    from diffusers.loaders import single_file_utils as utils

    config = {"config": str(folder), "subfolder": name, "torch_dtype": dtype}
    with foreign(f"{kind.__name__} from a single file"):
        if hasattr(kind, "from_single_file"):
            return kind.from_single_file(dict(weights), local_files_only=True, **config)
        if not issubclass(kind, ModelMixin):
            make = (
                utils.create_diffusers_t5_model_from_checkpoint
                if "T5" in kind.__name__
                else utils.create_diffusers_clip_model_from_ldm
            )
            return make(kind, checkpoint=dict(weights), local_files_only=True, **config)
        # Its class is read in diffusers' own layout alone.
        with init_empty_weights():
            module = kind.from_config(kind.load_config(folder / name))
        module.load_state_dict(weights, assign=True)
        return module.to(dtype).eval()
