"""One kept denoiser call made again, with its text or its picture disturbed and every position left to itself.

While attention lets a position see itself only, streams cannot mix at any depth: what follows the text is text, what
follows the picture is image, what follows neither is the model's own.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from t2iprobe.calibration.grid import channels_are_last, rectangle
from t2iprobe.calibration.observe import Event, Tracer, bind
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.hooks import HookSet
from t2iprobe.models.model import Model, forward_names

Disturbance = Callable[[Any], Any]
"""Makes another value of an argument."""

STRENGTHS = (0.1, 0.8, 6.4, 51.2)
"""Standard deviations that are added to the top left, top right, bottom left and bottom right quarter, in units of the
picture's own: the least is far more than half precision rounds off, also beside codes of the position."""

_KEPT = 4
"""Calls of each denoiser that are kept."""


class Unmixed(TorchFunctionMode):
    """Attention in which every position sees only itself, and nothing comes over from another stream."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        instead = _INSTEAD.get(func)
        if instead is None:
            return func(*args, **kwargs)
        try:
            return instead(*args, **kwargs)
        except Exception as error:
            self.error = error
            raise


def _own_values(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
    if query.shape[-2] != key.shape[-2]:
        return query.new_zeros(*query.shape[:-1], value.shape[-1])
    if query.ndim < 4:
        return value
    return value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)


def _own_weights(scores: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Weights (..., queries, keys) with which each position sees itself; a softmax over less is no attention."""
    weights = functional.softmax(scores, *args, **kwargs)
    if weights.ndim < 3:
        return weights
    if weights.shape[-1] != weights.shape[-2]:
        return torch.zeros_like(weights)
    eye = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    return eye.expand_as(weights)


