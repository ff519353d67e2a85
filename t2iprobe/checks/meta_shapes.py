"""Denoisers called for the shapes alone: on the meta device nothing is computed, whatever the size of the image."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from t2iprobe.calibration.observe import bind, tensors_in
from t2iprobe.models.hooks import HookSet
from t2iprobe.models.model import Model, forward_names
from t2iprobe.models.sites import denoiser_blocks

Shapes = dict[str, dict[str, tuple[int, ...]]]
"""Shapes of the tensors that the sites of a denoiser give in one call, by path and name."""


class ShapeWatch:
    """Keeps the shapes that the sites of every denoiser give.

    Attributes:
        calls: by denoiser, of every call in order.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.calls: dict[str, list[Shapes]] = {name: [] for name in model.denoisers}

    @contextmanager
    def computed(self) -> Iterator[None]:
        """While the block is open, keep the shapes of what is really computed."""
        with HookSet() as hooks:
            for name, module in self._model.denoisers.items():
                _keep(hooks, module, self.calls[name])
            yield

    @contextmanager
    def instead(self, shadows: Mapping[str, nn.Module]) -> Iterator[None]:
        """While the block is open, denoisers are called on the meta device and give noise of the right shape.

        Args:
            shadows: every denoiser once more, on the meta device.
        """
        computing = {name: module.forward for name, module in self._model.denoisers.items()}
        with HookSet() as hooks:
            try:
                for name, module in self._model.denoisers.items():
                    module.forward = _answer(hooks, module, shadows[name], self.calls[name])
                yield
            finally:
                for name, forward in computing.items():
                    self._model.denoisers[name].forward = forward


def _keep(hooks: HookSet, root: nn.Module, calls: list[Shapes]) -> None:
    hooks.before(root, lambda *_: calls.append({}))
    for path, block in denoiser_blocks(root).items():
        hooks.after(block, partial(_kept, calls, path))


def _kept(calls: list[Shapes], path: str, _args: Any, _kwargs: Any, output: Any) -> None:
    calls[-1].setdefault(path, {name: tuple(t.shape) for name, t in tensors_in(output)})


def _answer(
    hooks: HookSet, module: nn.Module, shadow: nn.Module, calls: list[Shapes]
) -> Callable[..., Any]:
    """A forward that gives noise of the shape that a shadow gives, and notes what the sites of the shadow gave."""
    names, seen = forward_names(module), list[Shapes]()
    known: dict[Any, tuple[Any, Shapes]] = {}
    _keep(hooks, shadow, seen)

    @wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = tensors_in(bind(names, args, kwargs))
        key = tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in given)
        if key not in known:
            there = pytree.tree_map_only(Tensor, lambda t: t.to("meta"), (args, kwargs))
            known[key] = shadow(*there[0], **there[1]), seen[-1]
        output, shapes = known[key]
        calls.append(shapes)
        return pytree.tree_map_only(Tensor, _noise, output)

    return forward


def _noise(there: Tensor) -> Tensor:
    draw = torch.Generator("cpu").manual_seed(0)
    return torch.randn(there.shape, generator=draw).to(there.dtype)
