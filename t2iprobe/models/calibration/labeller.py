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
from t2iprobe.models.calibration.samples import Tokens, equal, likeness
from t2iprobe.models.calibration.streams import ALL, Cut, Geometry, Layout, Reading
from t2iprobe.models.calibration.trace import Event, Print
from t2iprobe.models.sites import Stream

_PAD = 32
"""Some families pad image and text to a multiple of this."""


def _bounds(cut: Cut, n: int) -> tuple[int, int]:
    """First and one past the last position of a cut of n positions."""
    first, last, _ = slice(*cut).indices(n)
    return first, last


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


def _for_number(before: tuple[int, Layout], n: int) -> Layout:
    """A layout that was found for a number of tokens, for n tokens in a block of the same class.

    A joint stream of another number has fewer of either, as in the middle of an hourglass: nothing tells of which.
    """
    known, layout = before
    joint = layout.image is not None and layout.text is not None
    return Layout() if joint and n != known else layout


@dataclass
class Labeller:
    """Labels the sites of one denoiser from one conditional call in two runs.

    `text` is the sample of the text states that the denoiser is given. `mixed` says that text has reached the image,
    as it may do early through a pooled vector: from then on what differs between the runs tells nothing. `blind` says
    that it had before the denoiser was first called, as where a second denoiser goes on with the picture of another:
    then only the numbers of tokens tell, and what they do not tell is left out.
    """

    geometry: Geometry
    text: Tensor | None = None
    known: list[tuple[Tensor, Layout]] = field(default_factory=list)
    by_argument: dict[tuple[str, str], tuple[int, Layout]] = field(default_factory=dict)
    by_item: dict[tuple[str, str], tuple[int, Layout]] = field(default_factory=dict)
    image_seen: list[int] = field(default_factory=list)
    mixed: bool = False
    blind: bool = False
    ended: list[tuple[str, int, Layout]] = field(default_factory=list)
    maps: bool = False
    n_alone: int | None = None

    def run(
        self,
        first: Sequence[Event],
        second: Sequence[Event],
        double: Sequence[Event] | None,
        later: Sequence[Event] = (),
    ) -> dict[str, dict[Stream, Reading]]:
        """Readings by path and stream, in the order in which the sites run.

        Args:
            first: what the sites saw with one prompt.
            second: the same with another prompt.
            double: the same with both prompts in one batch; None where batches fail.
            later: the same with the first prompt in the next step, where that was watched.
        """
        if self.text is not None:
            self.known.append((self.text, Layout(text=ALL)))
        found: dict[str, dict[Stream, Reading]] = {}
        inputs: dict[str, dict[str, tuple[Tokens, Layout]]] = {}
        for index, event in enumerate(first):
            twice = double[index].tensors if double and index < len(double) else {}
            after = later[index].tensors if index < len(later) else {}
            others = second[index].tensors
            tokens = {
                name: pair
                for name, one in event.tensors.items()
                if (pair := self._pair(one, others.get(name), twice.get(name), after.get(name)))
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

    def _pair(
        self, one: Print, other: Print | None, twice: Print | None, after: Print | None
    ) -> Tokens | None:
        """Token samples of a tensor with a batch axis, a token axis and a channel axis."""
        if other is None or len(one.shape) != 3 or len(other.shape) != 3:
            return None
        axis = batch_axis(one.shape, twice.shape if twice else None, self.geometry)
        if axis is None or one.shape[1 - axis] < 2:
            return None
        row = self.geometry.row
        later = after.row(row, axis) if after and after.shape == one.shape else None
        return Tokens(one.row(row, axis), other.row(row, axis), axis, later)

    def _inputs(self, event: Event, tokens: dict[str, Tokens]) -> dict[str, tuple[Tokens, Layout]]:
        labelled: dict[str, tuple[Tokens, Layout]] = {}
        for name, pair in tokens.items():
            key = (event.class_name, name)
            layout = (
                self._from_known(pair) or self._as_before(key, pair) or self._from_prompts(pair)
            )
            self.by_argument.setdefault(key, (pair.n, layout))
            labelled[name] = (pair, layout)
            self.known.append((pair.first, layout))
        return labelled

    def _as_before(self, key: tuple[str, str], pair: Tokens) -> Layout | None:
        """The layout of an argument in an earlier block of the same class, once the runs tell nothing any more.

        Blocks for the image alone and for the text alone may be of one class: an image has a number of tokens that
        images have.
        """
        before = self.by_argument.get(key) if self.mixed else None
        layout = _for_number(before, pair.n) if before else None
        if layout == Layout(image=ALL) and pair.n not in self._counts():
            return None
        return layout

    def _counts(self) -> tuple[int, ...]:
        """Numbers of tokens that images have, those that were seen first."""
        return tuple(dict.fromkeys((*self.image_seen, *self.geometry.image_counts)))

    def _from_known(self, pair: Tokens) -> Layout | None:
        """The layout of a tensor that is an earlier one, or an earlier text and an earlier image joined."""
        for sample, layout in reversed(self.known):
            if equal(sample, pair.first):
                return layout
        for sample, layout in reversed(self.known):
            n = sample.shape[0]
            if n >= pair.n or layout.text is not None or layout.image is None:
                continue
            first, last = _bounds(layout.image, n)
            if equal(sample, pair.first[:n]):
                return Layout((first, last), self._known_text(pair.first[n:], n, pair.n))
            if equal(sample, pair.first[-n:]):
                at = pair.n - n
                image = (first - n, last - n or None)
                return Layout(image, self._known_text(pair.first[:at], 0, pair.n))
        return None

    def _known_text(self, part: Tensor, start: int, total: int) -> Cut | None:
        """Where the text is in a part of a joint stream; the bound on the image's side counts from the end.

        None where that part is what learned queries have gathered from the text: their number is not that of words.
        """
        first, last = 0, part.shape[0]
        for sample, layout in reversed(self.known):
            if layout == Layout() and equal(sample, part):
                return None
            if layout.text is not None and layout.image is None and equal(sample, part):
                first, last = _bounds(layout.text, part.shape[0])
                break
        stop = start + last
        return (start + first, stop - total or None)

    def _from_prompts(self, pair: Tokens) -> Layout:
        """The layout of a tensor from where the runs differ; once all differs, from its number of tokens."""
        counts = self._counts()
        if self.mixed and pair.n in counts:  # text would be known, or an argument of the same name
            return Layout(image=ALL)
        if pair.still():
            return Layout()
        if self.blind:
            return Layout(text=ALL) if pair.n == self.geometry.n_text else Layout()
        if pair.same():
            return self._image_alone(pair.n, counts)
        n_text = self.geometry.n_text
        leading, trailing = pair.leading(), pair.trailing()
        exact = [n for n in counts if pair.n == n + n_text]  # pads and registers apart
        for n in (*exact, *(n for n in counts if pair.n > n + n_text)):
            before, behind = n <= leading, n <= trailing
            if before and behind:  # pads too: words must begin where they begin in the text alone
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
        if self.n_alone not in (None, n):  # tokens keep their number; what has another is learned
            return Layout()
        if n in counts or not counts:
            self.image_seen.append(n)
            self.n_alone = None if self.maps else n
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
        tokens: dict[str, Tokens],
        inputs: dict[str, tuple[Tokens, Layout]],
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
                    self.maps, self.n_alone = True, None
                    readings.setdefault("image", Reading(name, 0, None, shape, last))
                    self.mixed |= not torch.equal(
                        one.row(self.geometry.row), other.row(self.geometry.row)
                    )
            elif name in tokens:
                pair = tokens[name]
                layout = self._output_layout(event, name, pair, inputs, later)
                self.by_item.setdefault((event.class_name, name), (pair.n, layout))
                self.known.append((pair.first, layout))
                self.ended.append((event.path, pair.n, layout))
                if layout.image:
                    cut = slice(*layout.image)
                    shape = (len(range(pair.n)[cut]), one.shape[-1])
                    readings.setdefault("image", Reading(name, pair.axis, layout.image, shape))
                    self.mixed |= not equal(pair.first[cut], pair.second[cut])
                if layout.text:
                    shape = (len(range(pair.n)[slice(*layout.text)]), one.shape[-1])
                    readings.setdefault("text", Reading(name, pair.axis, layout.text, shape))
        return readings

    def _output_layout(
        self,
        event: Event,
        name: str,
        pair: Tokens,
        inputs: dict[str, tuple[Tokens, Layout]],
        later: Sequence[Event],
    ) -> Layout:
        fits = [(given, layout) for given, layout in inputs.values() if given.n == pair.n]
        if len({layout for _, layout in fits}) == 1:
            return fits[0][1]
        inside = [
            own for at, n, own in self.ended if at.startswith(f"{event.path}.") and n == pair.n
        ]
        if inside and not fits:  # a part that holds blocks gives what the last of them gave
            return inside[-1]
        for other in later:
            if other.kind != "in":
                continue
            for argument, one in other.tensors.items():
                key = (other.class_name, argument)
                same = one.shape and len(one.shape) == 3 and key in self.by_argument
                if same and equal(one.row(self.geometry.row, pair.axis), pair.first):
                    return _for_number(self.by_argument[key], pair.n)
        if (event.class_name, name) in self.by_item:
            return _for_number(self.by_item[event.class_name, name], pair.n)
        if fits:  # a block adds to its streams: the output is most like the input of its own stream
            return max(fits, key=lambda fit: likeness(fit[0].first, pair.first))[1]
        return self._from_prompts(pair)
