"""Ways to call a pipeline of any size in moments without changing what a trial sees.

Of a list of equal blocks one is computed and the others hand on its streams; of a run's denoiser calls those at the
first noise level are computed and the later ones answered from them; pictures are decoded for their shape alone;
attention over many positions is linear, and biases of distances need no copy. Every module still runs where it did, on
tensors of the true shapes.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from t2iprobe.calibration.observe import bind, read_timestep, tensors_in
from t2iprobe.checks.stand_ins import LARGE
from t2iprobe.models.model import Model, forward_names, timestep_name
from t2iprobe.models.sites import denoiser_blocks, encoder_layers

_CHANNELS = 64
"""Channels by which an output is compared with the inputs of its block."""

ATTENTION_LIMIT = 1 << 28
"""Products in one attention above which it is linear."""


def shorten(model: Model, decoders: Mapping[str, nn.Module], every_call: bool = False) -> None:
    """Put every shortcut into a pipeline of stand-ins. It is good for trial calls only, not for pictures.

    Args:
        model: the pipeline; its modules are changed.
        decoders: codecs on the meta device, by component.
        every_call: compute every call of a denoiser; a pipeline may read what a call leaves in its modules.
    """
    for module in model.denoisers.values():
        _repeat(module, list(denoiser_blocks(module)), turn=False)
    for module in model.encoders.values():
        for _, layers in encoder_layers(module):
            _repeat(module, layers, turn=True)
    answers = [] if every_call else [_answer(module) for module in model.denoisers.values()]
    for name, codec in decoders.items():
        _decode_shape(model.modules[name], codec)
    _wrap_call(model.pipe, answers)


def _wrap_call(pipe: Any, answers: Sequence[Callable[[], None]]) -> None:
    """Begin a new run with every call of the pipeline; the class keeps its name and the signature of its call."""
    kind = type(pipe)

    @functools.wraps(kind.__call__)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        for begin in answers:
            begin()
        with LightAttention():
            return kind.__call__(self, *args, **kwargs)

    pipe.__class__ = type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def signature(module: nn.Module) -> tuple[Any, ...]:
    """What makes two blocks equal but for their weights: class, switches, and names, classes and shapes inside."""
    switches = {k: v for k, v in vars(module).items() if isinstance(v, bool | str) or v is None}
    return (
        type(module),
        tuple(sorted((k, str(v)) for k, v in switches.items())),
        tuple((name, type(part)) for name, part in module.named_modules()),
        tuple((name, tuple(weight.shape)) for name, weight in module.named_parameters()),
    )


def _repeat(root: nn.Module, paths: Sequence[str], turn: bool) -> None:
    """Of the blocks of a list that are equal, compute the first only.

    Blocks that hold other sites are left alone, or those would stay silent.
    """
    groups: dict[tuple[Any, ...], list[nn.Module]] = {}
    for path in paths:
        if not any(other.startswith(path + ".") for other in paths):
            block = root.get_submodule(path)
            groups.setdefault((path.rpartition(".")[0], *signature(block)), []).append(block)
    for first, *others in groups.values():
        if others:
            pattern = _Pattern(first)
            for block in others:
                pattern.follow(block, turn)


class _Pattern:
    """What the first of some equal blocks does: which of its inputs each of its outputs goes on from."""

    def __init__(self, block: nn.Module) -> None:
        self._names = forward_names(block)
        self._seen: dict[Any, tuple[list[str | None], pytree.TreeSpec] | None] = {}
        compute = block.forward

        @functools.wraps(compute)
        def forward(*args: Any, **kwargs: Any) -> Any:
            output = compute(*args, **kwargs)
            given = self._given(args, kwargs)
            self._seen[_shapes(given)] = _origins(given, output)
            return output

        block.forward = forward

    def _given(self, args: Any, kwargs: Any) -> dict[str, Tensor]:
        return dict(tensors_in(bind(self._names, args, kwargs)))

    def follow(self, block: nn.Module, turn: bool) -> None:
        """Let a block hand on its streams as the first one does.

        Args:
            block: an equal block.
            turn: whether the channels of a token stream move on by one, so that no two layers give the same.
        """
        compute = block.forward

        @functools.wraps(compute)
        def forward(*args: Any, **kwargs: Any) -> Any:
            given = self._given(args, kwargs)
            found = self._seen.get(_shapes(given))
            if found is None:
                return compute(*args, **kwargs)
            origins, spec = found
            values = [None if name is None else given[name] for name in origins]
            if turn:
                values = [v.roll(1, -1) if v is not None and v.ndim == 3 else v for v in values]
            return pytree.tree_unflatten(values, spec)

        block.forward = forward


def _shapes(given: Mapping[str, Tensor]) -> tuple[Any, ...]:
    return tuple((name, tuple(tensor.shape), tensor.dtype) for name, tensor in given.items())


def _origins(
    given: Mapping[str, Tensor], output: Any
) -> tuple[list[str | None], pytree.TreeSpec] | None:
    """For each part of an output the input that it is most like, and how the parts lie in it.

    None where an output has the shape of no input, so that the block cannot be left out.
    """
    parts, spec = pytree.tree_flatten(output)
    origins: list[str | None] = []
    for part in parts:
        if part is None:
            origins.append(None)
            continue
        if not isinstance(part, Tensor):
            return None
        fits = [
            name
            for name, tensor in given.items()
            if tensor.shape == part.shape and tensor.dtype == part.dtype
        ]
        if not fits:
            return None
        origins.append(max(fits, key=lambda name: _likeness(given[name], part)))
    return origins, spec


def _likeness(one: Tensor, other: Tensor) -> float:
    a, b = (t[..., :_CHANNELS].flatten().float() for t in (one, other))
    return float(torch.cosine_similarity(a, b, dim=0))


def _answer(denoiser: nn.Module) -> Callable[[], None]:
    """Compute a denoiser's calls at the first noise level of a run, and answer later ones with what those gave.

    A call whose rows are at several levels is computed: in a batch other rows are at other levels than in a single one.
    Returns the function that says that a new run begins.
    """
    names, time = forward_names(denoiser), timestep_name(denoiser)
    compute = denoiser.forward
    known: dict[Any, Any] = {}
    first: list[float] = []
    if time is None:
        return first.clear

    @functools.wraps(compute)
    def forward(*args: Any, **kwargs: Any) -> Any:
        bound = bind(names, args, kwargs)
        levels = bound[time]
        if isinstance(levels, Tensor) and bool((levels != levels.flatten()[0]).any()):
            return compute(*args, **kwargs)
        level = read_timestep(levels)
        if not first:
            first.append(level)
        key = _shapes(dict(tensors_in(bound)))
        if level == first[0] or key not in known:
            known[key] = compute(*args, **kwargs)
        return pytree.tree_map_only(Tensor, torch.clone, known[key])

    denoiser.forward = forward
    return first.clear


def _decode_shape(codec: nn.Module, shadow: Any) -> None:
    """Let a codec's decode give grey pictures of the true shape, found on the meta device."""
    compute: Callable[..., Any] = codec.decode  # type: ignore[assignment]

    @functools.wraps(compute)
    def decode(*args: Any, **kwargs: Any) -> Any:
        there = pytree.tree_map_only(Tensor, lambda t: t.to("meta"), (args, kwargs))
        try:
            output = shadow.decode(*there[0], **there[1])
        except RuntimeError:  # it looks at values
            return compute(*args, **kwargs)
        return pytree.tree_map_only(Tensor, _grey, output)

    codec.decode = decode  # type: ignore[assignment]


