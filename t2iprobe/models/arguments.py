"""The arguments of a pipeline's call: what its card says, then what the user says, checked against what it takes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from t2iprobe.errors import ConfigError, unknown
from t2iprobe.models.model import call_names
from t2iprobe.models.settings import LoadSettings

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
