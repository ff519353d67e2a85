"""What a pipeline does with a prompt, found by trying it.

Which calls and rows are conditional, which steps there are, which part of each site is image and which is text.

One rehearsal at full length gives the schedule. Then two short calls that differ only in the prompt, and one with
both prompts in a batch, decide everything else. Nothing is read from class names or from the guidance scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from t2iprobe.errors import SiteError
from t2iprobe.models.calibration.batches import disagreement, images_differ
from t2iprobe.models.calibration.calls import asked_steps, images_of
from t2iprobe.models.calibration.grid import image_counts, rectangle
from t2iprobe.models.calibration.rows import (
    check_order,
    conditional_rows,
    conditioning_argument,
    dependent_rows,
    first_step,
    guidance_words,
)
from t2iprobe.models.calibration.schedule import ScheduledCall, conditional_schedule
from t2iprobe.models.calibration.streams import Geometry, Labeller, Reading, equal_start
from t2iprobe.models.calibration.tokens import Segment, match_segments
from t2iprobe.models.calibration.trace import Call, EncoderPass, Print, Trace, as_tokens
from t2iprobe.models.calibration.trial import image_size, rehearse, short_calls
from t2iprobe.models.model import Model
from t2iprobe.models.sites import Stream


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
        states_shape: shape of one prompt's text states; () where it is given none, or token ids in their place.
        moves_in_batch: a site that reads differently in a batch of texts of different lengths; None where none does.
    """

    conditioning: str
    unconditional: list[Tensor]
    guidance: str
    schedule: list[ScheduledCall]
    n_steps: int
    readings: dict[str, dict[Stream, Reading]] = field(default_factory=dict)
    grids: dict[int, tuple[int, int]] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    states_shape: tuple[int, ...] = ()
    moves_in_batch: str | None = None


@dataclass
class Encoder:
    """What calibration found about one text encoder.

    Attributes:
        embedding: path of the token embedding.
        n_tokens: tokens it was given for one prompt, pads included.
        readings: how its layers and its final norm are read.
    """

    embedding: str
    n_tokens: int
    readings: dict[str, Reading]


@dataclass
class Calibration:
    """Everything found about a model. `notes` holds sentences for the user, `max_batch` 1 where batches fail."""

    denoisers: dict[str, Denoiser]
    encoders: dict[str, Encoder]
    max_batch: int | None
    image_size: tuple[int, int]
    notes: list[str]


def calibrate(model: Model) -> Calibration:
    """Find out how a model uses its prompt. Costs one image and three short calls.

    Raises:
        ModelError: the pipeline cannot make an image from a text alone.
        SiteError: no denoiser's input depends on the prompt.
    """
    rehearsal = rehearse(model)
    images = images_of(rehearsal.output, model.class_name)
    size = image_size(images, model.class_name)
    first, second, double, notes = short_calls(model, rehearsal)
    encoders = {
        name: _calibrate_encoder(passes, second.passes.get(name, []))
        for name, passes in first.passes.items()
    }
    asked = asked_steps(model)
    denoisers: dict[str, Denoiser] = {}
    for name, calls in first.calls.items():
        found = _calibrate_denoiser(name, calls, second, double, rehearsal, size, asked)
        if isinstance(found, str):
            notes.append(found)
            continue
        denoisers[name] = found
        states = _conditional_states(calls, second.calls[name], found)
        found.segments = match_segments(states, first.passes)
        only_picture = len(calls[0].arguments) == 1  # a later stage, which is given no text
        found.states_shape = () if only_picture or states.shape[1:] == (1,) else states.shape
    if not denoisers:
        raise SiteError(f"{model.class_name}: no denoiser input changes with the prompt; {notes}")
    silent = [name for name in (*model.denoisers, *model.encoders) if name not in _ran(first)]
    notes += [f"{name} is not used in a call" for name in silent]
    moving = [f"{name}.{d.moves_in_batch}" for name, d in denoisers.items() if d.moves_in_batch]
    dtype = str(model.provenance.get("dtype", "float32"))
    alone = (first.output, second.output)
    if not moving and double and images_differ(alone, double.output, dtype):
        moving = ["the image"]
    if moving:
        notes.append(f"{moving[0]} differs between a batch and its prompts alone; batch size is 1")
    max_batch = 1 if moving or double is None else None
    return Calibration(denoisers, encoders, max_batch, size, notes)


