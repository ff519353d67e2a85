"""The first calls of a run: which of them, and which of their rows, are the prompt's own."""

from collections.abc import Iterator, Mapping, Sequence

from t2iprobe.calibration.grid import denoised
from t2iprobe.calibration.rows import first_step, same_print
from t2iprobe.calibration.schedule import picture
from t2iprobe.calibration.trace import Call, Event
from t2iprobe.errors import SiteError


def evaluated(calls: Sequence[Call], argument: str, layouts: Mapping[int, list[bool]]) -> list[int]:
    """Indices of the calls that are the first evaluation of the first step.

    They are all at that noise level, unless the prompt's own come for several pictures there, as where a step is tried
    and then corrected.
    """
    given = [index for index in first_step(calls) if index in layouts]
    pictures = {index: picture(calls[index], argument) for index in given}
    first = next((pictures[index] for index in given if any(layouts[index])), None)
    if first is None:
        return given
    same = [index for index in given if (own := pictures[index]) and same_print(own, first)]
    return same if any(any(layouts[index]) for index in given if index not in same) else given


def first_effective(
    name: str, calls: Sequence[Call], others: Sequence[Call], begun: Mapping[int, list[bool]]
) -> tuple[int, set[int]]:
    """Index of the first call in which the prompt changes what the sites give, and those in which it changes nothing.

    A family may give the prompt to every call, and drop it inside by a flag.

    Raises:
        SiteError: a call that drops it comes first, so the prompt's own calls cannot be told from it.
    """
    given = [index for index, layout in begun.items() if any(layout)]
    dropped = {
        index
        for index in given
        if calls[index].events and not _differ(calls[index].events, others[index].events)
    }
    if dropped and given[0] in dropped:
        raise SiteError(
            f"{name}: a call that is given the prompt and drops it comes before its own"
        )
    return given[0], dropped


def _differ(events: Sequence[Event], others: Sequence[Event]) -> bool:
    return any(
        part not in other.tensors or not same_print(tensor, other.tensors[part])
        for one, other in zip(events, others, strict=False)
        for part, tensor in one.tensors.items()
    )


def several_pictures(name: str, call: Call, argument: str, layout: Sequence[bool]) -> Iterator[str]:
    """A sentence where a prompt's own rows of a call are of several pictures, as where the best of some is kept."""
    rows = denoised(call, argument)
    own = [row for row, conditional in zip(rows, layout, strict=False) if conditional]
    if len(rows) == len(layout) and not all(same_print(row, own[0]) for row in own):
        yield f"{name}: {len(own)} pictures of a prompt are drawn at once, of which the first is captured"


def several_texts(name: str, call: Call, argument: str, layout: Sequence[bool]) -> Iterator[str]:
    """A sentence where rows of a call follow the prompt, each with its own text, as negatives made of it do."""
    rows = call.arguments[argument]
    own = [row for row, conditional in zip(rows, layout, strict=False) if conditional]
    if not all(same_print(row, own[0]) for row in own):
        yield (
            f"{name}: {len(own)} rows of a call follow the prompt, each with a text of its own; the first is taken for"
            " the prompt's, which it may not be"
        )
