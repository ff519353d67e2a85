"""Tensors that were told before, found again in later ones: whole, joined, or moved by a vector."""

from dataclasses import dataclass, field

from torch import Tensor

from t2iprobe.calibration.samples import Tokens, equal, found_at
from t2iprobe.calibration.streams import Cut, Layout, bounds


@dataclass
class Known:
    """Samples of token tensors with their layouts, in the order in which they were seen."""

    seen: list[tuple[Tensor, Layout]] = field(default_factory=list)

    def add(self, sample: Tensor, layout: Layout) -> None:
        """Keep a sample."""
        self.seen.append((sample, layout))

    def same(self, pair: Tokens) -> Layout | None:
        """The layout of a tensor that is an earlier one, value for value."""
        same = (layout for sample, layout in reversed(self.seen) if equal(sample, pair.first))
        return next(same, None)

    def joined(self, pair: Tokens, n_text: int) -> Layout | None:
        """The layout of an earlier text and an earlier image joined; of several images the largest."""
        alone = [own for own in reversed(self.seen) if own[1].image and not own[1].text]
        for sample, layout in sorted(alone, key=lambda own: -own[0].shape[0]):
            n = sample.shape[0]
            if n >= pair.n or not layout.image:
                continue
            first, last = bounds(layout.image, n)
            if equal(sample, pair.first[:n]):
                return self._text_within(pair, (n, pair.n), (first, last), n_text)
            if equal(sample, pair.first[-n:]):
                image = (first - n, last - n or None)
                return self._text_within(pair, (0, pair.n - n), image, n_text)
        return None

    def _text_within(self, pair: Tokens, span: tuple[int, int], image: Cut, n_text: int) -> Layout:
        """The layout of a joint stream whose text is within a span; bounds behind it count from the end.

        There is none where that part is what learned queries have gathered from the text: their number is not that of
        words.
        """
        start, stop = span
        part, n = pair.first[start:stop], stop - start
        for sample, layout in reversed(self.seen):
            own = min(sample.shape[0], n)  # pads may have been cut off
            if layout.image or not (layout.text or sample.shape[0] == n):
                continue
            for at in (0, n - own):
                if equal(sample[:own], part[at : at + own]):
                    if not layout.text:
                        return Layout(image)
                    first, last = (start + at + bound for bound in bounds(layout.text, own))
                    return Layout(image, (first, last - pair.n or None))
        if n_text in (0, n):
            return Layout(image, (start, stop - pair.n or None))
        return Layout(image, doubt=f"the text among {n} tokens beside the image cannot be told")

    def with_text(self, pair: Tokens, told: Layout) -> Layout:
        """A layout in which the text was not told, with an earlier text that is found in a tensor without an image."""
        if pair.moved is None or pair.follows().any():
            return told
        for sample, layout in reversed(self.seen):
            if layout.text and not layout.image:
                at = found_at(sample, pair.first)
                if at is not None:
                    first, _ = bounds(layout.text, sample.shape[0])
                    return Layout(text=(at + first, None))
        return told
