"""Curves of a comparison: success and decodability along training, and along the share of combinations seen."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from t2iprobe.report import style
from t2iprobe.report.across import different, measure_of
from t2iprobe.report.across_groups import groups_of
from t2iprobe.report.places import ordered
from t2iprobe.report.points import RunPoint

Curve = tuple[str, list[RunPoint]]


def step_curves(points: Sequence[RunPoint]) -> list[Curve]:
    """Checkpoints of one training run in order of step; training runs with at least two different steps."""
    curves = []
    for run in ordered(p.training_run for p in points if p.training_run is not None):
        mine = [
            p
            for p in points
            if p.training_run == run and p.training_step is not None and p.kind == "images"
        ]
        if len({p.training_step for p in mine}) >= 2:
            curves.append((run, sorted(mine, key=lambda p: p.training_step or 0)))
    return curves


def share_curves(points: Sequence[RunPoint]) -> list[Curve]:
    """The last checkpoint of each training run in order of the share seen, by what else they have in common.

    Image runs share a pipeline class and a way of sampling, students everything but seed and number of combinations.
    A curve has at least two different shares.
    """
    last: dict[str, RunPoint] = {}
    for point in different(points):
        run = point.training_run or str(point.path)
        if point.share_seen is not None and (point.training_step or 0) >= (
            last[run].training_step or 0 if run in last else 0
        ):
            last[run] = point
    alike: dict[tuple[str, str], list[RunPoint]] = defaultdict(list)
    groups = dict(zip((str(point.path) for point in points), groups_of(points), strict=True))
    for point in last.values():
        name = groups[str(point.path)] if point.kind == "synthetic" else point.sampling
        alike[point.pipeline, name or point.model].append(point)
    return [
        (name, sorted(mine, key=lambda p: p.share_seen or 0.0))
        for (_, name), mine in alike.items()
        if len({p.share_seen for p in mine}) >= 2
    ]


def draw_steps(axes: Axes, curve: Curve) -> None:
    """Success and decodability over training steps."""
    name, points = curve
    _draw(axes, points, lambda point: point.training_step)
    style.titled(axes, "Along training", f"{name}, {len(points)} checkpoints")
    axes.set_xlabel("training step")


def draw_shares(axes: Axes, curve: Curve) -> None:
    """Success and decodability over the share of scenes or combinations that training showed."""
    name, points = curve
    _draw(axes, points, lambda point: point.share_seen)
    what, who = ("scenes", "models") if points[0].kind == "images" else ("combinations", "students")
    style.titled(axes, f"Along the {what} seen", f"{name}, {len(points)} {who}")
    axes.set_xlabel(f"share of {what} seen in training")
    shares = [point.share_seen or 0.0 for point in points]
    if min(shares) > 0 and max(shares) / min(shares) > 20:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g}%"))


def _draw(
    axes: Axes, points: Sequence[RunPoint], position: Callable[[RunPoint], float | int | None]
) -> None:
    """Every run a mark, with its interval; the lines go through the means of the runs at one place."""
    measure = measure_of(points)
    coding = points[0].headline
    lines = (
        (measure, style.ORANGE, "-", "o", [(p.success, p.success_ci) for p in points]),
        (
            f"decodability ({coding})", style.BLUE, "--", "s",
            [(p.decodability.get(coding), p.decodability_ci.get(coding)) for p in points],
        ),
    )  # fmt: skip
    ends = []
    for label, color, dash, marker, values in lines:
        at: dict[float, list[float]] = defaultdict(list)
        for point, (value, bounds) in zip(points, values, strict=True):
            place = position(point)
            if place is None or value is None:
                continue
            at[float(place)].append(value)
            if bounds is not None:
                axes.plot((place, place), bounds, color=color, linewidth=1.0, alpha=0.6)
        for place, found in at.items():
            if len(found) > 1:
                axes.plot([place] * len(found), found, marker, color=color, markersize=3, alpha=0.6)
        if not at:
            continue
        places = sorted(at)
        means = [fmean(at[place]) for place in places]
        ends.append(means[-1])
        size = 2 if any(len(found) > 1 for found in at.values()) else 4.5
        axes.plot(
            places, means, dash, marker=marker, markersize=size, color=color, linewidth=1.5, label=label
        )  # fmt: skip
    axes.set_ylim(min(0.0, axes.get_ylim()[0]) - 0.03, 1.07)
    axes.set_ylabel(measure if measure.endswith("R²") else f"{measure}, and R²")
    axes.grid()
    axes.legend(
        loc="lower right" if min(ends, default=1.0) > 0.35 else "upper left",
        frameon=True,
        framealpha=0.85,
        edgecolor="none",
        facecolor=style.PAPER,
    )
