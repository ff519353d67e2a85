"""Poolings: how the positions of a stream become one vector, or a few. Every pooling is rows of weights over positions.

To add one, write a function, give it an entry in `IMAGE_POOLINGS` or `TEXT_POOLINGS`, and test it: `--pooling` and its
help know it then. Nothing heavy is imported here, since the help of the command line reads these tables.

Shapes: b images, p rows of weights, n positions, h x w the image's grid of positions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32

from t2iprobe.errors import ConfigError, unknown

Span = tuple[int, int]
Grid = tuple[int, int]
Rows = dict[str, slice]
"""Pooling name -> its rows among the pooled values."""


@dataclass(frozen=True)
class ImagePooling:
    """A pooling of an image stream.

    Attributes:
        what: what it is, in a few words of the help text.
        weights: weights (rows, n) from the number of positions and their grid (height, width); positions are counted
            row by row. The grid is None where the model does not tell it.
        rows: how many vectors it gives.
        needs_grid: whether it is left out where the grid is not known.
    """

    what: str
    weights: Callable[[int, Grid | None], Float32[np.ndarray, "p n"]]
    rows: int = 1
    needs_grid: bool = False


@runtime_checkable
class PromptPlace(Protocol):
    """Where a prompt is among the tokens of a text encoder; `t2iprobe.calibration.tokens.PromptTokens`."""

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions of the prompt's own words, in order; specials, templates and pads left out."""
        ...

    @property
    def eot(self) -> int:
        """Position of the token that closes the prompt, or of its last word where nothing does."""
        ...

    def span(self, characters: Span) -> tuple[int, ...] | None:
        """Positions of some characters of the prompt; None when any of them was cut off."""
        ...


@dataclass(frozen=True)
class TextPooling:
    """A pooling of a text stream: the mean over some token positions.

    Attributes:
        what: what it is, in a few words of the help text.
        positions: the positions, from where the prompt is and from the characters of a constituent in it (None for
            poolings that are not per constituent, and where the prompt lacks it). No position: it is undefined, NaN.
        per_constituent: whether there is one for each constituent of the family, named NAME-constituent.
        partial: whether positions that the model leaves out are passed over; else one of them makes it undefined.
    """

    what: str
    positions: Callable[[PromptPlace, Span | None], tuple[int, ...]]
    per_constituent: bool = False
    partial: bool = False


def _everything(n: int, grid: Grid | None) -> Float32[np.ndarray, "1 n"]:  # noqa: ARG001
    return np.full((1, n), 1.0 / n, dtype=np.float32)


def _quarters(n: int, grid: Grid | None) -> Float32[np.ndarray, "4 n"]:
    """The means of the quarters: top left, top right, bottom left, bottom right.

    A quarter takes the middle row or column in when their number is odd, as adaptive average pooling does.
    """
    assert grid is not None
    height, width = grid
    areas = np.zeros((4, height, width), dtype=np.float32)
    quarters = [(rows, columns) for rows in _halves(height) for columns in _halves(width)]
    for area, (rows, columns) in zip(areas, quarters, strict=True):
        area[rows, columns] = 1.0
        area /= area.sum()
    return areas.reshape(4, n)


