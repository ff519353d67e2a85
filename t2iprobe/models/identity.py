"""What a run folder remembers about a model: which weights, in which numbers, on which device."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from t2iprobe.models.settings import LoadSettings


def weights_hash(folder: Path, more: Sequence[Path] = ()) -> str:
    """A hash over every weight file of a folder and over further files: names and contents, 32 hex digits.

    Weights are .safetensors files; in a folder without any, .bin files, which the libraries then load.
    """
    digest = blake2b(digest_size=16)
    safe = {file for file in folder.rglob("*.safetensors") if file.is_file()}
    holders = {file.parent for file in safe}
    old = {f for f in folder.rglob("*.bin") if f.is_file() and f.parent not in holders}
    inside = [(str(file.relative_to(folder)), file) for file in sorted(safe | old)]
    for name, file in [*inside, *((file.name, file) for file in more)]:
        digest.update(name.encode())
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


def quantisation(config: Any) -> str | None:
    """How the weights of a component are quantised, as its config says; None where they are not.

    Args:
        config: of a component of diffusers (a mapping) or of transformers (an object).
    """

    def entry(holder: Any, name: str) -> Any:
        return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)

    method = entry(entry(config, "quantization_config"), "quant_method")
    return None if method is None else str(getattr(method, "value", method))


def identify(
    name: str,
    folder: Path,
    pipe: Any,
    settings: LoadSettings,
    device: torch.device,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """What a run folder remembers about a model; the same values on every machine but for device and dtype."""
    parts: dict[str, Any] = getattr(pipe, "components", {})
    schedulers = {
        key: {
            "class": type(part).__name__,
            # DPM-Solver's lambda_min_clipped is -inf, which JSON has no number for
            "config": json.loads(json.dumps(dict(part.config), default=str), parse_constant=str),
        }
        for key, part in parts.items()
        if hasattr(part, "set_timesteps")
    }
    methods = {key: quantisation(getattr(part, "config", None)) for key, part in parts.items()}
    more = [file for file in (settings.single_file, settings.lora) if file is not None]
    return {
        "name": name,
        "class": type(pipe).__name__,
        "revision": settings.revision,
        "commit": folder.name if folder.parent.name == "snapshots" else None,
        "weights": weights_hash(folder, [file for file in more if file.is_file()]),
        "dtype": str(dtype).removeprefix("torch."),
        "quantised": {key: method for key, method in methods.items() if method},
        "device": str(device),
        "offload": settings.offload,
        "single_file": str(settings.single_file) if settings.single_file else None,
        "lora": str(settings.lora) if settings.lora else None,
        "schedulers": schedulers,
    }
