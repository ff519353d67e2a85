"""What a pipeline does with a prompt, found by trying it.

Which calls and rows are conditional, which steps there are, which part of each site is image and which is text.

One rehearsal at full length gives the schedule. Then two short calls that differ only in the prompt, and one with
both prompts in a batch, decide everything else. Nothing is read from class names or from the guidance scale.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from t2iprobe.errors import ModelError, SiteError
from t2iprobe.models.calls import call_pipeline, images_of
from t2iprobe.models.model import Model
from t2iprobe.models.sites import denoiser_blocks, encoder_layers, norms_outside
from t2iprobe.models.streams import Geometry, Labeller, Reading
from t2iprobe.models.tokens import Segment, match_segments
from t2iprobe.models.trace import Call, EncoderPass, Print, Trace, Tracer

PROMPTS = ("a red circle left of a blue square", "one blue square above one red circle")
"""Two prompts of about the same length whose words differ from the first on."""

SHORT_STEPS = 2
"""Steps of the short calls: several families cannot do one."""

_SAME = 0.02
"""Relative distance below which two text states are the same: batch size and half precision change them by less."""


@dataclass(frozen=True)
class ScheduledCall:
    """One conditional denoiser call of a run, in order.

    Attributes:
        timestep: noise level the denoiser is given, in its own scale.
        step: index into the denoising schedule; None for calls between its entries.
        counts: whether this call gives the activations of its step: of several evaluations at one entry (PNDM, Heun)
            the last, of several with the same input (skip-layer guidance) the first.
    """

    timestep: float
    step: int | None
    counts: bool


@dataclass
class Denoiser:
    """What calibration found about one denoiser.

    Attributes:
        conditioning: dotted name of the argument that carries the text states.
        unconditional: samples of text states that do not depend on the prompt: how unconditional rows are known.
        guidance: in words, how the rows of a step are laid out.
        schedule: every conditional call of a run.
        n_steps: entries of the schedule.
        readings: by path and stream, how a site is read.
        grids: image tokens -> (height, width), for the token counts that occur.
        segments: where the encoders' tokens are among the text states.
    """

    conditioning: str
    unconditional: list[Tensor]
    guidance: str
    schedule: list[ScheduledCall]
    n_steps: int
    readings: dict[str, dict[str, Reading]] = field(default_factory=dict)
    grids: dict[int, tuple[int, int]] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)


@dataclass
class Encoder:
    """What calibration found about one text encoder: its embedding, layers and final norm, and their batch axes."""

    embedding: str
    readings: dict[str, Reading]


@dataclass
class Calibration:
    """Everything found about a model. `notes` holds sentences for the user, `max_batch` 1 where batches fail."""

    denoisers: dict[str, Denoiser]
    encoders: dict[str, Encoder]
    max_batch: int | None
    image_size: tuple[int, int]
    notes: list[str]


def same_text(one: Tensor, other: Tensor) -> bool:
    """Whether two rows of text states (tokens, channels) are one; of unequal lengths the shared start decides."""
    n = min(one.shape[0], other.shape[0])
    if one.ndim == 2 and one.shape[0] != other.shape[0] and n < 2:
        return False
    a, b = one[:n], other[:n]
    scale = max(float(a.norm()), float(b.norm()))
    return float((a - b).norm()) <= _SAME * scale


def conditional_rows(rows: Sequence[Tensor], unconditional: Sequence[Tensor]) -> list[int]:
    """Indices of the rows whose text states depend on the prompt."""
    return [
        index
        for index, row in enumerate(rows)
        if not any(same_text(row, other) for other in unconditional)
    ]


def calibrate(model: Model) -> Calibration:
    """Find out how a model uses its prompt. Costs one image and three short calls.

    Raises:
        ModelError: the pipeline cannot make an image from a text alone.
        SiteError: no denoiser's input depends on the prompt.
    """
    rehearsal = _rehearse(model)
    images = images_of(rehearsal.output, model.class_name)
    size = _image_size(images, model.class_name)
    first, second, double, notes = _short_calls(model, set(rehearsal.calls))
    encoders = {
        name: _calibrate_encoder(passes, second.passes.get(name, []))
        for name, passes in first.passes.items()
    }
    denoisers: dict[str, Denoiser] = {}
    for name, calls in first.calls.items():
        found = _calibrate_denoiser(name, calls, second, double, rehearsal, size)
        if isinstance(found, str):
            notes.append(found)
            continue
        denoisers[name] = found
        states = _conditional_states(calls, second.calls[name], found)
        found.segments = match_segments(states, first.passes)
    if not denoisers:
        raise SiteError(f"{model.class_name}: no denoiser input changes with the prompt; {notes}")
    silent = [name for name in (*model.denoisers, *model.encoders) if name not in _ran(first)]
    notes += [f"{name} is not used in a call" for name in silent]
    max_batch = None if double is not None else 1
    return Calibration(denoisers, encoders, max_batch, size, notes)


def _ran(trace: Trace) -> set[str]:
    return {*trace.calls, *trace.passes}


def _generators(n: int) -> list[torch.Generator]:
    return [torch.Generator("cpu").manual_seed(0) for _ in range(n)]


def _rehearse(model: Model) -> Trace:
    """One full run with the first prompt; says in one line what a pipeline that cannot do it is missing."""
    tracer = Tracer(model, {}, detail=0)
    try:
        return tracer.run(lambda: call_pipeline(model, PROMPTS[:1], _generators(1), "np"))
    except (TypeError, ValueError, NameError, ImportError, AttributeError, IndexError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        image = any(name in model.call_names for name in ("image", "control_image", "mask_image"))
        hint = (
            "it seems to need an image; use a text-to-image checkpoint"
            if image
            else "install what it names, or pass what it lacks with --pipe-arg name=value"
        )
        raise ModelError(
            f"{model.name}: {model.class_name} cannot be called with a prompt alone: {what}; {hint}"
        ) from error


def _image_size(images: Any, class_name: str) -> tuple[int, int]:
    """Height and width of the first image of an output."""
    first = images[0]
    shape = tuple(getattr(first, "shape", ()))
    if len(shape) == 3:
        return (shape[0], shape[1]) if shape[-1] in (1, 3, 4) else (shape[1], shape[2])
    if hasattr(first, "size") and len(first.size) == 2:
        return int(first.size[1]), int(first.size[0])
    raise ModelError(f"{class_name} gives no still image but an array of shape {shape}")


def _short_calls(model: Model, called: set[str]) -> tuple[Trace, Trace, Trace | None, list[str]]:
    """Traces of one prompt, of the other, and of both in a batch (None where batches fail)."""
    sites: dict[str, list[str]] = {
        name: list(denoiser_blocks(module)) for name, module in model.denoisers.items()
    }
    for name, module in model.encoders.items():
        lists = encoder_layers(module)
        layers = [path for _, members in lists for path in members]
        sites[name] = layers + norms_outside(module, layers)
    tracer = Tracer(model, sites, detail=4)

    def trace(prompts: Sequence[str], steps: int | None) -> Trace:
        def call() -> Any:
            return call_pipeline(model, prompts, _generators(len(prompts)), "latent", steps)

        return tracer.run(call)

    notes: list[str] = []
    steps: int | None = SHORT_STEPS
    try:
        first = trace(PROMPTS[:1], steps)
    except (ValueError, RuntimeError, IndexError, ZeroDivisionError):
        first = None
    if first is None or called - set(first.calls):
        steps = None
        first = trace(PROMPTS[:1], steps)
    second = trace(PROMPTS[1:], steps)
    try:
        double = trace(PROMPTS, steps)
    except (ValueError, RuntimeError, TypeError, IndexError, AttributeError) as error:
        notes.append(
            f"several prompts at once fail ({str(error).splitlines()[0][:80]}); batch size is 1"
        )
        return first, second, None, notes
    return first, second, double, notes


def _dependent(one: Call, other: Call, name: str) -> list[bool]:
    """For each row of an argument whether it differs between the two prompts."""
    rows, others = one.arguments[name], other.arguments.get(name, [])
    return [
        not (a.shape == b.shape and torch.equal(a.sample, b.sample))
        for a, b in zip(rows, others, strict=False)
    ]


def _first_step(calls: Sequence[Call]) -> list[int]:
    """Indices of the calls at the first noise level."""
    return [i for i, call in enumerate(calls) if call.timestep == calls[0].timestep]


def _conditioning_argument(calls: Sequence[Call], others: Sequence[Call]) -> str | None:
    """The argument that carries the text: it differs with the prompt, and stays the same from step to step.

    Of several (token states and a pooled vector) the one with a token axis and the most values.
    """
    best: tuple[tuple[bool, bool, int], str] | None = None
    for index in _first_step(calls):
        for name, rows in calls[index].arguments.items():
            if not any(_dependent(calls[index], others[index], name)):
                continue
            constant = all(
                any(
                    a.shape == b.shape and torch.equal(a.sample, b.sample)
                    for b in later.arguments.get(name, [])
                    for a in rows
                )
                for later in calls[index + 1 :]
            )
            shape = rows[0].shape
            size = 1
            for axis in shape:
                size *= axis
            score = (constant, len(shape) == 2, size)
            if best is None or score > best[0]:
                best = (score, name)
    return best[1] if best else None


def _calibrate_denoiser(
    name: str,
    calls: Sequence[Call],
    second: Trace,
    double: Trace | None,
    rehearsal: Trace,
    size: tuple[int, int],
) -> Denoiser | str:
    """What was found about one denoiser, or a sentence that says why nothing can be captured in it."""
    others = second.calls.get(name, [])
    argument = _conditioning_argument(calls, others) if len(others) == len(calls) else None
    if argument is None:
        return f"{name} does not see the prompt; nothing is captured there"
    unconditional: list[Tensor] = []
    layouts: list[list[bool]] = []
    for index in _first_step(calls):
        dependent = _dependent(calls[index], others[index], argument)
        layouts.append(dependent)
        rows = calls[index].arguments[argument]
        unconditional += [row.sample for row, own in zip(rows, dependent, strict=True) if not own]
    schedule, n_steps = _schedule(rehearsal.calls[name], argument, unconditional)
    found = Denoiser(argument, unconditional, _guidance_words(layouts), schedule, n_steps)
    at = next(i for i, layout in enumerate(layouts) if any(layout))
    row = layouts[at].index(True)
    twice = double.calls[name][at] if double and name in double.calls else None
    if twice is not None:
        _check_order(name, calls[at], others[at], twice, found)
    counts, grids = _image_counts(calls[at], argument, size)
    text = calls[at].arguments[argument][row]
    geometry = Geometry(
        image_counts=counts,
        n_text=text.shape[0] if len(text.shape) == 2 else 0,
        rows=len(layouts[at]),
        row=row,
        double_rows=len(twice.arguments[argument]) if twice else None,
    )
    labeller = Labeller(geometry)
    labelled = labeller.run(calls[at].events, others[at].events, twice.events if twice else None)
    found.readings = {path: streams for path, streams in labelled.items() if streams}
    found.grids = grids
    return found


def _guidance_words(layouts: Sequence[Sequence[bool]]) -> str:
    def words(rows: Sequence[bool]) -> str:
        names = ["conditional" if row else "unconditional" for row in rows]
        if rows.count(True) > 1:
            last = len(rows) - 1 - list(rows)[::-1].index(True)
            names[last] = "conditional, perturbed"
        return "[" + ", ".join(names) + "]"

    if len(layouts) == 1 and len(layouts[0]) == 1:
        return "one call a step, no unconditional half"
    calls = " then ".join(words(list(rows)) for rows in layouts)
    return f"{'one call' if len(layouts) == 1 else f'{len(layouts)} calls'} a step: {calls}"


def _schedule(
    calls: Sequence[Call], argument: str, unconditional: Sequence[Tensor]
) -> tuple[list[ScheduledCall], int]:
    """The conditional calls of a full run with their steps.

    Calls at one noise level belong to one entry of the schedule. Schedulers of second order that evaluate between
    entries (DPM2) call twice as often less one; there every other noise level is an entry.
    """
    kept = [
        call
        for call in calls
        if argument in call.arguments
        and conditional_rows([row.sample for row in call.arguments[argument]], unconditional)
    ]
    levels = [level for level, _ in itertools.groupby(call.timestep for call in kept)]
    entries = list(dict.fromkeys(levels))
    schedule: list[ScheduledCall] = []
    for index, call in enumerate(kept):
        step = entries.index(call.timestep)
        later = [other for other in kept[index + 1 :] if other.timestep == call.timestep]
        moved = any(_moved(call, other, argument) for other in later)
        repeated = any(
            other.timestep == call.timestep and not _moved(other, call, argument)
            for other in kept[:index]
        )
        schedule.append(ScheduledCall(call.timestep, step, not moved and not repeated))
    return schedule, len(entries)


def _moved(one: Call, other: Call, argument: str) -> bool:
    """Whether the picture in the making changed between two calls: another evaluation, not more guidance."""
    name = next((key for key in one.arguments if key != argument), None)
    if name is None or name not in other.arguments:
        return False
    a, b = one.arguments[name][0], other.arguments[name][0]
    return not (a.shape == b.shape and torch.equal(a.sample, b.sample))


def _check_order(name: str, one: Call, other: Call, double: Call, found: Denoiser) -> None:
    """The conditional rows of a batch must be in the order of the prompts, or captures would be swapped."""
    argument = found.conditioning
    rows = [row.sample for row in double.arguments[argument]]
    kept = conditional_rows(rows, found.unconditional)[:2]
    ones, others = ([row.sample for row in call.arguments[argument]] for call in (one, other))
    mine = conditional_rows(ones, found.unconditional)[0]
    pair = (ones[mine], others[mine])
    for index, row in enumerate(kept):
        near = [_distance(rows[row], prompt) for prompt in pair]
        if near[index] > near[1 - index]:
            raise SiteError(f"{name}: the rows of a batch are not in the order of its prompts")


def _distance(one: Tensor, other: Tensor) -> float:
    n = min(one.shape[0], other.shape[0])
    return float((one[:n] - other[:n]).norm())


def _image_counts(
    call: Call, argument: str, size: tuple[int, int]
) -> tuple[tuple[int, ...], dict[int, tuple[int, int]]]:
    """Possible numbers of image tokens, with their (height, width), from what the denoiser is given to denoise."""
    name = next((key for key in call.arguments if key != argument), None)
    if name is None:
        return (), {}
    shape = call.arguments[name][0].shape
    if len(shape) >= 3:
        height, width = shape[-2:]
    elif len(shape) == 2:
        height, width = _rectangle(shape[0], size)
        return (shape[0],), ({shape[0]: (height, width)} if height else {})
    else:
        return (), {}
    grids: dict[int, tuple[int, int]] = {}
    for patch in (2, 1, 4, 8, 16):
        if height % patch == 0 and width % patch == 0:
            grids.setdefault(height * width // patch**2, (height // patch, width // patch))
    likely = [n for n in grids if n * 16 >= height * width]
    return tuple(likely), grids


def _rectangle(n: int, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of n tokens laid out like the image; (0, 0) when they cannot be."""
    height = round((n * size[0] / size[1]) ** 0.5)
    return (height, n // height) if height and n % height == 0 else (0, 0)


def _conditional_states(calls: Sequence[Call], others: Sequence[Call], found: Denoiser) -> Print:
    for index in _first_step(calls):
        dependent = _dependent(calls[index], others[index], found.conditioning)
        if any(dependent):
            return calls[index].arguments[found.conditioning][dependent.index(True)]
    raise SiteError("no conditional call in the first step")


def _calibrate_encoder(passes: Sequence[EncoderPass], others: Sequence[EncoderPass]) -> Encoder:
    """The layers of an encoder that run, and the final norm, with their batch axes."""
    index = next(
        (
            i
            for i, (a, b) in enumerate(zip(passes, others, strict=False))
            if a.ids.shape != b.ids.shape or not torch.equal(a.ids, b.ids)
        ),
        0,
    )
    own = passes[index]
    n_tokens = own.ids.shape[-1]
    readings: dict[str, Reading] = {}
    norms: dict[str, Reading] = {}
    for event in own.events:
        if event.kind != "out":
            continue
        for name, one in event.tensors.items():
            if len(one.shape) == 3 and n_tokens in one.shape[:2]:
                axis = 0 if one.shape[1] == n_tokens else 1
                target = norms if "norm" in event.class_name.lower() else readings
                target.setdefault(event.path, Reading(name, axis, (None, None)))
                break
    last = list(norms.items())[-1:]
    return Encoder(own.embedding, readings | dict(last))


def image_grid(found: Denoiser, n: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """(height, width) of n image tokens: from the sizes seen in calibration, else from the shape of the image."""
    if n in found.grids:
        return found.grids[n]
    height, width = _rectangle(n, size)
    return (height, width) if height else None


def step_timesteps(found: Denoiser) -> Mapping[int, float]:
    """Noise level of every step."""
    return {
        call.step: call.timestep for call in found.schedule if call.counts and call.step is not None
    }