def _halves(size: int) -> tuple[slice, slice]:
    return slice(0, (size + 1) // 2), slice(size // 2, size)


def _words(prompt: PromptPlace, characters: Span | None) -> tuple[int, ...]:  # noqa: ARG001
    return prompt.positions


def _end(prompt: PromptPlace, characters: Span | None) -> tuple[int, ...]:  # noqa: ARG001
    return (prompt.eot,)


def _constituent(prompt: PromptPlace, characters: Span | None) -> tuple[int, ...]:
    return (prompt.span(characters) if characters else None) or ()


IMAGE_POOLINGS: Mapping[str, ImagePooling] = {
    "mean": ImagePooling("the mean over the picture", _everything),
    "grid": ImagePooling("the means of its four quarters", _quarters, rows=4, needs_grid=True),
}
TEXT_POOLINGS: Mapping[str, TextPooling] = {
    "mean": TextPooling("the mean of the prompt's own tokens", _words, partial=True),
    "eot": TextPooling("the token that ends the prompt", _end),
    "span": TextPooling(
        "the mean of each constituent's own tokens", _constituent, per_constituent=True
    ),
}
WITHOUT_WORDS = "mean"
"""The text pooling of what has no token that could be a word's: its vector, or the mean of all its tokens."""

DEFAULT_POOLING = ("mean", "grid", "eot", "span")


def pooling_help() -> str:
    """The poolings of both streams with what each is, as part of a help text."""
    image = ", ".join(f"{name} ({pooling.what})" for name, pooling in IMAGE_POOLINGS.items())
    text = ", ".join(f"{name} ({pooling.what})" for name, pooling in TEXT_POOLINGS.items())
    return f"image streams: {image}; text streams: {text}"


def split_poolings(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The poolings of image streams and those of text streams.

    Args:
        names: names of poolings, several in one with commas between them. A name that both streams have means both;
            `image:mean` and `text:mean` mean one of them.

    Raises:
        ConfigError: a name is unknown (near matches are named), or a stream is left without a pooling.

    Example:
        >>> split_poolings(["mean", "grid", "eot"]), split_poolings(["image:mean,text:eot"])
        ((('mean', 'grid'), ('mean', 'eot')), (('mean',), ('eot',)))
    """
    known: dict[str, Sequence[str]] = {"image": list(IMAGE_POOLINGS), "text": list(TEXT_POOLINGS)}
    chosen: dict[str, list[str]] = {"image": [], "text": []}
    for name in [part.strip() for text in names for part in text.split(",") if part.strip()]:
        stream, _, pooling = name.rpartition(":")
        streams = [s for s in known if stream in ("", s) and pooling in known[s]]
        if not streams:
            allowed = known.get(stream, [*known["image"], *known["text"]])
            raise ConfigError(unknown("pooling", name, set(allowed)))
        for fitting in streams:
            chosen[fitting].append(pooling)
    for stream, poolings in chosen.items():
        if not poolings:
            raise ConfigError(
                f"--pooling names none for {stream} streams: add {' or '.join(known[stream])}"
            )
    return tuple(dict.fromkeys(chosen["image"])), tuple(dict.fromkeys(chosen["text"]))


def image_rows(poolings: Sequence[str], has_grid: bool) -> Rows:
    """Which rows of the weights belong to which image pooling."""
    rows: Rows = {}
    start = 0
    for name in poolings:
        pooling = IMAGE_POOLINGS[name]
        if has_grid or not pooling.needs_grid:
            rows[name] = slice(start, start + pooling.rows)
            start += pooling.rows
    return rows


def image_weights(poolings: Sequence[str], n: int, grid: Grid | None) -> Float32[np.ndarray, "p n"]:
    """Weights over the positions of an image, in the rows that `image_rows` says.

    Args:
        poolings: names from IMAGE_POOLINGS.
        n: positions, row by row.
        grid: (height, width) of the positions; None when unknown.
    """
    rows = [np.zeros((0, n), dtype=np.float32)]
    rows += [
        IMAGE_POOLINGS[name].weights(n, grid) for name in image_rows(poolings, grid is not None)
    ]
    return np.concatenate(rows)


def text_names(poolings: Sequence[str], constituents: Sequence[str]) -> list[str]:
    """Names of the text poolings, those per constituent spelled out as NAME-constituent."""
    names: list[str] = []
    for name in poolings:
        spread = TEXT_POOLINGS[name].per_constituent
        names += [f"{name}-{constituent}" for constituent in constituents] if spread else [name]
    return names


def text_rows(names: Sequence[str]) -> Rows:
    """One row per text pooling."""
    return {name: slice(i, i + 1) for i, name in enumerate(names)}


def text_weights(
    names: Sequence[str],
    n: int,
    prompts: Sequence[Sequence[tuple[PromptPlace, int, int]]],
    spans: Sequence[dict[str, Span]],
) -> Float32[np.ndarray, "b p n"]:
    """Weights over the positions of each prompt's text states. A pooling with no position left is NaN, never zero.

    Args:
        names: pooling names as `text_names` spells them.
        n: text positions.
        prompts: for each prompt and each encoder whose tokens are among the positions: where the prompt is, the shift
            to the position, and the first token that is handed on.
        spans: for each prompt the characters of each constituent.
    """
    poolings = [(TEXT_POOLINGS[kind], part) for kind, _, part in (n.partition("-") for n in names)]
    keys = [(tuple(parts), tuple(row.items())) for parts, row in zip(prompts, spans, strict=True)]
    distinct = list(dict.fromkeys(keys))  # the images of a task share their prompt
    weights = np.full((len(distinct) * len(names), n), np.nan, dtype=np.float32)
    filled: list[int] = []
    entries: list[int] = []  # one assignment for the batch, since numpy takes microseconds for each
    shares: list[float] = []
    for index, (parts, items) in enumerate(distinct):
        characters = dict(items)
        for row, (pooling, constituent) in enumerate(poolings, start=index * len(names)):
            positions: set[int] = set()
            for prompt, shift, first in parts:
                tokens = pooling.positions(prompt, characters.get(constituent))
                received = {at + shift for at in tokens if at >= first}
                there = {at for at in received if 0 <= at < n}
                if pooling.partial or there == received:
                    positions |= there
            if positions:
                filled.append(row)
                entries += [row * n + at for at in positions]
                shares += [1.0 / len(positions)] * len(positions)
    weights[filled] = 0.0
    weights.reshape(-1)[entries] = shares
    order = [distinct.index(key) for key in keys]
    return weights.reshape(len(distinct), len(names), n)[order]
