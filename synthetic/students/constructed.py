"""A ReLU network whose weights are written down, not learned: the hyperteacher within a given error.

The paper's theorem (section 3): a network with a number of neurons that grows with M and with 1 / sqrt(error), not
with the number of tasks, computes every task. A layer of the teacher needs the products of z and its input v,

    sum_mi z_m Theta_mih v_i = sum_r s_r (u_r . z) (w_r . v)            (singular value decomposition of Theta_h)
    a b = ((a + b)^2 - (a - b)^2) / 4                                   (a, b scaled to [-1, 1])

so each hidden unit of the teacher is a sum of at most 2 min(M, I) squares of linear forms of [z, v]. A square on
[-2, 2] is replaced by its chord over P equal pieces, one ReLU each, at most 4 / P^2 above it. M more neurons carry z
to the next layer (weights are never negative, so a ReLU leaves them alone). The squares of one teacher layer are one
hidden layer of the network, its hidden units the next. Axis letters: b rows, m modules, h hidden units, r squares'
pairs, p pieces.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn

from synthetic.teacher import HyperTeacher
from t2iprobe.errors import ConfigError


@dataclass(frozen=True)
class Constructed:
    """The network written down for a teacher.

    Attributes:
        network: layers on rows [z, x] of float64.
        error: a bound on the error of every output, for z in [0, 1]^M with at most K active, and x in [-1, 1].
        pieces: P.
        neurons: hidden units in all.
    """

    network: nn.Sequential
    error: float
    pieces: int
    neurons: int

    def __call__(
        self, task_latents: Float[Tensor, "b m"], x: Float[Tensor, "b t i"]
    ) -> Float[Tensor, "b t o"]:
        """The network's outputs, in the shapes the teacher uses."""
        z = task_latents.unsqueeze(1).expand(-1, x.shape[1], -1)
        outputs: Tensor = self.network(torch.cat([z, x], dim=2).double())
        return outputs


@dataclass(frozen=True)
class _Layer:
    """One teacher layer as a network: squares and carried z, then ReLU units and carried z, with error bookkeeping."""

    squares: nn.Linear
    units: nn.Linear
    reach: Tensor
    error: Tensor


def construct(
    teacher: HyperTeacher, epsilon: float | None = None, pieces: int | None = None
) -> Constructed:
    """The network for a teacher, with at most the given error, or with a given number of pieces.

    Args:
        teacher: any number of layers.
        epsilon: largest error of any output, above 0.
        pieces: P, at least 2, in place of epsilon.

    Raises:
        ConfigError: neither or both are given, or they are out of range.
    """
    if (epsilon is None) == (pieces is None):
        raise ConfigError(
            "give the largest error or the number of pieces, not both and not neither"
        )
    if pieces is None:
        assert epsilon is not None
        if epsilon <= 0:
            raise ConfigError(f"--epsilon {epsilon:g}: must be above 0")
        pieces = max(2, ceil(sqrt(_build(teacher, 2).error * 4 / epsilon)))
        network = _build(teacher, pieces)
        while network.error > epsilon:  # with several layers the bound is not exactly ~ 1 / P^2
            pieces = ceil(1.1 * pieces)
            network = _build(teacher, pieces)
        return network
    if pieces < 2:
        raise ConfigError(f"--pieces {pieces}: must be at least 2")
    return _build(teacher, pieces)


def _build(teacher: HyperTeacher, pieces: int) -> Constructed:
    modules: list[nn.Module] = []
    reach = torch.ones(teacher.input_dim, dtype=torch.float64)
    error = torch.zeros(teacher.input_dim, dtype=torch.float64)
    neurons = 0
    for weight, bias in zip(teacher.weights, teacher.biases, strict=True):
        layer = _layer(weight.double(), bias.double(), reach, error, teacher.num_hot, pieces)
        modules += [layer.squares, nn.ReLU(), layer.units, nn.ReLU()]
        neurons += layer.squares.out_features + layer.units.out_features
        reach, error = layer.reach, layer.error
    readout = teacher.readout.double()
    out = _linear(
        torch.cat(
            [torch.zeros(teacher.num_modules, readout.shape[1], dtype=torch.float64), readout]
        )
    )
    bound = (readout.abs().T @ error).max().item()
    return Constructed(nn.Sequential(*modules, out), bound, pieces, neurons)


