"""Which part of a block's output is image and which is text, decided from two calls that differ in the prompt.

In the first denoiser call both runs start from the same noise, so whatever differs at a block's input before text and
image have met is text. Later blocks are told by what they are given: their inputs are the outputs of earlier blocks,
value for value, or arguments of the same name in an earlier block of the same class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from t2iprobe.calibration.known import Known
from t2iprobe.calibration.maps import channels_last, usual_order
from t2iprobe.calibration.places import ordered, place
from t2iprobe.calibration.samples import Tokens, equal, likeness
from t2iprobe.calibration.streams import ALL, Geometry, Layout, Reading, bounds
from t2iprobe.calibration.trace import Event, Print
from t2iprobe.places import Stream

_PAD = 32
"""Some families pad image and text to a multiple of this."""


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
    if joint and n != known:
        return Layout(
            doubt=f"a joint stream of {n} tokens in place of {known} may have fewer of either stream"
        )
    return layout


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
    known: Known = field(default_factory=Known)
    by_argument: dict[tuple[str, str], tuple[int, Layout]] = field(default_factory=dict)
    by_item: dict[tuple[str, str], tuple[int, Layout]] = field(default_factory=dict)
    image_seen: list[int] = field(default_factory=list)
    mixed: bool = False
    blind: bool = False
    ended: list[tuple[str, int, Layout]] = field(default_factory=list)
    maps: bool = False
    n_alone: int | None = None
    in_order: bool | None = None
    usual: bool | None = None
    doubts: list[str] = field(default_factory=list)

    def run(
        self,
        first: Sequence[Event],
        second: Sequence[Event],
        double: Sequence[Event] | None,
        later: Sequence[Event] = (),
        moved: Sequence[Event] = (),
    ) -> dict[str, dict[Stream, Reading]]:
        """Readings by path and stream, in the order in which the sites run.

        Args:
            first: what the sites saw with one prompt.
            second: the same with another prompt.
            double: the same with both prompts in one batch; None where batches fail.
            later: the same with the first prompt in the next step, where that was watched.
            moved: the same with the first prompt on a changed picture, where that was watched.
        """
        if self.text is not None:
            self.known.add(self.text, Layout(text=ALL))
        maps = (one for event in first for one in event.tensors.values())
        self.usual = usual_order(maps, self.geometry.size)
        found: dict[str, dict[Stream, Reading]] = {}
        inputs: dict[str, dict[str, tuple[Tokens, Layout]]] = {}
        for index, event in enumerate(first):
            twice = double[index].tensors if double and index < len(double) else {}
            after, changed = (
                seen[index].tensors if index < len(seen) else {} for seen in (later, moved)
            )
            others = second[index].tensors
            tokens = {
                name: pair
                for name, one in event.tensors.items()
                if (
                    pair := self._pair(
                        one, others.get(name), twice.get(name), after.get(name), changed.get(name)
                    )
                )
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
                    changed,
                )
        return found

    def _pair(
        self,
        one: Print,
        other: Print | None,
        twice: Print | None,
        after: Print | None,
        changed: Print | None,
    ) -> Tokens | None:
        """Token samples of a tensor with a batch axis, a token axis and a channel axis."""
        if other is None or len(one.shape) != 3 or len(other.shape) != 3:
            return None
        axis = batch_axis(one.shape, twice.shape if twice else None, self.geometry)
        if axis is None or one.shape[1 - axis] < 2:
            return None
        row = self.geometry.row
        later, moved = (
            seen.row(row, axis) if seen and seen.shape == one.shape else None
            for seen in (after, changed)
        )
        return Tokens(one.row(row, axis), other.row(row, axis), axis, later, moved)

    def _inputs(self, event: Event, tokens: dict[str, Tokens]) -> dict[str, tuple[Tokens, Layout]]:
        labelled: dict[str, tuple[Tokens, Layout]] = {}
        for name, pair in tokens.items():
            key = (event.class_name, name)
            layout = self._given(key, pair)
            self.by_argument.setdefault(key, (pair.n, layout))
            labelled[name] = (pair, layout)
            self.known.add(pair.first, layout)
        return labelled

    def _given(self, key: tuple[str, str], pair: Tokens) -> Layout:
        """The layout of an argument: of a tensor seen before, of where the runs differ, or of parts seen before."""
        same = self.known.same(pair)
        if same is not None:
            return same
        if self.mixed or self.blind:
            return self._joined(pair) or self._as_before(key, pair) or self._from_prompts(pair)
        told = self._from_prompts(pair)
        return self._joined(pair) or self.known.with_text(pair, told) if told.doubt else told

    def _joined(self, pair: Tokens) -> Layout | None:
        return self.known.joined(pair, self.geometry.n_text)

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

    def _from_prompts(self, pair: Tokens) -> Layout:
        """The layout of a tensor from where the runs differ; once all differs, from its number of tokens."""
        counts, n_text = self._counts(), self.geometry.n_text
        if self.mixed and pair.n in counts:  # text would be known, or an argument of the same name
            return Layout(image=ALL)
        if pair.still():
            return Layout()
        if self.blind:
            return Layout(text=ALL) if pair.n == n_text else Layout()
        if pair.same() and self.n_alone not in (None, pair.n):
            return Layout()  # tokens keep their number; what has another is learned
        if not counts:
            return self._beside_vector(pair)
        layout = place(pair, counts, self.geometry)
        if pair.same() and layout.image:
            first, stop = bounds(layout.image, pair.n)
            self.image_seen.append(stop - first)
            self.n_alone = None if self.maps or layout.image != ALL else pair.n
        if layout.image and self.in_order is None:
            change = pair.change()[slice(*layout.image)]
            self.in_order = ordered(change, self.geometry.size)
        return layout

    def _beside_vector(self, pair: Tokens) -> Layout:
        """The layout of a tensor of a prior: what it denoises is a vector among the tokens."""
        if pair.same():
            self.image_seen.append(pair.n)
            self.n_alone = pair.n
            return Layout(image=ALL)
        n_text, trailing = self.geometry.n_text, pair.trailing()
        if pair.n > n_text and trailing:
            return Layout((-trailing, None), (0, n_text or -trailing))
        return Layout(text=ALL) if pair.n == n_text else Layout()

    def _outputs(
        self,
        event: Event,
        partner: Event,
        tokens: dict[str, Tokens],
        inputs: dict[str, tuple[Tokens, Layout]],
        later: Sequence[Event],
        twice: Mapping[str, Print],
        moved: Mapping[str, Print],
    ) -> dict[Stream, Reading]:
        readings: dict[Stream, Reading] = {}
        for name, one in event.tensors.items():
            other = partner.tensors.get(name)
            if len(one.shape) >= 4 and other is not None and other.shape == one.shape:
                double = twice[name].shape if name in twice else None
                axis = batch_axis(one.shape, double, self.geometry)
                if axis == 0:
                    self._map(name, one, other, moved.get(name), readings)
            elif name in tokens:
                pair = tokens[name]
                layout = self._output_layout(event, name, pair, inputs, later)
                self.by_item.setdefault((event.class_name, name), (pair.n, layout))
                self.known.add(pair.first, layout)
                self.ended.append((event.path, pair.n, layout))
                self._doubt(layout.doubt)
                if layout.image:
                    cut = slice(*layout.image)
                    shape = (len(range(pair.n)[cut]), one.shape[-1])
                    readings.setdefault("image", Reading(name, pair.axis, layout.image, shape))
                    self.mixed |= not equal(pair.first[cut], pair.second[cut])
                if layout.text:
                    shape = (len(range(pair.n)[slice(*layout.text)]), one.shape[-1])
                    readings.setdefault("text", Reading(name, pair.axis, layout.text, shape))
        return readings

    def _map(
        self,
        name: str,
        one: Print,
        other: Print,
        moved: Print | None,
        readings: dict[Stream, Reading],
    ) -> None:
        """Read a feature map, batch axis first, as image."""
        tokens = [sample for sample, layout in self.known.seen if layout.image == ALL]
        row, size = self.geometry.row, self.geometry.size
        last = channels_last(one, moved, row, size, self.usual, tokens)
        shape = (one.shape[-1], *one.shape[1:-1]) if last else one.shape[1:]
        if last is None:
            self._doubt(f"channels and sides of a map {shape} cannot be told apart")
        else:
            readings.setdefault("image", Reading(name, 0, None, shape, last))
        self.image_seen.append(shape[-2] * shape[-1])
        self.maps, self.n_alone = True, None
        self.mixed |= not torch.equal(one.row(row), other.row(row))

    def told(self) -> list[str]:
        """Sentences about what is left out."""
        order = "image tokens do not come row by row; their grid is left out"
        doubts = [f"{doubt}; it is left out" for doubt in self.doubts]
        return doubts if self.in_order is not False else [*doubts, order]

    def _doubt(self, doubt: str) -> None:
        if doubt and doubt not in self.doubts:
            self.doubts.append(doubt)

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
