"""A decoder-only transformer on the sequence [z, x_1 ... x_t] (paper, appendix on models)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthetic.students.layers import (
    Generators,
    LayerNorm,
    Linear,
    Sizes,
    Tape,
    TokenTable,
    note,
    xavier_uniform,
)
from t2iprobe.errors import ConfigError


class Transformer(nn.Module):
    """Causal attention with rotary positions and normalised queries and keys, for several members at once.

    z is one token (or, embedded, one token per word) and every input is one token; the prediction for x_t is read at
    its position. Attention and feed-forward matrices start Xavier-uniform and have no bias, as in the reference.
    """

    orthogonal_steps = ("blocks",)
    """Parts whose matrices the fast recipe trains with Muon."""

    def __init__(self, sizes: Sizes, rngs: Generators) -> None:
        super().__init__()
        if sizes.width % (2 * sizes.heads):
            raise ConfigError(
                f"--width {sizes.width}: must be a multiple of twice the number of heads "
                f"({2 * sizes.heads}) for rotary positions"
            )
        width, self.heads = sizes.width, sizes.heads
        self.words = TokenTable(sizes.vocabulary, width, rngs) if sizes.vocabulary else None
        self.embed_z = None if sizes.vocabulary else Linear(sizes.z_dim, width, rngs, bias=False)
        self.embed_x = Linear(sizes.x_dim, width, rngs)
        self.blocks = nn.ModuleList(Block(sizes, rngs) for _ in range(sizes.depth))
        self.norm = LayerNorm(width, len(rngs))
        self.out = Linear(width, sizes.out_dim, rngs)

    def forward(
        self, z: Float[Tensor, "e b z"], x: Float[Tensor, "e b t x"], tape: Tape = None
    ) -> Float[Tensor, "e b t o"]:
        """Predictions; with a tape, also the residual stream at the input tokens after every block."""
        members, tasks, samples, _ = x.shape
        inputs = self.embed_x(x.flatten(1, 2)).view(members, tasks, samples, -1)
        if self.embed_z is not None:
            prefix = self.embed_z(z).unsqueeze(2)
        else:
            assert self.words is not None
            prefix = self.words(z)
        h = torch.cat([prefix, inputs], dim=2)
        length, skip = h.shape[2], prefix.shape[2]
        rotation = rotary_table(h.shape[3] // self.heads, length, h.device)
        for number, block in enumerate(self.blocks):
            inner: Tape = None if tape is None else {}
            h = block(h, rotation, inner)
            for name, activation in (inner or {}).items():
                note(tape, f"block.{number}/{name}", activation[:, :, skip:])
        h = self.norm(h[:, :, skip:].flatten(1, 2))
        y: Tensor = self.out(h).view(members, tasks, samples, -1)
        note(tape, "output", y)
        return y


class Block(nn.Module):
    """Attention, then feed-forward, each on the normalised residual stream."""

    def __init__(self, sizes: Sizes, rngs: Generators) -> None:
        super().__init__()
        width, self.heads = sizes.width, sizes.heads
        self.norm_attention = LayerNorm(width, len(rngs))
        self.query = Linear(width, width, rngs, xavier_uniform, bias=False)
        self.key = Linear(width, width, rngs, xavier_uniform, bias=False)
        self.value = Linear(width, width, rngs, xavier_uniform, bias=False)
        self.norm_query = LayerNorm(width // sizes.heads, len(rngs))
        self.norm_key = LayerNorm(width // sizes.heads, len(rngs))
        self.merge = Linear(width, width, rngs, xavier_uniform, bias=False)
        self.norm_feedforward = LayerNorm(width, len(rngs))
        self.up = Linear(width, sizes.feedforward, rngs, xavier_uniform, bias=False)
        self.down = Linear(sizes.feedforward, width, rngs, xavier_uniform, bias=False)

    def forward(
        self, h: Float[Tensor, "e b l d"], rotation: tuple[Tensor, Tensor], tape: Tape
    ) -> Tensor:
        """The residual stream after this block."""
        shape = h.shape
        rows = h.flatten(1, 2)
        rows = rows + self._attend(self.norm_attention(rows), shape, rotation)
        note(tape, "attention", rows.view(shape))
        inner = self.up(self.norm_feedforward(rows))
        note(tape, "feedforward/pre", inner.view(*shape[:3], -1))
        inner = nn.functional.gelu(inner, approximate="tanh")
        note(tape, "feedforward/post", inner.view(*shape[:3], -1))
        out: Tensor = (rows + self.down(inner)).view(shape)
        note(tape, "out", out)
        return out

    def _attend(self, rows: Tensor, shape: torch.Size, rotation: tuple[Tensor, Tensor]) -> Tensor:
        members, tasks, length, width = shape
        split = (members, tasks, length, self.heads, width // self.heads)
        q = self.norm_query(self.query(rows).view(members, -1, split[-1])).view(split)
        k = self.norm_key(self.key(rows).view(members, -1, split[-1])).view(split)
        v = self.value(rows).view(split)
        q, k, v = (
            part.flatten(0, 1).transpose(1, 2)
            for part in (rotate(q, rotation), rotate(k, rotation), v)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        merged: Tensor = self.merge(mixed.transpose(1, 2).reshape(members, -1, width))
        return merged


def rotary_table(width: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(length, 1, width) cosines and sines of position times 10000^(-2j / width) (Su et al. 2021)."""
    frequencies = 10000.0 ** -(torch.arange(0, width, 2, device=device) / width)
    angles = torch.arange(length, device=device).unsqueeze(1) * frequencies
    angles = torch.cat([angles, angles], dim=1).unsqueeze(1)
    return angles.cos(), angles.sin()


def rotate(
    rows: Float[Tensor, "e b l h k"], table: tuple[Tensor, Tensor]
) -> Float[Tensor, "e b l h k"]:
    """Queries or keys turned by their position: pairs (j, j + width / 2) rotate in their plane."""
    first, second = rows.chunk(2, dim=-1)
    return rows * table[0] + torch.cat([-second, first], dim=-1) * table[1]
