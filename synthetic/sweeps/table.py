"""What the rows of a sweep say: the table for readers, averaged over seeds, and the training tasks needed."""

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log
from typing import Any

from t2iprobe.report.formats import MISSING, decimal

Row = dict[str, Any]
MEASURE_NAMES = {"r2_pooled": "R² (pooled)", "r2": "R²", "accuracy": "accuracy"}
COLUMNS = ("test", "held out [least, most]", "additive", "blind")


def measure_of(rows: Sequence[Row]) -> str:
    """The measure drawn and compared: pooled R2, or accuracy for the grid."""
    grid = any(row.get("held_out_accuracy") is not None for row in rows)
    return "accuracy" if grid else "r2_pooled"


def measures_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The measures shown: the paper's R2 and the pooled one, or accuracy for the grid."""
    measure = measure_of(rows)
    return ("accuracy",) if measure == "accuracy" else ("r2", measure)


def sweep_table(rows: Sequence[Row], axes: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: scores as mean over seeds, the held-out one with its smallest and largest value.

    Args:
        rows: rows of results.parquet; those of impossible places are left out.
        axes: names of what is varied, without the seed.
    """
    done = [row for row in rows if row["status"] == "done"]
    by_place: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in done:
        by_place[tuple(row[axis] for axis in axes)].append(row)
    measures = measures_of(done)
    header = [axis.replace("_", " ") for axis in axes] + ["seen"]
    for measure in measures:
        header += [f"{MEASURE_NAMES[measure]} {name}" for name in COLUMNS]
    header += ["decodability", "from input", "beats additive"]
    cells = [[*map(str, place), *_numbers(part, measures)] for place, part in by_place.items()]
    return header, cells


def _numbers(part: Sequence[Row], measures: Sequence[str]) -> list[str]:
    shown = [str(part[0]["seen"])]
    for measure in measures:
        held_out = [row[f"held_out_{measure}"] for row in part]
        shown += [
            _mean([row[f"test_{measure}"] for row in part]),
            _spread(held_out),
            _mean([row[f"additive_held_out_{measure}"] for row in part]),
            _mean([row[f"blind_held_out_{measure}"] for row in part]),
        ]
    shown += [
        _mean([row["decodability_held_out"] for row in part]),
        _mean([row["from_input_held_out"] for row in part]),
    ]
    judged = [row["beats_additive"] for row in part if row["beats_additive"] is not None]
    return [*shown, f"{sum(judged)} of {len(judged)}" if judged else MISSING]


def _mean(values: Sequence[float | None]) -> str:
    defined = [value for value in values if value is not None]
    return decimal(sum(defined) / len(defined), 3) if defined else MISSING


def _spread(values: Sequence[float | None]) -> str:
    defined = [value for value in values if value is not None]
    if len(defined) < 2:
        return _mean(values)
    return f"{_mean(values)} [{decimal(min(defined), 3)}, {decimal(max(defined), 3)}]"


def tasks_needed(rows: Sequence[Row], by: str, measure: str) -> dict[Any, float | None]:
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
        student, additive = row.get(f"held_out_{measure}"), row.get(f"additive_held_out_{measure}")
        if student is not None and additive is not None:
            margins[row[by]][row["seen"]].append(student - additive)
    return {
        value: _crossing([(seen, sum(m) / len(m)) for seen, m in sorted(by_seen.items())])
        for value, by_seen in margins.items()
    }


def _crossing(points: list[tuple[int, float]]) -> float | None:
    if points[-1][1] <= 0:
        return None
    last = max((i for i, (_, margin) in enumerate(points) if margin <= 0), default=None)
    if last is None:
        return float(points[0][0])
    (low, below), (high, above) = points[last], points[last + 1]
    return exp(log(low) + (log(high) - log(low)) * -below / (above - below))
