"""Weights and optimiser state in one safetensors file, written whole or not at all."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from synthetic.training import Trainer
from t2iprobe.errors import DataError
from t2iprobe.runs.folder import atomic


def save(trainer: Trainer, path: Path) -> None:
    """Write everything needed to continue: parameters, moments, step and cost."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainer.student.named_parameters():
        tensors[f"parameter/{name}"] = parameter.detach().cpu().contiguous()
        for optimiser in trainer.optimisers:
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"{key}/{name}"] = value.detach().cpu().contiguous()
    state = {
        "step": trainer.step,
        "losses": trainer.losses.tolist(),
        "losses_of": trainer.losses_of,
        "wall_s": trainer.cost.wall_s,
        "cpu_s": trainer.cost.cpu_s,
    }
    with atomic(path) as temporary:
        save_file(tensors, temporary, metadata={"state": json.dumps(state)})


def load(trainer: Trainer, path: Path) -> None:
    """Put a saved state into a trainer made with the same settings.

    Raises:
        DataError: the file is damaged or does not fit this student.
    """
    try:
        with safe_open(path, framework="pt") as file:
            _restore(trainer, path, file)
    except SafetensorError as error:
        raise DataError(f"{path} is damaged ({error}): delete it to train from the start") from None


def _restore(trainer: Trainer, path: Path, file: Any) -> None:
    """Put what an open file holds into a trainer."""
    if "state" not in (file.metadata() or {}):
        raise DataError(f"{path} is no checkpoint: delete it to train from the start")
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
    trainer.step, trainer.losses_of = state["step"], state["losses_of"]
    trainer.losses.copy_(torch.tensor(state["losses"]))
    trainer.cost.wall_s, trainer.cost.cpu_s = state["wall_s"], state["cpu_s"]


def save_member(trainer: Trainer, member: int, path: Path) -> None:
    """Write the weights of one member alone, as a student of one."""
    tensors = {
        name: parameter.detach()[member : member + 1].cpu().contiguous()
        for name, parameter in trainer.student.named_parameters()
    }
    with atomic(path) as temporary:
        save_file(tensors, temporary)
