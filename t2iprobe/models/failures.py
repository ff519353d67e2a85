"""Why a call of a pipeline failed: no memory, a setting of the user's, or a pipeline that needs more than a prompt."""

from collections.abc import Callable
from typing import Any

from t2iprobe.errors import ConfigError, MissingExtra, ModelError, T2IProbeError, first_line
from t2iprobe.models.calling import step_names
from t2iprobe.models.kinds import call_parameters
from t2iprobe.models.model import Model
from t2iprobe.models.shortage import is_out_of_memory, out_of_memory

CALL_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a pipeline raises that is called with too little or in a way it was not made for."""

_HALF_ON_CPU = ("'Half'", "'BFloat16'", "same dtype", "type float", "Half but")
"""What torch says of an operation that it does not have in half precision."""

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
    """Why a pipeline gives no image for a prompt, in one line.

    Args:
        model: the model.
        error: what the call raised.
        call: makes a short call; it is tried again without settings of the user to see whether they are the cause.
    """
    if is_out_of_memory(error):
        return no_memory_for(model, 1)
    optional = getattr(type(model.pipe), "_optional_components", [])
    parts = getattr(model.pipe, "components", {})
    missing = [name for name, part in parts.items() if part is None and name not in optional]
    if missing:
        return ModelError(
            f"{model.name}: {model.class_name} fails without its {' and its '.join(missing)}, which the checkpoint does"
            " not have; give the folder of a whole pipeline"
        )
    text = first_line(error, 240)
    guilty = guilty_settings(model, call)
    if guilty:
        return ConfigError(
            f"{model.class_name} does not work with {' and '.join(guilty)}: {text}; without"
            f" {'it' if len(guilty) == 1 else 'them'} it makes an image"
        )
    return _unusable(model, error, text)


def _unusable(model: Model, error: Exception, text: str) -> T2IProbeError:
    """The line for a pipeline that fails whatever the settings."""
    failed = f"{model.name}: {model.class_name} makes no image of a prompt alone: {text}"
    dtype = str(model.provenance.get("dtype", "float32"))
    if isinstance(error, ImportError | NameError):
        return MissingExtra(f"{failed}; install what it names")
    if dtype != "float32" and any(said in str(error) for said in _HALF_ON_CPU):
        return ConfigError(f"{failed}; it computes in {dtype}, try --dtype fp32")
    if _IMAGE_ARGUMENTS & set(model.call_names) and ("image" in text or "None" in text):
        return ModelError(f"{failed}; it seems to need an image, use a text-to-image checkpoint")
    lacking = _arguments_without_default(model)
    if lacking:
        return ModelError(f"{failed}; it lacks {', '.join(lacking)}: pass --pipe-arg name=value")
    absent = sorted(name for name, part in model.pipe.components.items() if part is None)
    if absent and "NoneType" in text:
        return ModelError(f"{failed}; the checkpoint has no {', '.join(absent)}")
    return ModelError(f"{failed}; its parts may not belong together, use another checkpoint")


def _arguments_without_default(model: Model) -> list[str]:
    """Arguments that every call of a pipeline needs beside the prompt, and is not given."""
    return [
        name
        for name, one in call_parameters(type(model.pipe)).items()
        if one.default is one.empty and name not in ("prompt", *model.call)
    ]


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
        except CALL_ERRORS:
            return False
    return True