def _grey(there: Tensor) -> Tensor:
    return torch.zeros((), dtype=there.dtype).expand(there.shape)


class LightAttention(TorchFunctionMode):
    """Attention over many positions as a product of features: each query still draws on every key it may see.

    Biases that depend on the distance of two positions are looked up in the order in which attention takes them.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            given = bind(names, args, kwargs)
            if _many(given):
                return _linear_attention(given)
        if func is torch.nn.functional.embedding:
            given = bind(("input", "weight"), args, kwargs)
            if _of_distances(given["input"], given["weight"]):
                return _channels_first(given["input"], given["weight"])
        return func(*args, **kwargs)


def _of_distances(ids: Tensor, weight: Tensor) -> bool:
    """Whether an embedding looks up one of a few distances for every pair of positions, as T5 does."""
    return ids.ndim == 2 and ids.numel() > 64 * len(weight) and ids.numel() > LARGE


def _channels_first(ids: Tensor, weight: Tensor) -> Tensor:
    """What an embedding gives, laid out in memory as attention takes it: to copy it so is most of the cost."""
    columns = weight.t().contiguous().index_select(1, ids.flatten())
    return columns.view(-1, *ids.shape).permute(1, 2, 0)


def _many(given: Mapping[str, Any]) -> bool:
    """Whether an attention is large, and its mask is of keys alone."""
    query, key, mask = given["query"], given["key"], given.get("attn_mask")
    if given.get("is_causal") or (mask is not None and mask.shape[-2] != 1):
        return False
    products = int(query.shape[1:].numel()) * int(key.shape[-2])  # the same in a batch and alone
    return products > ATTENTION_LIMIT


def _linear_attention(given: Mapping[str, Any]) -> Tensor:
    query, key, value = given["query"], given["key"], given["value"]
    groups = query.shape[-3] // key.shape[-3]
    if groups > 1:
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    query, key = (nn.functional.softplus(part) for part in (query, key))
    mask = given.get("attn_mask")
    if mask is not None:
        seen = mask if mask.dtype == torch.bool else mask.float().exp()
        key = key * seen.to(key.dtype).transpose(-1, -2)
    norm = query @ key.sum(-2, keepdim=True).transpose(-1, -2)
    out: Tensor = query @ (key.transpose(-1, -2) @ value) / norm.clamp_min(1e-6)
    return out
