"""One training loop for the codec and the denoisers; it can be killed at any step and continues exactly.

All randomness of a step comes from (seed, step), so the state to keep is the weights, their moving average and the
optimizers' moments. They are written together, as safetensors, every two minutes and at the end.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

SAVE_EVERY_S = 120.0
REPORT_EVERY_S = 20.0


@dataclass(frozen=True)
class Schedule:
    """Length and learning rate of a training run.

    Attributes:
        steps: number of updates.
        learning_rate: highest value, reached after `warmup` steps; a cosine leads down to `floor` times it.
        warmup: steps of linear increase.
        floor: share of the learning rate that is left at the end.
        ema: decay of the moving average of the weights, per step; it starts lower while the run is young.
    """

    steps: int
    learning_rate: float
    warmup: int = 50
    floor: float = 0.05
    ema: float = 0.99

    def rate(self, step: int) -> float:
        """The learning rate of an update."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = (step - self.warmup) / max(self.steps - self.warmup, 1)
        cosine = 0.5 * (1 + math.cos(math.pi * progress))
        return self.learning_rate * (self.floor + (1 - self.floor) * cosine)


class Trainer:
    """Updates a module by a loss, keeps a moving average, and saves and restores everything.

    Attributes:
        step: number of updates done.
        seconds: time spent in updates, over all starts.
    """

    def __init__(self, module: nn.Module, schedule: Schedule, state_file: Path) -> None:
        self.module, self.schedule, self.state_file = module, schedule, state_file
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.names = list(named)
        self.parameters: list[Tensor] = list(named.values())
        matrices = [p for name, p in named.items() if p.ndim == 2 and "blocks." in name]
        taken = {id(p) for p in matrices}
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(
                [p for p in self.parameters if id(p) not in taken],
                betas=(0.9, 0.99),
                weight_decay=0.0,
                fused=True,
            )
        ]
        if matrices:
            muon = torch.optim.Muon(matrices, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
            self.optimizers.append(muon)
        self.average = [p.detach().clone() for p in self.parameters]
        self.step, self.seconds = 0, 0.0
        if state_file.exists():
            self._load()

    def run(self, loss_at: Callable[[int], Tensor], after: Callable[[int], None]) -> None:
        """Trains to the end of the schedule.

        Args:
            loss_at: the loss of an update, from its number.
            after: called with the number of updates done, e.g. to keep a checkpoint.
        """
        started = saved = reported = time.monotonic()
        before, losses = self.seconds, []
        while self.step < self.schedule.steps:
            losses.append(self._update(loss_at(self.step)))
            self.step += 1
            now = time.monotonic()
            self.seconds = before + now - started
            after(self.step)
            done = self.step == self.schedule.steps
            if done or now - reported > REPORT_EVERY_S:
                recent = sum(losses) / len(losses)
                print(
                    f"  step {self.step}/{self.schedule.steps}  loss {recent:.4f}"
                    f"  {self.seconds / 60:.1f} min  {(now - reported) / len(losses):.3f} s/step",
                    flush=True,
                )
                reported, losses = now, []
            if done or now - saved > SAVE_EVERY_S:
                self.save()
                saved = now

    def _update(self, loss: Tensor) -> float:
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.schedule.rate(self.step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        decay = min(self.schedule.ema, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(self.average, self.parameters, 1 - decay)
        return float(loss.detach())

    def swap_average(self) -> None:
        """Exchanges the weights and their moving average, in place; calling it twice changes nothing."""
        with torch.no_grad():
            for parameter, average in zip(self.parameters, self.average, strict=True):
                kept = parameter.detach().clone()
                parameter.copy_(average)
                average.copy_(kept)

    def save(self) -> None:
        """Writes the state under a temporary name and renames it."""
        tensors = {}
        for name, parameter, average in zip(self.names, self.parameters, self.average, strict=True):
            tensors["weight/" + name] = parameter.detach()
            tensors["average/" + name] = average
            for optimizer in self.optimizers:
                for key, value in optimizer.state.get(parameter, {}).items():
                    tensors[f"{key}/{name}"] = torch.as_tensor(value)
        tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
        self.state_file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.state_file.with_suffix(".partial")
        save_file(tensors, partial, {"step": str(self.step), "seconds": str(self.seconds)})
        partial.replace(self.state_file)

    def _load(self) -> None:
        with safe_open(self.state_file, framework="pt") as file:
            about = file.metadata()
            self.step, self.seconds = int(about["step"]), float(about["seconds"])
            stored = set(file.keys())
            rows = zip(self.names, self.parameters, self.average, strict=True)
            for name, parameter, average in rows:
                with torch.no_grad():
                    parameter.copy_(file.get_tensor("weight/" + name))
                average.copy_(file.get_tensor("average/" + name))
                for key in ("step", "exp_avg", "exp_avg_sq", "momentum_buffer"):
                    if f"{key}/{name}" in stored:
                        state = self._owner(parameter).state[parameter]
                        state[key] = file.get_tensor(f"{key}/{name}")
        print(f"  continuing at step {self.step}", flush=True)

    def _owner(self, parameter: Tensor) -> torch.optim.Optimizer:
        for optimizer in self.optimizers:
            if any(parameter is p for group in optimizer.param_groups for p in group["params"]):
                return optimizer
        raise AssertionError("every parameter belongs to an optimizer")
