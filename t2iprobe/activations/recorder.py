"""Hooks for one batch of images: pooled activations of the conditional rows, at the wanted steps, in one pass."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from t2iprobe.activations.denoiser_watch import DenoiserWatch
from t2iprobe.activations.encoder_watch import BatchTexts, EncoderWatch
from t2iprobe.activations.plan import CapturePlan
from t2iprobe.activations.pooled_values import PooledValues
from t2iprobe.activations.pooling import text_names
from t2iprobe.calibration.result import Reading
from t2iprobe.calibration.tokens import Span, TokenReader
from t2iprobe.errors import SiteError
from t2iprobe.models.hooks import Before, HookSet
from t2iprobe.models.model import Model
from t2iprobe.places import CONDITIONING, Place, Site


class BatchRecorder:
    """Captures one pipeline call while it is open.

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
        readers: Mapping[str, TokenReader],
    ) -> None:
        self._model, self._plan = model, plan
        constituents = list(dict.fromkeys(name for row in spans for name in row))
        texts = BatchTexts(list(prompts), list(spans), text_names(plan.text_poolings, constituents))
        self._pooled = PooledValues(len(prompts))
        self._hooks = HookSet()
        self.encoders = {
            name: EncoderWatch(readers[name], texts, self._pooled)
            for name in plan.calibration.encoders
            if name in readers
        }
        self._denoisers = {
            name: DenoiserWatch(model, plan, name, texts, self.encoders, self._pooled)
            for name in plan.calibration.denoisers
        }

    def __enter__(self) -> Self:
        sites = set(self._plan.sites)
        for name, watch in self.encoders.items():
            encoder = self._plan.calibration.encoders[name]
            self._hooks.before(self._model.module(name, encoder.embedding), watch.begin)
            embedding = {encoder.embedding: Reading("", 0, (None, None))}
            for path, reading in (embedding | encoder.readings).items():
                site = Site(name, path, "text")
                if site in sites:
                    self._hooks.after(self._model.module(name, path), watch.read(site, reading))
        for name in self._plan.calibration.unused if self._reads_text_streams() else ():
            self._hooks.before(self._model.encoders[name], self._refuse(name))
        for name, watched in self._denoisers.items():
            self._hooks.before(self._model.denoisers[name], watched.begin)
            for path, streams in self._plan.calibration.denoisers[name].readings.items():
                readings = {s: r for s, r in streams.items() if Site(name, path, s) in sites}
                if readings:
                    self._hooks.after(self._model.module(name, path), watched.read(path, readings))
        return self

    def _reads_text_streams(self) -> bool:
        return any(
            site.component in self._denoisers
            and site.stream == "text"
            and site.path != CONDITIONING
            for site in self._plan.sites
        )

    def _refuse(self, name: str) -> Before:
        """A hook that ends a batch in which an encoder runs that did not in calibration, as for quoted words."""

        def refuse(_args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
            raise SiteError(
                f"{name} runs for these prompts and did not in calibration (quotation marks?), so the words may be"
                " elsewhere in the denoiser's text: leave its text streams out, e.g. --sites 'text_encoder*'"
                " '*:image'"
            )

        return refuse

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hooks.__exit__(kind, error, trace)
        if kind is None:
            self._check_complete()

    def _check_complete(self) -> None:
        """Every site must have been read at every wanted step.

        Raises:
            SiteError: a site stayed silent.
        """
        for site in self._plan.sites:
            watched = self._denoisers.get(site.component)
            if watched is None:
                if site.component in self.encoders and (site, None) not in self._pooled.values:
                    raise SiteError(
                        f"{site}: 0 captures; no pass of the encoder was given a prompt of the batch"
                    )
                continue
            steps = (None,) if site.path == CONDITIONING else self._plan.steps[site.component]
            for step in steps:
                if (site, step) not in self._pooled.values:
                    at = "" if step is None else f" at step {step}"
                    raise SiteError(
                        f"{site}: 0 captures{at} in {watched.calls} calls ({watched.conditional_calls} conditional) of"
                        f" {site.component}; a compiled or cached module skips its hooks"
                    )

    def activations(self) -> dict[Place, Tensor]:
        """Everything read, as place -> (b, d) float32 on the CPU, in the plan's order."""
        return self._pooled.activations(self._plan.sites)