def _layer(
    weight: Tensor, bias: Tensor, reach: Tensor, error: Tensor, num_hot: int, pieces: int
) -> _Layer:
    """Write down one teacher layer.

    Args:
        weight: (m, i, h).
        bias: (m, h).
        reach: (i,) largest absolute value of each input of the exact layer.
        error: (i,) largest error of each input of the network.
        num_hot: K.
        pieces: P.
    """
    num_modules, fan_in, width = weight.shape
    u, s, w = torch.linalg.svd(weight.permute(2, 0, 1), full_matrices=False)
    z_forms = u.transpose(1, 2)  # (h, r, m)
    z_reach = z_forms.abs().topk(min(num_hot, num_modules), dim=2).values.sum(dim=2)
    v_reach = w.abs() @ (reach + error)
    scale = (s * z_reach * v_reach / sqrt(num_hot)).flatten()
    a = (z_forms / z_reach.clamp(min=1e-300).unsqueeze(2)).flatten(0, 1)
    b = (w / v_reach.clamp(min=1e-300).unsqueeze(2)).flatten(0, 1)
    pairs = len(scale)
    forms = torch.cat(
        [torch.cat([a, b], dim=1), torch.cat([a, -b], dim=1)]
    )  # (2 r, m + i), each in [-2, 2]
    signs = torch.cat([scale, -scale]) / 4

    step = 4.0 / pieces
    knots = -2.0 + step * torch.arange(pieces, dtype=torch.float64)
    first = torch.cat(
        [forms.repeat_interleave(pieces, dim=0), torch.eye(num_modules, num_modules + fan_in)]
    )
    squares = _linear(
        first.T,
        torch.cat([-knots.repeat(2 * pairs), torch.zeros(num_modules, dtype=torch.float64)]),
    )
    slopes = torch.full((pieces,), 2 * step, dtype=torch.float64)
    slopes[0] = step - 4.0  # the chord from -2 to -2 + step, then the change of slope at every knot

    unit_of = torch.arange(width).repeat_interleave(pairs // width).repeat(2)
    to_units = torch.zeros(2 * pairs, pieces, width, dtype=torch.float64)
    to_units[torch.arange(2 * pairs), :, unit_of] = signs.unsqueeze(1) * slopes
    carried = torch.eye(num_modules, dtype=torch.float64)
    second = torch.cat(
        [
            torch.cat(
                [
                    torch.zeros(2 * pairs * pieces, num_modules, dtype=torch.float64),
                    to_units.flatten(0, 1),
                ],
                dim=1,
            ),
            torch.cat([carried, bias / sqrt(num_hot)], dim=1),
        ]
    )
    units = _linear(second)  # the constants 4 of the two squares of a pair cancel

    chord = (s * z_reach * v_reach / sqrt(num_hot)).sum(dim=1) * step**2 / 4 / 4
    z_weights = weight.abs().permute(2, 1, 0).topk(min(num_hot, num_modules), dim=2).values.sum(
        dim=2
    ) / sqrt(num_hot)
    bias_reach = bias.abs().T.topk(min(num_hot, num_modules), dim=1).values.sum(dim=1) / sqrt(
        num_hot
    )
    return _Layer(squares, units, z_weights @ reach + bias_reach, chord + z_weights @ error)


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A float64 layer with given weights (in, out); no bias where none is given."""
    made = nn.Linear(weight.shape[0], weight.shape[1], bias=bias is not None, dtype=torch.float64)
    with torch.no_grad():
        made.weight.copy_(weight.T)
        if bias is not None:
            made.bias.copy_(bias)
    return made.requires_grad_(False)
