"""Whether a batch of several prompts is read as its prompts alone are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2iprobe.calibration.observe import Call, Event, Trace, Tracer, turn_states
from t2iprobe.calibration.result import Denoiser, Reading
from t2iprobe.calibration.rows import conditional_rows
from t2iprobe.calibration.trial import PROMPTS
from t2iprobe.models.arguments import IMAGE_FIELDS
from t2iprobe.models.calling import call_pipeline, field_of
from t2iprobe.models.model import Model
from t2iprobe.places import Stream

_NEAR = 0.1
"""Relative distance that rounding stays below, also in half precision; another slice of tokens is far beyond."""


def disagreement(
    readings: Mapping[str, Mapping[Stream, Reading]],
    alone: Sequence[tuple[Sequence[Event], int]],
    together: Sequence[Event],
    rows: Sequence[int],
) -> str | None:
    """Path of the first site whose image stream differs between a batch and its prompts alone; None where all agree.

    Families that put texts of different lengths before the image move it from row to row.

    Args:
        readings: how sites are read.
        alone: for each prompt what the sites saw, and its conditional row.
        together: what they saw with all prompts in one batch.
        rows: the conditional row of each prompt in it.
    """
    for path, streams in readings.items():
        reading = streams.get("image")
        if reading is None:
            continue
        for (events, row), other in zip(alone, rows, strict=True):
            single = _stream(events, path, reading, row)
            batched = _stream(together, path, reading, other)
            if single is None or batched is None or not _near(single, batched):
                return path
    return None


_SAME_IMAGE = {"float32": 0.003}
_SAME_IMAGE_HALF = 0.05
"""Largest difference between the image of a batch and the same image alone that rounding makes in two steps, in
standard deviations of the image."""


def images_differ(alone: Sequence[Any], together: Any, dtype: str) -> bool:
    """Whether what a batch of prompts gives differs from what each prompt gives alone.

    Some families let the pads of one prompt into the attention of another.

    Args:
        alone: outputs of the pipeline for one prompt each, in order.
        together: its output for all of them.
        dtype: what the model computes in.
    """
    batch, limit = _values(together), _SAME_IMAGE.get(dtype, _SAME_IMAGE_HALF)
    for index, output in enumerate(alone):
        one = _values(output)
        if one is None or batch is None or one.shape[1:] != batch.shape[1:]:
            continue
        if len(one) < 1 or len(batch) < len(alone):  # images that were blocked are left out
            continue
        scale = float(one.std()) + 1e-6
        step = float(torch.equal(one, one.round()))  # whole numbers are rounded to either side
        if float((one[0] - batch[index]).abs().max()) > limit * scale + step:
            return True
    return False


def _values(output: Any) -> Tensor | None:
    """The images of an output, one per row; None where they are no numbers."""
    for name in IMAGE_FIELDS:
        images = field_of(output, name)
        if isinstance(images, Tensor):
            return images.float().cpu()
        if isinstance(images, np.ndarray) and images.dtype.kind in "iuf":
            return torch.from_numpy(images.astype(np.float32))
    return None


def _stream(events: Sequence[Event], path: str, reading: Reading, row: int) -> Tensor | None:
    for event in events:
        if event.path == path and reading.item in event.tensors:
            one = event.tensors[reading.item]
            sample = one.row(row, reading.axis if len(one.shape) == 3 else 0)
            return sample if reading.cut is None else sample[slice(*reading.cut)]
    return None


def _near(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    scale = max(float(one.norm()), float(other.norm()))
    return float((one - other).norm()) <= _NEAR * scale


LONG = " and ".join([*PROMPTS] * 3)
"""A prompt several times as long as the others: longer than what texts are padded to multiples of."""


def may_move(readings: Mapping[str, Mapping[Stream, Reading]], lengths: Sequence[int]) -> bool:
    """Whether an image follows a text of each prompt's own length, so that a longer one could move it.

    Args:
        readings: how sites are read.
        lengths: text states of two prompts.
    """
    images = [streams["image"].cut for streams in readings.values() if "image" in streams]
    return len(set(lengths)) > 1 and any(cut and (cut[0] or 0) < 0 for cut in images)


def moves_with_length(
    model: Model, found: Mapping[str, Denoiser], alone: Trace, steps: int | None
) -> dict[str, str]:
    """For each denoiser the first site whose image is elsewhere when a long and a short prompt share a batch.

    Texts padded to a multiple hide it from prompts of about the same length. Costs two short calls.

    Args:
        model: the model.
        found: denoisers to look at.
        alone: what was seen with the first prompt alone.
        steps: denoising steps of a short call; None for those of a run.
    """
    tracer = Tracer(model, {name: list(one.readings) for name, one in found.items()}, detail=4)

    def trace(prompts: Sequence[str]) -> Trace:
        generators = [torch.Generator("cpu").manual_seed(0) for _ in prompts]
        return tracer.run(lambda: call_pipeline(model, prompts, generators, "np", steps))

    long, both = trace([LONG]), trace([PROMPTS[0], LONG])
    moving: dict[str, str] = {}
    for name, one in found.items():
        short, own, together = (_conditional(t.calls[name], one) for t in (alone, long, both))
        singles = [(call.events, rows[0]) for call, rows in (short, own)]
        path = disagreement(one.readings, singles, together[0].events, together[1][:2])
        if path is not None:
            moving[name] = path
    return moving


def _conditional(calls: Sequence[Call], found: Denoiser) -> tuple[Call, list[int]]:
    """The first conditional call, and its conditional rows."""
    turn_states(calls, found.conditioning)
    for call in calls:
        states = [row.sample for row in call.arguments.get(found.conditioning, [])]
        rows = conditional_rows(states, found.unconditional)
        if rows:
            return call, rows
    raise AssertionError("calibration has seen a conditional call")
