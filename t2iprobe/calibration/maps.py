"""Which axis of a feature map holds its channels, where all axes are as long as the image's sides are."""

from collections.abc import Iterable

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
) -> bool | None:
    """Whether a map has its channels last; None where it cannot be told.

    Args:
        one: the map, batch axis first.
        moved: the same on a picture that was changed more from one quarter to the next.
        row: the conditional row.
        size: height and width of the image.
        usual: what holds for the denoiser's other maps; decides where the picture has been mixed already.
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
    return usual
