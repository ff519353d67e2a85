"""Invertible networks made of coupling layers (Dinh et al., "Density estimation using Real NVP", 2017)."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Coupling:
    """One layer: rotate, then move the second part of the vector by what the first part says.

    Attributes:
        rotation: (m, m) orthogonal, applied first.
        weights: matrices of the small network that gives log-scales and shifts.
        wave: its non-linearity is a sine (strong) instead of a sigmoid (weak).
        flip: the layer works on the reversed vector.
    """

    rotation: Float[Tensor, "m m"]
    weights: tuple[Tensor, ...]
    wave: bool
    flip: bool

    def _scale_and_shift(self, first: Tensor) -> tuple[Tensor, Tensor]:
        hidden = first
        for weight in self.weights[:-1]:
            hidden = hidden @ weight
            hidden = torch.sin(hidden) if self.wave else torch.sigmoid(hidden)
        log_scale, shift = (hidden @ self.weights[-1]).chunk(2, dim=-1)
        if self.wave:
            return torch.exp(0.7 * torch.tanh(log_scale)), shift
        return 1.0 + 0.5 * torch.tanh(log_scale), shift

    def forward(self, z: Tensor) -> Tensor:
        """The image of z (b, m)."""
        z = z @ self.rotation.T
        z = z.flip(-1) if self.flip else z
        first, second = z.tensor_split([z.shape[-1] // 2], dim=-1)
        scale, shift = self._scale_and_shift(first)
        z = torch.cat([first, second * scale + shift], dim=-1)
        return z.flip(-1) if self.flip else z

    def inverse(self, z: Tensor) -> Tensor:
        """The z whose image this is."""
        z = z.flip(-1) if self.flip else z
        first, second = z.tensor_split([z.shape[-1] // 2], dim=-1)
        scale, shift = self._scale_and_shift(first)
        z = torch.cat([first, (second - shift) / scale], dim=-1)
        z = z.flip(-1) if self.flip else z
        return z @ self.rotation


@dataclass(frozen=True)
class Flow:
    """Coupling layers one after the other, computed in float64."""

    layers: tuple[Coupling, ...]

    @classmethod
    def weak(cls, size: int, rng: torch.Generator) -> "Flow":
        """Three layers, weights 0.1 N(0, 1), sigmoid, no rotation, alternating halves: the reference's."""
        half = size // 2
        widths = [half, 2 * size, 2 * size, 2 * half]
        return cls(
            tuple(
                Coupling(
                    torch.eye(size, dtype=torch.float64),
                    tuple(0.1 * _normal(a, b, rng) for a, b in pairwise(widths)),
                    wave=False,
                    flip=bool(i % 2),
                )
                for i in range(3)
            )
        )

    @classmethod
    def strong(cls, size: int, rng: torch.Generator) -> "Flow":
        """Two rotated layers whose scales and shifts wave over the range of the input: far from affine."""
        half, width = size // 2, 2 * size
        layers = []
        for _ in range(2):
            rotation, _ = torch.linalg.qr(_normal(size, size, rng))
            weights = (
                3.0 * _normal(half, width, rng),
                1.5 * _normal(width, width, rng) / width**0.5,
                1.0 * _normal(width, 2 * (size - half), rng) / width**0.5,
            )
            layers.append(Coupling(rotation, weights, wave=True, flip=False))
        return cls(tuple(layers))

    def forward(self, z: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
        """The image of z, in the precision of z."""
        exact = z.double()
        for layer in self.layers:
            exact = layer.forward(exact)
        return exact.to(z.dtype)

    def inverse(self, z: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
        """The z whose image this is, in the precision of the image."""
        exact = z.double()
        for layer in reversed(self.layers):
            exact = layer.inverse(exact)
        return exact.to(z.dtype)


def _normal(rows: int, columns: int, rng: torch.Generator) -> Tensor:
    return torch.randn(rows, columns, generator=rng, dtype=torch.float64)
