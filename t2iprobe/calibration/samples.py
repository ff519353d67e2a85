"""One token tensor as several runs saw it, and what they have in common."""

from dataclasses import dataclass

import torch
from torch import Tensor


def equal(one: Tensor, other: Tensor) -> bool:
    """Whether two samples are the same, value for value."""
    return one.shape == other.shape and torch.equal(one, other)


def equal_start(one: Tensor, other: Tensor) -> int:
    """How many positions at the front of two (tokens, channels) samples are equal."""
    n = min(one.shape[0], other.shape[0])
    differs = (one[:n] != other[:n]).any(-1).nonzero()
    return int(differs[0]) if len(differs) else n


_HEAD = 16
"""Tokens at the front of a text that it is recognised by."""
_NEAR = 0.02
"""How far they may be off, in units of what they differ by from each other: half precision rounds."""


def found_at(text: Tensor, whole: Tensor) -> int | None:
    """Where a text begins in another tensor, all its tokens moved by one vector; None where at no or several places.

    Networks add one vector to every token to tell one text from another.
    """
    head = text[:_HEAD]
    n = head.shape[0]
    if n < 2 or whole.shape[0] < n:
        return None
    off = (whole.unfold(0, n, 1) - head.T).std(-1).amax(-1)
    at = (off < _NEAR * head.std(0).amax()).nonzero().flatten().tolist()
    return at[0] if len(at) == 1 else None


def likeness(one: Tensor, other: Tensor) -> float:
    """Cosine of two samples, -1 where their shapes differ."""
    if one.shape != other.shape:
        return -1.0
    return float(torch.cosine_similarity(one.flatten(), other.flatten(), dim=0))


@dataclass
class Tokens:
    """One token tensor: (tokens, channels) samples of its conditional row.

    Attributes:
        first: with one prompt.
        second: with another prompt, the picture in the making being the same.
        axis: batch axis of the tensor.
        later: with the first prompt, in the next step; None where that was not watched.
        moved: with the first prompt on a changed picture; None where that was not watched.
    """

    first: Tensor
    second: Tensor
    axis: int
    later: Tensor | None = None
    moved: Tensor | None = None

    @property
    def n(self) -> int:
        """Number of tokens."""
        return int(self.first.shape[0])

    def leading(self) -> int:
        """How many positions at the front are equal for both prompts."""
        return equal_start(self.first, self.second)

    def trailing(self) -> int:
        """How many positions at the end are equal for both prompts."""
        return equal_start(self.first.flip(0), self.second.flip(0))

    def same(self) -> bool:
        """Whether it does not depend on the prompt."""
        return equal(self.first, self.second)

    def still(self) -> bool:
        """Whether it depends on neither the prompt nor the step: weights such as registers and learned queries."""
        return self.same() and self.later is not None and equal(self.first, self.later)

    def change(self) -> Tensor:
        """How much each position changes with the picture, (tokens,); zeros where that was not watched."""
        moved = self.first if self.moved is None else self.moved
        change: Tensor = torch.linalg.vector_norm(moved - self.first, dim=-1)
        return change

    def follows(self) -> Tensor:
        """Which positions follow the picture, (tokens,); those that change with the step where nothing else tells."""
        other = self.later if self.moved is None else self.moved
        if other is None:
            return torch.ones(self.n, dtype=torch.bool)
        return (other != self.first).any(-1)
