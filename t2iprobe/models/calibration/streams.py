"""Which part of a block's output is image and which is text, decided from two calls that differ in the prompt.

In the first denoiser call both runs start from the same noise, so whatever differs at a block's input before text and
image have met is text. Later blocks are told by what they are given: their inputs are the outputs of earlier blocks,
value for value, or arguments of the same name in an earlier block of the same class.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from t2iprobe.models.calibration.grid import channels_are_last
from t2iprobe.models.calibration.trace import Event, Print
from t2iprobe.models.sites import Stream

Cut = tuple[int | None, int | None]


@dataclass(frozen=True)
class Layout:
    """Token positions of each stream in one tensor, as slice bounds; None where a stream is not in it."""

    image: Cut | None = None
    text: Cut | None = None


ALL: Cut = (None, None)

_PAD = 32
"""Some families pad image and text to a multiple of this."""


def _bounds(cut: Cut, n: int) -> tuple[int, int]:
    """First and one past the last position of a cut of n positions."""
    first, last, _ = slice(*cut).indices(n)
    return first, last


@dataclass(frozen=True)
class Reading:
    """How a stream is read from a site's output.

    Attributes:
        item: name of the tensor in the output ("" when the output is a tensor).
        axis: batch axis.
        cut: token positions; None for a feature map (rows, channels, height, width).
        shape: of the stream for one image: (tokens, width) or (channels, height, width).
        channels_last: whether a feature map has its channels behind height and width.
    """

    item: str
    axis: int
    cut: Cut | None
    shape: tuple[int, ...] = ()
    channels_last: bool = False


@dataclass(frozen=True)
class Geometry:
    """Sizes that a call is known to have.

    Attributes:
        image_counts: possible numbers of image tokens, likeliest first.
        n_text: number of text tokens the denoiser is given; 0 when it gets none.
        rows: rows of the batch.
        row: the conditional row.
        text_leading: text tokens at the front that are the same for both prompts.
        double_rows: rows of the batch for two prompts; None where batches fail.
        size: height and width of the image.
    """

    image_counts: tuple[int, ...]
    n_text: int
    rows: int
    row: int
    text_leading: int
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


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def equal_start(one: Tensor, other: Tensor) -> int:
    """How many positions at the front of two (tokens, channels) samples are equal."""
    n = min(one.shape[0], other.shape[0])
    differs = (one[:n] != other[:n]).any(-1).nonzero()
    return int(differs[0]) if len(differs) else n


@dataclass
class _Tokens:
    """One token tensor in both runs: (tokens, channels) samples of its conditional row."""

    first: Tensor
    second: Tensor
    axis: int

    @property
    def n(self) -> int:
        return int(self.first.shape[0])

    def leading(self) -> int:
        """How many positions at the front are equal in both runs."""
        return equal_start(self.first, self.second)

    def trailing(self) -> int:
        """How many positions at the end are equal in both runs."""
        return equal_start(self.first.flip(0), self.second.flip(0))

    def same(self) -> bool:
        return _equal(self.first, self.second)


@dataclass
class Labeller:
    """Labels the sites of one denoiser from one conditional call in two runs.

    `text` is the sample of the text states that the denoiser is given. `mixed` says that text has reached the image,
    as it may do early through a pooled vector: from then on what differs between the runs tells nothing.
    """

    geometry: Geometry
    text: Tensor | None = None
    known: list[tuple[Tensor, Layout]] = field(default_factory=list)
    by_argument: dict[tuple[str, str], Layout] = field(default_factory=dict)
    by_item: dict[tuple[str, str], Layout] = field(default_factory=dict)
    image_seen: list[int] = field(default_factory=list)
    mixed: bool = False

    def run(
        self, first: Sequence[Event], second: Sequence[Event], double: Sequence[Event] | None
    ) -> dict[str, dict[Stream, Reading]]:
        """Readings by path and stream, in the order in which the sites run.

        Args:
            first: what the sites saw with one prompt.
            second: the same with another prompt.
            double: the same with both prompts in one batch; None where batches fail.
        """
        if self.text is not None:
            self.known.append((self.text, Layout(text=ALL)))
        found: dict[str, dict[Stream, Reading]] = {}
        inputs: dict[str, dict[str, tuple[_Tokens, Layout]]] = {}
        for index, event in enumerate(first):
            twice = double[index].tensors if double and index < len(double) else {}
            tokens = {
                name: pair
                for name, one in event.tensors.items()
                if (pair := self._pair(one, second[index].tensors.get(name), twice.get(name)))
            }
            if event.kind == "in":
                inputs[event.path] = self._inputs(event, tokens)
            elif event.path not in found:
                found[event.path] = self._outputs(
                    event,
                    second[index],
                    tokens,
                    inputs.get(event.path, {}),
                    first[index + 1 :],
                    twice,
                )
        return found

    def _pair(self, one: Print, other: Print | None, twice: Print | None) -> _Tokens | None:
        """Token samples of a tensor with a batch axis, a token axis and a channel axis."""
        if other is None or len(one.shape) != 3 or len(other.shape) != 3:
            return None
        axis = batch_axis(one.shape, twice.shape if twice else None, self.geometry)
        if axis is None or one.shape[1 - axis] < 2:
            return None
        row = self.geometry.row
        return _Tokens(one.row(row, axis), other.row(row, axis), axis)

    def _inputs(
        self, event: Event, tokens: dict[str, _Tokens]
    ) -> dict[str, tuple[_Tokens, Layout]]:
        labelled: dict[str, tuple[_Tokens, Layout]] = {}
        for name, pair in tokens.items():
            key = (event.class_name, name)
            before = self.by_argument.get(key) if self.mixed else None
            layout = self._from_known(pair) or before or self._from_prompts(pair)
            self.by_argument.setdefault(key, layout)
            labelled[name] = (pair, layout)
            self.known.append((pair.first, layout))
        return labelled

    def _from_known(self, pair: _Tokens) -> Layout | None:
        """The layout of a tensor that is an earlier one, or an earlier text and an earlier image joined."""
        for sample, layout in reversed(self.known):
            if _equal(sample, pair.first):
                return layout
        for sample, layout in reversed(self.known):
            n = sample.shape[0]
            if n >= pair.n or layout.text is not None or layout.image is None:
                continue
            first, last = _bounds(layout.image, n)
            if _equal(sample, pair.first[:n]):
                return Layout((first, last), self._known_text(pair.first[n:], n, pair.n))
            if _equal(sample, pair.first[-n:]):
                at = pair.n - n
                image = (first - n, last - n or None)
                return Layout(image, self._known_text(pair.first[:at], 0, pair.n))
        return None

    def _known_text(self, part: Tensor, start: int, total: int) -> Cut:
        """Where the text is in a part of a joint stream; the bound on the image's side counts from the end."""
        first, last = 0, part.shape[0]
        for sample, layout in reversed(self.known):
            if layout.text is not None and layout.image is None and _equal(sample, part):
                first, last = _bounds(layout.text, part.shape[0])
                break
        stop = start + last
        return (start + first, stop - total or None)

    def _from_prompts(self, pair: _Tokens) -> Layout:
        """The layout of a tensor from where the runs differ; once all differs, from its number of tokens."""
        counts = tuple(dict.fromkeys((*self.image_seen, *self.geometry.image_counts)))
        if (
            self.mixed and pair.n in counts
        ):  # text itself would be known, or be an argument of the same name
            return Layout(image=ALL)
        if pair.same():
            return self._image_alone(pair.n, counts)
        n_text = self.geometry.n_text
        leading, trailing = pair.leading(), pair.trailing()
        exact = [n for n in counts if pair.n == n + n_text]  # pads and registers apart
        for n in (*exact, *(n for n in counts if pair.n > n + n_text)):
            before, behind = n <= leading, n <= trailing
            if (
                before and behind
            ):  # pads are equal too: the words must begin where they begin in the text alone
                own = self.geometry.text_leading
                before = abs(leading - n - own) < abs(leading - (pair.n - n - n_text) - own)
            elif not before and not behind:
                continue
            if before:
                return Layout((0, n), (pair.n - n_text, None))
            return Layout((-n, None), self._text_within(leading, pair.n - n, pair.n))
        if (
            not counts and pair.n > n_text and trailing
        ):  # a prior: what it denoises is a vector among the tokens
            return Layout((-trailing, None), (0, n_text or -trailing))
        return Layout(text=self._text_within(leading, pair.n, pair.n))

    def _image_alone(self, n: int, counts: Sequence[int]) -> Layout:
        """The layout of a tensor that does not depend on the prompt: image, perhaps padded, or nothing of interest."""
        if n in counts or not counts:
            self.image_seen.append(n)
            return Layout(image=ALL)
        padded = next((c for c in counts[:2] if c < n and -c % _PAD == n - c), None)
        if padded is None:
            return Layout()
        self.image_seen.append(padded)
        return Layout(image=(0, padded))

    def _text_within(self, leading: int, n: int, total: int) -> Cut:
        """Where the text states are among n positions: behind registers, which no prompt changes, or before pads."""
        extra = n - self.geometry.n_text
        if not self.geometry.n_text or extra <= 0:
            return (0, n - total or None)
        if leading >= extra:
            return (extra, n - total or None)
        return (0, self.geometry.n_text)

    def _outputs(
        self,
        event: Event,
        partner: Event,
        tokens: dict[str, _Tokens],
        inputs: dict[str, tuple[_Tokens, Layout]],
        later: Sequence[Event],
        twice: dict[str, Print],
    ) -> dict[Stream, Reading]:
        readings: dict[Stream, Reading] = {}
        for name, one in event.tensors.items():
            other = partner.tensors.get(name)
            if len(one.shape) >= 4 and other is not None and other.shape == one.shape:
                double = twice[name].shape if name in twice else None
                axis = batch_axis(one.shape, double, self.geometry)
                if axis == 0:
                    last = channels_are_last(one.shape, self.geometry.size)
                    shape = (one.shape[-1], *one.shape[1:-1]) if last else one.shape[1:]
                    self.image_seen.append(shape[-2] * shape[-1])
                    readings.setdefault("image", Reading(name, 0, None, shape, last))
                    self.mixed |= not torch.equal(
                        one.row(self.geometry.row), other.row(self.geometry.row)
                    )
            elif name in tokens:
                pair = tokens[name]
                layout = self._output_layout(event, name, pair, inputs, later)
                self.by_item.setdefault((event.class_name, name), layout)
                self.known.append((pair.first, layout))
                if layout.image:
                    cut = slice(*layout.image)
                    shape = (len(range(pair.n)[cut]), one.shape[-1])
                    readings.setdefault("image", Reading(name, pair.axis, layout.image, shape))
                    self.mixed |= not _equal(pair.first[cut], pair.second[cut])
                if layout.text:
                    shape = (len(range(pair.n)[slice(*layout.text)]), one.shape[-1])
                    readings.setdefault("text", Reading(name, pair.axis, layout.text, shape))
        return readings

    def _output_layout(
        self,
        event: Event,
        name: str,
        pair: _Tokens,
        inputs: dict[str, tuple[_Tokens, Layout]],
        later: Sequence[Event],
    ) -> Layout:
        fits = [(given, layout) for given, layout in inputs.values() if given.n == pair.n]
        if len({layout for _, layout in fits}) == 1:
            return fits[0][1]
        for other in later:
            if other.kind != "in":
                continue
            for argument, one in other.tensors.items():
                key = (other.class_name, argument)
                same = one.shape and len(one.shape) == 3 and key in self.by_argument
                if same and _equal(one.row(self.geometry.row, pair.axis), pair.first):
                    return self.by_argument[key]
        if (event.class_name, name) in self.by_item:
            return self.by_item[event.class_name, name]
        if fits:  # a block adds to its streams: the output is most like the input of its own stream
            return max(fits, key=lambda fit: _likeness(fit[0].first, pair.first))[1]
        return self._from_prompts(pair)


def _likeness(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        return -1.0
    return float(torch.cosine_similarity(one.flatten(), other.flatten(), dim=0))
