"""Whether prompts of very different lengths can share a batch."""

from collections.abc import Mapping, Sequence

import torch

from t2iprobe.calibration.batches import disagreement
from t2iprobe.calibration.result import Denoiser, Reading
from t2iprobe.calibration.rows import conditional_rows
from t2iprobe.calibration.trace import Call, Trace, Tracer, turn_states
from t2iprobe.calibration.trial import PROMPTS
from t2iprobe.models.calling import call_pipeline
from t2iprobe.models.model import Model
from t2iprobe.places import Stream

LONG = " and ".join([*PROMPTS] * 3)
"""A prompt several times as long as the others: longer than what texts are padded to multiples of."""


def may_move(readings: Mapping[str, Mapping[Stream, Reading]], lengths: Sequence[int]) -> bool:
    """Whether an image follows a text of each prompt's own length, so that a longer one could move it.

    Args:
        readings: how sites are read.
        lengths: text states of two prompts.
    """
    images = [streams["image"].cut for streams in readings.values() if "image" in streams]
    return len(set(lengths)) > 1 and any(cut and (cut[0] or 0) < 0 for cut in images)


def moves_with_length(
    model: Model, found: Mapping[str, Denoiser], alone: Trace, steps: int | None
) -> dict[str, str]:
    """For each denoiser the first site whose image is elsewhere when a long and a short prompt share a batch.

    Texts padded to a multiple hide it from prompts of about the same length. Costs two short calls.

    Args:
        model: the model.
        found: denoisers to look at.
        alone: what was seen with the first prompt alone.
        steps: denoising steps of a short call; None for those of a run.
    """
    tracer = Tracer(model, {name: list(one.readings) for name, one in found.items()}, detail=4)

    def trace(prompts: Sequence[str]) -> Trace:
        generators = [torch.Generator("cpu").manual_seed(0) for _ in prompts]
        return tracer.run(lambda: call_pipeline(model, prompts, generators, "np", steps))

    long, both = trace([LONG]), trace([PROMPTS[0], LONG])
    moving: dict[str, str] = {}
    for name, one in found.items():
        short, own, together = (_conditional(t.calls[name], one) for t in (alone, long, both))
        singles = [(call.events, rows[0]) for call, rows in (short, own)]
        path = disagreement(one.readings, singles, together[0].events, together[1][:2])
        if path is not None:
            moving[name] = path
    return moving


def _conditional(calls: Sequence[Call], found: Denoiser) -> tuple[Call, list[int]]:
    """The first conditional call, and its conditional rows."""
    turn_states(calls, found.conditioning)
    for call in calls:
        states = [row.sample for row in call.arguments.get(found.conditioning, [])]
        rows = conditional_rows(states, found.unconditional)
        if rows:
            return call, rows
    raise AssertionError("calibration has seen a conditional call")