def _ran(trace: Trace) -> set[str]:
    return {*trace.calls, *trace.passes}


def _calibrate_denoiser(
    name: str,
    calls: Sequence[Call],
    second: Trace,
    double: Trace | None,
    rehearsal: Trace,
    size: tuple[int, int],
    asked: Sequence[int],
) -> Denoiser | str:
    """What was found about one denoiser, or a sentence that says why nothing can be captured in it."""
    others = second.calls.get(name, [])
    argument = conditioning_argument(calls, others) if len(others) == len(calls) else None
    if argument is None:
        return f"{name} does not see the prompt; nothing is captured there"
    unconditional: list[Tensor] = []
    layouts: list[list[bool]] = []
    for index, call in enumerate(calls):
        if argument not in call.arguments:
            continue
        dependent = dependent_rows(call, others[index], argument)
        if index in first_step(calls):
            layouts.append(dependent)
        rows = call.arguments[argument]
        unconditional += [row.sample for row, own in zip(rows, dependent, strict=True) if not own]
    schedule, n_steps = conditional_schedule(rehearsal.calls[name], argument, unconditional, asked)
    found = Denoiser(argument, unconditional, guidance_words(layouts), schedule, n_steps)
    at = next(i for i, layout in enumerate(layouts) if any(layout))
    row = layouts[at].index(True)
    twice = double.calls[name][at] if double and name in double.calls else None
    if twice is not None:
        check_order(name, argument, unconditional, calls[at], others[at], twice)
    text, other_text = (as_tokens(call[at].arguments[argument][row]) for call in (calls, others))
    has_tokens = len(text.shape) == 2 and len(calls[at].arguments) > 1
    counts, grids = image_counts(calls[at], argument, size)
    geometry = Geometry(
        image_counts=counts,
        n_text=text.shape[0] if has_tokens else 0,
        rows=len(layouts[at]),
        row=row,
        text_leading=equal_start(text.sample, other_text.sample) if has_tokens else 0,
        double_rows=len(twice.arguments[argument]) if twice else None,
        size=size,
    )
    labeller = Labeller(geometry, text.sample if has_tokens else None)
    labelled = labeller.run(calls[at].events, others[at].events, twice.events if twice else None)
    found.readings = {path: streams for path, streams in labelled.items() if streams}
    found.grids = grids
    if twice is not None:
        states = [print_.sample for print_ in twice.arguments[argument]]
        both = conditional_rows(states, unconditional)[:2]
        alone = [(calls[at].events, row), (others[at].events, row)]
        found.moves_in_batch = disagreement(found.readings, alone, twice.events, both)
    return found


def _conditional_states(calls: Sequence[Call], others: Sequence[Call], found: Denoiser) -> Print:
    for index in first_step(calls):
        dependent = dependent_rows(calls[index], others[index], found.conditioning)
        if any(dependent):
            return as_tokens(calls[index].arguments[found.conditioning][dependent.index(True)])
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
                target.setdefault(
                    event.path, Reading(name, axis, (None, None), (n_tokens, one.shape[-1]))
                )
                break
    last = list(norms.items())[-1:]
    return Encoder(own.embedding, n_tokens, readings | dict(last))


def image_grid(found: Denoiser, n: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """(height, width) of n image tokens: from the sizes seen in calibration, else from the shape of the image."""
    if n in found.grids:
        return found.grids[n]
    height, width = rectangle(n, size)
    return (height, width) if height else None
