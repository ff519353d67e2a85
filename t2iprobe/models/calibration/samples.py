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
    """

    first: Tensor
    second: Tensor
    axis: int
    later: Tensor | None = None

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
