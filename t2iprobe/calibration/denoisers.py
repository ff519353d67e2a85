"""What one denoiser does with a prompt, from what it was given and what its sites saw in a few short calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from t2iprobe.calibration.batches import disagreement
from t2iprobe.calibration.firsts import (
    evaluated,
    first_effective,
    next_step,
    several_pictures,
    several_texts,
)
from t2iprobe.calibration.grid import (
    denoised_name,
    differs_already,
    grows,
    image_counts,
    rectangle,
    text_count,
)
from t2iprobe.calibration.labeller import Labeller
from t2iprobe.calibration.nudge import Nudges
from t2iprobe.calibration.passes import in_order, last_passes, named, numbered, passes_told
from t2iprobe.calibration.rows import (
    check_order,
    conditional_rows,
    conditioning_argument,
    dependent_rows,
    first_step,
    guidance_words,
    same_print,
    same_text,
)
from t2iprobe.calibration.samples import equal_start
from t2iprobe.calibration.schedule import ScheduledCall
from t2iprobe.calibration.streams import ALL, Geometry, Reading
from t2iprobe.calibration.tokens import Segment
from t2iprobe.calibration.trace import Call, Event, Print, Trace, as_tokens, turn_states
from t2iprobe.errors import SiteError
from t2iprobe.places import CONDITIONING, Stream


@dataclass
class Denoiser:
    """What calibration found about one denoiser.

    Attributes:
        conditioning: dotted name of the argument that carries the text states.
        unconditional: samples of text states that do not depend on the prompt: how unconditional rows are known.
        guidance: in words, how the rows of a step are laid out.
        schedule: every conditional call of a run; empty until all denoisers are known.
        n_steps: entries of the schedule, which several denoisers may share.
        readings: by path and stream, how a site is read.
        grids: image tokens -> (height, width), for the token counts that occur.
        segments: where the encoders' tokens are among the text states.
        states_shape: shape of one prompt's text states; () where it is given none, or token ids in their place.
        moves_in_batch: a site that reads differently in a batch of texts of different lengths; None where none does.
        in_order: whether image tokens come row by row, as far as it can be told: pictures that a pipeline has packed
            itself are taken to.
        notes: sentences for the user.
    """

    conditioning: str
    unconditional: list[Tensor]
    guidance: str
    schedule: list[ScheduledCall] = field(default_factory=list)
    n_steps: int = 0
    readings: dict[str, dict[Stream, Reading]] = field(default_factory=dict)
    grids: dict[int, tuple[int, int]] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    states_shape: tuple[int, ...] = ()
    moves_in_batch: str | None = None
    in_order: bool = True
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Watched:
    """The conditional call that decides the streams.

    Attributes:
        one: with one prompt.
        other: with another.
        alone: with that other one as it is; `other` may be on the pictures of the first.
        twice: with both; None where batches fail, or are of other texts.
        layout: for each row of `one` whether it depends on the prompt.
        later: what the sites saw with the first prompt in the next step; () where that was not watched.
        moved: the same on a changed picture; () where that could not be made.
    """

    one: Call
    other: Call
    alone: Call
    twice: Call | None
    layout: Sequence[bool]
    later: Sequence[Event]
    moved: Sequence[Event]

    def states(self, argument: str) -> tuple[Print, Print]:
        """Text states of each prompt alone."""
        row = self.layout.index(True)
        return self.one.arguments[argument][row], self.other.arguments[argument][row]


def calibrate_denoiser(
    name: str,
    calls: Sequence[Call],
    second: Trace,
    steered: Trace | None,
    double: Trace | None,
    rehearsal: Trace,
    size: tuple[int, int],
    nudges: Nudges,
) -> Denoiser | str:
    """What was found about one denoiser, or a sentence that says why nothing can be captured in it.

    Args:
        name: its component name.
        calls: its calls in a short run with one prompt.
        second: a short run with another prompt.
        steered: the same on the pictures of the first; None where there is only one denoiser.
        double: a short run with both; None where batches fail.
        rehearsal: a whole run.
        size: height and width of the image.
        nudges: the calls of the first run, to be made again.

    Raises:
        SiteError: the calls of a prompt cannot be told from those of none.
    """
    alone = second.calls.get(name, [])
    if len(alone) != len(calls):
        return (
            f"{name} is called {len(calls)} times for one prompt and {len(alone)} times for another, so its calls"
            " cannot be compared; nothing is captured there"
        )
    argument = conditioning_argument(calls, alone)
    if argument is None:
        return f"{name} does not see the prompt; nothing is captured there"
    others = _steered(name, calls, steered, argument) or alone
    at_start = next(call for call in calls if argument in call.arguments)
    counts, grids = image_counts(at_start, argument, size)
    together = double.calls.get(name, []) if double else []
    turn_states((*calls, *others, *alone, *together, *rehearsal.calls[name]), argument)
    layouts, unconditional = _judged(name, calls, others, argument)
    begun = {index: layouts[index] for index in evaluated(calls, argument, layouts)}
    at, dropped = first_effective(name, calls, others, begun)
    shown = [
        [own and index not in dropped for own in layout[: calls[index].at_level]]
        for index, layout in begun.items()
    ]
    guidance = guidance_words(shown, comes_later=bool(unconditional))
    found = Denoiser(argument, unconditional, guidance, grids=grids)
    found.notes += several_pictures(name, calls[at], argument, layouts[at])
    found.notes += several_texts(name, calls[at], argument, layouts[at])
    twice = together[at] if together else None
    later = next_step(calls, layouts, at)
    moved = nudges.events(name, at, denoised_name(calls[at], argument), size)
    watched = _Watched(calls[at], others[at], alone[at], twice, layouts[at], later, moved)
    if twice is not None and _other_texts(twice.arguments[argument], watched.states(argument)):
        watched = replace(watched, twice=None)
        found.moves_in_batch = CONDITIONING
    _label(name, found, watched, counts, size)
    joint = [p for p, own in found.readings.items() if {r.cut for r in own.values()} - {None, ALL}]
    if joint and grows(rehearsal.calls[name], argument):
        found.readings = {path: own for path, own in found.readings.items() if path not in joint}
        told = f"the picture changes its size within a run, so where the text ends in {named(joint)} is not known"
        found.notes.append(f"{name}: {told}; nothing is captured there")
    return found


def _steered(
    name: str, calls: Sequence[Call], steered: Trace | None, argument: str
) -> Sequence[Call] | None:
    """Its calls with the second prompt on the pictures of the first, if the text reaches it then too.

    A stage that is told the prompt by what an earlier one has drawn sees nothing of it there.
    """
    others = steered.calls.get(name, []) if steered else []
    if len(others) != len(calls) or conditioning_argument(calls, others) != argument:
        return None
    return others


def _label(
    name: str, found: Denoiser, watched: _Watched, counts: tuple[int, ...], size: tuple[int, int]
) -> None:
    """Find how the sites are read, and whether a batch is read as its prompts alone are."""
    one, other, twice = watched.one, watched.other, watched.twice
    argument, unconditional = found.conditioning, found.unconditional
    row = watched.layout.index(True)
    if twice is not None:
        check_order(name, argument, unconditional, one, other, twice)
    both_texts = text, other_text = [as_tokens(own) for own in watched.states(argument)]
    n_text = text_count(one, argument, row)
    under = text.shape[1:] == (1,) and n_text in counts  # ids of what lies under the image's tokens
    has_tokens = len(text.shape) == 2 and len(one.arguments) > 1 and not under
    geometry = Geometry(
        image_counts=counts,
        n_text=n_text if has_tokens else 0,
        rows=len(watched.layout),
        row=row,
        text_leading=equal_start(text.sample, other_text.sample) if has_tokens else 0,
        text_trailing=equal_start(*(t.sample.flip(0) for t in both_texts)) if has_tokens else 0,
        double_rows=len(twice.arguments[argument]) if twice else None,
        size=size,
    )
    blind, known = differs_already(one, other, argument, row), text.sample if has_tokens else None
    labeller = Labeller(geometry, known, mixed=under or blind, blind=blind)
    seen_again = (other.events, watched.later, watched.moved)
    second, later, moved = (in_order(events, one.events) for events in seen_again)
    doubled = in_order(twice.events, one.events) if twice else None
    labelled = labeller.run(numbered(one.events), second, doubled, later, moved)
    found.readings = last_passes(labelled, one.events)
    seen = [(call.events, len(call.arguments[argument])) for call in (one, twice) if call]
    told = (*passes_told(found.readings, seen), *labeller.told())
    found.notes += [f"{name}: {sentence}" for sentence in told]
    found.in_order = labeller.in_order is not False
    if twice is not None:
        states = [print_.sample for print_ in twice.arguments[argument]]
        both = conditional_rows(states, unconditional)[:2]
        alone = [(one.events, row), (watched.alone.events, row)]
        if len(both) < len(alone):  # the pipeline calls it for one prompt after the other
            found.moves_in_batch = CONDITIONING
        else:
            found.moves_in_batch = disagreement(found.readings, alone, twice.events, both)


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


def image_grid(found: Denoiser, n: int, size: tuple[int, int]) -> tuple[int, int] | None:
    """(height, width) of n image tokens: from the sizes seen in calibration, else from the shape of the image.

    None where they make no rectangle, or do not come row by row.
    """
    if not found.in_order:
        return None
    if n in found.grids:
        return found.grids[n]
    height, width = rectangle(n, size)
    return (height, width) if height else None
