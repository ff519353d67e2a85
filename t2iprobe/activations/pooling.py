"""Pooling as one matrix product: every pooling is a row of weights over token positions.

Shapes: b images, p poolings, n token positions, d width, h x w the image's token grid.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from t2iprobe.calibration.tokens import PromptTokens, Span
from t2iprobe.errors import ConfigError, unknown

IMAGE_POOLINGS = ("mean", "grid")
TEXT_POOLINGS = ("mean", "eot", "span")


def check_poolings(image: Sequence[str], text: Sequence[str]) -> None:
    """Refuse poolings that do not exist.

    Raises:
        ConfigError: a name is unknown; near matches are named.
    """
    for name in image:
        if name not in IMAGE_POOLINGS:
            raise ConfigError(unknown("image pooling", name, IMAGE_POOLINGS))
    for name in text:
        if name not in TEXT_POOLINGS:
            raise ConfigError(unknown("text pooling", name, TEXT_POOLINGS))


def image_rows(poolings: Sequence[str], has_grid: bool) -> dict[str, slice]:
    """Which rows of the weights belong to which image pooling: mean is one row, grid four."""
    rows: dict[str, slice] = {}
    start = 0
    for name in poolings:
        if name == "grid" and not has_grid:
            continue
        size = 4 if name == "grid" else 1
        rows[name] = slice(start, start + size)
        start += size
    return rows


def image_weights(
    poolings: Sequence[str], n: int, grid: tuple[int, int] | None
) -> Float[Tensor, "p n"]:
    """Weights over image tokens: the mean, and the means of the four quarters.

    The quarters come as top left, top right, bottom left, bottom right.
    A quarter takes the middle row or column in when their number is odd, as adaptive average pooling does.

    Args:
        poolings: names from IMAGE_POOLINGS.
        n: image tokens, row by row.
        grid: (height, width) of the tokens; None when unknown, then there is no grid pooling.
    """
    rows: list[Tensor] = []
    for name in poolings:
        if name == "mean":
            rows.append(torch.full((1, n), 1.0 / n))
        elif grid is not None:
            height, width = grid
            for top, bottom in _halves(height):
                for left, right in _halves(width):
                    area = torch.zeros(height, width)
                    area[top:bottom, left:right] = 1.0
                    rows.append((area / area.sum()).reshape(1, n))
    return torch.cat(rows) if rows else torch.zeros(0, n)


def _halves(size: int) -> tuple[Span, Span]:
    return (0, (size + 1) // 2), (size // 2, size)


def text_names(poolings: Sequence[str], constituents: Sequence[str]) -> list[str]:
    """Names of the text poolings: "span" stands for one pooling per constituent."""
    names: list[str] = []
    for name in poolings:
        names += [f"span-{part}" for part in constituents] if name == "span" else [name]
    return names


def text_weights(
    names: Sequence[str],
    n: int,
    prompts: Sequence[Sequence[tuple[PromptTokens, int, int]]],
    spans: Sequence[dict[str, Span]],
) -> Float[Tensor, "b p n"]:
    """Weights over the positions of each prompt's text states. A pooling with no position left is NaN, never zero.

    Args:
        names: pooling names, constituents spelled out as span-NAME.
        n: text positions.
        prompts: for each prompt and each encoder whose tokens are among the positions: the prompt's tokens, the shift
            to the position, and the first token that is handed on.
        spans: for each prompt the characters of each constituent.
    """
    keys = [(tuple(parts), tuple(own.items())) for parts, own in zip(prompts, spans, strict=True)]
    distinct = list(dict.fromkeys(keys))  # the images of a task share their prompt
    weights = np.full((len(distinct) * len(names), n), np.nan, dtype=np.float32)
    filled: list[int] = []
    entries: list[int] = []  # one assignment for the batch, since numpy takes microseconds for each
    shares: list[float] = []
    for index, (parts, items) in enumerate(distinct):
        own = dict(items)
        for row, name in enumerate(names, start=index * len(names)):
            positions: set[int] = set()
            for tokens, shift, first in parts:
                taken = {at + shift for at in _taken(tokens, name, own) if at >= first}
                there = {at for at in taken if 0 <= at < n}
                if there == taken or name == "mean":  # a constituent of which a part is cut is cut
                    positions |= there
            if positions:
                filled.append(row)
                entries += [row * n + at for at in positions]
                shares += [1.0 / len(positions)] * len(positions)
    weights[filled] = 0.0
    weights.reshape(-1)[entries] = shares
    order = [distinct.index(key) for key in keys]
    return torch.from_numpy(weights.reshape(len(distinct), len(names), n)[order])


def _taken(tokens: PromptTokens, name: str, spans: dict[str, Span]) -> tuple[int, ...]:
    """Token positions that a text pooling takes the mean of."""
    if name == "mean":
        return tokens.positions
    if name == "eot":
        return (tokens.eot,)
    span = spans.get(name.removeprefix("span-"))
    return (tokens.span(span) if span else None) or ()


def pool_tokens(
    values: Float[Tensor, "b n d"], weights: Float[Tensor, "*b p n"]
) -> Float[Tensor, "b p d"]:
    """Pooled tokens in float32; half precision is left before the sum, where it would overflow or round."""
    values = values.float()
    return torch.bmm(weights.expand(values.shape[0], -1, -1), values)


def pool_map(
    values: Float[Tensor, "b d h w"], weights: Float[Tensor, "p n"]
) -> Float[Tensor, "b p d"]:
    """Pooled feature map in float32."""
    return torch.matmul(values.flatten(2).float(), weights.T).transpose(1, 2)
