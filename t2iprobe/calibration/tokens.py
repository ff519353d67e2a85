"""Where a prompt's words are among the tokens a text encoder really got, and where those are in what the denoiser gets.

The ids come from the encoder's own embedding, so templates, instructions, padding on either side and cut prompts are
seen as they are. The prompt is found by its characters, whitespace and case left out: "a red" apart from " a red" is
tokenized differently, but spells the same.
"""

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

from t2iprobe.calibration.observe import EncoderPass, Print

Span = tuple[int, int]


@dataclass(frozen=True)
class PromptTokens:
    """A prompt inside a row of token ids.

    Attributes:
        positions: token positions of the prompt's own words, in order; specials, templates and pads left out.
        characters: for each position the (start, end) characters of the prompt it stands for.
        eot: position of the token that closes the prompt, or of its last word where nothing does.
        truncated: whether the encoder got only a part of the prompt.
        length: tokens of the whole row: where the prompt was cut, the encoder's limit.
    """

    positions: tuple[int, ...]
    characters: tuple[Span, ...]
    eot: int
    truncated: bool
    length: int = 0
    _spans: dict[Span, tuple[int, ...] | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def span(self, characters: Span) -> tuple[int, ...] | None:
        """Token positions of a character span of the prompt; None when any of it was cut off."""
        if characters not in self._spans:
            self._spans[characters] = self._span(characters)
        return self._spans[characters]

    def _span(self, characters: Span) -> tuple[int, ...] | None:
        if not self.characters or self.characters[-1][1] < characters[1]:
            return None
        start, end = characters
        first = bisect.bisect_right(self.characters, start, key=lambda own: own[1])
        behind = bisect.bisect_left(self.characters, end, key=lambda own: own[0])
        return self.positions[first:behind]


@lru_cache(maxsize=10_000)
def _spelled(text: str) -> tuple[str, tuple[int, ...]]:
    """Lower-case characters without whitespace, and where each was in the text."""
    kept = [(c.lower() if len(c.lower()) == 1 else c, i) for i, c in enumerate(text) if c.strip()]
    return "".join(c for c, _ in kept), tuple(i for _, i in kept)


class TokenReader:
    """Finds prompts in rows of token ids of one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}
        self._found: dict[tuple[tuple[int, ...], str], PromptTokens | None] = {}
        self._alone: dict[str, tuple[list[int], list[Span]] | None] = {}

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            text = self._tokenizer.decode([token], skip_special_tokens=False)
            spelled, _ = _spelled(text)
            self._pieces[token] = spelled.removeprefix("##") or spelled
        return self._pieces[token]

    def find(self, ids: Sequence[int], prompt: str) -> PromptTokens | None:
        """The prompt in a row of ids, whole or cut at the end; None when the row is of another text."""
        key = (tuple(ids), prompt)
        if key not in self._found:
            if len(self._found) > 10_000:
                self._found.clear()
            self._found[key] = self._by_spelling(key[0], prompt) or self._by_ids(key[0], prompt)
        return self._found[key]

    def _by_spelling(self, ids: tuple[int, ...], prompt: str) -> PromptTokens | None:
        wanted, origin = _spelled(prompt)
        pieces = [self._piece(token) for token in ids]
        starts = [0]
        for piece in pieces:
            starts.append(starts[-1] + len(piece))
        text = "".join(pieces)
        n, at = len(wanted), text.rfind(wanted)
        if at < 0:
            n = bisect.bisect_left(
                range(len(wanted)), True, key=lambda k: wanted[: k + 1] not in text
            )
            at = text.rfind(wanted[:n])
        if not n or not wanted:
            return None
        positions, characters = [], []
        for index, piece in enumerate(pieces):
            first, last = max(starts[index], at), min(starts[index + 1], at + n)
            if piece and first < last:
                positions.append(index)
                characters.append((origin[first - at], origin[last - at - 1] + 1))
        truncated = n < len(wanted)
        if truncated and (len(ids) - 1 - positions[-1] > 2 or n < 8):
            return None
        eot = self._eot(ids, positions[-1])
        return PromptTokens(tuple(positions), tuple(characters), eot, truncated, len(ids))

    def _by_ids(self, ids: tuple[int, ...], prompt: str) -> PromptTokens | None:
        """For text that the tokenizer rewrites (accents, unknown words): the ids of the prompt alone in the row."""
        alone = self._tokenize_alone(prompt)
        if alone is None or not alone[0]:
            return None
        tokens, offsets = alone
        for n in (len(tokens), *range(len(tokens) - 1, 3, -1)):
            for at in range(len(ids) - n, -1, -1):
                if list(ids[at : at + n]) == tokens[:n]:
                    last = at + n - 1
                    if n < len(tokens) and len(ids) - 1 - last > 2:
                        continue
                    positions = tuple(range(at, at + n))
                    cut = n < len(tokens)
                    eot = self._eot(ids, last)
                    return PromptTokens(positions, tuple(offsets[:n]), eot, cut, len(ids))
        return None

    def _tokenize_alone(self, prompt: str) -> tuple[list[int], list[Span]] | None:
        if prompt not in self._alone:
            self._alone[prompt] = None
            if getattr(self._tokenizer, "is_fast", False):
                got = self._tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)
                offsets = [(int(a), int(b)) for a, b in got["offset_mapping"]]
                self._alone[prompt] = (list(got["input_ids"]), offsets)
        return self._alone[prompt]

    def _eot(self, ids: tuple[int, ...], last: int) -> int:
        following = last + 1
        if following >= len(ids):
            return last
        pad = getattr(self._tokenizer, "pad_token_id", None)
        eos = getattr(self._tokenizer, "eos_token_id", None)
        return last if ids[following] == pad and pad != eos else following


@dataclass(frozen=True)
class Segment:
    """Tokens of an encoder inside the denoiser's text states: state position = token position + shift.

    Attributes:
        encoder: component name.
        first: first token position that is handed on; earlier ones (a template) are dropped.
        shift: what is added to a token position.
        path: the encoder's layer that is handed on.
    """

    encoder: str
    first: int
    shift: int
    path: str = ""


def match_segments(states: Print, passes: Mapping[str, Sequence[EncoderPass]]) -> list[Segment]:
    """Where each encoder's tokens are among the text states, found by equal values.

    Encoders whose tokens do not appear (they give a pooled vector only, or stand behind another one in the channels)
    have no segment.

    Args:
        states: text states of one prompt, (tokens, channels).
        passes: what the encoders did in the same call.
    """
    if len(states.shape) != 2:
        return []
    segments = []
    for name, own in passes.items():
        best = (2, 0, 0)
        found: tuple[str, torch.Tensor] | None = None
        for given in own:
            for path, ids, row in _encoded(given):
                match = _diagonal(row, states.sample)
                if match[0] > best[0]:
                    best, found = match, (path, ids)
        if found:
            path, ids = found
            before = ids[: best[1]]
            pads = len(before) > 0 and bool(
                (before == before[0]).all()
            )  # of this prompt, no template
            segments.append(Segment(name, 0 if pads else best[1], best[2], path))
    return segments


def _encoded(given: EncoderPass) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """(site, token ids, states) of every row of every output of a pass with one state per token."""
    table = given.ids.reshape(-1, given.ids.shape[-1])
    for event in given.events:
        for one in event.tensors.values():
            if len(one.shape) != 3 or table.shape[1] not in one.shape[:2]:
                continue
            rows = one.sample.unbind(0 if one.shape[1] == table.shape[1] else 1)
            for ids, row in zip(table, rows, strict=False):
                yield event.path, ids, row


def _diagonal(tokens: torch.Tensor, states: torch.Tensor) -> tuple[int, int, int]:
    """(number of matches, first matching token, shift) of the shift at which most tokens equal the states."""
    channels = min(tokens.shape[-1], states.shape[-1])
    a, b = tokens[:, None, :channels], states[None, :, :channels]
    scale = tokens.abs().mean().clamp_min(1e-6)
    equal = ((a - b).abs().amax(-1) <= 1e-2 * scale) & (a.abs().amax(-1) > 0)
    where = equal.nonzero()
    if not len(where):
        return (0, 0, 0)
    shifts, counts = torch.unique(where[:, 1] - where[:, 0], return_counts=True)
    top = int(counts.argmax())
    shift = int(shifts[top])
    first = int(where[where[:, 1] - where[:, 0] == shift][:, 0].min())
    return (int(counts[top]), first, shift)
