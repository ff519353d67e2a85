"""Hooks for one batch of images: pooled activations of the conditional rows, at the wanted steps, in one pass."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from t2iprobe.capture import HookSet, find_module, to_stored
from t2iprobe.errors import SiteError
from t2iprobe.models.calibrate import Denoiser, Encoder, conditional_rows, image_grid
from t2iprobe.models.model import Model, forward_names, timestep_name
from t2iprobe.models.plan import CapturePlan
from t2iprobe.models.pooling import (
    image_rows,
    image_weights,
    pool_map,
    pool_tokens,
    text_names,
    text_weights,
)
from t2iprobe.models.sites import CONDITIONING, Site
from t2iprobe.models.streams import Reading
from t2iprobe.models.tokens import PromptTokens, Span, TokenReader
from t2iprobe.models.trace import bind, fingerprint, read_timestep, rows_of


def pick(output: Any, item: str, site: str) -> Tensor:
    """A tensor of an output by the dotted name it had in calibration.

    Raises:
        SiteError: the output has another structure now.
    """
    value = output
    for part in item.split(".") if item else ():
        try:
            value = value[int(part)] if part.isdigit() else value[part]
        except (KeyError, IndexError, TypeError) as error:
            raise SiteError(f"{site}: its output has no {item!r} any more") from error
    if not isinstance(value, Tensor):
        raise SiteError(f"{site}: {item or 'output'!r} is a {type(value).__name__}, not a tensor")
    return value


@dataclass
class PromptPass:
    """What one text encoder got for a batch: for each prompt its tokens, None until the encoder was given it."""

    tokens: list[PromptTokens | None]
    rows: list[tuple[int, int]] = field(default_factory=list)
    weights: Tensor | None = None


class EncoderWatch:
    """Reads the sites of one text encoder during one batch."""

    def __init__(
        self,
        name: str,
        found: Encoder,
        reader: TokenReader,
        batch: "BatchRecorder",
    ) -> None:
        self.name, self._found, self._reader, self._batch = name, found, reader, batch
        self.seen = PromptPass([None] * len(batch.prompts))

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Match the rows of ids that the embedding is given with the prompts of the batch."""
        ids = args[0] if args else next(iter(kwargs.values()))
        table = ids.detach().cpu().tolist()
        own = self.seen
        own.rows = []
        for row, tokens in enumerate(table if table and isinstance(table[0], list) else [table]):
            match = self._match(row, tokens, len(table))
            if match is not None:
                own.rows.append((row, match))
        if own.rows and self._batch.text_names:
            own.weights = torch.stack(
                [self._weights(index, len(table[row])) for row, index in own.rows]
            ).to(ids.device)

    def _match(self, row: int, ids: Sequence[int], n_rows: int) -> int | None:
        prompts, tokens = self._batch.prompts, self.seen.tokens
        order = [row % len(prompts)] if n_rows >= len(prompts) else []
        best: int | None = None
        for index in (*order, *range(len(prompts))):
            if tokens[index] is None and (got := self._reader.find(ids, prompts[index])):
                longer = best is None or len(prompts[index]) > len(prompts[best])
                if longer:
                    best, found = index, got
                if order and index == order[0]:
                    break
        if best is not None:
            tokens[best] = found
        return best

    def _weights(self, index: int, n: int) -> Tensor:
        tokens = self.seen.tokens[index]
        assert tokens is not None
        spans = self._batch.spans[index]
        return text_weights(self._batch.text_names, n, [(tokens, 0, 0)], spans)

    def read(self, site: Site, reading: Reading) -> Callable[..., None]:
        """A hook that pools one site's output for the rows that belong to prompts."""

        def hook(_args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
            if not self.seen.rows or self.seen.weights is None:
                return
            values = pick(output, reading.item, str(site))
            values = values.transpose(0, 1) if reading.axis == 1 else values
            rows = [row for row, _ in self.seen.rows]
            if values.shape[1] != self.seen.weights.shape[-1] or max(rows) >= values.shape[0]:
                return  # a step of text generation, not the prompt
            whole = rows == list(range(values.shape[0]))
            chosen = values if whole else values[rows]
            pooled = pool_tokens(chosen, self.seen.weights.to(values.device))
            self._batch.keep_rows(site, [index for _, index in self.seen.rows], pooled)

        return hook


class DenoiserWatch:
    """Reads the sites of one denoiser during one batch."""

    def __init__(self, name: str, model: Model, found: Denoiser, batch: "BatchRecorder") -> None:
        module = model.denoisers[name]
        self.name, self._found, self._batch = name, found, batch
        self._names, self._time = forward_names(module), timestep_name(module) or ""
        self._wanted = set(batch.plan.steps[name])
        self._class = type(module).__name__
        self.calls = 0
        self._rows: list[int] = []
        self._n_rows = 0
        self._known: dict[tuple[int, ...], tuple[Any, list[int], int]] = {}
        self._conditional_calls = 0
        self._text: Tensor | None = None
        self.step: int | None = None

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Decide which rows of a call are conditional and which step it is."""
        self.calls += 1
        self.step = None
        bound = bind(self._names, args, kwargs)
        value: Any = bound
        for part in self._found.conditioning.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return
        self._rows, self._n_rows = self._classify(value)
        if not self._rows:
            return
        first = self._conditional_calls == 0
        self._conditional_calls += 1
        if first:
            self._conditioning(rows_of(value))
        if self._conditional_calls > len(self._found.schedule):
            raise SiteError(f"{self.name}: more denoiser calls than in the rehearsal")
        entry = self._found.schedule[self._conditional_calls - 1]
        level = read_timestep(bound[self._time])
        if abs(level - entry.timestep) > 1e-3 * max(1.0, abs(entry.timestep)):
            raise SiteError(
                f"{self.name}: call {self._conditional_calls} is at noise level {level:g}, not {entry.timestep:g} as in"
                " the rehearsal"
            )
        if entry.counts and entry.step in self._wanted:
            self.step = entry.step

    def _classify(self, value: Any) -> tuple[list[int], int]:
        """Conditional rows among the text states of a call, by their values; the same object is judged once."""
        key = tuple(map(id, value)) if isinstance(value, list | tuple) else (id(value),)
        if key not in self._known:
            rows = rows_of(value)
            kept = conditional_rows(
                [fingerprint(row).sample for row in rows], self._found.unconditional
            )
            n = len(self._batch.prompts)
            if len(kept) % n:
                raise SiteError(
                    f"{self.name}: {len(kept)} conditional of {len(rows)} rows for {n} prompts; the text states of"
                    " prompts and of no prompt cannot be told apart"
                )
            if len(self._known) > 8:
                self._known.clear()
            # Of two conditional rows per prompt the second is a perturbed one. The value is kept so that its id stays.
            self._known[key] = (value, kept[:n], len(rows))
        _, kept, n_rows = self._known[key]
        return kept, n_rows

    def _conditioning(self, rows: Sequence[Tensor]) -> None:
        own = [rows[row] for row in self._rows]
        site = Site(self.name, CONDITIONING, "text")
        wanted = site in self._batch.sites
        if own[0].ndim != 2:
            if wanted:
                pooled = torch.stack([row.float().flatten() for row in own])[:, None]
                self._batch.keep(site, None, pooled, ["mean"])
            return
        n = max(row.shape[0] for row in own)
        self._text = self._batch.state_weights(self._found, n).to(own[0].device)
        if wanted:
            padded = torch.stack([_pad_tokens(row, n) for row in own])
            names = self._batch.state_names(self._found)
            self._batch.keep(site, None, pool_tokens(padded, self._text), names)

    def read(self, site_path: str, readings: dict[str, Reading]) -> Callable[..., None]:
        """A hook that pools the streams of one block, at wanted steps only."""
        sites = {stream: Site(self.name, site_path, stream) for stream in readings}  # type: ignore[arg-type]

        def hook(_args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
            if self.step is None:
                return
            for stream, reading in readings.items():
                site = sites[stream]
                values = self._own_rows(pick(output, reading.item, str(site)), reading, site)
                if stream == "image":
                    self._keep_image(site, values, reading)
                else:
                    self._keep_text(site, values)

        return hook

    def _own_rows(self, values: Tensor, reading: Reading, site: Site) -> Tensor:
        if values.shape[reading.axis] != self._n_rows:
            raise SiteError(
                f"{site}: {values.shape[reading.axis]} rows in a call of {self._n_rows}; is the module split over"
                " devices?"
            )
        first, n = self._rows[0], len(self._rows)
        if self._rows == list(range(first, first + n)):
            values = values.narrow(reading.axis, first, n)
        else:
            values = values.index_select(
                reading.axis, torch.tensor(self._rows, device=values.device)
            )
        values = values.transpose(0, 1) if reading.axis == 1 else values
        return values if reading.cut is None else values[:, slice(*reading.cut)]

    def _keep_image(self, site: Site, values: Tensor, reading: Reading) -> None:
        if reading.cut is None:
            shape = tuple(values.shape[-2:])
            values = values.flatten(2, -3) if values.ndim > 4 else values
            grid: tuple[int, int] | None = (int(shape[0]), int(shape[1]))
            n = values[0, 0].numel()
            grid = grid if grid and n == grid[0] * grid[1] else None
        else:
            n = values.shape[1]
            grid = image_grid(self._found, n, self._batch.plan.calibration.image_size)
        weights = self._batch.image_weights(n, grid, values.device)
        pooled = pool_map(values, weights) if reading.cut is None else pool_tokens(values, weights)
        self._batch.keep(
            site, self.step, pooled, image_rows(self._batch.plan.image_poolings, bool(grid))
        )

    def _keep_text(self, site: Site, values: Tensor) -> None:
        if self._text is None:
            return
        n = values.shape[1]
        weights = self._text[..., :n]
        if weights.shape[-1] < n:  # pads behind the text states
            weights = torch.nn.functional.pad(weights, (0, n - weights.shape[-1]))
        pooled = pool_tokens(values, weights.to(values.device))
        self._batch.keep(site, self.step, pooled, self._batch.state_names(self._found))


def _pad_tokens(row: Tensor, n: int) -> Tensor:
    return torch.nn.functional.pad(row, (0, 0, 0, n - row.shape[0]))


Names = Sequence[str] | dict[str, slice]


class BatchRecorder(AbstractContextManager["BatchRecorder"]):
    """Captures one pipeline call.

    Args:
        model: the model.
        plan: what to capture.
        prompts: the prompts of the call, in order.
        spans: for each prompt the characters of each constituent.
        readers: token readers by encoder, kept over batches.
    """

    def __init__(
        self,
        model: Model,
        plan: CapturePlan,
        prompts: Sequence[str],
        spans: Sequence[dict[str, Span]],
        readers: dict[str, TokenReader],
    ) -> None:
        self.model, self.plan = model, plan
        self.prompts, self.spans = list(prompts), list(spans)
        constituents = list(dict.fromkeys(name for row in spans for name in row))
        self.text_names = text_names(plan.text_poolings, constituents)
        self.sites = set(plan.sites)
        self._hooks = HookSet()
        self._kept: dict[tuple[Site, int | None], tuple[Tensor, Names]] = {}
        self._weights: dict[tuple[Any, ...], Tensor] = {}
        self.encoders = {
            name: EncoderWatch(name, found, readers[name], self)
            for name, found in plan.calibration.encoders.items()
            if name in readers
        }
        self.denoisers = {
            name: DenoiserWatch(name, model, found, self)
            for name, found in plan.calibration.denoisers.items()
        }

    def __enter__(self) -> Self:
        for name, watch in self.encoders.items():
            module, found = self.model.encoders[name], self.plan.calibration.encoders[name]
            embedding = find_module(module, found.embedding)
            self._hooks.before(embedding, watch.begin)
            for path, reading in {
                found.embedding: Reading("", 0, (None, None)),
                **found.readings,
            }.items():
                site = Site(name, path, "text")
                if site in self.sites:
                    self._hooks.after(find_module(module, path), watch.read(site, reading))
        for name, watched in self.denoisers.items():
            module = self.model.denoisers[name]
            self._hooks.before(module, watched.begin)
            for path, streams in self.plan.calibration.denoisers[name].readings.items():
                wanted = {
                    stream: reading
                    for stream, reading in streams.items()
                    if Site(name, path, stream) in self.sites  # type: ignore[arg-type]
                }
                if wanted:
                    self._hooks.after(find_module(module, path), watched.read(path, wanted))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)
        if kind is None:
            self._check_complete()

    def keep(self, site: Site, step: int | None, pooled: Tensor, names: Names) -> None:
        """Remember the pooled values (b, p, d) of a site."""
        self._kept[site, step] = (pooled, names)

    def keep_rows(self, site: Site, rows: Sequence[int], pooled: Tensor) -> None:
        """Remember pooled values of some prompts of the batch; the others keep theirs."""
        whole = list(rows) == list(range(len(self.prompts)))
        if not whole:
            shape = (len(self.prompts), *pooled.shape[1:])
            held = self._kept.get((site, None))
            full = held[0] if held else pooled.new_full(shape, float("nan"))
            full[list(rows)] = pooled
            pooled = full
        self._kept[site, None] = (pooled, self.text_names)

    def image_weights(self, n: int, grid: tuple[int, int] | None, device: torch.device) -> Tensor:
        """Weights over n image tokens, made once."""
        key = (n, grid, device)
        if key not in self._weights:
            self._weights[key] = image_weights(self.plan.image_poolings, n, grid).to(device)
        return self._weights[key]

    def state_names(self, found: Denoiser) -> list[str]:
        """Text poolings that a denoiser's text states allow: only the mean where the words cannot be located."""
        return self.text_names if self._located(found) else ["mean"]

    def _located(self, found: Denoiser) -> bool:
        return any(segment.encoder in self.encoders for segment in found.segments)

    def state_weights(self, found: Denoiser, n: int) -> Tensor:
        """Weights (b, p, n) over a denoiser's text states."""
        if not self._located(found):
            return torch.full((len(self.prompts), 1, n), 1.0 / n)
        rows = []
        for index in range(len(self.prompts)):
            tokens = [
                (own, segment.shift, segment.first)
                for segment in found.segments
                if segment.encoder in self.encoders
                and (own := self.encoders[segment.encoder].seen.tokens[index]) is not None
            ]
            rows.append(text_weights(self.text_names, n, tokens, self.spans[index]))
        return torch.stack(rows)

    def _check_complete(self) -> None:
        """Every site must have been read at every wanted step.

        Raises:
            SiteError: a site stayed silent.
        """
        for site in self.plan.sites:
            watched = self.denoisers.get(site.component)
            single = watched is None or site.path == CONDITIONING
            steps = (None,) if single else self.plan.steps[site.component]
            for step in steps:
                if (site, step) not in self._kept:
                    calls = watched.calls if watched else 1
                    where = "" if step is None else f" at step {step}"
                    raise SiteError(
                        f"{site}: 0 captures{where} in {calls} calls of {site.component}; a compiled or cached module"
                        " skips its hooks"
                    )

    def activations(self) -> dict[str, Tensor]:
        """Everything kept, as key -> (b, d) float32 on the CPU, in the plan's order."""
        found: dict[str, Tensor] = {}
        for site in self.plan.sites:
            for step in (None, *self.plan.steps.get(site.component, ())):
                if (site, step) not in self._kept:
                    continue
                pooled, names = self._kept[site, step]
                pooled = to_stored(pooled)
                at = "" if step is None else f"@{step}"
                rows = (
                    names.items()
                    if isinstance(names, dict)
                    else ((name, slice(i, i + 1)) for i, name in enumerate(names))
                )
                for name, part in rows:
                    found[f"{site}/{name}{at}"] = pooled[:, part].flatten(1).contiguous()
        return found
