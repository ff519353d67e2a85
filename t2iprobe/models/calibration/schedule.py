"""Steps as entries of the denoising schedule, however often a scheduler calls the denoiser."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from t2iprobe.models.calibration.rows import conditional_rows, same_print
from t2iprobe.models.calibration.trace import Call


@dataclass(frozen=True)
class ScheduledCall:
    """One conditional denoiser call of a run, in order.

    Attributes:
        timestep: noise level the denoiser is given, in its own scale.
        step: index into the denoising schedule; None for calls between its entries.
        counts: whether this call gives the activations of its step: of several evaluations at one entry (PNDM, Heun)
            the last, of several with the same input (skip-layer guidance) the first.
    """

    timestep: float
    step: int | None
    counts: bool


def conditional_schedule(
    calls: Sequence[Call], argument: str, unconditional: Sequence[Tensor], asked: Sequence[int]
) -> tuple[list[ScheduledCall], int]:
    """The conditional calls of a full run with their steps.

    Calls at one noise level belong to one entry of the schedule. Schedulers of second order that evaluate between
    entries (DPM2) see twice as many noise levels, less one or not; there every other one is an entry. With more
    evaluations a step it is every third, and so on.

    Args:
        calls: every call of the run.
        argument: the one that carries the text.
        unconditional: text states of no prompt.
        asked: numbers of steps that were asked for, one per stage.
    """
    kept = [
        call
        for call in calls
        if argument in call.arguments
        and conditional_rows([row.sample for row in call.arguments[argument]], unconditional)
    ]
    if len(kept) in asked:  # one call a step, also where half precision makes two levels equal
        return [ScheduledCall(call.timestep, i, True) for i, call in enumerate(kept)], len(kept)
    levels = list(dict.fromkeys(call.timestep for call in kept))
    entries = levels[:: _evaluations(len(levels), asked)]
    entries = entries[:-1] if len(entries) - 1 in asked else entries  # one more, where a run ends
    schedule: list[ScheduledCall] = []
    for index, call in enumerate(kept):
        step = entries.index(call.timestep) if call.timestep in entries else None
        later = [other for other in kept[index + 1 :] if other.timestep == call.timestep]
        moved = any(_moved(call, other, argument) for other in later)
        repeated = any(
            other.timestep == call.timestep and not _moved(other, call, argument)
            for other in kept[:index]
        )
        schedule.append(ScheduledCall(call.timestep, step, not moved and not repeated))
    return schedule, len(entries)


def _evaluations(n_levels: int, asked: Sequence[int]) -> int:
    """How many noise levels a step has; the last step may have fewer, or one more at the very end of the run."""
    if n_levels in asked:
        return 1
    for spare in (0, 1):
        for n in asked:
            for each in range(2, n_levels + 1):
                if n_levels - spare in (each * n, each * (n - 1) + 1):
                    return each
    return 1


def _moved(one: Call, other: Call, argument: str) -> bool:
    """Whether the picture in the making changed between two calls: another evaluation, not more guidance."""
    name = next((key for key in one.arguments if key != argument), None)
    if name is None or name not in other.arguments:
        return False
    return not same_print(one.arguments[name][0], other.arguments[name][0])


def step_timesteps(schedule: Sequence[ScheduledCall]) -> Mapping[int, float]:
    """Noise level of every step."""
    return {call.step: call.timestep for call in schedule if call.counts and call.step is not None}
