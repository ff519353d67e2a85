"""A pipeline call watched from outside: what every denoiser call got and every candidate site gave.

Only small fingerprints are kept (a few channels of every position), enough to tell whether two tensors are the same,
which positions of them differ, and how long each axis is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from t2iprobe.models.hooks import HookSet, find_module, unwrap
from t2iprobe.models.model import Model, forward_names, timestep_name, word_table

CHANNELS = 8
"""Channels kept of every token position: the first ones, so that joined or padded text states are still recognised."""
_MAP_VALUES = 4096


@dataclass(frozen=True)
class Print:
    """Fingerprint of one tensor: its whole shape, and a sample with every axis but the last in full length.

    Feature maps (four axes and more) are sampled along their flattened positions instead.
    """

    shape: tuple[int, ...]
    sample: Tensor

    def row(self, index: int, axis: int = 0) -> Tensor:
        """The sample of one row of the batch."""
        return self.sample.select(axis, index)


def as_tokens(states: Print) -> Print:
    """Text states of several layers per token, (tokens, layers, width), as (tokens, layers * width)."""
    if len(states.shape) != 3:
        return states
    n, layers, width = states.shape
    return Print((n, layers * width), states.sample[:, 0])


def sampled_positions(shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Which positions of a feature map its fingerprint has: for each axis but the first, one index for each value."""
    inner = torch.Size(shape[1:])
    at = torch.arange(0, inner.numel(), max(1, inner.numel() // _MAP_VALUES))
    return torch.unravel_index(at, inner)


def fingerprint(tensor: Tensor) -> Print:
    """A small float32 sample of a tensor on the CPU."""
    values = tensor.detach()
    if (
        values.ndim >= 4
    ):  # by index: flattening would copy a large tensor whose axes are not in order
        where: tuple[Any, ...] = sampled_positions(values.shape)
        values = values[(slice(None), *(at.to(values.device) for at in where))]
    elif values.ndim >= 1:
        values = values[..., :CHANNELS]
    return Print(tuple(tensor.shape), values.to("cpu", torch.float32, copy=True))


def fingerprints(rows: Sequence[Tensor]) -> list[Print]:
    """The fingerprint of each row of a batched argument; rows of one shape leave the device in one copy.

    Positions of image tokens look like a batch of thousands of rows, each of which would wait for the device.
    """
    if not rows or len({row.shape for row in rows}) > 1 or not 1 <= rows[0].ndim <= 3:
        return [fingerprint(row) for row in rows]
    samples = torch.stack([row.detach()[..., :CHANNELS] for row in rows])
    own = tuple(rows[0].shape)
    return [Print(own, sample) for sample in samples.to("cpu", torch.float32).unbind()]


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in a nested output or argument with a dotted name.

    Tuples go by position, mappings by key, dataclasses by field.
    """
    if isinstance(value, Tensor):
        yield name, value
        return
    if is_dataclass(value) and not isinstance(value, Mapping):
        value = {part.name: getattr(value, part.name) for part in fields(value)}
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from tensors_in(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from tensors_in(item, f"{name}.{index}" if name else str(index))


def bind(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call by parameter name; by position where a forward that was replaced has no names for them."""
    surplus = {str(index): value for index, value in enumerate(args) if index >= len(names)}
    return dict(zip(names, args, strict=False)) | surplus | dict(kwargs)


def rows_of(value: Any) -> list[Tensor]:
    """Text states as one tensor per row: a tensor is cut along its first axis, a list is rows already.

    Whole numbers count too, as some denoisers take token ids: a row of n ids becomes (n, 1). Text states with several
    layers per token are (tokens, layers, width).
    """
    return [_tokens_first(row) for row in _batch(value)]


def _tokens_first(row: Tensor) -> Tensor:
    """A row of (layers, tokens, width) as (tokens, layers, width): there are more tokens than layers."""
    return row.transpose(0, 1) if row.ndim == 3 and row.shape[0] < row.shape[1] else row


def turn_states(calls: Iterable["Call"], argument: str) -> None:
    """Turn the text states of calls as `rows_of` has them."""
    for call in calls:
        for index, row in enumerate(call.arguments.get(argument, [])):
            if len(row.shape) == 3 and row.shape[0] < row.shape[1]:
                layers, n, width = row.shape
                turned = Print((n, layers, width), row.sample.transpose(0, 1))
                call.arguments[argument][index] = turned


def _batch(value: Any) -> list[Tensor]:
    """A batched argument as one tensor per row; a picture of ids becomes (1, height, width)."""
    if isinstance(value, Tensor):
        return [_as_floats(row) for row in value] if value.ndim >= 2 and _is_number(value) else []
    if isinstance(value, list | tuple) and value:
        flat = [
            item[0] if isinstance(item, list | tuple) and len(item) == 1 else item for item in value
        ]
        if all(isinstance(item, Tensor) and _is_number(item) and item.ndim for item in flat):
            return [_as_floats(item) for item in flat]
    return []


def _is_number(value: Tensor) -> bool:
    return value.dtype != torch.bool and not value.is_complex()


def _as_floats(row: Tensor) -> Tensor:
    if row.is_floating_point():
        return row
    return row.float().unsqueeze(0 if row.ndim == 2 else -1)


def batched_arguments(bound: Mapping[str, Any]) -> Iterator[tuple[str, list[Tensor]]]:
    """Batched arguments of a denoiser call by dotted name; dictionaries of extra conditions are opened."""
    for name, value in bound.items():
        if isinstance(value, Mapping):
            for inner, rows in batched_arguments(value):
                yield f"{name}.{inner}", rows
        elif rows := _batch(value):
            yield name, rows


def read_timestep(value: Any) -> float:
    """The noise level as the denoiser gets it: a number, a scalar tensor or one per row."""
    if isinstance(value, Tensor):
        return float(value.detach().flatten()[0].item())
    return float(value)


def _rows_at_level(value: Any) -> int | None:
    """How many rows are at the first row's noise level, where later ones are at another."""
    if not isinstance(value, Tensor) or value.ndim != 1:
        return None
    other = (value != value[0]).nonzero()
    return int(other[0]) if len(other) else None


@dataclass(frozen=True)
class Event:
    """What one site gave in one forward: its tensors by name."""

    path: str
    class_name: str
    tensors: dict[str, Print]


@dataclass
class Call:
    """One denoiser call: noise level, batched arguments row by row, and what its sites saw.

    `at_level` is the number of rows at that level where others follow at another one; None where all have it.
    `number` tells the order of the calls of all denoisers.
    """

    timestep: float
    arguments: dict[str, list[Print]]
    events: list[Event] = field(default_factory=list)
    at_level: int | None = None
    number: int = 0


@dataclass
class EncoderPass:
    """One pass of a text encoder: token ids (rows, tokens), which embedding took them, what its sites gave."""

    embedding: str
    ids: Tensor
    events: list[Event] = field(default_factory=list)


@dataclass
class Trace:
    """Everything seen in one pipeline call, by component."""

    calls: dict[str, list[Call]] = field(default_factory=dict)
    passes: dict[str, list[EncoderPass]] = field(default_factory=dict)
    output: Any = None


def _differ(before: Mapping[str, list[Print]], now: Mapping[str, list[Print]]) -> bool:
    """Whether the first argument of two calls, the picture in the making, differs."""
    name = next(iter(now), None)
    if name is None or name not in before:
        return True
    pairs = zip(before[name], now[name], strict=False)
    return any(a.shape != b.shape or not torch.equal(a.sample, b.sample) for a, b in pairs)


class Tracer:
    """Watches one pipeline call.

    Args:
        model: the model.
        sites: candidate paths by component, watched in full detail.
        detail: how many calls of each denoiser are watched in full detail.
    """

    def __init__(self, model: Model, sites: Mapping[str, Sequence[str]], detail: int) -> None:
        self._model, self._sites, self._detail = model, sites, detail
        self._numbers = count()

    def run(self, call: Callable[[], Any]) -> Trace:
        """The trace of `call()`."""
        trace = Trace()
        with HookSet() as hooks:
            for name, module in self._model.denoisers.items():
                self._watch_denoiser(hooks, trace, name, module)
            for name, module in self._model.encoders.items():
                self._watch_encoder(hooks, trace, name, module)
            trace.output = call()
            hooks.raise_error()
        return trace

    def _watch_denoiser(
        self, hooks: HookSet, trace: Trace, component: str, module: nn.Module
    ) -> None:
        names, time = forward_names(module), timestep_name(module)
        calls: list[Call] = []

        def level(bound: dict[str, Any], arguments: dict[str, list[Print]]) -> float:
            """The noise level; where a denoiser takes none, how often its first argument has changed."""
            if time is not None:
                return read_timestep(bound[time])
            if not calls:
                return 0.0
            return calls[-1].timestep + float(_differ(calls[-1].arguments, arguments))

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            bound = bind(names, args, kwargs)
            arguments = {
                name: fingerprints(rows) for name, rows in batched_arguments(bound) if name != time
            }
            at_level = _rows_at_level(bound[time]) if time is not None else None
            own = Call(level(bound, arguments), arguments, [], at_level, next(self._numbers))
            calls.append(own)
            trace.calls[component] = calls

        hooks.before(module, begin)
        for path in self._sites.get(component, ()):
            self._watch_site(
                hooks,
                find_module(module, path),
                path,
                lambda: calls[-1].events if calls and len(calls) <= self._detail else None,
            )

    def _watch_encoder(
        self, hooks: HookSet, trace: Trace, component: str, module: nn.Module
    ) -> None:
        passes: list[EncoderPass] = []
        table = word_table(module)
        for path, child in module.named_modules():
            if isinstance(child, nn.Embedding) and table and _same_table(child, table):

                def begin(args: tuple[Any, ...], kwargs: dict[str, Any], path: str = path) -> None:
                    ids = args[0] if args else next(iter(kwargs.values()))
                    passes.append(EncoderPass(path, ids.detach().to("cpu", copy=True)))
                    trace.passes[component] = passes

                hooks.before(child, begin)
        for path in self._sites.get(component, ()):
            self._watch_site(
                hooks,
                find_module(module, path),
                path,
                lambda: passes[-1].events if passes else None,
            )

    def _watch_site(
        self, hooks: HookSet, module: nn.Module, path: str, events: Callable[[], list[Event] | None]
    ) -> None:
        class_name = type(unwrap(module)).__name__

        def note(_args: Any, _kwargs: Any, output: Any) -> None:
            target = events()
            if target is not None:
                tensors = {
                    name: fingerprint(tensor)
                    for name, tensor in tensors_in(output)
                    if tensor.is_floating_point() and name.count(".") < 1
                }
                target.append(Event(path, class_name, tensors))

        hooks.after(module, note)


def _same_table(one: nn.Embedding, other: nn.Embedding) -> bool:
    """Whether two embeddings hold the same words.

    T5 declares `shared` and calls `encoder.embed_tokens`; both have one weight unless the tie was lost, as it is when
    weights come from a single file or are offloaded. Then the size tells.
    """
    sizes = [(table.num_embeddings, table.embedding_dim) for table in (one, other)]
    return one.weight is other.weight or sizes[0] == sizes[1]
