"""Which positions of a tensor are image and which are text, where more may stand beside them.

Registers, copies of the image at a lower resolution and tokens of the noise level share a stream with text and image.
Positions that follow the picture hold the image, and as many of them in a row as an image has; those that follow the
prompt are text. What fits at several places, or at none, is not read.
"""

from itertools import pairwise

import torch
from torch import Tensor

from t2iprobe.calibration.grid import rectangle
from t2iprobe.calibration.nudge import quarters
from t2iprobe.calibration.samples import Tokens
from t2iprobe.calibration.streams import ALL, Cut, Geometry, Layout

_APART = 3.0
"""How many times as much as the next one a quarter must change for the quarters to be told apart: it is eight times
where blocks have not mixed the picture yet, less than two where they have."""
_ORDERED = 0.75
"""Share of the tokens that must lie in their quarter. Half of them do in the orders of windows and of curves."""

Span = tuple[int, int]


def place(pair: Tokens, counts: tuple[int, ...], geometry: Geometry) -> Layout:
    """The layout of a tensor from where it follows prompt and picture; what cannot be told has a doubt.

    Args:
        pair: the tensor, before text has reached the image.
        counts: possible numbers of image tokens.
        geometry: what is known of the call.
    """
    image = _image(pair, counts, geometry)
    if isinstance(image, str):
        return Layout(doubt=image)
    if pair.same():
        return Layout(image=_cut(image, pair.n, 0)) if image else Layout()
    first, last = _prompted(pair)
    if image and first < image[1] and image[0] <= last:  # text has reached it in another way
        return Layout(image=_cut(image, pair.n, 0))
    cut = _cut(image, pair.n, first) if image else None
    text = _text(pair, image, geometry)
    return Layout(cut, doubt=text) if isinstance(text, str) else Layout(cut, text)


def _cut(span: Span, n: int, text: int) -> Cut:
    """Bounds of an image; behind the text they count from the end, as texts have lengths of their own."""
    first, stop = span
    if span == (0, n):
        return ALL
    return (first - n, stop - n or None) if first > text else (first, stop)


def _prompted(pair: Tokens) -> Span:
    """The first and the last position that follow the prompt."""
    return pair.leading(), pair.n - 1 - pair.trailing()


def _image(pair: Tokens, counts: tuple[int, ...], geometry: Geometry) -> Span | str | None:
    """First and one past the last position of the image; None where there is none, a sentence where it is not told."""
    follows, n = pair.follows(), pair.n
    if not follows.any():
        return None
    first, last = (n, n) if pair.same() else _prompted(pair)
    spare = follows.clone()
    spare[first : last + 1] = False
    if not spare.any():
        whole = follows.all() and n in counts and (pair.moved is not None or n != geometry.n_text)
        return (0, n) if whole else None
    runs = _runs(spare)
    longest = max(stop - start for start, stop in runs)
    if longest in counts:
        fits = [run for run in runs if run[1] - run[0] == longest]
    elif pair.moved is not None:
        fits = _in_quarters(pair, runs, counts, geometry.size)
    else:
        fits = _beside_text(spare, counts, geometry.n_text)
    if len(fits) == 1:
        return fits[0]
    places = "several places" if fits else "no place"
    return f"an image of {' or '.join(map(str, counts))} tokens fits at {places} among {n}"


def _runs(mask: Tensor) -> list[Span]:
    """Stretches of a mask in which it is true."""
    edges = torch.nn.functional.pad(mask.int(), (1, 1)).diff().nonzero().flatten().tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _in_quarters(
    pair: Tokens, runs: list[Span], counts: tuple[int, ...], size: tuple[int, int]
) -> list[Span]:
    """Places of the largest possible image within longer runs, where every quarter of it changes as it should."""
    longest = max(stop - start for start, stop in runs)
    n = max((own for own in counts if own < longest), default=longest)
    change = pair.change()
    shares = {
        (start, start + n): share(change[start : start + n], size) or 0
        for first, stop in runs
        for start in range(first, stop - n + 1)
    }
    best = max(shares.values())
    return [span for span, own in shares.items() if own == best >= _ORDERED]


def _beside_text(spare: Tensor, counts: tuple[int, ...], n_text: int) -> list[Span]:
    """Places of an image that fills a tensor with the text, where nothing tells what follows the picture."""
    n = len(spare)
    fits = {(start, start + n - n_text) for start in (0, n_text) if n - n_text in counts}
    return [span for span in sorted(fits) if spare[slice(*span)].all()]


def share(change: Tensor, size: tuple[int, int]) -> float | None:
    """Share of image tokens that lie in their quarter if they come row by row; None where nothing tells.

    Args:
        change: how much each token changes with the picture, (tokens,).
        size: height and width of the image.
    """
    height, width = rectangle(len(change), size)
    if min(height, width) < 2:
        return None
    own, order = quarters(height, width).flatten(), change.argsort()
    ends = own.bincount(minlength=4).cumsum(0)
    typical = [float(change[part].median()) for part in order.tensor_split(ends[:-1])]
    if any(more <= _APART * less for less, more in pairwise(typical)):
        return None
    got = torch.empty_like(own)
    got[order] = own.sort().values
    return float((got == own).float().mean())


def ordered(change: Tensor, size: tuple[int, int]) -> bool | None:
    """Whether image tokens come row by row; None where nothing tells."""
    own = share(change, size)
    return None if own is None else own >= _ORDERED


def _text(pair: Tokens, image: Span | None, geometry: Geometry) -> Cut | str:
    """Bounds of the text; a sentence where it is not told.

    Of text states as many at either end follow the prompt as in the text alone, or all of them do where a network has
    mixed them before. Pads may stand behind them: no bound but the first matters.
    """
    first, last = _prompted(pair)
    low, high = 0, pair.n
    if image:
        low, high = (image[1], pair.n) if image[1] <= first else (0, image[0])
    n = geometry.n_text
    cut = (low, high - pair.n or None)
    if not n or high - low == n:
        return cut
    follows = pair.follows() if pair.moved is not None else torch.zeros(pair.n, dtype=torch.bool)
    fits = [
        start
        for start in range(max(low, last + 1 - n), min(first, high - n) + 1)
        if not follows[start : start + n].any()
        and first - start in (0, geometry.text_leading)
        and start + n - 1 - last in (0, geometry.text_trailing)
    ]
    if len(fits) == 1:
        return (fits[0], high - pair.n or None)
    places = "several places" if fits else "no place"
    return f"a text of {n} tokens fits at {places} among {pair.n}"
