"""The hypernetwork: weights of a small ReLU network generated from the task encoding."""

from itertools import pairwise
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthetic.students.layers import Embedder, Generators, Linear, Sizes, Tape, note


class Hypernetwork(nn.Module):
    """An affine map from z to all weights of x -> ReLU layers -> y, for several members at once.

    z goes in as it is: normalising it would throw away its magnitude, so that 0.5 e_1 and 1.0 e_1 became the same task.
    Generated matrices are divided by sqrt(fan-in) in use; generated biases start at 0.
    """

    def __init__(self, sizes: Sizes, rngs: Generators) -> None:
        super().__init__()
        self.embed = Embedder(sizes, rngs)
        dims = [sizes.x_dim, *[sizes.width] * sizes.depth, sizes.out_dim]
        self.shapes = list(pairwise(dims))
        matrices = sum(fan_in * fan_out for fan_in, fan_out in self.shapes)
        self.matrices = Linear(self.embed.out_dim, matrices, rngs, init=_unit_normal)
        self.biases = Linear(self.embed.out_dim, sum(dims[1:]), rngs, init=_zeros)

    def forward(
        self, z: Float[Tensor, "e b z"], x: Float[Tensor, "e b t x"], tape: Tape = None
    ) -> Float[Tensor, "e b t o"]:
        """Predictions; with a tape, also the activations of the generated network's layers."""
        members, tasks = x.shape[:2]
        vector = self.embed(z)
        matrices = self.matrices(vector).flatten(0, 1).split([a * b for a, b in self.shapes], dim=1)
        biases = self.biases(vector).flatten(0, 1).split([b for _, b in self.shapes], dim=1)
        h = x.flatten(0, 1)
        for number, (fan_in, fan_out) in enumerate(self.shapes):
            weight = matrices[number].view(-1, fan_in, fan_out)
            h = torch.baddbmm(biases[number].unsqueeze(1), h, weight, alpha=1 / sqrt(fan_in))
            if number < len(self.shapes) - 1:
                note(tape, f"hidden.{number}/pre", h.view(members, tasks, -1, fan_out))
                h = h.relu()
                note(tape, f"hidden.{number}/post", h.view(members, tasks, -1, fan_out))
        y = h.view(members, tasks, -1, self.shapes[-1][1])
        note(tape, "output", y)
        return y


def _unit_normal(fan_in: int, fan_out: int, rng: torch.Generator) -> Tensor:
    """Normal weights of variance 1: a task of K weights below 1 then generates matrices of variance near K / 2."""
    return torch.randn(fan_in, fan_out, generator=rng)


def _zeros(fan_in: int, fan_out: int, rng: torch.Generator) -> Tensor:
    del rng
    return torch.zeros(fan_in, fan_out)
