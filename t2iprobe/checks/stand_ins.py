"""Modules of any size that hardly take memory or time: large weights are random stand-ins, small ones are real.

What inspect asks of a model (which positions and rows follow the prompt, what is handed from where to where, every
shape) holds for any weights in general position. A large matrix is therefore stood in for by one of low rank, of which
only the two factors are kept: its layer is a true linear map of all its inputs, at a hundredth of the cost.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

LARGE = 1 << 16
"""Values above which a weight is stood in for."""

RANK = 8
"""Rank of the stand-ins: as many dimensions as the fingerprints of a trace have channels."""


_UNINITIALISED = (torch.empty, torch.empty_like, torch.empty_strided, Tensor.new_empty)
"""What makes weights without values; skip_init and to_empty do so through empty_like."""


class _WithoutMemory(TorchFunctionMode):
    """While a module is built: large uninitialised tensors go to the meta device, small ones are zero."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func not in _UNINITIALISED:
            return func(*args, **kwargs)
        without_memory = func(*args, **(kwargs | {"device": "meta"}))
        if without_memory.numel() > LARGE:
            return without_memory
        # A weight that its class leaves to the checkpoint would be whatever was in memory.
        return func(*args, **kwargs).zero_()


def light(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module that is built without memory for its large weights, and works on the CPU in float32.

    The global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        with _WithoutMemory():
            module = build()
        stand_in(module)
    return module.eval()


def stand_in(module: nn.Module) -> None:
    """Give every weight of a module that is on the meta device a stand-in, and open gates that are closed.

    A stand-in has the weight's shape. Its entries lie on one short random line, each row a few places further on, so
    that code which uses the weight itself works too. Linear and convolutional layers get a faster forward.
    """
    made: dict[int, nn.Parameter] = {}
    inside = {
        id(m)
        for part in module.modules()
        if isinstance(part, nn.MultiheadAttention)
        for m in part.modules()
    }
    for part in module.modules():
        held = part._parameters
        large = [name for name, weight in held.items() if weight is not None and weight.is_meta]
        for name in large:
            weight = held[name]
            assert weight is not None
            if id(weight) not in made:
                made[id(weight)] = nn.Parameter(_line(weight), requires_grad=False)
            held[name] = made[id(weight)]
        for name, weight in held.items():
            if weight is not None and id(weight) not in map(id, made.values()):
                _open(name, weight)
        if "weight" in large and id(part) not in inside:
            _speed_up(part)


def _line(weight: Tensor) -> Tensor:
    """A tensor of a weight's shape whose entries share the memory of one random line."""
    fan_in = max(1, weight.shape[1:].numel())
    strides = [1] * weight.dim()
    for axis in range(weight.dim() - 2, -1, -1):
        strides[axis] = min(weight.shape[axis + 1] * strides[axis + 1], 7 * strides[axis + 1])
    length = 1 + sum((n - 1) * stride for n, stride in zip(weight.shape, strides, strict=True))
    line = torch.randn(length, dtype=torch.float32) * fan_in**-0.5
    line = line.to(weight.dtype)
    return torch.as_strided(line, tuple(weight.shape), tuple(strides))


def _open(name: str, weight: Tensor) -> None:
    """A matrix that starts at zero gets small values, a scale one: closed gates would keep text from the image."""
    if not weight.numel() or not weight.is_floating_point() or weight.any():
        return
    if weight.dim() >= 2:
        weight.normal_(std=0.5 * weight.shape[-1] ** -0.5)
    elif "bias" not in name:
        weight.fill_(1.0)


def _speed_up(part: nn.Module) -> None:
    """Let a linear or convolutional layer go through its two factors; classes that changed its forward keep theirs."""
    kind = type(part)
    if isinstance(part, nn.Linear) and kind.forward is nn.Linear.forward:
        down = torch.randn(part.in_features, RANK) * part.in_features**-0.5
        up = torch.randn(RANK, part.out_features) * RANK**-0.5

        def linear(input: Tensor) -> Tensor:
            values: Tensor = input @ down.to(input.dtype) @ up.to(input.dtype)
            return values if part.bias is None else values + part.bias

        _replace(part, linear)
        return
    for plain, call in (
        (nn.Conv1d, nn.functional.conv1d),
        (nn.Conv2d, nn.functional.conv2d),
        (nn.Conv3d, nn.functional.conv3d),
    ):
        if isinstance(part, plain) and kind.forward is plain.forward and _simple(part):
            _replace(part, _convolution(part, call))


def _replace(part: nn.Module, forward: Callable[[Tensor], Tensor]) -> None:
    part.forward = forward


def _simple(part: Any) -> bool:
    return bool(part.groups == 1 and part.padding_mode == "zeros")


def _convolution(part: Any, call: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    ones = (1,) * len(part.kernel_size)
    down = torch.randn(RANK, part.in_channels, *ones) * part.in_channels**-0.5
    fan_in = RANK * torch.Size(part.kernel_size).numel()
    up = torch.randn(part.out_channels, RANK, *part.kernel_size) * fan_in**-0.5

    def convolution(input: Tensor) -> Tensor:
        narrow = call(input, down.to(input.dtype))
        return call(narrow, up.to(input.dtype), part.bias, part.stride, part.padding, part.dilation)

    return convolution
