"""The calibration of a pipeline: which calls and rows are a prompt's, which steps there are, what of each site is text.

One rehearsal at full length gives the schedule. Two short calls that differ only in the prompt tell the conditional
rows; the first conditional call, made again with its text and its picture disturbed, tells the streams; two calls with
both prompts in a batch, in either order, tell whether batches are read as prompts alone are. Nothing is read from class
names or from the guidance scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from t2iprobe.calibration.batches import disagreement, images_differ, may_move, moves_with_length
from t2iprobe.calibration.grid import (
    denoised_name,
    grows,
    image_counts,
    text_count,
)
from t2iprobe.calibration.observe import Call, EncoderPass, Print, Trace, as_tokens, turn_states
from t2iprobe.calibration.passes import in_order, last_passes, named, numbered, passes_told
from t2iprobe.calibration.replay import (
    Disturbance,
    Replays,
    disturbed_picture,
    disturbed_quarter,
    disturbed_text,
)
from t2iprobe.calibration.result import ALL, Calibration, Denoiser, Encoder, Evidence, Reading
from t2iprobe.calibration.rows import (
    check_order,
    conditional_rows,
    conditioning_argument,
    dependent_rows,
    equal_start,
    evaluated,
    first_effective,
    first_step,
    guidance_words,
    same_print,
    same_text,
    several_pictures,
    several_texts,
)
from t2iprobe.calibration.steps import Run, conditional_schedules, step_timesteps
from t2iprobe.calibration.streams import Geometry, Labels
from t2iprobe.calibration.tokens import Segment, match_segments
from t2iprobe.calibration.trial import SHORT_STEPS, ShortCalls, image_size, rehearse, short_calls
from t2iprobe.errors import SiteError, first_line
from t2iprobe.models.calling import asked_steps, images_of
from t2iprobe.models.foreign import ForeignError
from t2iprobe.models.model import Model
from t2iprobe.places import CONDITIONING


def calibrate(model: Model) -> Calibration:
    """Find out how a model uses its prompt.

    Costs one image, four short calls, and of each denoiser three calls more.

    Raises:
        ModelError: the pipeline cannot make an image from a text alone.
        SiteError: no denoiser's input depends on the prompt.

    Example:
        >>> import t2iprobe
        >>> calibration = t2iprobe.calibrate(t2iprobe.load_model("shapes-unet", steps=2))
        >>> list(calibration.denoisers), calibration.image_size
        (['unet'], (64, 64))
    """
    rehearsal = rehearse(model)
    images = images_of(rehearsal.output, model.class_name)
    size = image_size(images, model.class_name)
    short = short_calls(model, rehearsal)
    first, second, double, notes = short.first, short.second, short.double, short.notes
    encoders: dict[str, Encoder] = {}
    for name, passes in first.passes.items():
        index = _prompted_pass(passes, second.passes.get(name, []))
        if index is None:
            notes.append(f"{name} is not given the prompt; nothing is captured there")
        else:
            encoders[name], sentences = _calibrate_encoder(passes[index])
            notes += [f"{name}: {sentence}" for sentence in sentences]
    denoisers: dict[str, Denoiser] = {}
    for name, calls in first.calls.items():
        denoiser = calibrate_denoiser(name, short, rehearsal, size)
        if isinstance(denoiser, str):
            notes.append(denoiser)
            continue
        denoisers[name] = denoiser
        notes += denoiser.notes
        if short.turned is not None and not denoiser.moves_in_batch:  # else there will be no batch
            _check_turned(
                name, denoiser, calls, second.calls[name], short.turned.calls.get(name, [])
            )
        states = conditional_states(calls, second.calls[name], denoiser)
        denoiser.segments, astray = _segments(name, denoiser, first, second)
        notes += [f"{name}: words of {a} move with the prompt and are left out" for a in astray]
        only_picture = len(calls[0].arguments) == 1  # a later stage, which is given no text
        denoiser.states_shape = () if only_picture or states.shape[1:] == (1,) else states.shape
    if not denoisers:
        why = "; ".join(notes)
        raise SiteError(f"{model.class_name}: no denoiser input changes with the prompt; {why}")
    notes += _schedule(denoisers, rehearsal, asked_steps(model))
    silent = [name for name in (*model.denoisers, *model.encoders) if name not in _ran(first)]
    notes += [f"{name} is not used in a call" for name in silent]
    moving = _moving(model, denoisers, rehearsal, (first, second, double)) if double else None
    if moving:
        notes.append(f"{moving} differs between a batch and its prompts alone; batch size is 1")
    max_batch = 1 if moving or double is None else None
    unused = tuple(name for name in silent if name in model.encoders)
    return Calibration(denoisers, encoders, max_batch, size, notes, unused)


def _schedule(
    denoisers: Mapping[str, Denoiser], rehearsal: Trace, asked: Sequence[int]
) -> list[str]:
    """Give every denoiser its part of the schedule; sentences about what is not as usual."""
    runs = {
        name: Run(rehearsal.calls[name], denoiser.conditioning, denoiser.unconditional)
        for name, denoiser in denoisers.items()
    }
    sentences = []
    for name, schedule in conditional_schedules(runs, asked).items():
        denoisers[name].schedule, denoisers[name].n_steps = schedule.calls, schedule.n_steps
        steps = sorted(step_timesteps(schedule.calls))
        if len(steps) < schedule.n_steps:
            part = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
            sentences.append(
                f"{name} runs in {part} of 0 to {schedule.n_steps - 1}, another one in the rest"
            )
        sentences += [f"{name}: {note}" for note in schedule.notes]
    return sentences


def _check_turned(
    name: str,
    denoiser: Denoiser,
    calls: Sequence[Call],
    others: Sequence[Call],
    turned: Sequence[Call],
) -> None:
    """A batch in the other order must come in that order: a pipeline that sorts its prompts keeps one of the two.

    Raises:
        SiteError: it does not.
    """
    argument, unconditional = denoiser.conditioning, denoiser.unconditional
    turn_states(turned, argument)
    for one, other, both in zip(calls, others, turned, strict=False):
        rows = [row.sample for row in both.arguments.get(argument, [])]
        if len(conditional_rows(rows, unconditional)) > 1:
            check_order(name, argument, unconditional, other, one, both)
            return


def _segments(
    name: str, denoiser: Denoiser, first: Trace, second: Trace
) -> tuple[list[Segment], list[str]]:
    """Where the encoders' tokens are among the text states, and encoders of which the two prompts tell otherwise.

    The words of an encoder that is joined behind another one without pads move with the length of the first text.
    """
    calls, others = first.calls[name], second.calls[name]
    segments = match_segments(conditional_states(calls, others, denoiser), first.passes)
    again = match_segments(conditional_states(others, calls, denoiser), second.passes)
    shifts = {segment.encoder: segment.shift for segment in again}
    kept = [
        segment
        for segment in segments
        if shifts.get(segment.encoder, segment.shift) == segment.shift
    ]
    return kept, [segment.encoder for segment in segments if segment not in kept]


def _moving(
    model: Model,
    denoisers: Mapping[str, Denoiser],
    rehearsal: Trace,
    seen: tuple[Trace, Trace, Trace],
) -> str | None:
    """What is not the same in a batch as it is alone; None where batches are read as single prompts are."""
    first, second, double = seen
    moving = {
        name: denoiser.moves_in_batch or _words_move(name, denoiser, double)
        for name, denoiser in denoisers.items()
    }
    if not any(moving.values()):
        dtype = str(model.provenance.get("dtype", "float32"))
        if images_differ((first.output, second.output), double.output, dtype):
            return "the image"
        after_text = {}
        for name, denoiser in denoisers.items():
            pair = [
                conditional_states(seen[i].calls[name], seen[1 - i].calls[name], denoiser)
                for i in (0, 1)
            ]
            lengths = [states.shape[0] for states in pair]
            if may_move(denoiser.readings, lengths):
                after_text[name] = denoiser
            if not denoiser.segments and _padded(
                double.calls[name], denoiser.conditioning, lengths
            ):
                moving[name] = CONDITIONING  # its mean would be over the pads too
        if after_text and not any(moving.values()):
            short = any(len(rehearsal.calls[name]) > len(first.calls[name]) for name in after_text)
            moving |= moves_with_length(model, after_text, first, SHORT_STEPS if short else None)
    return next((f"{name}.{path}" for name, path in moving.items() if path), None)


def _words_move(name: str, denoiser: Denoiser, double: Trace) -> str | None:
    """The conditioning where words lie elsewhere in it in a batch: pads on the left are taken out prompt by prompt."""
    alone = {segment.encoder: segment.shift for segment in denoiser.segments}
    for call in double.calls.get(name, [])[:1]:
        rows = call.arguments.get(denoiser.conditioning, [])
        for row in conditional_rows([print_.sample for print_ in rows], denoiser.unconditional)[:2]:
            for segment in match_segments(as_tokens(rows[row]), double.passes):
                if segment.shift != alone.get(segment.encoder, segment.shift):
                    return CONDITIONING
    return None


def _padded(calls: Sequence[Call], argument: str, lengths: Sequence[int]) -> bool:
    """Whether texts of different lengths get one length in a batch."""
    shapes = {row.shape for call in calls[:1] for row in call.arguments.get(argument, [])}
    return len(set(lengths)) > 1 and len(shapes) == 1 and len(next(iter(shapes))) > 1


def _ran(trace: Trace) -> set[str]:
    return {*trace.calls, *trace.passes}


def _prompted_pass(passes: Sequence[EncoderPass], others: Sequence[EncoderPass]) -> int | None:
    """Index of the first pass whose token ids change with the prompt; None where none does."""
    pairs = enumerate(zip(passes, others, strict=False))
    return next((i for i, (a, b) in pairs if not torch.equal(a.ids, b.ids)), None)


def _calibrate_encoder(encoded: EncoderPass) -> tuple[Encoder, list[str]]:
    """The layers of an encoder that run, and the final norm, with their batch axes; sentences about them."""
    n_tokens = encoded.ids.shape[-1]
    readings: dict[str, Reading] = {}
    norms: dict[str, Reading] = {}
    whole = []  # not of single tokens of a text that is being generated
    for event in encoded.events:
        for name, tensor in event.tensors.items():
            if len(tensor.shape) == 3 and n_tokens in tensor.shape[:2]:
                axis = 0 if tensor.shape[1] == n_tokens else 1
                target = norms if "norm" in event.class_name.lower() else readings
                evidence = Evidence(f"has a position for each of the {n_tokens} tokens")
                shape = (n_tokens, tensor.shape[-1])
                target.setdefault(event.path, Reading(name, axis, ALL, shape, evidence=evidence))
                whole.append(event)
                break
    readings |= dict(list(norms.items())[-1:])
    sentences = passes_told(
        readings, [([e for e in whole if e.path in readings], len(encoded.ids))]
    )
    return Encoder(encoded.embedding, n_tokens, readings), sentences


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


def conditional_states(calls: Sequence[Call], others: Sequence[Call], denoiser: Denoiser) -> Print:
    """Text states of the prompt in the first step."""
    for index in first_step(calls):
        dependent = dependent_rows(calls[index], others[index], denoiser.conditioning)
        if any(dependent):
            return as_tokens(calls[index].arguments[denoiser.conditioning][dependent.index(True)])
    raise SiteError("no conditional call in the first step")
