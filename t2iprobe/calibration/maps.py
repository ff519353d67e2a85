"""Which axis of a feature map holds its channels, where all axes are as long as the image's sides are."""

from collections.abc import Iterable

import torch
from torch import Tensor

from t2iprobe.calibration.grid import channels_told
from t2iprobe.calibration.trace import Print, sampled_positions

_MOVES = 1.0
"""By how much the logarithm of what changes must differ from one half of an axis to the other: a picture is changed
eight times as much on the right as on the left, and channels all alike."""


def usual_order(maps: Iterable[Print], size: tuple[int, int]) -> bool | None:
    """Whether maps have their channels last; None where those whose sizes tell it do not agree, or where none tells.

    Args:
        maps: what a denoiser's sites saw.
        size: height and width of the image.
    """
    told = {channels_told(one.shape, size) for one in maps if len(one.shape) >= 4} - {None}
    return told.pop() if len(told) == 1 else None


def channels_last(
    one: Print,
    moved: Print | None,
    row: int,
    size: tuple[int, int],
    usual: bool | None,
    tokens: Iterable[Tensor] = (),
) -> bool | None:
    """Whether a map has its channels last; None where it cannot be told.

    Args:
        one: the map, batch axis first.
        moved: the same on a picture that was changed more from one quarter to the next.
        row: the conditional row.
        size: height and width of the image.
        usual: what holds for the denoiser's other maps; decides where the picture has been mixed already.
        tokens: images seen before as tokens: the map may be one of them.
    """
    told = channels_told(one.shape, size)
    if told is not None:
        return told
    if moved is not None and moved.shape == one.shape:
        change = (moved.row(row) - one.row(row)).abs().clamp_min(1e-12).log()
        at = sampled_positions(one.shape)
        before, behind = (
            abs(float(change[half].mean() - change[~half].mean()))
            for half in (at[axis] < one.shape[axis] // 2 for axis in (-3, -1))
        )
        if max(before, behind) > _MOVES and 2 * min(before, behind) < max(before, behind):
            return before > behind
    if usual is not None:
        return usual
    same = [last for last in (True, False) if _is_one_of(tokens, one, row, last)]
    return same[0] if len(same) == 1 else None


def _is_one_of(tokens: Iterable[Tensor], one: Print, row: int, last: bool) -> bool:
    """Whether a map with channels last or first holds the values of (tokens, channels), row by row."""
    axes = sampled_positions(one.shape)
    rows, columns, channels = axes[-3:] if last else (axes[-2], axes[-1], axes[-3])
    width = one.shape[-2] if last else one.shape[-1]
    at = rows * width + columns
    for sample in tokens:
        if sample.shape[0] > int(at.max()):
            kept = channels < sample.shape[1]
            if torch.equal(sample[at[kept], channels[kept]], one.row(row)[kept]):
                return True
    return False
