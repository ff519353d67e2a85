"""Decodability against success across runs: rank correlations per coding, and what to say about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np

from t2iprobe.report.formats import decimal, interval, p_value
from t2iprobe.report.layers import in_order, ordered
from t2iprobe.report.run_points import RunPoint
from t2iprobe.stats import Estimate, spearman

LEAST_RUNS = 4
"""Below this many runs no rank correlation is given: with three, a perfect order comes by chance one time in three."""


@dataclass(frozen=True)
class Across:
    """The rank correlation of one coding's decodability with success over the runs of one kind."""

    kind: str
    coding: str
    estimate: Estimate


def codings_of(points: Sequence[RunPoint]) -> list[str]:
    """The codings of the runs, the most frequent headline first, then in the order of the report."""
    headlines = [point.headline for point in points]
    first = max(ordered(headlines), key=headlines.count)
    return in_order((coding for point in points for coding in point.decodability), first)


def correlate_runs(points: Sequence[RunPoint]) -> list[Across]:
    """Spearman over runs, for each kind of run and each of its codings; undefined, with a reason, below four runs."""
    found = []
    for kind in ordered(point.kind for point in points):
        mine = [point for point in points if point.kind == kind]
        found += [Across(kind, coding, _estimate(mine, coding)) for coding in codings_of(mine)]
    return found


def _estimate(points: Sequence[RunPoint], coding: str) -> Estimate:
    pairs = [
        (r2, point.success)
        for point in different(points)
        if (r2 := point.decodability.get(coding)) is not None and point.success is not None
    ]
    if len(pairs) < LEAST_RUNS:
        reason = f"needs {LEAST_RUNS} runs, has {len(pairs)}"
        return Estimate(nan, None, None, len(pairs), "run", "Spearman", reason)
    x, y = np.array(pairs).T
    return spearman(x, y, unit="run")


def different(points: Sequence[RunPoint]) -> list[RunPoint]:
    """The points without students that are trained twice, as sweeps that share a cell do."""
    kept: dict[object, RunPoint] = {}
    for point in points:
        kept.setdefault((point.setup, point.share_seen) if point.setup else point.path, point)
    return list(kept.values())


def sentences(points: Sequence[RunPoint], across: Sequence[Across]) -> list[str]:
    """What the comparison shows, in plain words; the first sentence is the headline coding's correlation."""
    said = [_link(item, points) for item in across[:1]]
    others = [item for item in across[1:] if not isnan(item.estimate.value)]
    if others:
        listed = ", ".join(f"{item.coding} {decimal(item.estimate.value)}" for item in others)
        said.append(f"Spearman with the other codings: {listed}.")
    warnings = (
        _within(points),
        _checkpoints(points),
        _families(points),
        _numbers_of_tasks(points),
        _kinds(points),
        _repeated(points),
        _from_input(points),
    )
    said += [text for text in warnings if text]
    return said


def _link(item: Across, points: Sequence[RunPoint]) -> str:
    estimate = item.estimate
    measure = measure_of([point for point in points if point.kind == item.kind])
    if isnan(estimate.value):
        return f"Decodability ({item.coding} coding) and {measure}: no rank correlation ({estimate.reason})."
    numbers = f"Spearman {decimal(estimate.value)}"
    bounds = interval(estimate.ci) if estimate.ci else ""
    numbers += f", 95% interval {bounds}" if bounds else ""
    numbers += f", {p_value(estimate.p, estimate.p_floor)}, {estimate.n} runs"
    if (
        estimate.p is None
        or estimate.p >= 0.05
        or (estimate.ci and estimate.ci[0] <= 0 <= estimate.ci[1])
    ):
        how = "do not clearly go together"
    elif estimate.value > 0:
        how = "rise together"
    else:
        how = "go against each other"
    return f"Across runs, decodability ({item.coding} coding) and {measure} {how}: {numbers}."


def measure_of(points: Sequence[RunPoint]) -> str:
    """What the runs' success is called, with its unit."""
    measures = " or ".join(ordered(point.measure for point in points)) or "success"
    return f"held-out {measures}" if all(point.held_out for point in points) else measures


def _within(points: Sequence[RunPoint]) -> str:
    flat = [point.name for point in points if point.varies is False]
    if not flat:
        return ""
    asked = sum(point.kind == "images" for point in points)
    return (
        f"Inside {len(flat)} of {asked} runs success hardly varies between tasks beyond chance, so a correlation "
        f"inside them has nothing to explain: {', '.join(flat)}."
    )


def _checkpoints(points: Sequence[RunPoint]) -> str:
    runs = [point.training_run for point in points if point.training_run is not None]
    several = [run for run in ordered(runs) if runs.count(run) > 1]
    if not several:
        return ""
    which = "one training run" if len(several) == 1 else f"{len(several)} training runs"
    return (
        f"{sum(runs.count(run) for run in several)} runs are checkpoints of {which} ({', '.join(several)}): they are "
        "not independent, which the interval and p do not know."
    )


def _families(points: Sequence[RunPoint]) -> str:
    families = ordered(point.family for point in points if point.kind == "images")
    if len(families) < 2:
        return ""
    return f"The runs ask for different families ({', '.join(families)}), whose success is not on one scale."


def _numbers_of_tasks(points: Sequence[RunPoint]) -> str:
    numbers = {p.n_tasks for p in points if p.kind == "images" and p.n_tasks is not None}
    if len(numbers) < 2:
        return ""
    return (
        f"Runs differ in their number of tasks ({min(numbers)} to {max(numbers)}): R² rises with it and is not "
        "comparable between them."
    )


def _kinds(points: Sequence[RunPoint]) -> str:
    if len({point.kind for point in points}) < 2:
        return ""
    return "Image runs and synthetic runs measure success differently; they are correlated apart."


def _repeated(points: Sequence[RunPoint]) -> str:
    left_out = len(points) - len(different(points))
    if not left_out:
        return ""
    runs = "1 run has" if left_out == 1 else f"{left_out} runs have"
    return f"{runs} the same settings as another one: each student counts once."


def _from_input(points: Sequence[RunPoint]) -> str:
    synthetic = [point for point in points if point.kind == "synthetic"]
    free = [
        p
        for p in synthetic
        if p.from_input is not None and p.r2 is not None and p.from_input >= p.r2
    ]
    if not free:
        return ""
    return (
        f"In {len(free)} of {len(synthetic)} synthetic runs the input encoding itself gives the modules at least as "
        "well as the last hidden layer, so that decodability there is kept, not made, by the student."
    )
