"""What a user can say about a checkpoint and about the calls of its pipeline."""

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Literal

from tyro.conf import UseAppendAction

from t2iprobe.errors import ConfigError


@dataclass(frozen=True)
class LoadSettings:
    """How a checkpoint is loaded and called."""

    steps: int | None = None
    """Denoising steps; None is the checkpoint's own number."""
    guidance: float | None = None
    """Guidance scale; None is the checkpoint's own."""
    height: int | None = None
    """Image height in pixels; None is the checkpoint's own."""
    width: int | None = None
    """Image width in pixels; None is the checkpoint's own."""
    negative_prompt: str | None = None
    """Text to steer away from, used where the pipeline takes one."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1 or mps."""
    dtype: Literal["auto", "bf16", "fp16", "fp32"] = "auto"
    """Number format of the weights: auto is bf16 on devices that have it, fp32 on the CPU."""
    offload: Literal["none", "model", "sequential"] = "none"
    """Keep parts off the device while they are idle: whole components, or single modules."""
    lora: Path | None = None
    """A LoRA file or folder to put on top of the checkpoint."""
    single_file: Path | None = None
    """A .safetensors file that holds the weights; the model then names the folder with its configuration."""
    scheduler: str | None = None
    """Class name of another scheduler, e.g. DDIMScheduler; it takes over the checkpoint's settings."""
    pipe_arg: UseAppendAction[tuple[str, ...]] = ()
    """A further argument of the pipeline call as name=value; may be given several times."""
    revision: str | None = None
    """Branch, tag or commit of a hub repository."""
    variant: str | None = None
    """Weight files to take where a repository holds several, e.g. fp16."""
    vae_tiling: bool = False
    """Decode images in tiles, which needs less memory."""
    trust_remote_code: bool = False
    """Run Python code that comes with the checkpoint."""
    local: bool = False
    """Use only what is on this machine; never ask the hub."""
    yes: bool = False
    """Download without asking, whatever the size."""

    def __post_init__(self) -> None:
        """Reject numbers that no pipeline can be called with, whichever way they are given.

        Raises:
            ConfigError: a count or a size below 1, a size that is no whole number, or a guidance scale that is
                negative or no finite number.
        """
        for name in ("steps", "height", "width"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name} {value}: must be 1 or more")
        if self.guidance is not None:
            _check_guidance(f"--guidance {self.guidance:g}", self.guidance)
        for text in self.pipe_arg:
            name, _, value = text.partition("=")
            if value.strip().lower() not in ("none", "null"):
                _check_argument(f"--pipe-arg {text}", name, value)


def _check_argument(typed: str, name: str, value: str) -> None:
    """Look at an argument of the pipeline whose name says what it counts.

    Raises:
        ConfigError: its value can be meant by nobody.
    """
    if name in ("height", "width") and not _is_count(value):
        raise ConfigError(f"{typed}: must be a whole number of pixels, 1 or more")
    if name.endswith("inference_steps") and not _is_count(value):
        raise ConfigError(f"{typed}: must be a whole number of steps, 1 or more")
    if name.endswith(("guidance_scale", "cfg_scale")):
        try:
            scale = float(value)
        except ValueError:
            return  # some pipelines take a list of scales
        _check_guidance(typed, scale)


def _is_count(text: str) -> bool:
    return text.strip().isdecimal() and int(text) >= 1


def _check_guidance(typed: str, scale: float) -> None:
    """Refuse scales below 0: diffusers takes them for no guidance, or feeds them to a model that never saw any.

    Raises:
        ConfigError: the scale is negative or not finite.
    """
    if not isfinite(scale):
        raise ConfigError(f"{typed}: must be a finite number")
    if scale < 0:
        raise ConfigError(f"{typed}: must be 0 or more; 1 or less is no guidance in most pipelines")


WEIGHTS_ONLY = ("variant", "dtype", "device", "offload", "vae_tiling", "lora", "single_file")
"""What says which weights are loaded and how: nothing where none are."""


def weights_settings(settings: LoadSettings) -> list[str]:
    """The options among `WEIGHTS_ONLY` that differ from their defaults, as they are typed."""
    plain = LoadSettings()
    return [
        f"--{name.replace('_', '-')}"
        for name in WEIGHTS_ONLY
        if getattr(settings, name) != getattr(plain, name)
    ]
