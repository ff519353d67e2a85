"""One run made to go the way of another: denoisers give what they gave before, whatever they are given now.

A later denoiser goes on with pictures that an earlier one has drawn. With another prompt it then differs from the start
in more than the prompt, and nothing tells its text from its image; on the pictures of the first run only the text does.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from torch import nn

from t2iprobe.models.hooks import After, HookSet

Outputs = dict[str, list[Any]]
"""What each denoiser gave, call by call."""


@contextmanager
def kept(denoisers: Mapping[str, nn.Module]) -> Iterator[Outputs]:
    """While the block is open, keep copies of what the denoisers give: pipelines may change it in place."""
    outputs: Outputs = {name: [] for name in denoisers}
    with HookSet() as hooks:
        for name, module in denoisers.items():
            hooks.after(module, _append(outputs[name]))
        yield outputs


def _append(own: list[Any]) -> After:
    return lambda _args, _kwargs, output: own.append(deepcopy(output))


@contextmanager
def replayed(denoisers: Mapping[str, nn.Module], outputs: Outputs) -> Iterator[None]:
    """While the block is open, denoisers give what was kept; calls beyond those give their own."""

    def instead(own: Iterator[Any]) -> Callable[..., Any]:
        def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
            return deepcopy(next(own, output))

        return hook

    handles = [
        module.register_forward_hook(instead(iter(outputs[name])))
        for name, module in denoisers.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
