"""Why a call of a pipeline failed: no memory, a setting of the user's, or a pipeline that needs more than a prompt."""

from collections.abc import Callable
from typing import Any

from t2iprobe.errors import ConfigError, MissingExtra, ModelError, T2IProbeError, first_line
from t2iprobe.models.arguments import call_parameters
from t2iprobe.models.calling import step_names
from t2iprobe.models.foreign import (
    ForeignError,
    is_out_of_memory,
    missing_library,
    out_of_memory,
)
from t2iprobe.models.model import Model

_IMAGE_ARGUMENTS = frozenset({"image", "control_image", "mask_image"})


def no_memory_for(model: Model, n_images: int) -> ModelError:
    """The line for a model that could not make some images at once."""
    images = "one image" if n_images == 1 else f"{n_images} images at once"
    device, dtype, offload = (
        str(model.provenance.get(key, other))
        for key, other in (("device", "cpu"), ("dtype", "float32"), ("offload", "none"))
    )
    return out_of_memory(f"making {images} with {model.name}", device, dtype, offload, n_images)


def explain(model: Model, error: Exception, call: Callable[[], Any]) -> T2IProbeError:
    """One line on why a pipeline gives no image for a prompt. What it says beside the error itself has been checked.

    Memory is told by the error's class; a setting is blamed where the pipeline makes an image without it. Else the line
    has the error's own first line, and facts of the pipeline that a user can act on.

    Args:
        model: the model.
        error: what the pipeline raised.
        call: makes a short call; it is tried again without settings of the user.
    """
    if is_out_of_memory(error):
        return no_memory_for(model, 1)
    text = first_line(error, 240)
    guilty = guilty_settings(model, call)
    if guilty:
        return ConfigError(
            f"{model.class_name} does not work with {' and '.join(guilty)}: {text}; without"
            f" {'it' if len(guilty) == 1 else 'them'} it makes an image"
        )
    failed = f"{model.name}: {model.class_name} fails on a prompt alone: {text}"
    library = missing_library(error)
    if library:
        return MissingExtra(f"{failed}; {library} is not installed")
    return ModelError("; ".join([failed, *_facts(model)]))


def _facts(model: Model) -> list[str]:
    """What a user can look at where no setting is to blame."""
    parameters = call_parameters(type(model.pipe))
    lacking = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and name not in ("prompt", *model.call)
    ]
    absent = sorted(name for name, part in model.pipe.components.items() if part is None)
    images = sorted(_IMAGE_ARGUMENTS & set(model.call_names))
    dtype = str(model.provenance.get("dtype", "float32"))
    facts = []
    if lacking:
        facts.append(f"its call needs {', '.join(lacking)} too: pass --pipe-arg name=value")
    if images:
        facts.append(f"its call takes {', '.join(images)}: use a text-to-image checkpoint")
    if absent:
        facts.append(f"not in the checkpoint: {', '.join(absent)}")
    if dtype != "float32":
        facts.append(f"it computes in {dtype}: --dtype fp32 can be tried")
    return facts


def guilty_settings(model: Model, call: Callable[[], Any]) -> list[str]:
    """The settings, as the user wrote them, without which the pipeline makes an image; the model is left as it was.

    All are taken away first. If the call then works, each is tried alone, height and width together; those that fail
    are to blame. If it does not (some pipelines need an argument), each is taken away alone.
    """
    given = model.given
    everything = set(given)
    if not given:
        return []
    if not _works(model, call, everything):
        return [text for name, text in given.items() if _works(model, call, {name})]
    # The short call has its own number of steps, so theirs is to blame where nothing else is.
    steps = {name for name in given if name in step_names(model)}
    size = {"height", "width"} & everything
    groups = [size] if size else []
    groups += [{name} for name in given if name not in size | steps]
    guilty = set().union(
        *(group for group in groups if not _works(model, call, everything - group))
    )
    if not guilty and not _works(model, call, steps):
        guilty = everything - steps  # they fail together only
    return [text for name, text in given.items() if name in (guilty or steps)]


def _works(model: Model, call: Callable[[], Any], without: set[str]) -> bool:
    """Whether a short call succeeds without some of the user's settings."""
    with model.without(without):
        try:
            call()
        except ForeignError:
            return False
    return True
