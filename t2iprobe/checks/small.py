"""The calibration of a pipeline of stand-ins at its own image size, without computing an image of that size.

Which rows and positions follow the prompt does not depend on how large the image is. They are found in trial calls at
a small size. At the size of the pipeline the denoisers are called for the shapes alone, which gives the schedule too.
What the two sizes say of a site has to agree, or nothing is told.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from t2iprobe.calibration.calibrate import calibrate
from t2iprobe.calibration.grid import image_counts
from t2iprobe.calibration.observe import Call, Tracer, as_tokens
from t2iprobe.calibration.result import Calibration, Cut, Reading
from t2iprobe.calibration.rows import conditional_rows
from t2iprobe.calibration.steps import Run, Schedule, conditional_schedules
from t2iprobe.calibration.trial import PROMPTS, image_size
from t2iprobe.checks.classes import STAND_IN_ERRORS
from t2iprobe.checks.meta_shapes import Shapes, ShapeWatch
from t2iprobe.errors import T2IProbeError
from t2iprobe.models.calling import asked_steps, call_pipeline, images_of
from t2iprobe.models.model import Model
from t2iprobe.places import Stream

SMALL = (192, 384)
"""Height and width of the trial calls. Codecs and patches of all families divide them, into numbers of tokens that need
no padding; height and width differ, and no grid of a network with four levels is as long as a usual text."""


class _Unlike(Exception):  # noqa: N818 - no error of the user's: the image is then computed at its own size
    """The two sizes do not agree."""


def calibrate_small(model: Model, shadows: Mapping[str, nn.Module]) -> Calibration | None:
    """What `calibrate` finds, at the cost of a small image.

    Args:
        model: a pipeline of stand-ins.
        shadows: its denoisers once more, on the meta device.

    Returns:
        None where it cannot be told so: the image is small itself, the pipeline takes no size, cannot be called at
        another one or without values, or a site does not grow with the image as images do.
    """
    if not {"height", "width"} <= set(model.call_names) or set(model.denoisers) - set(shadows):
        return None
    own, small = ShapeWatch(model), ShapeWatch(model)
    try:
        with own.instead(shadows):
            rehearsal = Tracer(model, {}, detail=0).run(lambda: _rehearse(model))
        size = image_size(images_of(rehearsal.output, model.class_name), model.class_name)
        if size[0] * size[1] <= 2 * SMALL[0] * SMALL[1]:
            return None
        with small.computed():
            found = calibrate(_at_small_size(model))
        if found.image_size != SMALL:
            return None
        found = replace(found, image_size=size)
        runs = {
            name: Run(rehearsal.calls[name], one.conditioning, one.unconditional)
            for name, one in found.denoisers.items()
        }
        for name, schedule in conditional_schedules(runs, asked_steps(model)).items():
            shapes = (small.calls[name], own.calls[name])
            found = _enlarged(found, name, rehearsal.calls[name], schedule, shapes)
    except (T2IProbeError, _Unlike, *STAND_IN_ERRORS):
        return None
    return found


def _rehearse(model: Model) -> Any:
    return call_pipeline(model, PROMPTS[:1], [torch.Generator("cpu").manual_seed(0)], "np")


def _at_small_size(model: Model) -> Model:
    """The same pipeline, asked for a small image and not to draw at a size of its own."""
    height, width = SMALL
    call = model.call | {"height": height, "width": width}
    if "use_resolution_binning" in model.call_names:
        call["use_resolution_binning"] = False
    return replace(model, call=call, calibration=None)


def _enlarged(
    found: Calibration,
    name: str,
    calls: Sequence[Call],
    schedule: Schedule,
    shapes: tuple[Sequence[Shapes], Sequence[Shapes]],
) -> Calibration:
    """A calibration in which one denoiser is told for the pipeline's own size.

    Args:
        found: the calibration, with the pipeline's own image size.
        name: of the denoiser.
        calls: of the rehearsal at the pipeline's own size.
        schedule: its own in that rehearsal.
        shapes: of the denoiser's sites, call by call, at the small size and at the pipeline's own.

    Raises:
        _Unlike: the two sizes do not agree.
    """
    denoiser = found.denoisers[name]
    argument, unconditional = denoiser.conditioning, denoiser.unconditional
    at, row = _first_conditional(calls, argument, unconditional)
    counts, grids = image_counts(calls[at], argument, found.image_size)
    states = as_tokens(calls[at].arguments[argument][row])
    if denoiser.states_shape and states.shape != denoiser.states_shape:
        raise _Unlike("the text states")
    readings: dict[str, dict[Stream, Reading]] = {}
    for path, streams in denoiser.readings.items():
        readings[path] = {}
        for stream, reading in streams.items():
            both = [sites[at].get(path, {}).get(reading.item) for sites in shapes]
            readings[path][stream] = _grown(stream, streams, both, {*counts, *grids})
    own = replace(
        denoiser,
        schedule=schedule.calls,
        n_steps=schedule.n_steps,
        readings=readings,
        grids=grids,
    )
    return replace(found, denoisers=found.denoisers | {name: own})


def _first_conditional(
    calls: Sequence[Call], argument: str, unconditional: Sequence[Tensor]
) -> tuple[int, int]:
    """The first call of a run with a row that follows the prompt, and that row."""
    for index, call in enumerate(calls):
        states = [row.sample for row in call.arguments.get(argument, [])]
        rows = conditional_rows(states, unconditional)
        if rows:
            return index, rows[0]
    raise _Unlike("no call follows the prompt")


def _grown(
    stream: Stream,
    streams: Mapping[Stream, Reading],
    shapes: Sequence[tuple[int, ...] | None],
    counts: Collection[int],
) -> Reading:
    """A reading at the pipeline's own size.

    Args:
        stream: which one.
        streams: the site's readings at the small size.
        shapes: of the tensor that is read, at the small size and at the pipeline's own.
        counts: possible numbers of image tokens.
    """
    reading = streams[stream]
    before, after = shapes
    if before is None or after is None or len(before) != len(after):
        raise _Unlike("a site")
    if reading.cut is None:
        last = reading.channels_last
        return replace(reading, shape=(after[-1], *after[1:-1]) if last else after[1:])
    axis = 1 - reading.axis
    if before[reading.axis] != after[reading.axis] or before[-1] != after[-1]:
        raise _Unlike("rows or width of a site")
    growth = after[axis] - before[axis]
    first, stop, _ = slice(*reading.cut).indices(before[axis])
    image = streams.get("image")
    if stream == "image":
        stop += growth
        if counts and stop - first not in counts:
            raise _Unlike("the number of image tokens")
    elif image is not None and image.item == reading.item and image.cut is not None:
        if first >= slice(*image.cut).indices(before[axis])[1]:
            first, stop = first + growth, stop + growth
    elif growth:
        raise _Unlike("a text that grows with the image")
    cut: Cut = (first, stop)
    return replace(reading, cut=cut, shape=(stop - first, reading.shape[-1]))
