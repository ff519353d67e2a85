"""Reading activations out of any `nn.Module`: hook sites by dotted path, recorded while a `with` block is open.

    with Recorder(model, ["layers.0", "layers.1"]) as recorder:
        model(x)
    recorder.values("layers.0")        # (n, ...) float32 on the CPU

Only own handles are removed, since other libraries keep permanent hooks of their own on the same modules. An error
inside a hook is stored and raised when the call is over, so that offloading and progress bars end their work.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
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


def _names(root: nn.Module) -> dict[str, nn.Module]:
    """Dotted path -> module, with the level that `torch.compile` adds left out."""
    found: dict[str, nn.Module] = {}
    for name, module in unwrap(root).named_modules(remove_duplicate=False):
        clean = ".".join(part for part in name.split(".") if part != "_orig_mod")
        found.setdefault(clean, module)  # of a compiled module the wrapper, whose hooks always run
    return found


def find_module(root: nn.Module, path: str) -> nn.Module:
    """The module at a dotted path; levels that libraries add or drop between versions are looked through.

    transformers moved CLIP's layers from `text_model.encoder.layers` to `encoder.layers` for one class and not for
    the other; either path finds the same layer in both, as long as only one module can be meant.

    Raises:
        SiteError: there is no such module, or more than one; the message names the nearest paths.
    """
    names = _names(root)
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

        kept = self._kept_out(module, hook)
        self._handles.append(module.register_forward_pre_hook(kept, with_kwargs=True))

    def after(self, module: nn.Module, function: After) -> None:
        """Call `function(args, kwargs, output)` after each forward of `module`."""

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            self._run(lambda: function(args, kwargs, output))

        kept = self._kept_out(module, hook)
        self._handles.append(module.register_forward_hook(kept, with_kwargs=True))

    def _kept_out(self, module: nn.Module, hook: Callable[..., None]) -> Callable[..., None]:
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


def to_stored(values: Tensor) -> Tensor:
    """A float32 copy on the CPU that shares no memory and no graph with the model.

    The copy is explicit: on the CPU `.cpu()` would hand out the model's own memory, and bfloat16 has no numpy type.
    """
    return values.detach().to("cpu", torch.float32, copy=True)


def only_tensor(output: Any) -> Tensor:
    """The one tensor in a module's output.

    Raises:
        SiteError: there is none, or there are several and none can be preferred.
    """
    if isinstance(output, Tensor):
        return output
    items = output.values() if isinstance(output, dict) else output
    tensors = [item for item in items if isinstance(item, Tensor)] if items is not None else []
    if len(tensors) != 1:
        raise SiteError(f"{len(tensors)} tensors in one output; say which with select=")
    return tensors[0]


@dataclass(frozen=True)
class Captured:
    """One activation: `values` is (b, ...) float32 on the CPU, `dtype` what the model computed it in."""

    values: Tensor
    dtype: str


@dataclass(frozen=True)
class _Part:
    """One pass of a module within a call: what it gave, for how many rows, and where the rows it was given lie.

    `place` is (storage, offset, distance of two rows); None where no argument has as many rows as the output.
    """

    captured: Captured
    rows: int
    place: tuple[int, int, int] | None


def _place(inputs: Iterable[Any], rows: int) -> tuple[int, int, int] | None:
    for one in inputs:
        if isinstance(one, Tensor) and one.ndim and one.shape[0] == rows:
            return one.untyped_storage().data_ptr(), int(one.storage_offset()), one.stride(0)
    return None


def _in_row_order(parts: Sequence[_Part]) -> list[_Part] | None:
    """Parts in the order of the one tensor that they were cut from; None where they are no slices that fill one."""
    placed = [(part.place, part) for part in parts if part.place is not None]
    placed.sort(key=lambda pair: pair[0])
    for (place, part), (following, _) in pairwise(placed):
        storage, offset, stride = place
        if following != (storage, offset + part.rows * stride, stride):
            return None
    return [part for _, part in placed] if len(placed) == len(parts) else None


class Recorder:
    """Records the outputs of modules while it is open; opening it twice records each call once.

    A module that runs several times in one call gives as many captures, in the order of its passes. A module that is
    given the batch in parts gives one capture, its rows in the order of the tensor that the parts are slices of, in
    whatever order they run; parts that are copies could be any rows, and are refused.

    Args:
        module: any module; compiled ones are looked through.
        paths: dotted paths inside it.
        select: picks the tensor from a module's output; by default its only tensor.
        reduce: applied on the device before the copy, for instance a mean over tokens.

    Raises:
        SiteError: a path is unknown; on leaving, a site stayed silent (a compiled module skips hooks that come after
            its first call), the module is spread over several devices, or parts of a batch are no slices of it.
    """

    def __init__(
        self,
        module: nn.Module,
        paths: Iterable[str],
        select: Callable[[Any], Tensor] = only_tensor,
        reduce: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._root = module
        self._modules = {path: find_module(module, path) for path in paths}
        self._select, self._reduce = select, reduce
        self._hooks = HookSet(inside_compiled=True)
        self._depth = 0
        self.calls = 0
        self.captures: dict[str, list[Captured]] = {path: [] for path in self._modules}
        self._in_call: dict[str, list[_Part]] | None = None
        self._rows = 0

    def values(self, path: str) -> Tensor:
        """All captures of one site, joined along the first axis: (n, ...) float32.

        Raises:
            SiteError: nothing was recorded there.
        """
        if path not in self.captures:
            raise SiteError(
                f"{path!r} is not recorded here; recorded: {', '.join(self.captures) or 'none'}"
            )
        if not self.captures[path]:
            raise SiteError(self._silent(path))
        return torch.cat([captured.values for captured in self.captures[path]])

    def _silent(self, path: str) -> str:
        why = "; the module is compiled, open the recorder before its first call"
        name, n = type(unwrap(self._root)).__name__, len(self.captures[path])
        compiled = why if self._is_compiled(path) else ""
        return f"{path}: {n} captures in {self.calls} calls of {name}{compiled}"

    def _is_compiled(self, path: str) -> bool:
        return is_compiled(self._root) or is_compiled(self._modules[path])

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls += 1
        first = next(
            (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim), None
        )
        self._rows = 0 if first is None else first.shape[0]
        self._in_call = {path: [] for path in self._modules}

    def _end(self, *_: Any) -> None:
        parts, self._in_call = self._in_call or {}, None
        for path, passes in parts.items():
            if len(passes) > 1 and sum(part.rows for part in passes) == self._rows:
                self.captures[path].append(self._joined(path, passes))
            else:
                self.captures[path].extend(part.captured for part in passes)

    def _joined(self, path: str, parts: Sequence[_Part]) -> Captured:
        ordered = _in_row_order(parts)
        if ordered is None:
            rows, name = [part.rows for part in parts], type(unwrap(self._root)).__name__
            raise SiteError(
                f"{path}: {len(parts)} captures of {rows} rows in one call of {name}, which are no slices of one batch,"
                f" so whose rows they are is not known; record {path.rpartition('.')[0] or name} instead"
            )
        return Captured(torch.cat([p.captured.values for p in ordered]), parts[0].captured.dtype)

    def _read(self, path: str) -> After:
        def read(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            tensor = self._select(output).detach()
            reduced = self._reduce(tensor) if self._reduce else tensor
            captured = Captured(to_stored(reduced), str(tensor.dtype).split(".")[1])
            if self._in_call is None:
                self.captures[path].append(captured)
            else:
                rows = tensor.shape[0] if tensor.ndim else 0
                place = _place((*args, *kwargs.values()), rows)
                self._in_call[path].append(_Part(captured, rows, place))

        return read

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth > 1:
            return self
        if isinstance(self._root, nn.DataParallel) and len(self._root.device_ids) > 1:
            raise SiteError("DataParallel runs replicas in any order; record its .module instead")
        self._hooks.before(self._root, self._start)
        for path, module in self._modules.items():
            if module is not self._root:
                self._hooks.after(module, self._read(path))
        for path, module in self._modules.items():
            if module is self._root:
                self._hooks.after(module, self._read(path))
        self._hooks.after(self._root, self._end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._in_call = None
        self._hooks.__exit__(kind, error, trace)
        if kind is None:
            for path, captured in self.captures.items():
                if not captured or (self._is_compiled(path) and len(captured) < self.calls):
                    raise SiteError(self._silent(path))
