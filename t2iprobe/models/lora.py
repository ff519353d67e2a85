"""Putting a LoRA on a pipeline, and refusing one that diffusers would leave out, wholly or in part, with a warning."""

from pathlib import Path
from typing import Any

from t2iprobe.errors import MissingExtra, ModelError, first_line
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.log_filters import overheard
from t2iprobe.models.model import timestep_name
from t2iprobe.models.single_file import header


def lora_file(path: Path) -> Path:
    """The one weight file of a LoRA: the path itself, or the only .safetensors file in a folder.

    Raises:
        ModelError: there is none, there are several, or it cannot be read.
    """
    if not path.is_dir():
        file = path
    else:
        files = sorted(path.glob("*.safetensors"))
        if len(files) != 1:
            names = ", ".join(file.name for file in files) or "none"
            raise ModelError(f"LoRA {path}: name one .safetensors file of this folder: {names}")
        file = files[0]
    if not file.exists():
        raise ModelError(f"LoRA {file} does not exist; give a .safetensors file or a folder")
    header(file)
    return file


def load_lora(pipe: Any, path: Path) -> None:
    """Put a LoRA on the denoiser and the text encoders of a pipeline, with the scale it was saved with.

    Raises:
        ModelError: the pipeline takes no LoRA, or not every layer of the file has its place in it.
        MissingExtra: the peft library is missing or too old.
    """
    name = type(pipe).__name__
    if not hasattr(pipe, "load_lora_weights"):
        raise ModelError(f"{name} takes no LoRA; leave --lora out")
    file = lora_file(path)
    try:
        with overheard() as logged, foreign(f"{name}.load_lora_weights"):
            pipe.load_lora_weights(str(file.parent), weight_name=file.name)
    except ForeignError as failure:
        raise _refusal(file, name, failure.error) from failure
    unexpected = [line for line in logged if "unexpected keys" in line]
    if unexpected:
        first = unexpected[0].partition("model: ")[2].partition(",")[0].strip(" .")
        raise ModelError(
            f"LoRA {file} does not fit {name}: it has layers that the model has not, such as {first};"
            " use a LoRA made for this checkpoint"
        )
    adapted = pipe.get_list_adapters()
    denoisers = [part for part in adapted if timestep_name(getattr(pipe, part)) is not None]
    others = [key for key in header(file) if not key.startswith(("text_encoder", "lora_te"))]
    if not adapted or (others and not denoisers):
        example = (others or list(header(file)))[0]
        raise ModelError(
            f"LoRA {file} does not fit {name}: no module of it matches {example};"
            " use a LoRA made for this checkpoint"
        )


def _refusal(file: Path, name: str, error: Exception) -> ModelError | MissingExtra:
    """The one line for an error of diffusers or peft."""
    if "PEFT backend" in str(error):
        return MissingExtra(
            "a LoRA needs the peft library, 0.18 or newer; pip install 't2iprobe[lora]'"
        )
    sizes = [line.strip() for line in str(error).splitlines() if "mismatch" in line]
    why = sizes[0] if sizes else first_line(error)
    return ModelError(
        f"LoRA {file} does not fit {name}: {why[:240]}; use a LoRA made for this checkpoint"
    )
