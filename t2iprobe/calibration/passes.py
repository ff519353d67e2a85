"""Sites that run several times in one call of a denoiser: blocks whose weights are shared, or batches cut in parts.

What a run captures there, or that it captures nothing, is told in sentences.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from t2iprobe.calibration.observe import Event
from t2iprobe.calibration.result import Reading
from t2iprobe.places import Stream

Readings = dict[str, dict[Stream, Reading]]

_NAMED = 4
"""Modules that a note names; of more only their number is told."""


def _earlier(path: str, number: int) -> str:
    """What stands for a pass that is not the last one."""
    return f"{path}#{number}"


def numbered(events: Sequence[Event]) -> list[Event]:
    """Events with a path of its own for each pass of a site but the last, which is the one that a run captures."""
    total = Counter(event.path for event in events)
    seen: Counter[str] = Counter()
    own: list[Event] = []
    for event in events:
        seen[event.path] += 1
        last = seen[event.path] == total[event.path]
        own.append(event if last else replace(event, path=_earlier(event.path, seen[event.path])))
    return own


def in_order(events: Sequence[Event], like: Sequence[Event]) -> list[Event]:
    """The events of another call, one for each event of this one; without tensors where it has none."""
    known = {event.path: event for event in numbered(events)}
    return [known.get(event.path, replace(event, tensors={})) for event in numbered(like)]


def last_passes(found: Mapping[str, dict[Stream, Reading]], events: Sequence[Event]) -> Readings:
    """Readings of sites by their last pass; sites whose passes are read in different ways are left out.

    Args:
        found: readings by path, one for each pass.
        events: what the sites saw, not numbered.
    """
    kept: Readings = {}
    for path, n in _runs(events).items():
        every = [found.get(_earlier(path, i), {}) for i in range(1, n)]
        own = found.get(path, {})
        if own and all(_ways(one) == _ways(own) for one in every):
            kept[path] = own
    return kept


def _ways(streams: Mapping[Stream, Reading]) -> dict[Stream, Reading]:
    return {name: replace(reading, shape=()) for name, reading in streams.items()}


def _runs(events: Sequence[Event]) -> Counter[str]:
    """How often each site ran."""
    return Counter(event.path for event in events)


_AGAIN = "{} passes of {} in one call, of which the last is captured"
_APART = "{} passes of {} in one call, not on the same streams; nothing is captured there"
_PARTS = "a batch comes in {} parts to {}, so whose rows are whose is not known; nothing is captured there"
_UNTOLD = "no stream could be told in what {1} gave; nothing is captured there"


def passes_told(
    readings: Container[str], calls: Sequence[tuple[Sequence[Event], int]]
) -> list[str]:
    """Sentences about sites that run several times in one call, and about sites that run and are not read.

    Args:
        readings: paths of the sites that are read.
        calls: what the sites saw in one call, and the rows of its batch; for one prompt and for several.
    """
    told: dict[str, tuple[str, int]] = {}
    for events, rows in calls:
        for path, n in _runs(events).items():
            if n > 1:
                parts = sum(_rows(events, path)) == rows
                own = _AGAIN if path in readings else _PARTS if parts else _APART
                told.setdefault(path, (own, n))
    for path in _runs([event for events, _ in calls for event in events]):
        if path not in readings:
            told.setdefault(path, (_UNTOLD, 1))
    return [
        what.format(n, named([path for path, own in told.items() if own == (what, n)]))
        for what, n in dict.fromkeys(told.values())
    ]


def _rows(events: Sequence[Event], path: str) -> Iterator[int]:
    """Length of the first axis of what a site gave, pass by pass."""
    for event in events:
        if event.path == path:
            yield next((one.shape[0] for one in event.tensors.values() if one.shape), 0)


def named(paths: Sequence[str]) -> str:
    """Some paths in words."""
    shown = ", ".join(paths[:_NAMED])
    return f"{shown} and {len(paths) - _NAMED} more" if len(paths) > _NAMED else shown
