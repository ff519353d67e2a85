"""A denoiser call made once more on a changed picture: which positions follow the picture, and in which order.

The picture is changed by noise that is eight times as strong from one quarter to the next. What does not change holds
no image; how much the rest changes tells the quarter that it lies in.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from t2iprobe.calibration.grid import channels_are_last, rectangle
from t2iprobe.calibration.trace import Event, Tracer
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.hooks import HookSet
from t2iprobe.models.model import Model, forward_names

STRENGTHS = (0.1, 0.8, 6.4, 51.2)
"""Standard deviations that are added to the top left, top right, bottom left and bottom right quarter, in units of the
picture's own: the least is far more than half precision rounds off, also beside codes of the position."""

_KEPT = 4
"""Calls of each denoiser that are kept."""


@dataclass
class Nudges:
    """Calls of a model's denoisers that can be made once more.

    Args:
        model: the model.
        tracer: what watches the calls that are made again.
    """

    model: Model
    tracer: Tracer
    _given: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """While the block is open, keep copies of what the denoisers are given: pipelines may change it in place."""
        self._given = {name: [] for name in self.model.denoisers}
        with HookSet() as hooks:
            for name, module in self.model.denoisers.items():

                def keep(args: Any, kwargs: Any, own: list[Any] = self._given[name]) -> None:
                    if len(own) < _KEPT:
                        own.append((_copy(args), _copy(kwargs)))

                hooks.before(module, keep)
            yield

    def events(
        self, name: str, index: int, argument: str | None, size: tuple[int, int]
    ) -> Sequence[Event]:
        """What the sites saw when a kept call was made again on a changed picture; () where that cannot be done.

        Args:
            name: of the denoiser.
            index: of its call.
            argument: the one that is denoised; None where there is none.
            size: height and width of the image.
        """
        module = self.model.denoisers[name]
        calls = self._given.get(name, [])
        if argument is None or index >= len(calls):
            return ()
        args, kwargs = calls[index]
        names = forward_names(module)
        bound = dict(zip(names, args, strict=False)) | dict(kwargs)
        changed = _changed(bound, argument.split("."), size)
        if changed is None:
            return ()
        args = tuple(changed.pop(key) for key in names[: len(args)]) + tuple(args[len(names) :])

        def call() -> None:
            with torch.no_grad(), foreign(type(module).__name__):
                module(*args, **changed)

        try:
            calls_again = self.tracer.run(call).calls[name]
        except ForeignError:
            return ()
        finally:
            free = getattr(self.model.pipe, "maybe_free_model_hooks", None)
            if free is not None:
                free()
        return calls_again[0].events


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(_copy(item) for item in value)
    return {key: _copy(item) for key, item in value.items()} if type(value) is dict else value


def _changed(
    bound: Mapping[str, Any], path: Sequence[str], size: tuple[int, int]
) -> dict[str, Any] | None:
    """Arguments with the one at a path changed; None where it is no picture of real numbers."""
    head, *rest = path
    if head not in bound:
        return None
    own = bound[head]
    other = (
        _changed(own, rest, size) if rest and isinstance(own, Mapping) else _moved_rows(own, size)
    )
    return None if other is None else {**bound, head: other}


def _moved_rows(value: Any, size: tuple[int, int]) -> Any:
    """A batch with every row changed; None where a row cannot be."""
    if isinstance(value, Tensor):
        moved = [own for row in value if (own := _moved(row, size)) is not None]
        return torch.stack(moved) if len(moved) == len(value) else None
    if not isinstance(value, list | tuple):
        return None
    rows = [
        _moved_rows(row, size) if type(row) in (list, tuple) else _moved(row, size) for row in value
    ]
    return None if any(row is None for row in rows) else type(value)(rows)


def _moved(row: Any, size: tuple[int, int]) -> Tensor | None:
    """One row of what is denoised with noise added; blank tokens stay blank. None where it is no picture."""
    if not isinstance(row, Tensor) or not row.is_floating_point():
        return None
    strength = _strengths(row, size)
    if strength is None:
        return None
    noise = torch.randn(row.shape, generator=torch.Generator().manual_seed(0))
    noise = noise * strength * (float(row.float().std()) or 1.0)
    return row + noise.to(row.device, row.dtype)


def _strengths(row: Tensor, size: tuple[int, int]) -> Tensor | None:
    """How much noise each value of a row gets, as far as its axes are known."""
    shape = row.shape
    if len(shape) == 2 or (len(shape) >= 5 and shape[0] > 1):  # tokens, or patches cut outside
        filled = row.flatten(1).abs().amax(-1).cpu() > 0
        height, width = rectangle(int(filled.sum()), size)
        own = filled.float()
        if height:
            own[filled] = torch.tensor(STRENGTHS)[quarters(height, width).flatten()]
        return own.reshape(-1, *[1] * (len(shape) - 1))
    if len(shape) < 3:
        return None
    last = channels_are_last(shape, size)
    height, width = shape[-3:-1] if last else shape[-2:]
    strength = torch.tensor(STRENGTHS)[quarters(height, width)]
    return strength[..., None] if last else strength


def quarters(height: int, width: int) -> Tensor:
    """For each cell of a grid its quarter: 0 top left, 1 top right, 2 bottom left, 3 bottom right."""
    rows, columns = torch.arange(height) >= height / 2, torch.arange(width) >= width / 2
    return 2 * rows[:, None].long() + columns[None].long()
