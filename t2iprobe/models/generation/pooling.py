"""Pooling as one matrix product: every pooling is a row of weights over token positions.

Shapes: b images, p poolings, n token positions, d width, h x w the image's token grid.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from t2iprobe.errors import ConfigError, unknown
from t2iprobe.models.calibration.tokens import PromptTokens, Span

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
    tokens: Sequence[tuple[PromptTokens, int, int]],
    spans: dict[str, Span],
) -> Float[Tensor, "p n"]:
    """Weights over the positions of one prompt's text states. A pooling with no position left is NaN, never zero.

    Args:
        names: pooling names, constituents spelled out as span-NAME.
        n: text positions.
        tokens: for each encoder whose tokens are among them: the prompt's tokens, the shift to the position, and the
            first token that is handed on.
        spans: characters of each constituent in the prompt.
    """
    weights = np.full((len(names), n), np.nan, dtype=np.float32)
    for row, name in enumerate(names):
        positions: list[int] = []
        for prompt, shift, first in tokens:
            if name == "mean":
                own: Sequence[int] = prompt.positions
            elif name == "eot":
                own = (prompt.eot,)
            else:
                span = spans.get(name.removeprefix("span-"))
                own = (prompt.span(span) if span else None) or ()
            positions += [at + shift for at in own if at >= first and 0 <= at + shift < n]
        if positions:
            weights[row] = 0.0
            weights[row, positions] = 1.0 / len(set(positions))
    return torch.from_numpy(weights)


def pool_tokens(
    values: Float[Tensor, "b n d"], weights: Float[Tensor, "*b p n"]
) -> Float[Tensor, "b p d"]:
    """Pooled tokens in float32; half precision is left before the sum, where it would overflow or round."""
    return torch.matmul(weights, values.float())


def pool_map(
    values: Float[Tensor, "b d h w"], weights: Float[Tensor, "p n"]
) -> Float[Tensor, "b p d"]:
    """Pooled feature map in float32."""
    return torch.matmul(values.flatten(2).float(), weights.T).transpose(1, 2)