def _projected_values(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
    """What nn.MultiheadAttention gives, (positions, rows, channels), where each position sees itself."""
    bound = bind(_MULTI_HEAD, args, kwargs)
    query, value = bound["query"], bound["value"]
    if query.shape[:-1] == value.shape[:-1]:
        weight, bias = bound.get("v_proj_weight"), bound["in_proj_bias"]
        weight = bound["in_proj_weight"].chunk(3)[2] if weight is None else weight
        value = functional.linear(value, weight, None if bias is None else bias.chunk(3)[2])
    else:
        value = torch.zeros_like(query)
    return functional.linear(value, bound["out_proj_weight"], bound["out_proj_bias"]), None


_MULTI_HEAD = list(inspect.signature(functional.multi_head_attention_forward).parameters)
_INSTEAD: dict[Any, Callable[..., Any]] = {
    functional.scaled_dot_product_attention: _own_values,
    functional.multi_head_attention_forward: _projected_values,
    functional.softmax: _own_weights,
    torch.softmax: _own_weights,
    Tensor.softmax: _own_weights,
}
"""What takes the place of attention, and of the softmax in attention that is written out."""


@dataclass
class Replays:
    """Calls of a model's denoisers that can be made once more.

    Args:
        model: the model.
        tracer: what watches the calls that are made again.
    """

    model: Model
    tracer: Tracer
    _kept: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """While the block is open, keep copies of what the denoisers are given: pipelines may change it in place."""
        self._kept = {name: [] for name in self.model.denoisers}
        with HookSet() as hooks:
            for name, module in self.model.denoisers.items():

                def keep(args: Any, kwargs: Any, calls: Any = self._kept[name]) -> None:
                    if len(calls) < _KEPT:
                        calls.append((_copy(args), _copy(kwargs)))

                hooks.before(module, keep)
            yield

    def takes_ids(self, name: str, index: int, argument: str) -> bool:
        """Whether an argument of a kept call is whole numbers, as the codes of a picture are."""
        if index >= len(self._kept[name]):
            return False
        value: Any = self._bound(name, index)
        for key in argument.split("."):
            value = value[key]
        return isinstance(value, Tensor) and not value.is_floating_point()

    def _bound(self, name: str, index: int) -> dict[str, Any]:
        args, kwargs = self._kept[name][index]
        return bind(forward_names(self.model.denoisers[name]), args, kwargs)

    def outputs(
        self, name: str, index: int, disturbances: Mapping[str, Disturbance]
    ) -> Sequence[Event]:
        """What the sites gave when a kept call was made again, every position left to itself; () of a later call.

        Args:
            name: of the denoiser.
            index: of its call.
            disturbances: dotted name of an argument -> what makes another value of it.

        Raises:
            ForeignError: the denoiser cannot be called so.
        """
        if index >= len(self._kept[name]):
            return ()
        module = self.model.denoisers[name]
        args, _ = self._kept[name][index]
        names, bound = forward_names(module), self._bound(name, index)
        for argument, disturb in disturbances.items():
            bound = _replaced(bound, argument.split("."), disturb)
        args = tuple(bound.pop(key) for key in names[: len(args)]) + tuple(args[len(names) :])
        bound = {key: value for key, value in bound.items() if not key.isdigit()}
        unmixed = Unmixed()

        def call() -> None:
            eager = torch.compiler.set_stance("force_eager")
            with torch.no_grad(), eager, unmixed, foreign(type(module).__name__):
                module(*args, **bound)

        try:
            return self.tracer.run(call).calls[name][0].events
        except ForeignError as failure:
            if unmixed.error is not None:
                raise unmixed.error from None
            raise failure
        finally:
            free = getattr(self.model.pipe, "maybe_free_model_hooks", None)
            if free is not None:
                free()


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(_copy(item) for item in value)
    return {key: _copy(item) for key, item in value.items()} if type(value) is dict else value


def _replaced(
    bound: Mapping[str, Any], path: Sequence[str], disturb: Disturbance
) -> dict[str, Any]:
    """Arguments with the one at a path disturbed."""
    head, *rest = path
    value = bound[head]
    return {**bound, head: _replaced(value, rest, disturb) if rest else disturb(value)}


def by_row(disturb: Callable[[Tensor], Tensor]) -> Disturbance:
    """A disturbance of every row of a batched argument: a tensor, or rows in lists."""

    def batch(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.stack([disturb(row) for row in value])
        return type(value)(disturb(row) if isinstance(row, Tensor) else batch(row) for row in value)

    return batch


def disturbed_text(first: int) -> Disturbance:
    """A disturbance of text states from a token on; those of one vector are disturbed as a whole."""

    def row(states: Tensor) -> Tensor:
        tokens = 1 if states.ndim == 3 and states.shape[0] < states.shape[1] else 0
        other = _disturbed(states)
        if states.is_floating_point() and states.ndim < 2:
            return other
        other.narrow(tokens, 0, first).copy_(states.narrow(tokens, 0, first))
        return other

    return by_row(row)


def disturbed_picture(size: tuple[int, int]) -> Disturbance:
    """A disturbance of a picture that is eight times as strong from one quarter to the next; of ids everywhere alike.

    Args:
        size: height and width of the image.
    """
    return by_row(lambda row: _disturbed(row, _strengths(row, size)))


def disturbed_quarter() -> Disturbance:
    """A disturbance of the bottom right quarter of a picture of ids (height, width); of ids in a row everywhere."""

    def row(ids: Tensor) -> Tensor:
        if ids.ndim < 2:
            return _disturbed(ids)
        other = ids.clone()
        height, width = ids.shape[-2:]
        corner = other[..., height // 2 :, width // 2 :]
        corner.copy_(_disturbed(corner))
        return other

    return by_row(row)


def _disturbed(values: Tensor, strength: Tensor | float = 1.0) -> Tensor:
    """Numbers with noise in units of their own spread; of whole numbers, which are ids, the neighbours."""
    if not values.is_floating_point():
        return torch.where(values > 0, values - 1, values + 1)
    noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(0))
    noise = noise * strength * (float(values.float().std(unbiased=False)) or 1.0)
    return values + noise.to(values.device, values.dtype)


def _strengths(row: Tensor, size: tuple[int, int]) -> Tensor | float:
    """How much noise each value of a picture gets, by quarters where its axes are known; blank tokens stay blank."""
    shape = row.shape
    if len(shape) == 2 or (len(shape) >= 5 and shape[0] > 1):  # tokens, or patches cut outside
        filled = row.flatten(1).abs().amax(-1).cpu() > 0
        height, width = rectangle(int(filled.sum()), size)
        strength = filled.float()
        if height:
            strength[filled] = torch.tensor(STRENGTHS)[quarters(height, width).flatten()]
        return strength.reshape(-1, *[1] * (len(shape) - 1))
    if len(shape) < 3:
        return 1.0
    last = channels_are_last(shape, size)
    height, width = shape[-3:-1] if last else shape[-2:]
    strength = torch.tensor(STRENGTHS)[quarters(height, width)]
    return strength[..., None] if last else strength


def quarters(height: int, width: int) -> Tensor:
    """For each cell of a grid its quarter: 0 top left, 1 top right, 2 bottom left, 3 bottom right."""
    rows, columns = torch.arange(height) >= height / 2, torch.arange(width) >= width / 2
    return 2 * rows[:, None].long() + columns[None].long()
