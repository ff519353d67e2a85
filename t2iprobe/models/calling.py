"""Calling a pipeline the one right way: one CPU generator per image, own lists of prompts, no progress bar."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from t2iprobe.errors import ModelError
from t2iprobe.models.arguments import IMAGE_FIELDS, call_parameters
from t2iprobe.models.foreign import foreign
from t2iprobe.models.model import Model

_STEP_NAMES = ("steps", "num_steps", "n_steps", "sampling_steps")


def step_names(model: Model) -> list[str]:
    """The arguments of a call that say how many denoising steps its stages take: num_inference_steps and the like."""
    return [n for n in model.call_names if n.endswith("inference_steps") or n in _STEP_NAMES]


def asked_steps(model: Model) -> list[int]:
    """How many denoising steps each stage of a call is asked for: the call's own numbers, else the defaults."""
    parameters = call_parameters(type(model.pipe))
    found = [model.call.get(name, parameters[name].default) for name in step_names(model)]
    return [n for n in found if isinstance(n, int)]


def call_pipeline(
    model: Model,
    prompts: Sequence[str],
    generators: Sequence[torch.Generator],
    output_type: str,
    steps: int | None = None,
) -> Any:
    """One call of the pipeline for some prompts.

    Several images of one prompt are several entries of `prompts`: pipelines pair masks with the wrong prompt when
    they repeat prompts themselves. The list is a fresh one, as some pipelines change the list they are given.

    Args:
        model: the model.
        prompts: one per image.
        generators: one per image, on the CPU.
        output_type: what the pipeline should return: "np" for arrays in [0, 1], "latent" to skip decoding.
        steps: overrides the number of denoising steps of every stage.

    Raises:
        ForeignError: the pipeline raises an error.
        ModelError: code of the checkpoint ends the program.
    """
    call = dict(model.call)
    if steps is not None:
        call |= dict.fromkeys(step_names(model), steps)
    single = len(prompts) == 1
    negative = call.get("negative_prompt")
    if isinstance(negative, str) and not single:
        call["negative_prompt"] = [negative] * len(prompts)
    if "output_type" in model.call_names:
        call["output_type"] = output_type
    if "generator" in model.call_names:
        call["generator"] = generators[0] if single else list(generators)
    model.pipe.set_progress_bar_config(disable=True)
    try:
        with torch.no_grad(), foreign(f"{model.class_name}(...)"):
            return model.pipe(prompt=prompts[0] if single else list(prompts), **call)
    except SystemExit as error:
        raise ModelError(
            f"{model.class_name} ends the program when it is called (exit {error.code}); use another checkpoint"
        ) from error


def images_of(output: Any, class_name: str) -> Any:
    """The images in a pipeline's output.

    Raises:
        ModelError: there are none; video and audio pipelines end here.
    """
    for name in IMAGE_FIELDS:
        images = field_of(output, name)
        if images is not None:
            return images
    fields = ", ".join(map(str, output)) if isinstance(output, dict) else type(output).__name__
    raise ModelError(
        f"{class_name} gives no image (its output has: {fields}); use a text-to-image checkpoint"
    )


def field_of(output: Any, name: str) -> Any:
    """One part of a pipeline's output, which is an object or a mapping; None where there is none."""
    found = getattr(output, name, None)
    return output.get(name) if found is None and isinstance(output, Mapping) else found


def channels_at(shape: Sequence[int], tensor: bool) -> int | None:
    """The axis of a frame that has its channels: the first or the last, with 1, 3 or 4 entries; None where neither has.

    Args:
        shape: of the frame.
        tensor: whether it is one of torch. Where both axes may be, tensors have channels first, arrays last.
    """
    if len(shape) != 3:
        return None
    may = [axis for axis in (0, 2) if shape[axis] in (1, 3, 4)]
    return may[0 if tensor else -1] if may else None
