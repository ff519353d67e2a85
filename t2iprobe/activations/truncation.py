"""Prompts that a text encoder cuts at its limit: told before an image is made."""

from contextlib import suppress
from typing import Any

import torch

from t2iprobe.activations.generate import ImageRequest, token_readers
from t2iprobe.activations.plan import CapturePlan
from t2iprobe.activations.recorder import BatchRecorder
from t2iprobe.calibration.trial import PROMPTS
from t2iprobe.models.calling import call_pipeline
from t2iprobe.models.hooks import HookSet, StopCall
from t2iprobe.models.model import Model


def foresee_cut(model: Model, plan: CapturePlan, longest: ImageRequest) -> list[str]:
    """Sentences about what the text encoders leave out of a run's longest prompt; costs one pass of the encoders.

    The call ends where the first denoiser would begin; an encoder that runs later is not seen here.

    Args:
        model: a calibrated model.
        plan: what will be captured.
        longest: the image with the longest prompt. One no longer than the prompts of calibration is not tried.
    """
    if len(longest.prompt.split()) <= max(len(prompt.split()) for prompt in PROMPTS):
        return []
    recorder = BatchRecorder(model, plan, [longest.prompt], [longest.spans], token_readers(model))
    generators = [torch.Generator("cpu").manual_seed(0)]

    def stop(*_: Any) -> None:
        raise StopCall

    with HookSet() as hooks, suppress(StopCall):
        for denoiser in model.denoisers.values():
            hooks.before(denoiser, stop)
        with torch.random.fork_rng(devices=[]), recorder:
            call_pipeline(model, [longest.prompt], generators, "np")
    said = []
    for name, watch in recorder.encoders.items():
        tokens = watch.tokens[0]
        if tokens is None or not tokens.truncated:
            continue
        lost = [part for part, span in longest.spans.items() if tokens.span(span) is None]
        what = f"{', '.join(lost)} lost in the longest prompt" if lost else "no constituent lost"
        said.append(f"{name} cuts prompts at {tokens.length} tokens: {what}")
    return said
