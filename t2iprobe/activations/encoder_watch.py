"""Reading one text encoder during one batch: only the passes and the rows that are the prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from t2iprobe.activations.pooled_values import PooledValues, pool_tokens
from t2iprobe.activations.pooling import text_rows, text_weights
from t2iprobe.calibration.result import Reading, pick
from t2iprobe.calibration.tokens import PromptTokens, Span, TokenReader
from t2iprobe.places import Site


@dataclass(frozen=True)
class BatchTexts:
    """The prompts of a batch, characters of each constituent in each, and names of the text poolings."""

    prompts: list[str]
    spans: list[dict[str, Span]]
    names: list[str]


class EncoderWatch:
    """One text encoder in one batch.

    The encoder may get all prompts in one pass, one prompt a pass, or prompts and negative prompts together, in any
    order: rows are matched with prompts by their token ids.

    Attributes:
        tokens: for each prompt where its words are; None while the encoder has not been given it.
    """

    def __init__(self, reader: TokenReader, texts: BatchTexts, pooled: PooledValues) -> None:
        self._reader, self._texts, self._pooled = reader, texts, pooled
        self.tokens: list[PromptTokens | None] = [None] * len(texts.prompts)
        self._rows: list[tuple[int, int]] = []  # (row of the pass, prompt)
        self._weights: Tensor | None = None

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Match the rows of ids that the token embedding is given with the prompts of the batch."""
        ids = args[0] if args else next(iter(kwargs.values()))
        self._rows, self._weights = [], None
        if None not in self.tokens:
            return
        table = ids.detach().cpu().tolist()
        table = table if table and isinstance(table[0], list) else [table]
        for row, tokens in enumerate(table):
            prompt = self._prompt_of(row, tokens, len(table))
            if prompt is not None:
                self._rows.append((row, prompt))
        if self._rows and self._texts.names:
            self._weights = self._weights_of([prompt for _, prompt in self._rows], len(table[0]))
            self._weights = self._weights.to(ids.device)

    def _prompt_of(self, row: int, ids: Sequence[int], n_rows: int) -> int | None:
        """The prompt in a row that none has been found for yet; None in a row of something else, or of one more time.

        Of several prompts that begin alike the one of which most is there, at best to its end, then the one at the same
        place: encoders may be given the prompts one by one, where only their order tells prompts apart that were cut.
        """
        prompts = self._texts.prompts
        same_place = row % len(prompts) if n_rows >= len(prompts) else None
        if same_place is not None and self.tokens[same_place] is None:
            whole = self._reader.find(ids, prompts[same_place])
            if whole is not None and not whole.truncated:
                self.tokens[same_place] = whole
                return same_place
        candidates = {
            i: tokens for i, p in enumerate(prompts) if (tokens := self._reader.find(ids, p))
        }
        best = max(map(_share_given, candidates.values()), default=None)
        left = [
            i
            for i, tokens in candidates.items()
            if _share_given(tokens) == best and self.tokens[i] is None
        ]
        if not left:
            return None
        chosen = same_place if same_place in left else left[0]
        self.tokens[chosen] = candidates[chosen]
        return chosen

    def _weights_of(self, prompts: Sequence[int], n: int) -> Tensor:
        rows = [self.tokens[prompt] for prompt in prompts]
        parts = [[(tokens, 0, 0)] for tokens in rows if tokens is not None]
        spans = [self._texts.spans[prompt] for prompt in prompts]
        return torch.from_numpy(text_weights(self._texts.names, n, parts, spans))

    def read(self, site: Site, reading: Reading) -> Callable[..., None]:
        """A hook that pools one site's output for the rows that belong to prompts."""
        names = text_rows(self._texts.names)

        def hook(_args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
            if self._weights is None:
                return
            values = pick(output, reading.item, site)
            values = values.transpose(0, 1) if reading.axis == 1 else values
            rows = [row for row, _ in self._rows]
            if values.shape[1] != self._weights.shape[-1] or rows[-1] >= values.shape[0]:
                return  # one token of a text that is being generated
            chosen = values if rows == list(range(values.shape[0])) else values[rows]
            pooled = pool_tokens(chosen, self._weights.to(values.device))
            self._pooled.put_some(site, [prompt for _, prompt in self._rows], pooled, names)

        return hook


def _share_given(tokens: PromptTokens) -> tuple[int, bool]:
    """How much of a prompt is in a row: its last character, and whether that is the end."""
    return (tokens.characters[-1][1], not tokens.truncated)
