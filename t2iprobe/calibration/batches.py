"""Whether a batch of several prompts is read as its prompts alone are."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from t2iprobe.calibration.result import Reading
from t2iprobe.calibration.trace import Event
from t2iprobe.models.arguments import IMAGE_FIELDS
from t2iprobe.models.calling import field_of
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
        if event.kind == "out" and event.path == path and reading.item in event.tensors:
            one = event.tensors[reading.item]
            sample = one.row(row, reading.axis if len(one.shape) == 3 else 0)
            return sample if reading.cut is None else sample[slice(*reading.cut)]
    return None


def _near(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    scale = max(float(one.norm()), float(other.norm()))
    return float((one - other).norm()) <= _NEAR * scale
