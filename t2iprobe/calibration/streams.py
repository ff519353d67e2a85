"""Which part of what a site gives is image and which is text, from one denoiser call made again three times.

As it was, with the text disturbed, with the picture disturbed, every position seeing only itself: positions that follow
the picture are image, those that follow the text and not the picture are text, those that follow neither are the
model's own. Every label keeps the numbers it rests on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from t2iprobe.calibration.grid import channels_told, rectangle
from t2iprobe.calibration.observe import Event, Print, sampled_positions
from t2iprobe.calibration.replay import quarters
from t2iprobe.calibration.result import ALL, Cut, Evidence, Reading
from t2iprobe.places import Stream

Span = tuple[int, int]

MOVED = 1e-5
"""Change of a position, in units of its own length, that rounding stays below: where experts share out the tokens,
those that are not disturbed are rounded otherwise."""
_APART = 3.0
"""How many times as much as the next one a quarter must change for the quarters to be told apart: it is disturbed eight
times as much."""
_ORDERED = 0.75
"""Share of the tokens that must lie in their quarter. Half of them do in the orders of windows and of curves."""
_MOVES = 1.0
"""By how much the logarithm of what changes must differ from one half of an axis to the other: a picture is changed
eight times as much on the right as on the left, and channels all alike."""


@dataclass(frozen=True)
class Geometry:
    """Sizes that a call is known to have.

    Attributes:
        image_counts: possible numbers of image tokens, likeliest first; () where what is denoised is a vector.
        n_text: number of text tokens the denoiser is given; 0 when it gets none.
        first_word: how many text tokens at the front are not disturbed.
        rows: rows of the batch.
        row: the conditional row.
        double_rows: rows of the batch for two prompts; None where batches fail.
        size: height and width of the image.
    """

    image_counts: tuple[int, ...]
    n_text: int
    first_word: int
    rows: int
    row: int
    double_rows: int | None
    size: tuple[int, int]


def batch_axis(
    shape: Sequence[int], doubled: Sequence[int] | None, geometry: Geometry
) -> int | None:
    """The axis with as many entries as the batch has rows, in the call with one prompt and in that with two."""
    for axis, size in enumerate(shape[:2]):
        if size != geometry.rows:
            continue
        if doubled is None or geometry.double_rows is None:
            return axis
        if len(doubled) == len(shape) and doubled[axis] == geometry.double_rows:
            return axis
    return None


def change(base: Tensor, other: Tensor) -> Tensor:
    """How much each position differs, in units of its own length: (..., channels) -> (...)."""
    length = torch.linalg.vector_norm(base, dim=-1)
    relative: Tensor = torch.linalg.vector_norm(other - base, dim=-1) / length.clamp_min(1e-6)
    return relative


def _typical(changes: Tensor) -> float:
    """Median change of the positions that moved; 0 where none did."""
    moved = changes[changes > MOVED]
    return float(moved.median()) if len(moved) else 0.0


@dataclass
class Labels:
    """The readings of one denoiser's sites, as far as its replays tell them.

    Attributes:
        geometry: what is known of the call.
        readings: by path and stream, in the order in which the sites run.
        in_order: whether image tokens come row by row; None where nothing tells.
        doubts: why a stream that may be there is left out.
    """

    geometry: Geometry
    readings: dict[str, dict[Stream, Reading]] = field(default_factory=dict)
    in_order: bool | None = None
    doubts: list[str] = field(default_factory=list)
    _map_counts: list[int] = field(default_factory=list)
    _usual: bool | None = None

    def read(
        self,
        base: Sequence[Event],
        by_text: Sequence[Event],
        by_picture: Sequence[Event],
        by_quarter: Sequence[Event],
        double: Sequence[Event] | None,
    ) -> None:
        """Label every site.

        Args:
            base: what the sites gave in the call made again as it was.
            by_text: with the text disturbed.
            by_picture: with the picture disturbed.
            by_quarter: with the picture disturbed more in one quarter than in another.
            double: with two prompts in one batch, nothing disturbed; None where batches fail.
        """
        maps = (one for event in base for one in event.tensors.values())
        self._usual = usual_order(maps, self.geometry.size)
        for index, event in enumerate(base):
            twice = double[index].tensors if double else {}
            streams: dict[Stream, Reading] = {}
            for name, one in event.tensors.items():
                text, picture, quarter = (
                    events[index].tensors.get(name, one)
                    for events in (by_text, by_picture, by_quarter)
                )
                doubled = twice[name].shape if name in twice else None
                axis = batch_axis(one.shape, doubled, self.geometry)
                if axis is None or not one.shape == text.shape == picture.shape:
                    continue
                if len(one.shape) >= 4 and axis == 0:
                    labelled = self._map(name, one, text, picture, quarter)
                elif len(one.shape) == 3 and one.shape[1 - axis] > 1:
                    labelled = self._tokens(name, axis, one, text, picture)
                else:
                    continue
                streams = labelled | streams
            self.readings[event.path] = streams

    def notes(self) -> list[str]:
        """Sentences about what is left out."""
        order = "image tokens do not come row by row; their grid is left out"
        doubts = [f"{doubt}; it is left out" for doubt in self.doubts]
        return doubts if self.in_order is not False else [*doubts, order]

    def _doubt(self, doubt: str) -> None:
        if doubt not in self.doubts:
            self.doubts.append(doubt)

    def _map(
        self, name: str, one: Print, text: Print, picture: Print, quarter: Print
    ) -> dict[Stream, Reading]:
        """A feature map, batch axis first, is image."""
        row, size = self.geometry.row, self.geometry.size
        last = channels_last(one, quarter, row, size, self._usual)
        shape = (one.shape[-1], *one.shape[1:-1]) if last else one.shape[1:]
        self._map_counts.append(shape[-2] * shape[-1])
        if last is None:
            self._doubt(f"channels and sides of a map {shape} cannot be told apart")
            return {}
        moved = [float(change(one.row(row), other.row(row)).median()) for other in (text, picture)]
        evidence = Evidence("a map of " + " x ".join(map(str, shape[-2:])), *moved)
        return {"image": Reading(name, 0, None, tuple(shape), bool(last), evidence)}

    def _tokens(
        self, name: str, axis: int, one: Print, text: Print, picture: Print
    ) -> dict[Stream, Reading]:
        base, by_text, by_picture = (
            own.row(self.geometry.row, axis) for own in (one, text, picture)
        )
        with_text, with_picture = change(base, by_text), change(base, by_picture)
        follows = with_picture > MOVED
        n = len(base)
        labelled: dict[Stream, Reading] = {}

        def label(stream: Stream, cut: Cut, rule: str) -> None:
            part = slice(*cut)
            evidence = Evidence(rule, _typical(with_text[part]), _typical(with_picture[part]))
            shape = (len(range(n)[part]), one.shape[-1])
            labelled[stream] = Reading(name, axis, cut, shape, False, evidence)

        words = (with_text > MOVED) & ~follows
        if not self.geometry.image_counts:
            self._label_prior(words, label)
            return labelled
        image = self._image(follows, torch.linalg.vector_norm(by_picture - base, dim=-1))
        if isinstance(image, str):
            self._doubt(image)
            return {}
        if image is not None:
            behind = bool(words[: image[0]].any())
            label("image", _image_cut(image, n, behind), "follows the picture")
        if not self.geometry.n_text or not words.any():
            return labelled
        low, high = _beside(image, int(words.nonzero()[0]), n)
        while follows[high - 1]:  # a smaller copy of the image, between text and image
            high -= 1
        start = self._text_start(words, low, high)
        if isinstance(start, str):
            self._doubt(start)
        else:
            cut = ALL if (start, high) == (0, n) else (start, high - n or None)
            label("text", cut, "follows the text and not the picture")
        return labelled

    def _label_prior(self, words: Tensor, label: Callable[[Stream, Cut, str], None]) -> None:
        """Priors of unCLIP and Kandinsky denoise a vector: a token between the noise level and a learned one.

        The answer is read from the learned one, so all that stands behind text and pooled text is image.
        """
        n, n_text, skipped = len(words), self.geometry.n_text, self.geometry.first_word
        at = words.nonzero().flatten().tolist()
        behind = n - 1 - at[-1] if at else n
        if not at:
            label("image", ALL, "follows no text")
        elif n == n_text:
            label("text", ALL, "follows the text")
        elif behind and n > n_text:
            start = max(0, at[0] - skipped)
            label("image", (-behind, None), "stands behind what follows the text")
            label("text", (start, start + n_text or -behind), "follows the text")

    def _image(self, follows: Tensor, moved: Tensor) -> Span | str | None:
        """First and one past the last position of the image; None where there is none, a sentence where it is not told.

        Copies of the image, smaller or not, follow the picture too.
        """
        if not follows.any():
            return None
        runs = _runs(follows)
        counts = tuple(dict.fromkeys((*self._map_counts, *self.geometry.image_counts)))
        longest = max(stop - start for start, stop in runs)
        if longest in counts:
            fits = [run for run in runs if run[1] - run[0] == longest]
        else:
            fits = _in_quarters(moved, runs, counts, self.geometry.size)
        if len(fits) != 1:
            places = "several places" if fits else "no place"
            return f"an image of {' or '.join(map(str, counts))} tokens fits at {places} among {len(follows)}"
        if self.in_order is None:
            self.in_order = ordered(moved[slice(*fits[0])], self.geometry.size)
        return fits[0]

    def _text_start(self, words: Tensor, low: int, high: int) -> int | str:
        """Where a text begins between two bounds, some pads at its end maybe lost; a sentence where nothing tells.

        The first words are not disturbed, so that the place of the first disturbed one tells.
        """
        n, skipped = self.geometry.n_text, self.geometry.first_word
        at = words[low:high].nonzero().flatten() + low
        first, stop = int(at[0]), int(at[-1]) + 1
        if high - low == n:
            return low
        if stop - first == n or (first == low and stop == high):  # the text was mixed before
            return first
        pads_lost = stop == high and stop - first < n - skipped
        if first - skipped >= low and (stop - first == n - skipped or pads_lost):
            return first - skipped
        return f"a text of {n} tokens fits at no place among {len(words)}"


def _image_cut(span: Span, n: int, behind: bool) -> Cut:
    """Bounds of an image; behind the text they count from the end, as texts have lengths of their own."""
    first, stop = span
    if span == (0, n):
        return ALL
    return (first - n, stop - n or None) if behind else span


def _beside(image: Span | None, first: int, n: int) -> Span:
    """The room before or behind the image, whichever holds a position."""
    if image is None:
        return 0, n
    return (0, image[0]) if first < image[0] else (image[1], n)


def _runs(mask: Tensor) -> list[Span]:
    """Stretches of a mask in which it is true."""
    edges = torch.nn.functional.pad(mask.int(), (1, 1)).diff().nonzero().flatten().tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def _in_quarters(
    moved: Tensor, runs: Sequence[Span], counts: Sequence[int], size: tuple[int, int]
) -> list[Span]:
    """Places of the largest possible image within longer runs, where every quarter of it changes as it should."""
    longest = max(stop - start for start, stop in runs)
    n = max((count for count in counts if count < longest), default=longest)
    shares = {
        (start, start + n): share(moved[start : start + n], size) or 0
        for first, stop in runs
        for start in range(first, stop - n + 1)
    }
    best = max(shares.values())
    return [span for span, part in shares.items() if part == best >= _ORDERED]


def share(moved: Tensor, size: tuple[int, int]) -> float | None:
    """Share of image tokens that lie in their quarter if they come row by row; None where nothing tells.

    Args:
        moved: how much each token changes with the picture, (tokens,).
        size: height and width of the image.
    """
    height, width = rectangle(len(moved), size)
    if min(height, width) < 2:
        return None
    quarter, order = quarters(height, width).flatten(), moved.argsort()
    ends = quarter.bincount(minlength=4).cumsum(0)
    typical = [float(moved[part].median()) for part in order.tensor_split(ends[:-1])]
    if any(more <= _APART * less for less, more in pairwise(typical)):
        return None
    got = torch.empty_like(quarter)
    got[order] = quarter.sort().values
    return float((got == quarter).float().mean())


def ordered(moved: Tensor, size: tuple[int, int]) -> bool | None:
    """Whether image tokens come row by row; None where nothing tells."""
    part = share(moved, size)
    return None if part is None else part >= _ORDERED


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
