"""Reading one denoiser during one batch: every call is judged by its text states, and only wanted steps are read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from t2iprobe.activations.encoder_watch import BatchTexts, EncoderWatch
from t2iprobe.activations.plan import CapturePlan
from t2iprobe.activations.pooled_values import PooledValues, pool_map, pool_tokens
from t2iprobe.activations.pooling import (
    WITHOUT_WORDS,
    Rows,
    image_rows,
    image_weights,
    text_rows,
    text_weights,
)
from t2iprobe.calibration.observe import bind, fingerprints, read_timestep, rows_of
from t2iprobe.calibration.result import Reading, image_grid, pick
from t2iprobe.calibration.rows import conditional_rows
from t2iprobe.calibration.tokens import Segment
from t2iprobe.errors import SiteError
from t2iprobe.models.model import Model, forward_names, timestep_name
from t2iprobe.places import CONDITIONING, Site, Stream


class StateWeights:
    """Weights over the text states of one denoiser in one batch, from where the encoders' tokens are in them.

    Attributes:
        names: text poolings that are possible: only the mean where the words cannot be located in the states.
    """

    def __init__(
        self, segments: Sequence[Segment], encoders: Mapping[str, EncoderWatch], texts: BatchTexts
    ) -> None:
        self._parts = [(s, encoders[s.encoder]) for s in segments if s.encoder in encoders]
        self._texts = texts
        self.names = texts.names if self._parts else [WITHOUT_WORDS]

    def weights(self, n: int) -> Tensor:
        """Weights (b, p, n) over n text states."""
        prompts = self._texts.prompts
        if not self._parts:
            return torch.full((len(prompts), 1, n), 1.0 / n)
        tokens = [
            [
                (tokens_of_prompt, segment.shift, segment.first)
                for segment, watch in self._parts
                if (tokens_of_prompt := watch.tokens[index]) is not None
            ]
            for index in range(len(prompts))
        ]
        return torch.from_numpy(text_weights(self.names, n, tokens, self._texts.spans))


class DenoiserWatch:
    """One denoiser in one batch.

    Args:
        model: the model.
        plan: what to capture.
        name: component name of the denoiser.
        texts: prompts of the batch.
        encoders: the text encoders, each with the tokens that it is given.
        pooled: where pooled values go.
    """

    def __init__(
        self,
        model: Model,
        plan: CapturePlan,
        name: str,
        texts: BatchTexts,
        encoders: Mapping[str, EncoderWatch],
        pooled: PooledValues,
    ) -> None:
        module = model.denoisers[name]
        self.name, self._plan, self._texts, self._pooled = name, plan, texts, pooled
        self._found, self._steps = plan.calibration.denoisers[name], set(plan.steps[name])
        self._states = StateWeights(self._found.segments, encoders, texts)
        self._names, self._time = forward_names(module), timestep_name(module)
        self.calls = 0
        self.conditional_calls = 0
        self.step: int | None = None
        self._rows: list[int] = []
        self._n_rows = 0
        self._known_states: dict[tuple[int, ...], tuple[Any, list[int], int]] = {}
        self._text: Tensor | None = None
        self._text_rows = text_rows(self._states.names)
        self._image: dict[tuple[Any, ...], tuple[Tensor, Rows]] = {}

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Decide which rows of a call are conditional and which step it is."""
        self.calls += 1
        self.step = None
        bound = bind(self._names, args, kwargs)
        states: Any = bound
        for part in self._found.conditioning.split("."):
            states = states.get(part) if isinstance(states, dict) else None
        if states is None:
            return
        self._rows, self._n_rows = self._rows_of_prompts(states)
        if not self._rows:
            return
        if self.conditional_calls == 0:
            self._read_conditioning(rows_of(states))
        self.conditional_calls += 1
        self.step = self._scheduled(read_timestep(bound[self._time]) if self._time else None)

    def _scheduled(self, level: float | None) -> int | None:
        """The step that this conditional call gives the activations of, if they are wanted."""
        schedule = self._found.schedule
        if self.conditional_calls > len(schedule):
            raise SiteError(
                f"{self.name}: more denoiser calls than the {len(schedule)} of the rehearsal"
            )
        entry = schedule[self.conditional_calls - 1]
        if level is not None and abs(level - entry.timestep) > 1e-3 * max(1.0, abs(entry.timestep)):
            raise SiteError(
                f"{self.name}: call {self.conditional_calls} is at noise level {level:g}, in the rehearsal it was at"
                f" {entry.timestep:g}"
            )
        return entry.step if entry.counts and entry.step in self._steps else None

    def _rows_of_prompts(self, states: Any) -> tuple[list[int], int]:
        """Conditional rows among the text states of a call, by their values; the same object is judged once."""
        key = tuple(map(id, states)) if isinstance(states, list | tuple) else (id(states),)
        if key not in self._known_states:
            rows = rows_of(states)
            samples = [print_of_row.sample for print_of_row in fingerprints(rows)]
            conditional = conditional_rows(samples, self._found.unconditional)
            n = len(self._texts.prompts)
            if len(conditional) % n:
                parts = conditional and n % len(conditional) == 0
                why = (
                    f"the pipeline takes a batch in parts, give --batch-size {len(conditional)}"
                    if parts
                    else "the text states of prompts and of no prompt cannot be told apart"
                )
                raise SiteError(
                    f"{self.name}: {len(conditional)} conditional of {len(rows)} rows for {n} prompts; {why}"
                )
            if len(self._known_states) > 8:
                self._known_states.clear()
            # Of two conditional rows per prompt the second is a perturbed one. The object is kept so its id stays.
            self._known_states[key] = (states, conditional[:n], len(rows))
        _, conditional, n_rows = self._known_states[key]
        return conditional, n_rows

    def _read_conditioning(self, rows: Sequence[Tensor]) -> None:
        """Weights over the text states of this batch, and the states themselves where they are wanted."""
        states = [rows[row].flatten(1) if rows[row].ndim == 3 else rows[row] for row in self._rows]
        site = Site(self.name, CONDITIONING, "text")
        is_read = site in self._plan.sites
        if states[0].ndim != 2:  # one vector per prompt, no tokens
            if is_read:
                vectors = torch.stack([row.float().flatten() for row in states])[:, None]
                self._pooled.put(site, None, vectors, text_rows([WITHOUT_WORDS]))
            return
        n = max(row.shape[0] for row in states)
        self._text = self._states.weights(n).to(states[0].device)
        if is_read:
            padded = [row if row.shape[0] == n else _pad_tokens(row, n) for row in states]
            pooled = pool_tokens(torch.stack(padded), self._text)
            self._pooled.put(site, None, pooled, self._text_rows)

    def read(self, path: str, readings: dict[Stream, Reading]) -> Callable[..., None]:
        """A hook that pools the streams of one block, at wanted steps only."""
        streams = [(Site(self.name, path, stream), reading) for stream, reading in readings.items()]

        def hook(_args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
            if self.step is None:
                return
            for site, reading in streams:
                values = self._conditional_rows(pick(output, reading.item, site), reading, site)
                if site.stream == "image":
                    self._pool_image(site, values, reading)
                elif self._text is not None:
                    self._pool_text(site, values, self._text)

        return hook

    def _conditional_rows(self, values: Tensor, reading: Reading, site: Site) -> Tensor:
        """The conditional rows, batch axis first, and of tokens only those of the stream."""
        if values.shape[reading.axis] != self._n_rows:
            raise SiteError(
                f"{site}: {values.shape[reading.axis]} rows in a call of {self._n_rows}; a wrapper such as"
                " DataParallel splits the batch, use the module inside it"
            )
        first, n = self._rows[0], len(self._rows)
        if self._rows[-1] - first == n - 1:  # they are ascending
            values = values.narrow(reading.axis, first, n)
        else:
            rows = torch.tensor(self._rows, device=values.device)
            values = values.index_select(reading.axis, rows)
        values = values.transpose(0, 1) if reading.axis == 1 else values
        return values if reading.cut is None else values[:, slice(*reading.cut)]

    def _pool_image(self, site: Site, values: Tensor, reading: Reading) -> None:
        if reading.cut is None:
            values = values.movedim(-1, 1) if reading.channels_last else values
            values = values.squeeze(2) if values.ndim > 4 else values  # a video of one frame
            weights, rows = self._image_weights(values.shape[2:], values.device)
            pooled = pool_map(values, weights)
        else:
            weights, rows = self._image_weights(values.shape[1:2], values.device)
            pooled = pool_tokens(values, weights)
        self._pooled.put(site, self.step, pooled, rows)

    def _image_weights(self, shape: torch.Size, device: torch.device) -> tuple[Tensor, Rows]:
        """Weights over the positions of a feature map (height, width) or of tokens (n), and which row is which."""
        if (shape, device) not in self._image:
            n = shape.numel()
            if len(shape) == 1:
                grid = image_grid(self._found, n, self._plan.calibration.image_size)
            else:
                grid = (shape[0], shape[1]) if len(shape) == 2 else None
            weights = torch.from_numpy(image_weights(self._plan.image_poolings, n, grid)).to(device)
            self._image[shape, device] = (
                weights,
                image_rows(self._plan.image_poolings, grid is not None),
            )
        return self._image[shape, device]

    def _pool_text(self, site: Site, values: Tensor, weights: Tensor) -> None:
        n = values.shape[1]
        if n == 0:  # a model that keeps its text from the first step in a cache
            shape = (values.shape[0], weights.shape[1], values.shape[-1])
            undefined = torch.full(shape, torch.nan, device=values.device)
            self._pooled.put(site, self.step, undefined, self._text_rows)
            return
        weights = weights[..., :n]
        if weights.shape[-1] < n:  # pads behind the text states
            weights = torch.nn.functional.pad(weights, (0, n - weights.shape[-1]))
        pooled = pool_tokens(values, weights.to(values.device))
        self._pooled.put(site, self.step, pooled, self._text_rows)


def _pad_tokens(row: Tensor, n: int) -> Tensor:
    return torch.nn.functional.pad(row, (0, 0, 0, n - row.shape[0]))
