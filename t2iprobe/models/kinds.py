"""Which pipelines make an image of a text alone, as far as the signature of their class tells."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

IMAGE_FIELDS = ("images", "image")
"""What outputs of pipelines call their pictures."""

_DATA = ("image", "video", "embed", "latent", "token", "category")
"""Words in the names of arguments that a command line cannot give."""


def refusal(call: Callable[..., Any]) -> str | None:
    """Why a pipeline's call makes no image of a text alone, as the end of a sentence; None where nothing tells.

    Args:
        call: the unbound `__call__` of the pipeline's class, behind decorators.
    """
    parameters = inspect.signature(call).parameters
    names = set(parameters)
    needed = [
        name
        for name, one in parameters.items()
        if one.default is one.empty and any(word in name for word in _DATA)
    ]
    output = _output_fields(call)
    if "prompt" not in names:
        return "takes no prompt, so there is nothing to compose"
    if "strength" in names and {"image", "mask_image"} & names:
        return "is an image-to-image pipeline and needs an image"
    if any(n in ("num_frames", "frames") or "video" in n for n in names) or "frames" in output:
        return "makes videos"
    if any(n == "duration" or n.startswith("audio_") for n in names):
        return "makes sound"
    if any(n.startswith(("control_image", "controlnet_", "adapter_cond")) for n in names):
        return "needs a control image"
    if output and not set(IMAGE_FIELDS) & set(output):
        return f"gives no image (its output has: {', '.join(output)})"
    if needed:
        return f"needs {' and '.join(needed)} beside a prompt"
    if "image" in names and not {"height", "width"} & names:
        return "takes the size of its output from an image, so it seems to need an image"
    return None


def _output_fields(call: Callable[..., Any]) -> list[str]:
    """Fields of the output that a call is annotated with; none where it is not."""
    try:
        found = get_type_hints(call).get("return")
    except (NameError, TypeError, AttributeError):
        return []
    kinds = [kind for kind in get_args(found) or (found,) if is_dataclass(kind)]
    return [part.name for kind in kinds for part in fields(kind)]
