"""Which rows of a denoiser call belong to the prompt: told from the text states themselves, call by call."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

import torch
from torch import Tensor

from t2iprobe.calibration.grid import denoised, picture
from t2iprobe.calibration.observe import Call, Event, Print
from t2iprobe.errors import SiteError

_SAME = 0.25
"""Relative distance below which two tokens are the same: batch size and half precision change them by far less, another
word by more."""
_SAME_VECTOR = 0.02
"""The same for a single vector, which another prompt changes less."""
_FLOOR = 0.1
"""Tokens shorter than this share of the usual length are measured against that."""


def same_print(one: Print, other: Print) -> bool:
    """Whether two fingerprints are of equal tensors."""
    return one.shape == other.shape and torch.equal(one.sample, other.sample)


def equal_start(one: Tensor, other: Tensor) -> int:
    """How many positions at the front of two (tokens, channels) samples are equal."""
    n = min(one.shape[0], other.shape[0])
    differs = (one[:n] != other[:n]).any(-1).nonzero()
    return int(differs[0]) if len(differs) else n


def same_text(rows: Tensor, other: Tensor) -> Tensor:
    """For each row of text states whether it is the other text: rows (..., tokens, channels) -> bool (...).

    Pads to the length of the prompts beside it make one text longer in another call: of unequal lengths the shared
    start decides, or with pads on the left the shared end. Token ids, which have one channel, must be equal.
    """
    own, n = rows.shape[-other.ndim], min(rows.shape[-other.ndim], other.shape[0])
    if own == other.shape[0]:
        return _near(rows, other)
    if other.ndim == 2 and n < 2:
        return torch.zeros(rows.shape[: -other.ndim], dtype=torch.bool)
    start, end = (rows.narrow(-other.ndim, first, n) for first in (0, own - n))
    return _near(start, other[:n]) | _near(end, other[-n:])


def _near(rows: Tensor, other: Tensor) -> Tensor:
    """For each row whether it agrees in every token with a text of its length.

    Each token is measured against itself: the first of a language model may be a thousand times as long as a word.
    """
    if other.ndim == 2 and other.shape[-1] == 1:
        return (rows == other).flatten(-2).all(-1)
    if other.ndim < 2:
        largest = torch.maximum(_norm(rows), _norm(other))
        return _norm(rows - other) <= _SAME_VECTOR * largest
    within = 1 - other.ndim  # the axes of one token
    length = torch.maximum(_norm(rows.flatten(within)), _norm(other.flatten(within)))
    apart = _norm((rows - other).flatten(within))
    present = length.where(length > 0, torch.nan)
    usual = present.nanmedian(dim=-1, keepdim=True).values.nan_to_num()
    return (apart <= _SAME * torch.maximum(length, _FLOOR * usual)).all(-1)


def _norm(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms


def conditional_rows(rows: Sequence[Tensor], unconditional: Sequence[Tensor]) -> list[int]:
    """Indices of the rows whose text states depend on the prompt."""
    if not rows or not unconditional:
        return list(range(len(rows)))
    alike = len({row.shape for row in rows}) == 1
    blocks = [torch.stack(list(rows))] if alike else [row[None] for row in rows]
    same = [torch.stack([same_text(block, other) for other in unconditional]) for block in blocks]
    found: list[int] = (~torch.cat(same, dim=1).any(0)).nonzero().flatten().tolist()
    return found


def dependent_rows(one: Call, other: Call, name: str) -> list[bool]:
    """For each row of an argument whether it differs between the two prompts, its number of pads left aside."""
    rows, others = one.arguments[name], other.arguments.get(name, [])
    return [not _unmoved(a, b) for a, b in zip(rows, others, strict=False)]


def _unmoved(one: Print, other: Print) -> bool:
    if one.shape == other.shape or len(one.shape) != 2 or one.shape[1:] != other.shape[1:]:
        return same_print(one, other)
    return bool(same_text(one.sample, other.sample))


def first_step(calls: Sequence[Call]) -> list[int]:
    """Indices of the first calls, all at one noise level."""
    first = calls[0].timestep
    return [i for i, _ in enumerate(takewhile(lambda call: call.timestep == first, calls))]


def conditioning_argument(calls: Sequence[Call], others: Sequence[Call]) -> str | None:
    """The argument that carries the text: it differs with the prompt, and stays the same from step to step.

    Of several (token states and a pooled vector) the one with a token axis and the most values; token ids only where
    there are no states, masks and positions never.
    """
    best: tuple[tuple[bool, bool, bool, int], str] | None = None
    for index in first_step(calls):
        for name, rows in calls[index].arguments.items():
            dependent = dependent_rows(calls[index], others[index], name)
            own = [row for row, differs in zip(rows, dependent, strict=False) if differs]
            if not own or _no_text(own[0]):
                continue
            constant = all(
                any(same_print(a, b) for b in later.arguments.get(name, []) for a in rows)
                for later in calls[index + 1 :]
            )
            shape = rows[0].shape
            tokens = len(shape) == 2
            score = (constant, tokens and shape[-1] > 1, tokens, math.prod(shape))
            if best is None or score > best[0]:
                best = (score, name)
    return best[1] if best else None


def _no_text(row: Print) -> bool:
    """Whether a row is a mask, with at most two different values, or numbers positions one after the other."""
    if len(row.shape) == 2 and row.shape[1] == 1 and row.shape[0] > 1:
        return float(row.sample[:, 0].diff().abs().max()) <= 1
    return len(row.shape) >= 1 and len(set(row.sample.flatten().tolist())) <= 2


def guidance_words(layouts: Sequence[Sequence[bool]], comes_later: bool = False) -> str:
    """In words, how the rows of the calls at the first step are laid out.

    Args:
        layouts: for each call and row whether it is conditional.
        comes_later: whether a later step has rows that are not, where the first has none.
    """

    def words(rows: Sequence[bool]) -> str:
        names = ["conditional" if row else "unconditional" for row in rows]
        if rows.count(True) > 1:
            last = len(rows) - 1 - list(rows)[::-1].index(True)
            names[last] = "conditional, perturbed"
        return "[" + ", ".join(names) + "]"

    if len(layouts) == 1 and len(layouts[0]) == 1:
        alone = "one call a step, no unconditional half"
        return f"{alone} at first; guidance comes later in the run" if comes_later else alone
    calls = " then ".join(words(list(rows)) for rows in layouts)
    return f"{'one call' if len(layouts) == 1 else f'{len(layouts)} calls'} a step: {calls}"


def check_order(
    name: str,
    argument: str,
    unconditional: Sequence[Tensor],
    one: Call,
    other: Call,
    double: Call,
) -> None:
    """The conditional rows of a batch must be in the order of the prompts, or captures would be swapped.

    Raises:
        SiteError: they are not.
    """
    rows = [row.sample for row in double.arguments[argument]]
    kept = conditional_rows(rows, unconditional)[:2]
    ones, others = ([row.sample for row in call.arguments[argument]] for call in (one, other))
    mine = conditional_rows(ones, unconditional)[0]
    pair = (ones[mine], others[mine])
    for index, row in enumerate(kept):
        near = [_distance(rows[row], prompt) for prompt in pair]
        if near[index] > near[1 - index]:
            raise SiteError(f"{name}: the rows of a batch are not in the order of its prompts")


def _distance(one: Tensor, other: Tensor) -> float:
    n = min(one.shape[0], other.shape[0])
    return float((one[:n] - other[:n]).norm())


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
