"""Activations of a model of one's own: any `nn.Module`, run by the caller inside a `with` block."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from t2iprobe.activations.pooled_values import pool_map, pool_tokens
from t2iprobe.activations.pooling import IMAGE_POOLINGS, image_weights
from t2iprobe.errors import ConfigError, SiteError, unknown
from t2iprobe.models.hooks import After, HookSet, find_module, is_compiled, named_parts, unwrap

Pool = Callable[[Tensor], Tensor]
Select = Callable[[Any], Tensor]


def capture(
    module: nn.Module,
    sites: str | Iterable[str],
    pooling: str | Pool | None = "mean",
    select: Select | None = None,
) -> "Recording":
    """A recording of a module's activations: a mapping of site -> (n, d) float32, filled while it is open.

    The rows are those of all calls, one after another. A site that runs several times in a call gives its rows as
    often, pass by pass. A site that is given the batch in slices gives them in the order of the batch.

    Args:
        module: any module whose batch comes first; if it is compiled, before its first call.
        sites: dotted paths inside the module, or globs over them such as "layers.*"; "" is the module itself.
        pooling: "mean" over all positions of (b, tokens, d) or (b, d, h, w), pads included; "grid", the means of the
            four quarters of (b, d, h, w), side by side; a function of the output, for instance a mean without the pads;
            None keeps the whole output. Vectors (b, d) stay as they are.
        select: picks the tensor from a site's output; by default its only tensor.

    Returns:
        A recording, to be opened with `with`.

    Raises:
        ConfigError: there is no such pooling.
        SiteError: a path or glob fits nothing. On leaving the block: a site stayed silent (a compiled module skips
            hooks that come after its first call), an output has several tensors or cannot be pooled, or parts of a
            batch are no slices of it, so that their rows are not known.

    Example:
        >>> import t2iprobe, torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
        >>> with t2iprobe.capture(net, ["0", "1"]) as recording:
        ...     _ = net(torch.zeros(5, 16, 8))
        >>> {site: values.shape for site, values in recording.items()}
        {'0': (5, 4), '1': (5, 4)}
    """
    return Recording(module, _modules(module, sites), _pool_function(pooling), select)


def _modules(root: nn.Module, sites: str | Iterable[str]) -> dict[str, nn.Module]:
    """Path -> module of every site, in the order in which they are named.

    Raises:
        SiteError: a path or glob fits nothing.
    """
    modules: dict[str, nn.Module] = {}
    for pattern in [sites] if isinstance(sites, str) else sites:
        if not set(pattern) & set("*?["):
            modules[pattern] = find_module(root, pattern)
            continue
        runs = {path: m for path, m in named_parts(root).items() if path and _has_forward(m)}
        fits = {path: m for path, m in runs.items() if fnmatchcase(path, pattern)}
        if not fits:
            raise SiteError(unknown("site", pattern, runs))
        modules |= fits
    return modules


def _has_forward(module: nn.Module) -> bool:
    """Whether it can run; lists of modules cannot."""
    return type(module).forward is not nn.Module.forward


def _pool_function(pooling: str | Pool | None) -> Pool:
    if isinstance(pooling, str):
        if pooling not in IMAGE_POOLINGS:
            raise ConfigError(unknown("pooling", pooling, IMAGE_POOLINGS))
        return partial(_pooled, pooling)
    return pooling or (lambda values: values)


def _pooled(name: str, values: Tensor) -> Tensor:
    """(b, rows * d) of tokens (b, n, d) or of a feature map (b, d, h, w); a vector (b, d) as it is.

    Raises:
        SiteError: the values are none of these, or tokens where a grid is needed.
    """
    if values.ndim == 2:
        return values
    if values.ndim not in (3, 4):
        raise SiteError(
            f"an output of shape {tuple(values.shape)} has no pooling {name!r}: give a function, or None for all of it"
        )
    is_map = values.ndim == 4
    if IMAGE_POOLINGS[name].needs_grid and not is_map:
        raise SiteError(
            f"the pooling {name!r} is for feature maps (b, d, h, w), not for tokens of shape {tuple(values.shape)}"
        )
    grid = (values.shape[2], values.shape[3]) if is_map else None
    n = values[0, 0].numel() if is_map else values.shape[1]
    weights = torch.from_numpy(image_weights([name], n, grid)).to(values.device)
    return (pool_map if is_map else pool_tokens)(values, weights).flatten(1)


@dataclass(frozen=True)
class _Pass:
    """One pass of a site within a call: its pooled output, of how many rows, and where its input lies in memory.

    `memory` is (storage, offset, distance of two rows); None where no argument has as many rows as the output.
    """

    values: NDArray[np.float32]
    rows: int
    memory: tuple[int, int, int] | None


class Recording(Mapping[str, NDArray[np.float32]]):
    """Activations by site, recorded while it is open; made by `capture`.

    It may be opened again and goes on; opening it inside itself changes nothing.

    Attributes:
        calls: how often the module was called.
    """

    def __init__(
        self,
        module: nn.Module,
        modules: Mapping[str, nn.Module],
        pool: Pool,
        select: Select | None = None,
    ) -> None:
        self._root, self._modules, self._pool, self._select = module, dict(modules), pool, select
        self._hooks = HookSet(inside_compiled=True)
        self._depth = 0
        self.calls = 0
        self._arrays: dict[str, list[NDArray[np.float32]]] = {site: [] for site in modules}
        self._passes: dict[str, list[_Pass]] | None = None  # of the call that runs
        self._rows = 0  # of its batch

    def passes(self, site: str) -> list[NDArray[np.float32]]:
        """The activations of each pass of a site, (b, d) float32 each.

        Raises:
            SiteError: the site is not recorded here, or nothing was recorded there yet.
        """
        if site not in self._arrays:
            raise SiteError(unknown("site", site, self._arrays))
        if not self._arrays[site]:
            raise SiteError(self._silence(site))
        return list(self._arrays[site])

    def __getitem__(self, site: str) -> NDArray[np.float32]:
        """All activations of a site, (n, d) float32.

        Raises:
            SiteError: as `passes`, or the passes differ in more than their number of rows.
        """
        arrays = self.passes(site)
        if len({array.shape[1:] for array in arrays}) > 1:
            shapes = ", ".join(str(array.shape) for array in arrays)
            raise SiteError(f"{site}: arrays of several shapes ({shapes}); give a pooling")
        return np.concatenate(arrays)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __enter__(self) -> Self:
        self._depth += 1
        if self._depth > 1:
            return self
        if isinstance(self._root, nn.DataParallel) and len(self._root.device_ids) > 1:
            raise SiteError("DataParallel runs replicas in any order; record its .module instead")
        self._hooks.before(self._root, self._start)
        for site, module in self._modules.items():
            if module is not self._root:
                self._hooks.after(module, self._read(site))
        for site, module in self._modules.items():
            if module is self._root:
                self._hooks.after(module, self._read(site))
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
        self._passes = None
        self._hooks.__exit__(kind, error, trace)
        if kind is None:
            for site, arrays in self._arrays.items():
                if not arrays or (self._is_compiled(site) and len(arrays) < self.calls):
                    raise SiteError(self._silence(site))

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls += 1
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim]
        self._rows = tensors[0].shape[0] if tensors else 0
        self._passes = {site: [] for site in self._modules}

    def _read(self, site: str) -> After:
        """A hook that pools one output of a site."""

        def read(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            tensor = self._select(output) if self._select else _only_tensor(output, site)
            values = _stored(self._pool(tensor.detach()))
            if self._passes is None:  # the site is run by itself
                self._arrays[site].append(values)
            else:
                rows = tensor.shape[0] if tensor.ndim else 0
                memory = _memory((*args, *kwargs.values()), rows)
                self._passes[site].append(_Pass(values, rows, memory))

        return read

    def _end(self, *_: Any) -> None:
        by_site, self._passes = self._passes or {}, None
        for site, passes in by_site.items():
            if len(passes) > 1 and sum(part.rows for part in passes) == self._rows:
                self._arrays[site].append(self._joined(site, passes))
            else:
                self._arrays[site].extend(part.values for part in passes)

    def _joined(self, site: str, passes: Sequence[_Pass]) -> NDArray[np.float32]:
        """The rows of the batch in their order, from passes over parts of it.

        Raises:
            SiteError: the parts are no slices of one batch.
        """
        ordered = _in_row_order(passes)
        if ordered is None:
            rows, name = [part.rows for part in passes], type(unwrap(self._root)).__name__
            raise SiteError(
                f"{site}: {len(passes)} captures of {rows} rows in one call of {name}, which are no slices of one"
                f" batch, so whose rows they are is not known; record {site.rpartition('.')[0] or name} instead"
            )
        return np.concatenate([part.values for part in ordered])

    def _silence(self, site: str) -> str:
        why = "; the module is compiled, open the recording before its first call"
        name, n = type(unwrap(self._root)).__name__, len(self._arrays[site])
        compiled = why if self._is_compiled(site) else ""
        return f"{site}: {n} captures in {self.calls} calls of {name}{compiled}"

    def _is_compiled(self, site: str) -> bool:
        return is_compiled(self._root) or is_compiled(self._modules[site])


def _only_tensor(output: Any, site: str) -> Tensor:
    """The one tensor in a module's output.

    Raises:
        SiteError: there is none, or there are several and none can be preferred.
    """
    if isinstance(output, Tensor):
        return output
    items = output.values() if isinstance(output, dict) else output
    tensors = [item for item in items if isinstance(item, Tensor)] if items is not None else []
    if len(tensors) != 1:
        raise SiteError(f"{site}: {len(tensors)} tensors in one output; say which with select=")
    return tensors[0]


def _stored(values: Tensor) -> NDArray[np.float32]:
    """A float32 copy on the CPU that shares no memory and no graph with the model.

    The copy is explicit: on the CPU `.cpu()` would hand out the model's own memory, and bfloat16 has no numpy type.
    """
    array: NDArray[np.float32] = values.detach().to("cpu", torch.float32, copy=True).numpy()
    return array


def _memory(inputs: Iterable[Any], rows: int) -> tuple[int, int, int] | None:
    """Where the rows of the first argument with as many of them lie."""
    for value in inputs:
        if isinstance(value, Tensor) and value.ndim and value.shape[0] == rows:
            storage = value.untyped_storage().data_ptr()
            return storage, int(value.storage_offset()), value.stride(0)
    return None


def _in_row_order(passes: Sequence[_Pass]) -> list[_Pass] | None:
    """Passes in the order of the one tensor that their inputs are slices of; None where they do not fill one."""
    placed = [(part.memory, part) for part in passes if part.memory is not None]
    placed.sort(key=lambda pair: pair[0])
    for (memory, part), (following, _) in pairwise(placed):
        storage, offset, stride = memory
        if following != (storage, offset + part.rows * stride, stride):
            return None
    return [part for _, part in placed] if len(placed) == len(passes) else None
