"""What a pipeline does with a prompt, found by trying it.

Which calls and rows are conditional, which steps there are, which part of each site is image and which is text.

One rehearsal at full length gives the schedule. Then two short calls that differ only in the prompt, and two with
both prompts in a batch, in either order, decide everything else. Nothing is read from class names or from the guidance
scale.
"""

from collections.abc import Mapping, Sequence

import torch

from t2iprobe.calibration.batches import images_differ
from t2iprobe.calibration.denoisers import calibrate_denoiser, conditional_states
from t2iprobe.calibration.lengths import may_move, moves_with_length
from t2iprobe.calibration.passes import passes_told
from t2iprobe.calibration.result import ALL, Calibration, Denoiser, Encoder, Evidence, Reading
from t2iprobe.calibration.rows import check_order, conditional_rows
from t2iprobe.calibration.schedule import Run, conditional_schedules, step_timesteps
from t2iprobe.calibration.tokens import Segment, match_segments
from t2iprobe.calibration.trace import Call, EncoderPass, Trace, as_tokens, turn_states
from t2iprobe.calibration.trial import SHORT_STEPS, image_size, rehearse, short_calls
from t2iprobe.errors import SiteError
from t2iprobe.models.calling import asked_steps, images_of
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
        >>> found = t2iprobe.calibrate(t2iprobe.load_model("shapes-unet", steps=2))
        >>> list(found.denoisers), found.image_size
        (['unet'], (64, 64))
    """
    rehearsal = rehearse(model)
    images = images_of(rehearsal.output, model.class_name)
    size = image_size(images, model.class_name)
    short = short_calls(model, rehearsal)
    first, second, double, notes = short.first, short.second, short.double, short.notes
    encoders: dict[str, Encoder] = {}
    for name, passes in first.passes.items():
        index = _own_pass(passes, second.passes.get(name, []))
        if index is None:
            notes.append(f"{name} is not given the prompt; nothing is captured there")
        else:
            encoders[name], told = _calibrate_encoder(passes[index])
            notes += [f"{name}: {sentence}" for sentence in told]
    denoisers: dict[str, Denoiser] = {}
    for name, calls in first.calls.items():
        found = calibrate_denoiser(name, short, rehearsal, size)
        if isinstance(found, str):
            notes.append(found)
            continue
        denoisers[name] = found
        notes += found.notes
        if short.turned is not None and not found.moves_in_batch:  # else there will be no batch
            _check_turned(name, found, calls, second.calls[name], short.turned.calls.get(name, []))
        states = conditional_states(calls, second.calls[name], found)
        found.segments, astray = _segments(name, found, first, second)
        notes += [f"{name}: words of {a} move with the prompt and are left out" for a in astray]
        only_picture = len(calls[0].arguments) == 1  # a later stage, which is given no text
        found.states_shape = () if only_picture or states.shape[1:] == (1,) else states.shape
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
        name: Run(rehearsal.calls[name], found.conditioning, found.unconditional)
        for name, found in denoisers.items()
    }
    told = []
    for name, own in conditional_schedules(runs, asked).items():
        denoisers[name].schedule, denoisers[name].n_steps = own.calls, own.n_steps
        steps = sorted(step_timesteps(own.calls))
        if len(steps) < own.n_steps:
            part = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
            told.append(f"{name} runs in {part} of 0 to {own.n_steps - 1}, another one in the rest")
        told += [f"{name}: {note}" for note in own.notes]
    return told


def _check_turned(
    name: str,
    found: Denoiser,
    calls: Sequence[Call],
    others: Sequence[Call],
    turned: Sequence[Call],
) -> None:
    """A batch in the other order must come in that order: a pipeline that sorts its prompts keeps one of the two.

    Raises:
        SiteError: it does not.
    """
    argument, unconditional = found.conditioning, found.unconditional
    turn_states(turned, argument)
    for one, other, both in zip(calls, others, turned, strict=False):
        rows = [row.sample for row in both.arguments.get(argument, [])]
        if len(conditional_rows(rows, unconditional)) > 1:
            check_order(name, argument, unconditional, other, one, both)
            return


def _segments(
    name: str, found: Denoiser, first: Trace, second: Trace
) -> tuple[list[Segment], list[str]]:
    """Where the encoders' tokens are among the text states, and encoders of which the two prompts tell otherwise.

    The words of an encoder that is joined behind another one without pads move with the length of the first text.
    """
    calls, others = first.calls[name], second.calls[name]
    own = match_segments(conditional_states(calls, others, found), first.passes)
    again = match_segments(conditional_states(others, calls, found), second.passes)
    shifts = {segment.encoder: segment.shift for segment in again}
    kept = [one for one in own if shifts.get(one.encoder, one.shift) == one.shift]
    return kept, [one.encoder for one in own if one not in kept]


def _moving(
    model: Model,
    denoisers: Mapping[str, Denoiser],
    rehearsal: Trace,
    seen: tuple[Trace, Trace, Trace],
) -> str | None:
    """What is not the same in a batch as it is alone; None where batches are read as single prompts are."""
    first, second, double = seen
    moving = {
        name: found.moves_in_batch or _words_move(name, found, double)
        for name, found in denoisers.items()
    }
    if not any(moving.values()):
        dtype = str(model.provenance.get("dtype", "float32"))
        if images_differ((first.output, second.output), double.output, dtype):
            return "the image"
        after_text = {}
        for name, found in denoisers.items():
            pair = [
                conditional_states(seen[i].calls[name], seen[1 - i].calls[name], found)
                for i in (0, 1)
            ]
            lengths = [states.shape[0] for states in pair]
            if may_move(found.readings, lengths):
                after_text[name] = found
            if not found.segments and _padded(double.calls[name], found.conditioning, lengths):
                moving[name] = CONDITIONING  # its mean would be over the pads too
        if after_text and not any(moving.values()):
            short = any(len(rehearsal.calls[name]) > len(first.calls[name]) for name in after_text)
            moving |= moves_with_length(model, after_text, first, SHORT_STEPS if short else None)
    return next((f"{name}.{path}" for name, path in moving.items() if path), None)


def _words_move(name: str, found: Denoiser, double: Trace) -> str | None:
    """The conditioning where words lie elsewhere in it in a batch: pads on the left are taken out prompt by prompt."""
    alone = {segment.encoder: segment.shift for segment in found.segments}
    for call in double.calls.get(name, [])[:1]:
        rows = call.arguments.get(found.conditioning, [])
        for row in conditional_rows([one.sample for one in rows], found.unconditional)[:2]:
            for own in match_segments(as_tokens(rows[row]), double.passes):
                if own.shift != alone.get(own.encoder, own.shift):
                    return CONDITIONING
    return None


def _padded(calls: Sequence[Call], argument: str, lengths: Sequence[int]) -> bool:
    """Whether texts of different lengths get one length in a batch."""
    shapes = {row.shape for call in calls[:1] for row in call.arguments.get(argument, [])}
    return len(set(lengths)) > 1 and len(shapes) == 1 and len(next(iter(shapes))) > 1


def _ran(trace: Trace) -> set[str]:
    return {*trace.calls, *trace.passes}


def _own_pass(passes: Sequence[EncoderPass], others: Sequence[EncoderPass]) -> int | None:
    """Index of the first pass whose token ids change with the prompt; None where none does."""
    pairs = enumerate(zip(passes, others, strict=False))
    return next((i for i, (a, b) in pairs if not torch.equal(a.ids, b.ids)), None)


def _calibrate_encoder(own: EncoderPass) -> tuple[Encoder, list[str]]:
    """The layers of an encoder that run, and the final norm, with their batch axes; sentences about them."""
    n_tokens = own.ids.shape[-1]
    readings: dict[str, Reading] = {}
    norms: dict[str, Reading] = {}
    whole = []  # not of single tokens of a text that is being generated
    for event in own.events:
        if event.kind != "out":
            continue
        for name, one in event.tensors.items():
            if len(one.shape) == 3 and n_tokens in one.shape[:2]:
                axis = 0 if one.shape[1] == n_tokens else 1
                target = norms if "norm" in event.class_name.lower() else readings
                evidence = Evidence(f"has a position for each of the {n_tokens} tokens")
                shape = (n_tokens, one.shape[-1])
                target.setdefault(event.path, Reading(name, axis, ALL, shape, evidence=evidence))
                whole.append(event)
                break
    readings |= dict(list(norms.items())[-1:])
    told = passes_told(readings, [([e for e in whole if e.path in readings], len(own.ids))])
    return Encoder(own.embedding, n_tokens, readings), told
