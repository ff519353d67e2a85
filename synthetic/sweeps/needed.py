"""How many training tasks composition takes: where held-out scores pass the additive baseline."""

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log
from typing import Any


def tasks_needed(rows: Sequence[dict[str, Any]], by: str, measure: str) -> dict[Any, float | None]:
    """For each value of an axis, the number of seen combinations at which students begin to compose.

    That is where the mean over seeds of (held-out score - additive baseline) turns positive for good, interpolated in
    the logarithm of the number of combinations. None where it never does; the smallest number tried where it always is.

    Args:
        rows: finished rows of a sweep's table.
        by: the axis, e.g. "modules".
        measure: the score compared.
    """
    margins: dict[Any, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        own, additive = row.get(f"held_out_{measure}"), row.get(f"additive_held_out_{measure}")
        if own is not None and additive is not None:
            margins[row[by]][row["seen"]].append(own - additive)
    needed: dict[Any, float | None] = {}
    for value, found in margins.items():
        points = [(seen, sum(m) / len(m)) for seen, m in sorted(found.items())]
        needed[value] = _crossing(points)
    return needed


def _crossing(points: list[tuple[int, float]]) -> float | None:
    if points[-1][1] <= 0:
        return None
    last = max((i for i, (_, margin) in enumerate(points) if margin <= 0), default=None)
    if last is None:
        return float(points[0][0])
    (low, below), (high, above) = points[last], points[last + 1]
    return exp(log(low) + (log(high) - log(low)) * -below / (above - below))
