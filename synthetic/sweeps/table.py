"""The table of a sweep for readers: one row per place, averaged over its seeds."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from t2iprobe.report.formats import MISSING, decimal

Row = dict[str, Any]
MEASURE_NAMES = {"r2_pooled": "R² (pooled)", "r2": "R²", "accuracy": "accuracy"}
COLUMNS = ("test", "held out [least, most]", "additive", "blind")
APPROXIMATION_COLUMNS = ("modules", "pieces", "neurons", "error_bound", "error_found")


def measures_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The measures shown: the paper's R2 and the pooled one, or accuracy for the grid."""
    grid = any(row.get("held_out_accuracy") is not None for row in rows)
    return ("accuracy",) if grid else ("r2", "r2_pooled")


def sweep_table(rows: Sequence[Row], axes: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Header and cells: scores as mean over seeds, the held-out one with its smallest and largest value.

    Args:
        rows: rows of results.parquet; those of impossible places are left out.
        axes: names of what is varied, without the seed; empty for the approximation.
    """
    done = [row for row in rows if row["status"] == "done"]
    if not axes:
        return _approximation(done)
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


def _approximation(done: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    header = [name.replace("_", " ") for name in APPROXIMATION_COLUMNS]
    return header, [
        [
            f"{row[n]:.2g}" if isinstance(row[n], float) else str(row[n])
            for n in APPROXIMATION_COLUMNS
        ]
        for row in done
    ]


def _mean(values: Sequence[float | None]) -> str:
    found = [value for value in values if value is not None]
    return decimal(sum(found) / len(found), 3) if found else MISSING


def _spread(values: Sequence[float | None]) -> str:
    found = [value for value in values if value is not None]
    if len(found) < 2:
        return _mean(values)
    return f"{_mean(values)} [{decimal(min(found), 3)}, {decimal(max(found), 3)}]"
