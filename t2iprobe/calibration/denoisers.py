"""What one denoiser does with a prompt, from what it was given and what its sites saw in a few short calls."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from t2iprobe.calibration.batches import disagreement
from t2iprobe.calibration.firsts import (
    evaluated,
    first_effective,
    several_pictures,
    several_texts,
)
from t2iprobe.calibration.grid import (
    denoised_name,
    grows,
    image_counts,
    text_count,
)
from t2iprobe.calibration.passes import in_order, last_passes, named, numbered, passes_told
from t2iprobe.calibration.replay import (
    Disturbance,
    Replays,
    disturbed_picture,
    disturbed_quarter,
    disturbed_text,
)
from t2iprobe.calibration.result import ALL, Denoiser, Evidence
from t2iprobe.calibration.rows import (
    check_order,
    conditional_rows,
    conditioning_argument,
    dependent_rows,
    equal_start,
    first_step,
    guidance_words,
    same_print,
    same_text,
)
from t2iprobe.calibration.streams import Geometry, Labels
from t2iprobe.calibration.trace import Call, Print, Trace, as_tokens, turn_states
from t2iprobe.calibration.trial import ShortCalls
from t2iprobe.errors import SiteError, first_line
from t2iprobe.models.foreign import ForeignError
from t2iprobe.places import CONDITIONING


def calibrate_denoiser(
    name: str, short: ShortCalls, rehearsal: Trace, size: tuple[int, int]
) -> Denoiser | str:
    """What calibration finds about one denoiser, or a sentence that says why nothing can be captured in it.

    Args:
        name: its component name.
        short: short runs that differ in the prompt.
        rehearsal: a whole run.
        size: height and width of the image.

    Raises:
        SiteError: the calls of a prompt cannot be told from those of none.
    """
    calls, others = short.first.calls[name], short.second.calls.get(name, [])
    if len(others) != len(calls):
        return (
            f"{name} is called {len(calls)} times for one prompt and {len(others)} times for another, so its calls"
            " cannot be compared; nothing is captured there"
        )
    argument = conditioning_argument(calls, others)
    if argument is None:
        return f"{name} does not see the prompt; nothing is captured there"
    at_start = next(call for call in calls if argument in call.arguments)
    counts, grids = image_counts(at_start, argument, size)
    together = short.double.calls.get(name, []) if short.double else []
    turn_states((*calls, *others, *together, *rehearsal.calls[name]), argument)
    layouts, unconditional = _judged(name, calls, others, argument)
    begun = {index: layouts[index] for index in evaluated(calls, argument, layouts)}
    at, dropped = first_effective(name, calls, others, begun)
    shown = [
        [own and index not in dropped for own in layout[: calls[index].at_level]]
        for index, layout in begun.items()
    ]
    guidance = guidance_words(shown, comes_later=bool(unconditional))
    denoiser = Denoiser(argument, unconditional, guidance, grids=grids)
    denoiser.notes += several_pictures(name, calls[at], argument, layouts[at])
    denoiser.notes += several_texts(name, calls[at], argument, layouts[at])
    pair = _Pair(calls[at], others[at], together[at] if together else None, layouts[at])
    if pair.both is not None and _other_texts(pair.both.arguments[argument], pair.states(argument)):
        pair = replace(pair, both=None)
        denoiser.moves_in_batch = CONDITIONING
    denoiser.evidence = _evidence(pair, argument)
    _label(name, denoiser, pair, _geometry(pair, argument, counts, size), short.replays, at)
    joint = [
        path
        for path, streams in denoiser.readings.items()
        if {reading.cut for reading in streams.values()} - {None, ALL}
    ]
    if joint and grows(rehearsal.calls[name], argument):
        denoiser.readings = {
            path: streams for path, streams in denoiser.readings.items() if path not in joint
        }
        why = f"the picture changes its size within a run, so where the text ends in {named(joint)} is not known"
        denoiser.notes.append(f"{name}: {why}; nothing is captured there")
    return denoiser


@dataclass(frozen=True)
class _Pair:
    """The conditional call that decides the streams, with one prompt, with the other, and with both in a batch.

    Attributes:
        one: with one prompt.
        other: with the other.
        both: with both; None where batches fail, or are of other texts.
        layout: for each row of `one` whether it depends on the prompt.
    """

    one: Call
    other: Call
    both: Call | None
    layout: Sequence[bool]

    def states(self, argument: str) -> tuple[Print, Print]:
        """Text states of each prompt alone."""
        row = self.layout.index(True)
        return self.one.arguments[argument][row], self.other.arguments[argument][row]


def _evidence(pair: _Pair, argument: str) -> Evidence:
    """Why an argument is the one that carries the text."""
    one, other = (states.sample for states in pair.states(argument))
    n = min(len(one), len(other))
    apart = float((one[:n] - other[:n]).norm() / one[:n].norm().clamp_min(1e-6))
    return Evidence(
        f"is another with another prompt (by {apart:.2g} of its length) and the same from step to step"
    )


def _geometry(
    pair: _Pair, argument: str, counts: tuple[int, ...], size: tuple[int, int]
) -> Geometry:
    row = pair.layout.index(True)
    text, other_text = (as_tokens(states) for states in pair.states(argument))
    n_text = text_count(pair.one, argument, row)
    under = text.shape[1:] == (1,) and n_text in counts  # GLM-Image: ids under the image's tokens
    has_tokens = len(text.shape) == 2 and len(pair.one.arguments) > 1 and not under
    return Geometry(
        image_counts=counts,
        n_text=n_text if has_tokens else 0,
        first_word=equal_start(text.sample, other_text.sample) if has_tokens else 0,
        rows=len(pair.layout),
        row=row,
        double_rows=len(pair.both.arguments[argument]) if pair.both else None,
        size=size,
    )


def _label(
    name: str, denoiser: Denoiser, pair: _Pair, geometry: Geometry, replays: Replays, at: int
) -> None:
    """Find how the sites are read, and whether a batch is read as its prompts alone are."""
    one, both = pair.one, pair.both
    argument, unconditional = denoiser.conditioning, denoiser.unconditional
    if both is not None:
        check_order(name, argument, unconditional, one, pair.other, both)
    text = {argument: disturbed_text(geometry.first_word)}
    if not geometry.image_counts:  # a prior: its pooled text is a token
        prompted = [key for key in one.arguments if any(dependent_rows(one, pair.other, key))]
        text = {key: disturbed_text(0) for key in prompted} | text
    denoised = denoised_name(one, argument) or argument
    changes: list[dict[str, Disturbance]] = [{}, text, {denoised: disturbed_picture(geometry.size)}]
    if replays.takes_ids(name, at, denoised):  # aMUSEd and VQ Diffusion
        changes.append({denoised: disturbed_quarter()})
    labels = Labels(geometry)
    try:
        base, *disturbed = (replays.outputs(name, at, each) for each in changes)
    except ForeignError as failure:
        why = first_line(failure.error, 80)
        denoiser.notes.append(f"{name}: its call cannot be made again ({why})")
    else:
        by_text, by_picture, *_ = aligned = [in_order(seen, base) for seen in disturbed]
        doubled = in_order(both.events, base) if both else None
        labels.read(numbered(base), by_text, by_picture, aligned[-1], doubled)
    denoiser.readings = last_passes(labels.readings, one.events)
    calls = [(call.events, len(call.arguments[argument])) for call in (one, both) if call]
    notes = (*passes_told(denoiser.readings, calls), *labels.notes())
    denoiser.notes += [f"{name}: {sentence}" for sentence in notes]
    denoiser.in_order = labels.in_order is not False
    if both is not None:
        states = [print_.sample for print_ in both.arguments[argument]]
        rows = conditional_rows(states, unconditional)[:2]
        alone = [(one.events, geometry.row), (pair.other.events, geometry.row)]
        if len(rows) < len(alone):  # the pipeline calls it for one prompt after the other
            denoiser.moves_in_batch = CONDITIONING
        else:
            denoiser.moves_in_batch = disagreement(denoiser.readings, alone, both.events, rows)


def _judged(
    name: str, calls: Sequence[Call], others: Sequence[Call], argument: str
) -> tuple[dict[int, list[bool]], list[Tensor]]:
    """For each call that is given text, which of its rows depend on the prompt, and the states of those that do not.

    Raises:
        SiteError: what stands for no prompt is another in every step, so no later call can be told by it.
    """
    layouts: dict[int, list[bool]] = {}
    own: list[Print] = []
    unconditional: list[Print] = []
    at_first = 0
    for index, call in enumerate(calls):
        if argument not in call.arguments:
            continue
        layouts[index] = dependent_rows(call, others[index], argument)
        for row, dependent in zip(call.arguments[argument], layouts[index], strict=True):
            (own if dependent else unconditional).append(row)
        if index in first_step(calls):
            at_first = len(unconditional)
    lasting = all(same_print(row, own[0]) for row in own)
    drawn = [
        row
        for row in unconditional[at_first:]
        if all(one.shape == row.shape for one in unconditional[:at_first])
        and not any(bool(same_text(row.sample, one.sample)) for one in unconditional[:at_first])
    ]
    if drawn and at_first and lasting:
        raise SiteError(
            f"{name}: what it is given for no prompt is drawn anew in every step, so these calls cannot be told from"
            " those of a prompt; turn guidance off: --guidance 1"
        )
    return layouts, [row.sample for row in unconditional]


def _other_texts(rows: Sequence[Print], pair: Sequence[Print]) -> bool:
    """Whether no row of a batch is the text of one of its prompts alone: some families write a text of their own."""
    return not any(
        len(row.shape) == len(one.shape) and bool(same_text(row.sample, one.sample))
        for row in rows
        for one in pair
    )


def conditional_states(calls: Sequence[Call], others: Sequence[Call], found: Denoiser) -> Print:
    """Text states of the prompt in the first step."""
    for index in first_step(calls):
        dependent = dependent_rows(calls[index], others[index], found.conditioning)
        if any(dependent):
            return as_tokens(calls[index].arguments[found.conditioning][dependent.index(True)])
    raise SiteError("no conditional call in the first step")
