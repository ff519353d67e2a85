"""What a denoiser is given to denoise, and how image tokens lie in the image."""

from collections.abc import Sequence

from t2iprobe.calibration.observe import Call, Print


def denoised_name(call: Call, argument: str) -> str | None:
    """Which argument a call is given to denoise: the first beside that of the text; None where there is no other."""
    return next((name for name in call.arguments if name != argument), None)


def denoised(call: Call, argument: str) -> list[Print]:
    """What a call is given to denoise, row by row; [] where there is nothing beside the text."""
    return call.arguments.get(denoised_name(call, argument) or "", [])


def picture(call: Call, argument: str) -> Print | None:
    """The first row of what a call is given to denoise; None without any."""
    return next(iter(denoised(call, argument)), None)


def grows(calls: Sequence[Call], argument: str) -> bool:
    """Whether what is denoised changes its shape within a run, as where a small picture is drawn before a large one."""
    given = [call for call in calls if argument in call.arguments]
    shapes = {row.shape for call in given for row in denoised(call, argument)[:1]}
    return len(shapes) > 1


def image_counts(
    call: Call, argument: str, size: tuple[int, int]
) -> tuple[tuple[int, ...], dict[int, tuple[int, int]]]:
    """Possible numbers of image tokens, with their (height, width), from what the denoiser is given to denoise."""
    first = (denoised(call, argument) or call.arguments[argument])[0]
    shape = first.shape
    if len(shape) >= 5 and shape[0] > 1:  # patches that are cut outside
        return (shape[0],), {shape[0]: rectangle(shape[0], size)}
    if len(shape) >= 3:
        height, width = shape[-3:-1] if channels_are_last(shape, size) else shape[-2:]
    elif len(shape) == 2:
        n = _filled(first)
        height, width = rectangle(n, size)
        return (n,), ({n: (height, width)} if height else {})
    else:
        return (), {}
    grids: dict[int, tuple[int, int]] = {}
    for patch in (2, 1, 4, 8, 16):
        if height % patch == 0 and width % patch == 0:
            grids.setdefault(height * width // patch**2, (height // patch, width // patch))
    likely = [n for n in grids if n * 16 >= height * width]
    return tuple(likely), grids


def _filled(row: Print) -> int:
    """Number of positions of a (tokens, channels) row that are not blank.

    Some families hand image and text over in one length each, zeros standing where the other stream is.
    """
    return int((row.sample.abs().amax(-1) > 0).sum()) or row.shape[0]


def text_count(call: Call, argument: str, row: int) -> int:
    """Number of text tokens among the text states of a row: those that the image does not take."""
    n = call.arguments[argument][row].shape[0]
    for picture in denoised(call, argument)[: row + 1][-1:]:
        if len(picture.shape) == 2 and picture.shape[0] == n:
            return n - _filled(picture) or n
    return n


def channels_are_last(shape: Sequence[int], size: tuple[int, int]) -> bool:
    """Whether a map (..., a, b, c) is height, width, channels: a and b are as the image's sides, b and c are not."""
    last, first = _axes_that_fit(shape, size)
    return last and not first


def channels_told(shape: Sequence[int], size: tuple[int, int]) -> bool | None:
    """Whether the channels of a map (..., a, b, c) come last; None where all three axes are as the image's sides."""
    return None if all(_axes_that_fit(shape, size)) else channels_are_last(shape, size)


def _axes_that_fit(shape: Sequence[int], size: tuple[int, int]) -> tuple[bool, bool]:
    """Whether the axes (a, b) of a map (..., a, b, c) are as the image's sides, and whether (b, c) are."""
    height, width = size
    a, b, c = shape[-3:]
    return a * width == b * height, b * width == c * height


def rectangle(n: int, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of n tokens laid out like the image; (0, 0) when they cannot be."""
    height = round((n * size[0] / size[1]) ** 0.5)
    return (height, n // height) if height and n % height == 0 else (0, 0)
