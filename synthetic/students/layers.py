"""Building blocks that hold the weights of several students at once.

Axis letters: e members (students of equal shape trained side by side), n rows, b tasks, t samples, d width. Every
member has weights of its own, drawn from a generator of its own, so a member trains as it would alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthetic.teacher import truncated_normal

Tape = dict[str, Tensor] | None
Generators = Sequence[torch.Generator]
Init = Callable[[int, int, torch.Generator], Tensor]


@dataclass(frozen=True)
class Sizes:
    """What a student has to be made for.

    Attributes:
        z_dim: entries of the task encoding.
        vocabulary: 0 for vectors; otherwise z holds that many different token ids.
        x_dim: entries of an input.
        out_dim: entries of an output.
        width: of the hidden layers (mlp, hypernetwork) or of the residual stream (transformer).
        depth: number of hidden layers or blocks.
        heads: attention heads (transformer).
        feedforward: inner width of a block (transformer).
    """

    z_dim: int
    vocabulary: int
    x_dim: int
    out_dim: int
    width: int
    depth: int
    heads: int = 4
    feedforward: int = 1024


def lecun_normal(fan_in: int, fan_out: int, rng: torch.Generator) -> Tensor:
    """(fan_in, fan_out) weights of variance 1 / fan_in, cut at two standard deviations: Flax's default."""
    return truncated_normal((fan_in, fan_out), sqrt(1 / fan_in), rng)


def xavier_uniform(fan_in: int, fan_out: int, rng: torch.Generator) -> Tensor:
    """(fan_in, fan_out) weights uniform in +-sqrt(6 / (fan_in + fan_out))."""
    bound = sqrt(6 / (fan_in + fan_out))
    return torch.rand(fan_in, fan_out, generator=rng).mul_(2 * bound).sub_(bound)


class Linear(nn.Module):
    """One affine map per member: (e, n, in) to (e, n, out). `weight` is decayed in training, `bias` is not."""

    def __init__(
        self,
        fan_in: int,
        fan_out: int,
        rngs: Generators,
        init: Init = lecun_normal,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([init(fan_in, fan_out, rng) for rng in rngs]))
        self.bias = nn.Parameter(torch.zeros(len(rngs), 1, fan_out)) if bias else None

    def forward(self, rows: Float[Tensor, "e n i"]) -> Float[Tensor, "e n o"]:
        """The image of each row under its member's map."""
        if self.bias is None:
            return torch.bmm(rows, self.weight)
        return torch.baddbmm(self.bias, rows, self.weight)


class TaskLinear(Linear):
    """An affine map of [z, x] where z is one vector per task, shared by the task's samples.

    Where [z, x] is longer than the output, the part of z is computed once per task instead of once per sample: the same
    map at a fraction of the work when z is long (few-shot: 1,600 entries, 16 samples).
    """

    def __init__(self, z_dim: int, x_dim: int, fan_out: int, rngs: Generators) -> None:
        super().__init__(z_dim + x_dim, fan_out, rngs)
        self.z_dim = z_dim
        self.splits = z_dim + x_dim > fan_out

    def of_task(
        self, z: Float[Tensor, "e b z"], x: Float[Tensor, "e b t x"]
    ) -> Float[Tensor, "e b t o"]:
        """The image of every [z, x]."""
        members, tasks, samples, x_dim = x.shape
        if not self.splits:
            rows = torch.cat([z.unsqueeze(2).expand(-1, -1, samples, -1), x], dim=3).flatten(1, 2)
            out: Tensor = self(rows).view(members, tasks, samples, -1)
            return out
        from_x = torch.bmm(x.reshape(members, tasks * samples, x_dim), self.weight[:, self.z_dim :])
        assert self.bias is not None
        from_z = torch.baddbmm(self.bias, z, self.weight[:, : self.z_dim])
        return from_x.view(members, tasks, samples, -1).add_(from_z.unsqueeze(2))


class LayerNorm(nn.Module):
    """Normalisation over the last axis with a learned scale per member and no shift (eps 1e-6, as in Flax)."""

    def __init__(self, width: int, members: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(members, 1, width))

    def forward(self, rows: Float[Tensor, "e n d"]) -> Float[Tensor, "e n d"]:
        """Rows of mean 0 and variance 1, scaled."""
        return nn.functional.layer_norm(rows, rows.shape[-1:], eps=1e-6) * self.scale


class TokenTable(nn.Module):
    """A learned vector for each token id and member, of variance 1 / width."""

    def __init__(self, vocabulary: int, width: int, rngs: Generators) -> None:
        super().__init__()
        draws = [torch.randn(vocabulary, width, generator=rng) / sqrt(width) for rng in rngs]
        self.table = nn.Parameter(torch.stack(draws))

    def forward(self, tokens: Tensor) -> Tensor:
        """(e, b, k) ids, stored as floats, to (e, b, k, width)."""
        members = torch.arange(len(self.table), device=tokens.device).view(-1, 1, 1)
        return self.table[members, tokens.long()]


def note(tape: Tape, name: str, activation: Tensor) -> None:
    """Keep a copy of an activation (e, b, t, d) when someone asked for it."""
    if tape is not None:
        tape[name] = activation.detach().clone()


class Embedder(nn.Module):
    """What a student does to z before using it: nothing to a vector, a look-up and a flattening to tokens."""

    TOKEN_WIDTH = 16

    def __init__(self, sizes: Sizes, rngs: Generators) -> None:
        super().__init__()
        self.table = (
            TokenTable(sizes.vocabulary, self.TOKEN_WIDTH, rngs) if sizes.vocabulary else None
        )
        self.out_dim = sizes.z_dim * (self.TOKEN_WIDTH if sizes.vocabulary else 1)

    def forward(self, z: Float[Tensor, "e b z"]) -> Float[Tensor, "e b k"]:
        """The vector of each task."""
        return z if self.table is None else self.table(z).flatten(2)
