"""Steps as entries of the denoising schedule, however often a scheduler calls the denoisers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from t2iprobe.calibration.grid import picture
from t2iprobe.calibration.observe import Call, Print
from t2iprobe.calibration.rows import conditional_rows, same_print


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


@dataclass(frozen=True)
class Run:
    """The calls of one denoiser in a full run.

    Attributes:
        calls: every one.
        argument: the one that carries the text.
        unconditional: text states of no prompt.
    """

    calls: Sequence[Call]
    argument: str
    unconditional: Sequence[Tensor]

    def conditional(self) -> Iterator["_Evaluation"]:
        """The calls that are given the prompt."""
        for call in self.calls:
            states = [row.sample for row in call.arguments.get(self.argument, [])]
            if conditional_rows(states, self.unconditional):
                yield _Evaluation(call.timestep, call.number, picture(call, self.argument))


@dataclass(frozen=True)
class Schedule:
    """The conditional calls of one denoiser, and how they were told.

    Attributes:
        calls: in order.
        n_steps: entries of the whole schedule, of which the denoiser may have a part.
        notes: why the steps may be other than they seem, in sentences; mostly none.
    """

    calls: list[ScheduledCall]
    n_steps: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Evaluation:
    """One conditional call: its noise level, its number among all calls of a run, and what it is to denoise."""

    level: float
    number: int
    picture: Print | None


def conditional_schedules(runs: Mapping[str, Run], asked: Sequence[int]) -> dict[str, Schedule]:
    """The conditional calls of a full run with their steps, by denoiser.

    Calls at one noise level belong to one entry of the schedule. Schedulers of second order that evaluate between
    entries (DPM2) see twice as many noise levels, less one or not; there every other one is an entry. With more
    evaluations a step it is every third, and so on. Denoisers that take over from one another go through one schedule
    together: each has its own part of the steps.

    Args:
        runs: what each denoiser was called with.
        asked: numbers of steps that were asked for, one per stage.
    """
    kept = {name: list(run.conditional()) for name, run in runs.items()}
    found = {name: Schedule([], 0) for name in kept}
    for names in _relays(kept):
        calls, n_steps, notes = _scheduled([one for name in names for one in kept[name]], asked)
        for name in names:
            own, calls = calls[: len(kept[name])], calls[len(kept[name]) :]
            found[name] = Schedule(own, n_steps, notes)
    return found


def _relays(kept: Mapping[str, Sequence[_Evaluation]]) -> list[list[str]]:
    """Names of denoisers, together where the next goes on at the noise level and with the picture of the one before."""
    relays: list[list[str]] = []
    called = [name for name in kept if kept[name]]
    for name in sorted(called, key=lambda name: kept[name][0].number):
        if relays and _goes_on(kept[relays[-1][-1]], kept[name]):
            relays[-1].append(name)
        else:
            relays.append([name])
    return relays


def _goes_on(one: Sequence[_Evaluation], other: Sequence[_Evaluation]) -> bool:
    ends = [one[0].level, one[-1].level, other[0].level, other[-1].level]
    shapes = [calls[at].picture for calls, at in ((one, -1), (other, 0))]
    return (
        one[-1].number < other[0].number
        and ends[0] != ends[2]
        and _one_way(ends)
        and len({shape.shape for shape in shapes if shape is not None}) < 2
    )


def _one_way(levels: Sequence[float]) -> bool:
    """Whether noise levels only fall or only rise."""
    rises = [b - a for a, b in pairwise(levels)]
    return all(rise >= 0 for rise in rises) or all(rise <= 0 for rise in rises)


def _scheduled(
    calls: Sequence[_Evaluation], asked: Sequence[int]
) -> tuple[list[ScheduledCall], int, tuple[str, ...]]:
    """Calls with their steps, the number of steps, and notes."""
    deciding = _deciding(calls)
    levels = sorted(deciding, key=lambda level: deciding[level])
    if len(calls) in asked and len(levels) not in asked:
        # one call a step, where half precision makes two levels equal
        return [ScheduledCall(one.level, i, True) for i, one in enumerate(calls)], len(calls), ()
    entries = _trimmed(levels[:: _evaluations(len(levels), asked)], asked)
    steps = {level: index for index, level in enumerate(entries)}
    schedule = [
        ScheduledCall(one.level, steps.get(one.level), deciding[one.level] == index)
        for index, one in enumerate(calls)
    ]
    return schedule, len(entries), tuple(_doubts(calls, entries, asked))


def _deciding(calls: Sequence[_Evaluation]) -> dict[float, int]:
    """For each noise level the index of the call that gives its activations.

    The last picture at a level decides, and of several calls with that picture the first. A picture that is not a
    number equals none, itself included.
    """
    indices: dict[float, list[int]] = {}
    for index, one in enumerate(calls):
        indices.setdefault(one.level, []).append(index)
    return {
        level: next((i for i in own if _same(calls[i].picture, calls[own[-1]].picture)), own[-1])
        for level, own in indices.items()
    }


def _same(one: Print | None, other: Print | None) -> bool:
    """Whether two calls are to denoise the same: more guidance, not another evaluation."""
    return one is None or other is None or same_print(one, other)


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


def _trimmed(entries: list[float], asked: Sequence[int]) -> list[float]:
    """Entries without the one more that a run has at its end, or before its start where that is out of order."""
    if len(entries) - 1 not in asked:
        return entries
    before = not _one_way(entries) and _one_way(entries[1:])
    return entries[1:] if before else entries[:-1]


def _doubts(
    calls: Sequence[_Evaluation], entries: Sequence[float], asked: Sequence[int]
) -> Iterator[str]:
    pictures = [one.picture for one in calls if one.level == entries[0]]
    n = len([i for i, one in enumerate(pictures) if not any(_same(one, x) for x in pictures[:i])])
    if n > 1:
        yield (
            f"it is called for {n} pictures at one noise level; the last is captured, which is a part of the image"
            " where that is drawn in parts"
        )
    if asked and len(entries) not in asked:
        yield (
            f"it is called at {len(entries)} noise levels, {' and '.join(map(str, asked))} steps were asked for;"
            " its steps are numbered by noise level"
        )
    elif not _one_way(entries):
        yield "its noise levels neither only fall nor only rise; its steps are numbered as they come"


def step_timesteps(schedule: Sequence[ScheduledCall]) -> Mapping[int, float]:
    """Noise level of every step."""
    return {call.step: call.timestep for call in schedule if call.counts and call.step is not None}
