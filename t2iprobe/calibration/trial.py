"""The calls that calibration makes: one rehearsal at full length, and short ones that differ in the prompt."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from PIL import Image

from t2iprobe.calibration.observe import Trace, Tracer
from t2iprobe.calibration.replay import Replays
from t2iprobe.errors import ModelError, T2IProbeError, first_line
from t2iprobe.models.calling import call_pipeline, channels_at
from t2iprobe.models.failures import explain
from t2iprobe.models.foreign import ForeignError
from t2iprobe.models.log_filters import noted
from t2iprobe.models.model import Model
from t2iprobe.models.sites import denoiser_blocks, encoder_layers, norms_outside

PROMPTS = ("a red circle left of a blue square", "one blue square above one red circle")
"""Two prompts of about the same length whose words differ from the first on."""

SHORT_STEPS = 2
"""Steps of the short calls: several families cannot do one."""


def _generators(n: int) -> list[torch.Generator]:
    return [torch.Generator("cpu").manual_seed(0) for _ in range(n)]


def rehearse(model: Model) -> Trace:
    """One full run with the first prompt.

    Raises:
        T2IProbeError: it fails; one line tells whether memory, a setting or the pipeline itself is the reason.
    """
    tracer = Tracer(model, {}, detail=0)
    try:
        return tracer.run(lambda: call_pipeline(model, PROMPTS[:1], _generators(1), "np"))
    except ForeignError as failure:
        raise _cannot(model, failure.error) from failure.error


def _cannot(model: Model, error: Exception) -> T2IProbeError:
    """Why a pipeline gives no image for a prompt; it is tried again with settings of the user left out."""
    return explain(
        model, error, lambda: call_pipeline(model, PROMPTS[:1], _generators(1), "np", SHORT_STEPS)
    )


def image_size(images: Any, class_name: str) -> tuple[int, int]:
    """Height and width of the first image of an output.

    Raises:
        ModelError: there is none, or it is no still image.
    """
    first = images[0] if len(images) else None
    if first is None:
        raise ModelError(
            f"{class_name} gives no image for {PROMPTS[0]!r}: if a safety checker blocks it, switch that off"
        )
    if isinstance(first, Image.Image):
        return first.height, first.width
    shape = tuple(getattr(first, "shape", ()))
    if len(shape) == 2:
        return shape[0], shape[1]
    at = channels_at(shape, isinstance(first, torch.Tensor))
    if at is not None:
        return (shape[1], shape[2]) if at == 0 else (shape[0], shape[1])
    raise ModelError(f"{class_name} gives no still image but an array of shape {shape}")


def _forms(trace: Trace) -> set[tuple[str, int, int]]:
    """Denoisers with the numbers of rows they were called with, and how often at one noise level.

    A form of guidance may be taken up in mid-run: more rows in a call, or one more call.
    """
    forms = set()
    for name, calls in trace.calls.items():
        often = Counter(call.timestep for call in calls)
        for call in calls:
            n_rows = max((len(rows) for rows in call.arguments.values()), default=0)
            forms.add((name, n_rows, often[call.timestep]))
    return forms


@dataclass(frozen=True)
class ShortCalls:
    """Traces of calls that differ in the prompts.

    Attributes:
        first: of one prompt.
        second: of the other.
        double: of both in a batch; None where batches fail.
        turned: of both in the other order; None where batches fail.
        replays: the denoiser calls of the first, to be made again.
        notes: what a user should know.
    """

    first: Trace
    second: Trace
    double: Trace | None
    turned: Trace | None
    replays: Replays
    notes: list[str]


def short_calls(model: Model, rehearsal: Trace) -> ShortCalls:
    """Short calls with one prompt, with the other, and with both in either order."""
    sites: dict[str, list[str]] = {
        name: list(denoiser_blocks(module)) for name, module in model.denoisers.items()
    }
    for name, module in model.encoders.items():
        lists = encoder_layers(module)
        layers = [path for _, members in lists for path in members]
        sites[name] = layers + norms_outside(module, layers)
    tracer = Tracer(model, sites, detail=4)
    replays = Replays(model, tracer)

    def trace(prompts: Sequence[str], kind: str, steps: int | None) -> Trace:
        def call() -> Any:
            return call_pipeline(model, prompts, _generators(len(prompts)), kind, steps)

        return tracer.run(call)

    with noted() as notes:
        notes += _slow_format(model)
        for kind, steps in product(
            ("latent", "np"), (SHORT_STEPS, None)
        ):  # the last: the rehearsal
            try:
                with replays.keeping():
                    first = trace(PROMPTS[:1], kind, steps)
            except ForeignError as failure:
                if (kind, steps) == ("np", None):
                    raise _cannot(model, failure.error) from failure.error
                continue
            if not _forms(rehearsal) - _forms(first):
                break  # else a stage or a form of guidance comes later in a run
        second = trace(PROMPTS[1:], kind, steps)
        double = turned = None
        try:
            double, turned = trace(PROMPTS, kind, steps), trace(PROMPTS[::-1], kind, steps)
        except ForeignError as failure:
            why = first_line(failure.error, 80)
            notes.append(f"several prompts at once fail ({why}); batch size is 1")
    return ShortCalls(first, second, double, turned, replays, notes)


def _slow_format(model: Model) -> list[str]:
    """A note about a number format that the device is slow in."""
    facts = model.provenance
    if facts.get("dtype") == "float16" and str(facts.get("device")).startswith("cpu"):
        return [
            "CPUs are slow in fp16 and lack some operations in it; --dtype bf16 or fp32 suits them"
        ]
    return []
