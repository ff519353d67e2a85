"""Which pipelines make an image of a text alone, as far as the signature of their class tells."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

IMAGE_FIELDS = ("images", "image")
"""What outputs of pipelines call their pictures."""

_DATA = ("image", "video", "embed", "latent", "token", "category")
"""Words in the names of arguments that a command line cannot give."""


def _calls(pipeline: type) -> list[Callable[..., Any]]:
    """The call of a pipeline's class, behind decorators; where it takes **kwargs also those it extends."""
    found = []
    for kind in pipeline.__mro__:
        if "__call__" in vars(kind):
            found.append(inspect.unwrap(vars(kind)["__call__"]))
            taken = inspect.signature(found[-1]).parameters.values()
            if not any(one.kind is one.VAR_KEYWORD for one in taken):
                break
    return found


def call_parameters(pipeline: type) -> dict[str, inspect.Parameter]:
    """What the call of a pipeline's class takes, by name; `self`, *args and **kwargs left out."""
    found: dict[str, inspect.Parameter] = {}
    for call in _calls(pipeline):
        for name, one in list(inspect.signature(call).parameters.items())[1:]:
            if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
                found.setdefault(name, one)
    return found


def refusal(pipeline: type) -> str | None:
    """Why a pipeline's class makes no image of a text alone, as the end of a sentence; None where nothing tells."""
    parameters = call_parameters(pipeline)
    names = set(parameters)
    needed = [
        name
        for name, one in parameters.items()
        if one.default is one.empty and any(word in name for word in _DATA)
    ]
    output = next(filter(None, map(_output_fields, _calls(pipeline))), [])
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
