"""Which layers of the text encoders a denoiser is given, found by disturbing them one at a time.

Whatever a pipeline does with an encoder's states on the way (joins several encoders by channel or in sequence, pads,
drops a template, projects), a layer that is handed on is one behind which a disturbance still reaches the denoiser.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

from t2iprobe.calibration.observe import batched_arguments, bind
from t2iprobe.calibration.result import Calibration, pick
from t2iprobe.calibration.trial import PROMPTS, SHORT_STEPS
from t2iprobe.models.calling import call_pipeline
from t2iprobe.models.hooks import Before, HookSet, StopCall
from t2iprobe.models.model import Model, forward_names
from t2iprobe.places import Site

States = dict[str, Tensor]
"""Token states that denoisers are given in their first calls, by denoiser, argument and row."""

Reached = frozenset[tuple[str, str, int]]
"""Tokens and channels of them that differ from those of an undisturbed call."""


def fed_layers(model: Model, found: Calibration) -> dict[str, list[str]]:
    """For each text encoder that runs, the paths of the layers whose token states a denoiser is given.

    Empty for an encoder of which only a pooled vector is used. Of layers that are added up, only the last is told.
    Costs some passes of the encoders; a single denoiser is not computed at all.
    """
    search = _Search(model, found)
    return {name: search.layers(name) for name in found.encoders}


class _Search:
    """Which disturbances reach the denoisers of one model."""

    def __init__(self, model: Model, found: Calibration) -> None:
        self._model, self._found = model, found
        self._ran: dict[str, dict[str, None]] = {name: {} for name in found.encoders}
        self._plain = self._given(None)

    def layers(self, encoder: str) -> list[str]:
        """The layers of an encoder behind which a disturbance reaches a denoiser."""
        own = self._found.encoders[encoder]
        items = {own.embedding: ""} | {path: r.item for path, r in own.readings.items()}
        paths = [path for path in self._ran[encoder] if path in items]

        @cache
        def reached(index: int) -> Reached:
            site = Site(encoder, paths[index], "text")
            return self._difference(self._given((site, items[site.path])))

        return [paths[index] for index in _taps(len(paths), reached)]

    def _given(self, disturbed: tuple[Site, str] | None) -> States:
        """Token states in the first call of every denoiser, with one site of an encoder disturbed."""
        seen: dict[str, States] = {}
        model = self._model
        with HookSet() as hooks:
            if disturbed is None:
                self._note_order(hooks)
            else:
                site, item = disturbed
                hooks.after(
                    model.module(site.component, site.path),
                    lambda _args, _kwargs, output: _disturb(pick(output, item, site)),
                )
            for name in self._found.denoisers:
                hooks.before(model.denoisers[name], self._watch(name, seen))
            try:
                generator = torch.Generator("cpu").manual_seed(0)
                call_pipeline(model, PROMPTS[:1], [generator], "latent", SHORT_STEPS)
            except StopCall:
                pass
            hooks.raise_error()
        getattr(model.pipe, "maybe_free_model_hooks", lambda: None)()
        return {key: states for given in seen.values() for key, states in given.items()}

    def _note_order(self, hooks: HookSet) -> None:
        """Keep in which order the layers of each encoder give their outputs."""
        for name, encoder in self._found.encoders.items():
            for path in (encoder.embedding, *encoder.readings):
                ran = self._ran[name]
                hooks.after(
                    self._model.module(name, path),
                    lambda *_, ran=ran, path=path: ran.setdefault(path),
                )

    def _watch(self, name: str, seen: dict[str, States]) -> Before:
        names = forward_names(self._model.denoisers[name])
        found = self._found.denoisers[name]
        text = (
            found.conditioning if found.states_shape else None
        )  # later stages are given a picture

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if name not in seen:
                seen[name] = {
                    f"{name}.{argument}.{number}": row.detach().to("cpu", torch.float32, copy=True)
                    for argument, rows in batched_arguments(bind(names, args, kwargs))
                    if argument == text or argument != names[0]  # the picture in the making
                    for number, row in enumerate(rows)
                    if row.ndim >= 2 and row.shape[-2] > 1
                }
            if len(seen) == len(self._found.denoisers):
                raise StopCall

        return begin

    def _difference(self, given: States) -> Reached:
        return frozenset(
            (key, axis, int(at))
            for key, states in self._plain.items()
            for axis, places in _differing(states, given.get(key))
            for at in places
        )


def _disturb(output: Tensor) -> None:
    """Change every value of an output in its place, so that whoever holds it sees the change."""
    draw = torch.Generator("cpu").manual_seed(1)
    noise = torch.randn(output.shape, generator=draw)
    output += noise.to(output.device, output.dtype) * output.float().std().to(output.dtype)


def _differing(states: Tensor, other: Tensor | None) -> Iterator[tuple[str, Tensor]]:
    """Which tokens and which channels of text states differ."""
    if other is None or other.shape != states.shape:
        yield "all", torch.zeros(1)
        return
    differs = states.flatten(0, -2) != other.flatten(0, -2)
    yield "tokens", differs.any(-1).nonzero().flatten()
    yield "channels", differs.any(0).nonzero().flatten()


def _taps(n: int, reached: Callable[[int], Reached]) -> list[int]:
    """Indices of the layers, of n in running order, that are handed on themselves.

    What a disturbance of a layer reaches only shrinks from layer to layer, and it shrinks behind each that is
    handed on.
    """
    if not n:
        return []
    last = n - 1
    found = [last] if reached(last) else []

    def between(low: int, high: int) -> None:
        if reached(low) == reached(high):
            return
        if low + 1 == high:
            found.append(low)
            return
        middle = (low + high) // 2
        between(low, middle)
        between(middle, high)

    between(0, last)
    return sorted(found)
