"""Settings of guidance that a pipeline takes and does nothing with, as distilled models do."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from t2iprobe.calibration.result import Calibration
from t2iprobe.calibration.trial import PROMPTS
from t2iprobe.models.calling import call_pipeline, images_of
from t2iprobe.models.foreign import ForeignError
from t2iprobe.models.hooks import HookSet, StopCall
from t2iprobe.models.model import Model

_WORDS = ("guidance", "cfg", "negative")
"""What the arguments of guidance have in their names."""


def ignored_settings(model: Model, found: Calibration) -> list[str]:
    """A sentence for each setting of guidance that changes nothing.

    Only a setting with which calibration saw no unconditional row is in doubt. If the denoiser is first given the same
    with it and without, whole images are compared; else it is used. Costs two passes of the text encoders a setting,
    and two images where it seems to be of no use.
    """
    names = [name for name in model.given if any(word in name for word in _WORDS)]
    if any(denoiser.unconditional for denoiser in found.denoisers.values()):
        return []
    idle = [name for name in names if not any(_changes(model, name, what) for what in _LOOKS)]
    return [
        f"{model.given[name]} changes nothing: this pipeline makes the same image without it; leave it out"
        for name in idle
    ]


def _changes(model: Model, name: str, look: Callable[[Model], list[Any]]) -> bool:
    """Whether something is another without a setting, or cannot be had without it."""
    own = look(model)
    try:
        with model.without({name}):
            other = look(model)
    except ForeignError:
        return True
    return not _same(own, other)


def _image(model: Model) -> list[Any]:
    with torch.random.fork_rng(devices=[]):
        made = call_pipeline(model, PROMPTS[:1], [torch.Generator("cpu").manual_seed(0)], "np")
    images = images_of(made, model.class_name)
    return [torch.as_tensor(np.asarray(image)) for image in images if image is not None]


def _first_given(model: Model) -> list[Any]:
    """Everything that the first denoiser is given in its first call."""
    given: list[Any] = []

    def stop(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given.extend(pytree.tree_leaves((args, kwargs)))
        raise StopCall

    generators = [torch.Generator("cpu").manual_seed(0)]
    with HookSet() as hooks, suppress(StopCall), torch.random.fork_rng(devices=[]):
        for denoiser in model.denoisers.values():
            hooks.before(denoiser, stop)
        call_pipeline(model, PROMPTS[:1], generators, "np")
    return given


_LOOKS = (_first_given, _image)
"""What is compared: the second takes longer."""


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    plain = bool | int | float | str | None
    return type(a) is type(b) and (not isinstance(a, plain) or a == b)
