"""Weights and optimiser state in one safetensors file, written whole or not at all."""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from synthetic.training import Trainer
from t2iprobe.errors import DataError
from t2iprobe.store import atomic


def save(trainer: Trainer, path: Path) -> None:
    """Write everything needed to continue: parameters, moments, step and cost."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainer.student.named_parameters():
        tensors[f"parameter/{name}"] = parameter.detach().cpu().contiguous()
        for optimiser in trainer.optimisers:
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = value.detach().cpu().contiguous()
    state = {"step": trainer.step, "wall_s": trainer.cost.wall_s, "cpu_s": trainer.cost.cpu_s}
    with atomic(path) as temporary:
        save_file(tensors, temporary, metadata={"state": json.dumps(state)})


def load(trainer: Trainer, path: Path) -> None:
    """Put a saved state into a trainer made with the same settings.

    Raises:
        DataError: the file does not fit this student.
    """
    with safe_open(path, framework="pt") as file:
        state = json.loads(file.metadata()["state"])
        names = set(file.keys())
        for name, parameter in trainer.student.named_parameters():
            if f"parameter/{name}" not in names:
                raise DataError(
                    f"{path} is a checkpoint of another student (no {name}): give another --out"
                )
            with torch.no_grad():
                parameter.copy_(file.get_tensor(f"parameter/{name}"))
            state_of = {
                key.split("/")[0]: file.get_tensor(key).to(trainer.device)
                for key in names
                if key.split("/", 1)[1] == name and not key.startswith("parameter/")
            }
            for optimiser in trainer.optimisers:
                if state_of and any(
                    parameter is p for group in optimiser.param_groups for p in group["params"]
                ):
                    optimiser.state[parameter] = state_of
    trainer.step = state["step"]
    trainer.cost.wall_s, trainer.cost.cpu_s = state["wall_s"], state["cpu_s"]


def save_member(trainer: Trainer, member: int, path: Path) -> None:
    """Write the weights of one member alone, as a student of one."""
    tensors = {
        name: parameter.detach()[member : member + 1].cpu().contiguous()
        for name, parameter in trainer.student.named_parameters()
    }
    with atomic(path) as temporary:
        save_file(tensors, temporary)
