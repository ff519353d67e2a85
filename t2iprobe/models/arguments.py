"""The arguments of a pipeline's call: which it takes, and which a run gives: what the card says, then the user.

The signature also tells which pipelines make an image of a text alone.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

from t2iprobe.errors import ConfigError, ModelError, unknown
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.settings import LoadSettings

IMAGE_FIELDS = ("images", "image")
"""What outputs of pipelines call their pictures."""

_DATA = ("image", "video", "embed", "latent", "token", "category")
"""Words in the names of arguments that a command line cannot give."""

# Arguments of pipeline calls that a run sets, or that would change how many images and what outputs a call gives.
SET_BY_US = frozenset(
    {
        "prompt",
        "prompt_2",
        "prompt_3",
        "prompt_4",
        "generator",
        "latents",
        "num_images_per_prompt",
        "output_type",
        "return_dict",
        "callback",
        "callback_on_step_end",
    }
)

_FLAGS = {
    "num_inference_steps": "steps",
    "guidance_scale": "guidance",
    "height": "height",
    "width": "width",
    "negative_prompt": "negative_prompt",
}
"""Arguments that have a setting of their own, with its name."""

# The picture must be of the prompt as asked.
_REWRITES = ("enable_prompt_rewrite", "use_pe")


def parse_value(text: str) -> Any:
    """The value of a name=value argument: a YAML 1.2 scalar (true, 3, 1e-4, null), else the text itself.

    Text in brackets is a list or a mapping as JSON writes them: [1, 2].
    """
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return text
    return text


@dataclass(frozen=True)
class CallArguments:
    """How a pipeline is called.

    Attributes:
        call: the arguments of every call.
        given: those that the user set, as they were typed.
        unset: what the card says in place of those.
    """

    call: dict[str, Any]
    given: dict[str, str]
    unset: dict[str, Any]


def call_arguments(pipe: Any, defaults: Mapping[str, Any], settings: LoadSettings) -> CallArguments:
    """Arguments of every call: what the card says, then what the user says.

    Args:
        pipe: the pipeline.
        defaults: call arguments from the model card.
        settings: of the user; None means not asked for.

    Raises:
        ConfigError: the pipeline has no such argument, it is not for the user to set, it is given twice or has no
            equals sign.
    """
    names = call_names(type(pipe))
    allowed = [name for name in names if name not in SET_BY_US]
    card = {key: value for key, value in defaults.items() if key in names}
    user: dict[str, Any] = {}
    given: dict[str, str] = {}
    for key, setting in _FLAGS.items():
        value = getattr(settings, setting)
        if value is None:
            continue
        option = f"--{setting.replace('_', '-')}"
        if key not in allowed:
            raise ConfigError(
                f"{option}: {unknown(f'argument of {type(pipe).__name__}', key, allowed)}; leave {option} out"
            )
        user[key], given[key] = value, f"{option} {value}"
    for text in settings.pipe_arg:
        key, value = _split(text)
        if key in user:
            raise ConfigError(f"pipeline argument {key!r} is given twice; give it once")
        if key in SET_BY_US:
            raise ConfigError(f"pipeline argument {key!r} is set by t2iprobe itself; leave it out")
        if key not in allowed:
            raise ConfigError(unknown(f"argument of {type(pipe).__name__}", key, allowed))
        user[key], given[key] = parse_value(value), f"--pipe-arg {text}"
    forced = dict.fromkeys((name for name in _REWRITES if name in names), False)
    return CallArguments(
        card | forced | user, given, {key: card[key] for key in given if key in card}
    )


def _split(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"pipeline argument {text!r} has no value; write name=value")
    if not key.strip():
        raise ConfigError(f"pipeline argument {text!r} has no name; write name=value")
    return key, value


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
        with foreign(f"the annotations of {call.__qualname__}"):
            output = get_type_hints(call).get("return")
    except ForeignError:
        return []
    kinds = [kind for kind in get_args(output) or (output,) if is_dataclass(kind)]
    return [part.name for kind in kinds for part in fields(kind)]


def call_names(pipeline: type) -> list[str]:
    """The parameter names of the call of a pipeline's class."""
    return list(call_parameters(pipeline))


def check_takes_prompt(pipeline: type, name: str) -> None:
    """Refuse pipelines that do not make an image from a text alone, as far as the signature of their class tells.

    Raises:
        ModelError: no prompt, an image is needed, or the output is a video, sound or something else.
    """
    why = refusal(pipeline)
    if why is not None:
        raise ModelError(f"{name}: {pipeline.__name__} {why}; use a text-to-image checkpoint")
