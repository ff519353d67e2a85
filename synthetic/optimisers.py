"""Optimisers of the two recipes: AdamW as in the reference, and Muon for hidden matrices beside AdamW for the rest."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

DECAYED = ("weight", "table")
MUON_RATE = 8.0
"""Muon's rate in units of AdamW's: its steps have unit spectral norm, AdamW's unit entries."""


class Muon(torch.optim.Optimizer):
    """Momentum whose step is made orthogonal, for stacks of matrices (e, in, out) (Jordan et al. 2024).

    The step of each matrix is the nearest (semi-)orthogonal one to its Nesterov momentum, times sqrt(max(1, out /
    in)), so that every direction of the matrix moves by the same amount. Weight decay is decoupled.
    """

    def __init__(
        self,
        parameters: Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step from the gradients of all parameters."""
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                smooth: Tensor = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                direction = orthogonalise(parameter.grad.lerp(smooth, group["momentum"]))
                fan_in, fan_out = parameter.shape[-2:]
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(direction, alpha=-group["lr"] * max(1.0, fan_out / fan_in) ** 0.5)


def orthogonalise(matrices: Float[Tensor, "e i o"], iterations: int = 5) -> Float[Tensor, "e i o"]:
    """Matrices with the same singular vectors and singular values near 1 (0.7 to 1.2).

    Five Newton-Schulz iterations of an odd polynomial of degree 5 whose slope at 0 is large (Jordan et al. 2024).
    """
    first, third, fifth = 3.4445, -4.7750, 2.0315
    x: Tensor = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    for _ in range(iterations):
        square = x @ x.mT
        x = first * x + (third * square + fifth * square @ square) @ x
    orthogonal: Tensor = x.mT if tall else x
    return orthogonal


def make_optimisers(
    student: nn.Module, recipe: str, rate: float, decay: float
) -> list[torch.optim.Optimizer]:
    """The optimisers of a recipe.

    Matrices are decayed, biases and norms are not, as the reference masks it. With the fast recipe, what the student
    names in `orthogonal_steps` goes to Muon. Every group carries `factor`: its rate in units of the schedule's.
    """
    prefixes = getattr(student, "orthogonal_steps", ()) if recipe == "fast" else ()
    hidden, matrices, others = [], [], []
    for name, parameter in student.named_parameters():
        if name.rsplit(".", 1)[-1] not in DECAYED:
            others.append(parameter)
        elif name.startswith(tuple(prefixes)) and name.endswith("weight"):
            hidden.append(parameter)
        else:
            matrices.append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": decay, "factor": 1.0},
        {"params": others, "weight_decay": 0.0, "factor": 1.0},
    ]
    betas = (0.9, 0.999) if recipe == "paper" else (0.9, 0.99)
    made: list[torch.optim.Optimizer] = [
        torch.optim.AdamW([g for g in groups if g["params"]], lr=rate, betas=betas, fused=True)
    ]
    if hidden:
        made.append(
            Muon([{"params": hidden, "factor": MUON_RATE}], lr=MUON_RATE * rate, weight_decay=decay)
        )
    return made
