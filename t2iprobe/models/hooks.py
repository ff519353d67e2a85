"""Hooks on any `nn.Module`, found by dotted path, that observe and never change.

Only own handles are removed, since other libraries keep permanent hooks of their own on the same modules. An error
inside a hook is stored and raised when the call is over, so that offloading and progress bars end their work.
"""

import sys
from collections.abc import Callable
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Self

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from t2iprobe.errors import SiteError

Before = Callable[[tuple[Any, ...], dict[str, Any]], None]
After = Callable[[tuple[Any, ...], dict[str, Any], Any], None]


class StopCall(Exception):  # noqa: N818 - no error
    """Raised by a hook, ends the call that it runs in: what was to be seen has been seen."""


def unwrap(module: nn.Module) -> nn.Module:
    """The module behind `torch.compile`: an OptimizedModule keeps the original as `_orig_mod`."""
    inner = getattr(module, "_orig_mod", None)
    return unwrap(inner) if isinstance(inner, nn.Module) else module


def is_compiled(module: nn.Module) -> bool:
    """Whether `torch.compile` wraps this module, or was applied to it or to its forward in place."""
    in_place = getattr(module, "_compiled_call_impl", None)
    forward = getattr(module.forward, "_torchdynamo_orig_callable", None)
    return unwrap(module) is not module or in_place is not None or forward is not None


def named_parts(root: nn.Module) -> dict[str, nn.Module]:
    """Dotted path -> module, with the level that `torch.compile` adds left out."""
    parts: dict[str, nn.Module] = {}
    for name, module in unwrap(root).named_modules(remove_duplicate=False):
        clean = ".".join(part for part in name.split(".") if part != "_orig_mod")
        parts.setdefault(clean, module)  # of a compiled module the wrapper, whose hooks always run
    return parts


def find_module(root: nn.Module, path: str) -> nn.Module:
    """The module at a dotted path; levels that libraries add or drop between versions are looked through.

    transformers moved CLIP's layers from `text_model.encoder.layers` to `encoder.layers` for one class and not for
    the other; either path finds the same layer in both, as long as only one module can be meant.

    Raises:
        SiteError: there is no such module, or more than one; the message names the nearest paths.
    """
    names = named_parts(root)
    if path in names:
        return names[path]
    tails = [name for name in names if name.endswith("." + path)]
    heads = [name for name in names if name.count(".") and path.endswith("." + name)]
    for matches in (tails, sorted(heads, key=len)[-1:]):
        if len({id(names[name]) for name in matches}) == 1:
            return names[matches[0]]
    near = tails or get_close_matches(path, names, n=3, cutoff=0.4)
    raise SiteError(
        f"no module {path!r} in {type(unwrap(root)).__name__}; nearest: {', '.join(near) or 'none'}"
    )


def _untraced(hook: Callable[..., None]) -> Callable[..., None]:
    """The hook, kept out of compiled graphs; the compiler is asked only where something loaded it already."""
    if "torch._dynamo" not in sys.modules:
        return hook
    untraced: Callable[..., None] = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
    return untraced


class HookSet:
    """Hooks that observe and never change: they return nothing, remove themselves, and keep the first error.

    Args:
        inside_compiled: whether modules that get hooks may lie inside compiled ones. Hooks of modules that are compiled
            themselves are kept out of the graph anyway; for all others that costs as much as a small hook.
    """

    def __init__(self, inside_compiled: bool = False) -> None:
        self._inside_compiled = inside_compiled
        self._handles: list[RemovableHandle] = []
        self._error: Exception | None = None

    def _run(self, call: Callable[[], None]) -> None:
        if self._error is None:
            try:
                call()
            except StopCall:
                raise
            except Exception as error:  # noqa: BLE001 - raised as it is when the call is over
                self._error = error

    def before(self, module: nn.Module, function: Before) -> None:
        """Call `function(args, kwargs)` before each forward of `module`."""

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._run(lambda: function(args, kwargs))

        untraced = self._out_of_graph(module, hook)
        self._handles.append(module.register_forward_pre_hook(untraced, with_kwargs=True))

    def after(self, module: nn.Module, function: After) -> None:
        """Call `function(args, kwargs, output)` after each forward of `module`."""

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            self._run(lambda: function(args, kwargs, output))

        untraced = self._out_of_graph(module, hook)
        self._handles.append(module.register_forward_hook(untraced, with_kwargs=True))

    def _out_of_graph(self, module: nn.Module, hook: Callable[..., None]) -> Callable[..., None]:
        return _untraced(hook) if self._inside_compiled or is_compiled(module) else hook

    def raise_error(self) -> None:
        """Raise the first error of a hook, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        if kind is None or issubclass(kind, Exception):
            self.raise_error()
