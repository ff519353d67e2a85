"""The hyperteacher: a task family whose tasks are weighted sums of the weights of M modules.

f(z, x) = readout relu(sum_m z_m (Theta_m x + b_m) / sqrt(K)), with one or more hidden layers (paper, section 2;
Schug et al. 2024). Axis letters: b tasks, t samples, i inputs, h hidden, o outputs, m modules.
"""

from itertools import pairwise
from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from t2iprobe.errors import ConfigError
from t2iprobe.seeding import generator

TRUNCATION_STD = 0.87962566103423978  # standard deviation of N(0, 1) cut at -2 and 2


class HyperTeacher:
    """The modules and the readout, drawn once from the teacher's own seed.

    Weights have variance scale / fan_in, from a normal cut at two standard deviations; biases are uniform in [0, 0.5].
    Every layer draws weights and biases from separate streams: from one seed, one would be a function of the other.

    Attributes:
        weights: one (m, i, h) tensor per hidden layer.
        biases: one (m, h) tensor per hidden layer; zeros without bias.
        readout: (h, o), shared by all tasks, no bias.
    """

    def __init__(
        self,
        num_modules: int = 16,
        num_hot: int = 3,
        input_dim: int = 16,
        hidden_dims: tuple[int, ...] = (16,),
        output_dim: int = 16,
        use_bias: bool = True,
        scale: float = sqrt(3.0),
        seed: int = 0,
    ) -> None:
        dims = (input_dim, *hidden_dims)
        if not hidden_dims or min(*dims, output_dim) < 1:
            raise ConfigError(
                f"--inputs {input_dim}, --hidden {' '.join(map(str, hidden_dims)) or 'none'}, --outputs {output_dim}: "
                "each must be at least 1, and at least one hidden layer is needed"
            )
        if scale <= 0:
            raise ConfigError(f"--scale {scale:g}: must be above 0")
        self.num_modules, self.num_hot = num_modules, num_hot
        self.input_dim, self.output_dim = input_dim, output_dim
        self.weights: list[Tensor] = []
        self.biases: list[Tensor] = []
        for layer, (fan_in, fan_out) in enumerate(pairwise(dims)):
            shape = (num_modules, fan_in, fan_out)
            std = sqrt(scale / fan_in)
            self.weights.append(
                truncated_normal(shape, std, generator("teacher", "weights", layer, seed))
            )
            bias = torch.rand(
                num_modules, fan_out, generator=generator("teacher", "biases", layer, seed)
            )
            self.biases.append(0.5 * bias if use_bias else torch.zeros_like(bias))
        std = sqrt(scale / dims[-1])
        self.readout = truncated_normal(
            (dims[-1], output_dim), std, generator("teacher", "readout", seed)
        )

    def __call__(
        self, task_latents: Float[Tensor, "b m"], x: Float[Tensor, "b t i"]
    ) -> Float[Tensor, "b t o"]:
        """The targets of inputs x under each task, in the precision of the inputs."""
        z = task_latents.to(x.dtype) / sqrt(self.num_hot)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            _, fan_in, fan_out = weight.shape
            w = (z @ weight.to(x.dtype).flatten(1)).view(-1, fan_in, fan_out)
            b = (z @ bias.to(x.dtype)).unsqueeze(1)
            x = torch.baddbmm(b, x, w).relu_()
        return x @ self.readout.to(x.dtype)

    def single_modules(self, x: Float[Tensor, "b t i"]) -> Float[Tensor, "m b t o"]:
        """f(e_m, x) for every module m alone at weight 1: what an additive explanation is made of."""
        units = torch.eye(self.num_modules, dtype=x.dtype)
        return torch.stack([self(unit.expand(len(x), -1), x) for unit in units])

    def draw_inputs(
        self, num_tasks: int, num_samples: int, rng: torch.Generator
    ) -> Float[Tensor, "b t i"]:
        """Inputs uniform in [-1, 1]."""
        return torch.rand(num_tasks, num_samples, self.input_dim, generator=rng).mul_(2).sub_(1)

    def draw_pairs(
        self, task_latents: Float[Tensor, "b m"], count: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "b t i"], Float[Tensor, "b t o"]]:
        """Fresh inputs of each task and their targets."""
        x = self.draw_inputs(len(task_latents), count, rng)
        return x, self(task_latents, x)


def truncated_normal(shape: tuple[int, ...], std: float, rng: torch.Generator) -> Tensor:
    """float32 draws of standard deviation std from a normal cut at two of its standard deviations (as Flax does)."""
    return torch.nn.init.trunc_normal_(torch.empty(shape), 0.0, 1.0, -2.0, 2.0, generator=rng) * (
        std / TRUNCATION_STD
    )


def draw_task_latents(
    combinations: Bool[Tensor, "n m"], num_tasks: int, weights: str, rng: torch.Generator
) -> Float[Tensor, "b m"]:
    """Task latents: a combination drawn uniformly, and a weight for each of its active modules.

    Args:
        combinations: the ones to draw from.
        num_tasks: b.
        weights: "discrete" draws from 0.5, 0.6 ... 1.0; "khot" is 1; "continuous" is 0.5 + 0.5 e_m / (1 + sum e) with
            exponential e: below 1 and compressed towards 0.5, not uniform on a simplex.
        rng: the stream to draw from.
    """
    chosen = combinations[torch.randint(len(combinations), (num_tasks,), generator=rng)].float()
    if weights == "khot":
        return chosen
    if weights == "discrete":
        steps = torch.randint(5, 11, chosen.shape, generator=rng)
        return chosen * (steps / 10)
    drawn = torch.empty(chosen.shape).exponential_(generator=rng) * chosen
    return (0.5 + 0.5 * drawn / (drawn.sum(dim=1, keepdim=True) + 1)) * chosen
