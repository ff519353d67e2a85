"""How a student is told the task: maps from a vector of module weights to the z it is given.

Six encodings of the paper (identity, orthogonal, language, invertible, interval-shuffle, fewshot), a properly embedded
form of the language one, and a strongly non-linear invertible one. Axis letters: b tasks, m modules, z entries of z.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from t2iprobe.errors import ConfigError, unknown
from t2iprobe.seeding import generator

FEWSHOT_PAIRS = 50
INTERVALS = 10
WEIGHT_TOKENS = INTERVALS + 1


@runtime_checkable
class DrawsPairs(Protocol):
    """A task family that can show examples of a task (needed by the few-shot encoding)."""

    def draw_pairs(
        self, task_latents: Float[Tensor, "b m"], count: int, rng: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """(b, count, i) inputs and (b, count, o) targets of each task."""


Examples = DrawsPairs | None


class Encoding:
    """A map from task latents (b, m) to what the student is given (b, z).

    Attributes:
        name: the name it is chosen by.
        dim: the number of entries of z.
        vocabulary: 0 for a vector; for tokens the number of different ones (z then holds their ids).
        inverse: gives the latents back; None where the encoding keeps less than the latents or draws at random.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        encode: Callable[[Tensor, torch.Generator], Tensor],
        inverse: Callable[[Tensor], Tensor] | None = None,
        vocabulary: int = 0,
    ) -> None:
        self.name = name
        self.dim = dim
        self.vocabulary = vocabulary
        self.inverse = inverse
        self._encode = encode

    def __call__(self, task_latents: Float[Tensor, "b m"], rng: torch.Generator) -> Tensor:
        """(b, z) float32; only the few-shot encoding draws from rng."""
        return self._encode(task_latents, rng)


def make_encoding(
    name: str, num_modules: int, seed: int, examples: DrawsPairs | None = None
) -> Encoding:
    """The encoding of that name, with its own seed.

    Args:
        name: one of ENCODINGS, or the reference's name for it (ALIASES).
        num_modules: M.
        seed: of the random map, where there is one.
        examples: the task family, for the few-shot encoding.

    Raises:
        ConfigError: unknown name, odd M with 'invertible', or few-shot on a family that shows no examples.
    """
    name = ALIASES.get(name, name)
    if name not in ENCODINGS:
        raise ConfigError(unknown("encoding", name, [*ENCODINGS, *ALIASES]))
    return ENCODINGS[name](num_modules, generator("encoding", name, num_modules, seed), examples)


def _identity(num_modules: int, rng: torch.Generator, _: Examples) -> Encoding:
    del rng
    return Encoding("identity", num_modules, lambda z, _: z, lambda z: z)


def _orthogonal(num_modules: int, rng: torch.Generator, _: Examples) -> Encoding:
    """A random rotation or reflection, uniform over the orthogonal group (QR of a Gaussian, signs of R fixed)."""
    q, r = torch.linalg.qr(
        torch.randn(num_modules, num_modules, generator=rng, dtype=torch.float64)
    )
    rotation = (q * r.diagonal().sign()).float()
    return Encoding("orthogonal", num_modules, lambda z, _: z @ rotation.T, lambda z: z @ rotation)


def _weight_steps(task_latents: Tensor) -> Tensor:
    """Which of the intervals [0, .1), ... [.9, 1), {1} each weight is in; exact for multiples of 0.1."""
    return torch.floor(INTERVALS * task_latents.double() + 1e-5)


def _language(num_modules: int, rng: torch.Generator, _: Examples) -> Encoding:
    """The reference's sentence of integers "module 1, weight, module 2, weight ...", given as raw numbers.

    Their scale, up to M + 11, is a bad one for a student: `language-embedded` looks the words up instead.
    """
    del rng

    def encode(z: Tensor, _: torch.Generator) -> Tensor:
        names = torch.arange(1, num_modules + 1, dtype=torch.float64).expand(z.shape)
        words = torch.stack([names, _weight_steps(z) + num_modules + 1], dim=-1)
        return words.flatten(-2).float()

    def inverse(words: Tensor) -> Tensor:
        return (words[..., 1::2] - num_modules - 1) / INTERVALS

    return Encoding("language", 2 * num_modules, encode, inverse)


def _language_embedded(num_modules: int, rng: torch.Generator, _: Examples) -> Encoding:
    """The same sentence as token ids, for a student that looks them up in a learned table."""
    raw = _language(num_modules, rng, None)
    vocabulary = num_modules + 1 + WEIGHT_TOKENS
    return Encoding("language-embedded", raw.dim, raw, raw.inverse, vocabulary)


def _invertible(num_modules: int, rng: torch.Generator, _: Examples) -> Encoding:
    """Three weak coupling layers as in the reference: almost exactly affine."""
    if num_modules % 2:
        raise ConfigError(
            f"encoding 'invertible' couples two halves of z and needs an even number of modules, got {num_modules}: "
            f"use --modules {num_modules + 1}, or --encoding invertible-strong"
        )
    flow = Flow.weak(num_modules, rng)
    return Encoding("invertible", num_modules, lambda z, _: flow.forward(z), flow.inverse)


def _invertible_strong(num_modules: int, rng: torch.Generator, _: Examples) -> Encoding:
    """Rotations and strong coupling layers: invertible, and far from affine."""
    flow = Flow.strong(num_modules, rng)
    return Encoding("invertible-strong", num_modules, lambda z, _: flow.forward(z), flow.inverse)


def _interval_shuffle(num_modules: int, rng: torch.Generator, _: Examples) -> Encoding:
    """Permutes the ten intervals of width 0.1, the same way in every entry; 1.0 stays."""
    order = torch.randperm(INTERVALS, generator=rng)

    def move(z: Tensor, table: Tensor) -> Tensor:
        exact = z.double()
        step = _weight_steps(z).clamp(max=INTERVALS - 1)
        moved = exact + (table[step.long()] - step) / INTERVALS
        return torch.where(z == 1.0, 1.0, moved).float()

    back = torch.argsort(order)
    return Encoding(
        "interval-shuffle", num_modules, lambda z, _: move(z, order), lambda z: move(z, back)
    )


def _fewshot(num_modules: int, rng: torch.Generator, examples: Examples) -> Encoding:
    """50 fresh input-output pairs of the task, flattened: the student has to infer the task."""
    if examples is None:
        raise ConfigError(
            "encoding 'fewshot' shows input-output pairs of a function: it works with --task hyperteacher only"
        )

    def encode(z: Tensor, rng: torch.Generator) -> Tensor:
        x, y = examples.draw_pairs(z, FEWSHOT_PAIRS, rng)
        return torch.cat([x.flatten(1), y.flatten(1)], dim=1)

    probe = encode(torch.zeros(1, num_modules), rng)
    return Encoding("fewshot", probe.shape[1], encode)


ENCODINGS: dict[str, Callable[[int, torch.Generator, Examples], Encoding]] = {
    "identity": _identity,
    "orthogonal": _orthogonal,
    "language": _language,
    "language-embedded": _language_embedded,
    "invertible": _invertible,
    "invertible-strong": _invertible_strong,
    "interval-shuffle": _interval_shuffle,
    "fewshot": _fewshot,
}

ALIASES = {
    "tokens": "language",
    "invertible_nn": "invertible",
    "interval_shuffle": "interval-shuffle",
}


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
    """Coupling layers one after the other (Dinh et al., Real NVP, 2017), computed in float64."""

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
