"""What a pipeline gives as images: 8-bit RGB of any usual layout and range, and why a frame cannot be scored."""

from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from t2iprobe.errors import ModelError
from t2iprobe.models.calling import channels_at, field_of, images_of

_MARGIN = 0.01
"""How far values may be outside 0 to 1: what rounding and resampling make."""

_Array = np.ndarray[Any, np.dtype[Any]]


def pictures(output: Any, class_name: str) -> tuple[list[Image.Image], list[str | None]]:
    """RGB images of a pipeline's output, and for each why it cannot be scored (None where it can).

    A frame is invalid when there is none, when its values are not finite (a half-precision VAE) or not in the range of
    an image, when the safety checker flagged it, or when it is wholly black without any variation. A dark picture is
    valid.

    Raises:
        ModelError: there are no images, one is no still image, or there is not one flag for each.
    """
    frames = list(images_of(output, class_name))
    flags = _flags(output, class_name, len(frames))
    images: list[Image.Image | None] = []
    invalid: list[str | None] = []
    for frame, flag in zip(frames, flags, strict=True):
        image, reason = (None, "no image") if frame is None else _picture(frame, class_name)
        if flag and reason != "NaN in decode":
            reason = "safety checker"
        images.append(image)
        invalid.append(reason)
    size = next((image.size for image in images if image is not None), (1, 1))
    return [image or Image.new("RGB", size) for image in images], invalid


def _flags(output: Any, class_name: str, n_frames: int) -> list[bool]:
    """Which frames a safety checker flagged: one truth value for all of them, or one each; None says nothing."""
    flags = field_of(output, "nsfw_content_detected")
    if flags is None:
        flags = field_of(output, "nsfw_detected")
    if isinstance(flags, Tensor | np.ndarray) and flags.ndim:
        flags = flags.reshape(-1).tolist()
    if not isinstance(flags, list | tuple):
        flags = [flags] * n_frames
    values = [flag.item() if isinstance(flag, Tensor | np.generic) else flag for flag in flags]
    strange = [value for value in values if not isinstance(value, bool | None)]
    if strange:
        raise ModelError(
            f"{class_name} says of its images neither that its safety checker flagged them nor that it did not, but"
            f" {str(strange[0])[:60]!r}; switch the checker off"
        )
    if len(values) != n_frames:
        raise ModelError(
            f"{class_name} gave {len(values)} flags of a safety checker for {n_frames} images"
        )
    return [bool(value) for value in values]


def _picture(frame: Any, class_name: str) -> tuple[Image.Image, str | None]:
    """The image of a frame, and why it cannot be scored."""
    array = _array(frame, class_name)
    finite = bool(np.isfinite(array).all())
    top = 255 if np.issubdtype(array.dtype, np.integer) else 1
    values = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=top, neginf=0.0) / top
    image = _to_image(values)
    if not finite:
        return image, "NaN in decode"
    if values.min() < -_MARGIN or values.max() > 1 + _MARGIN:
        return image, f"values from {array.min():.3g} to {array.max():.3g}, not 0 to {top}"
    return image, "black frame" if image.getbbox() is None else None


def _array(frame: Any, class_name: str) -> _Array:
    """A frame as (height, width, channels): floats in [0, 1] or integers in [0, 255], if it is as it should be."""
    if isinstance(frame, Image.Image):
        return np.asarray(frame.convert("RGB"))
    tensor = isinstance(frame, Tensor)
    if tensor:
        frame = frame.detach().cpu()
        frame = frame.float() if frame.is_floating_point() else frame
    array: _Array = np.asarray(frame)
    if array.ndim == 4 and len(array) == 1:  # a video of one frame
        array = array[0]
    if array.ndim == 2:
        array = array[..., None]
    at = channels_at(array.shape, tensor)
    if at is None or array.size == 0 or array.dtype.kind not in "iuf":
        raise ModelError(
            f"{class_name} gives no still image but {array.dtype} of shape {array.shape}"
        )
    return np.moveaxis(array, at, -1)


def _to_image(array: _Array) -> Image.Image:
    """8-bit RGB of values in [0, 1], rounded as diffusers does; transparency over white."""
    values = (array.clip(0.0, 1.0) * 255).round().astype(np.uint8)
    if values.shape[-1] == 1:
        values = values[..., 0]
    image = Image.fromarray(values)
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")
