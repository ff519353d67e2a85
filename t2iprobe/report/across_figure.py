"""The figure of a comparison: one panel per coding, and curves along training and along the share of scenes seen."""

from collections.abc import Callable, Sequence
from math import isnan

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from t2iprobe.report import style
from t2iprobe.report.across import Across
from t2iprobe.report.formats import decimal, p_value
from t2iprobe.report.places import ordered
from t2iprobe.report.points import RunPoint

Curve = tuple[str, list[RunPoint]]


@style.styled
def comparison_figure(points: Sequence[RunPoint], across: Sequence[Across]) -> Figure:
    """Numbered points of every run; the numbers are those of the table.

    Panels: one per kind and coding; then, where runs carry them, success and headline decodability along the training
    steps of one training run, and along the share of scenes seen in training.
    """
    by_step, by_share = step_curves(points), share_curves(points)
    draws: list[Callable[[Axes], None]] = [_scatter(points, item) for item in across]
    if by_step:
        draws.append(
            lambda axes: _curves(axes, by_step, "training step", lambda point: point.training_step)
        )
    if by_share:
        draws.append(
            lambda axes: _curves(
                axes, by_share, "share of scenes seen in training", lambda point: point.share_seen
            )
        )
    columns = min(3, len(draws))
    rows = -(-len(draws) // columns)
    key_rows = -(-len(points) // 3)
    figure = Figure(
        figsize=(3.6 * columns, 3.15 * rows + 0.2 * key_rows + 0.2), layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, draw in zip(grid.flat, draws, strict=False):
        draw(axes)
    for axes in grid.flat[len(draws) :]:
        axes.set_axis_off()
    key = [
        Line2D(
            [],
            [],
            linestyle="",
            marker=marker,
            markersize=5,
            color=color,
            label=f"{number}  {_shown(point.name)}",
        )
        for number, (point, (color, marker)) in enumerate(
            zip(points, group_looks(points), strict=True), start=1
        )
    ]
    figure.legend(handles=key, loc="outside lower center", ncols=min(3, columns), handletextpad=0.2)
    style.settle(figure)  # so that labels are placed where the points really are
    for axes, item in zip(grid.flat, across, strict=False):
        _number(axes, *_placed(points, item))
    return figure


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
    """The last checkpoint of each training run in order of the share of combinations seen, by way of sampling.

    A way of sampling (uniform, long-tail, a synthetic support) makes a curve when it has at least two different shares.
    """
    last: dict[str, RunPoint] = {}
    for point in points:
        run = point.training_run or str(point.path)
        if point.share_seen is not None and (point.training_step or 0) >= (
            last[run].training_step or 0 if run in last else 0
        ):
            last[run] = point
    curves = []
    for kind, sampling in ordered((p.kind, p.sampling) for p in last.values()):
        mine = [p for p in last.values() if (p.kind, p.sampling) == (kind, sampling)]
        if len({p.share_seen for p in mine}) >= 2:
            curves.append((sampling or kind, sorted(mine, key=lambda p: p.share_seen or 0.0)))
    return curves


def groups_of(points: Sequence[RunPoint]) -> list[str]:
    """The group of each run: a training run that several share, else its way of sampling, else its model."""
    shared = [point.training_run for point in points]
    return [
        point.training_run
        if point.training_run and shared.count(point.training_run) > 1
        else point.sampling or point.model
        for point in points
    ]


def group_looks(points: Sequence[RunPoint]) -> list[tuple[str, str]]:
    """Colour and marker of each run, one pair per group."""
    groups = groups_of(points)
    order = ordered(groups)
    return [
        (
            style.SERIES[order.index(group) % len(style.SERIES)],
            style.MARKERS[order.index(group) % len(style.MARKERS)],
        )
        for group in groups
    ]


def _placed(points: Sequence[RunPoint], item: Across) -> tuple[list[int], list[float], list[float]]:
    numbers, x, y = [], [], []
    for index, point in enumerate(points, start=1):
        r2 = point.decodability.get(item.coding)
        if point.kind == item.kind and r2 is not None and point.success is not None:
            numbers.append(index)
            x.append(r2)
            y.append(point.success)
    return numbers, x, y


def _scatter(points: Sequence[RunPoint], item: Across) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        numbers, x, y = _placed(points, item)
        looks = group_looks(points)
        for number, right, up in zip(numbers, x, y, strict=True):
            color, marker = looks[number - 1]
            face = color if points[number - 1].held_out else style.PAPER
            axes.plot(right, up, marker, markersize=6, color=color, markerfacecolor=face)
        estimate = item.estimate
        shown = (
            f"no correlation (n = {estimate.n})"
            if isnan(estimate.value)
            else f"Spearman {decimal(estimate.value)}, {p_value(estimate.p, estimate.p_floor)}, n = {estimate.n}"
        )
        axes.set_title(
            f"{item.coding} coding" if item.kind == "images" else f"synthetic, {item.coding}",
            pad=16,
        )
        axes.text(0, 1.025, shown, transform=axes.transAxes, fontsize=8, color=style.MUTED)
        axes.set_xlabel("decodability, held-out R²")
        axes.set_ylabel("held-out success" if item.kind == "images" else "held-out R² or accuracy")
        _limits(axes, x, y)
        if item.kind == "images":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid()

    return draw


def _limits(axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    axes.set_xlim(min(0.0, *x, 0.0) - 0.05, 1.05)
    axes.set_ylim(min(0.0, *y, 0.0) - 0.05, 1.07)


def _curves(
    axes: Axes,
    curves: Sequence[Curve],
    xlabel: str,
    position: Callable[[RunPoint], float | int | None],
) -> None:
    for index, (name, points) in enumerate(curves):
        marker = style.MARKERS[index % len(style.MARKERS)]
        x = [np.nan if (at := position(point)) is None else at for point in points]
        lines = (
            ("success", style.ORANGE, "-", [point.success for point in points]),
            (f"R² ({points[0].headline})", style.BLUE, "--", [point.r2 for point in points]),
        )
        for label, color, dash, values in lines:
            y = [np.nan if value is None else value for value in values]
            suffix = f", {_shown(name)}" if len(curves) > 1 else ""
            axes.plot(
                x,
                y,
                dash,
                marker=marker,
                markersize=4.5,
                color=color,
                linewidth=1.5,
                label=label + suffix,
            )
    title = "Along training" if xlabel.startswith("training") else "Along the share seen"
    axes.set_title(title if len(curves) > 1 else f"{title}: {_shown(curves[0][0])}", pad=16)
    axes.set_xlabel(xlabel)
    axes.set_ylim(min(0.0, axes.get_ylim()[0]) - 0.02, 1.07)
    if xlabel.startswith("share"):
        shares = [position(point) or 0.0 for _, points in curves for point in points]
        if min(shares) > 0 and max(shares) / min(shares) > 20:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g}%"))
    axes.grid()
    axes.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none", facecolor=style.PAPER)


def _number(axes: Axes, numbers: Sequence[int], x: Sequence[float], y: Sequence[float]) -> None:
    """Write each point's number beside it, pushed apart where points crowd."""
    if not numbers:
        return
    anchors = axes.transData.transform(np.column_stack([x, y]))
    unit = axes.figure.dpi / 72
    spots = spread(anchors, anchors + np.array([7.0, 6.0]) * unit, least=10.0 * unit)
    back = axes.transData.inverted().transform(spots)
    for number, (left, up), spot, anchor in zip(numbers, back, spots, anchors, strict=True):
        if np.hypot(*(spot - anchor)) > 14 * unit:
            axes.annotate(
                "", xy=tuple(axes.transData.inverted().transform(anchor)), xytext=(left, up),
                arrowprops={"arrowstyle": "-", "color": style.MUTED, "linewidth": 0.5, "shrinkB": 3, "shrinkA": 4},
            )  # fmt: skip
        axes.text(left, up, str(number), fontsize=7.6, ha="center", va="center", zorder=6)


def spread(anchors: np.ndarray, starts: np.ndarray, least: float, rounds: int = 200) -> np.ndarray:
    """Positions near `starts` that keep `least` apart from each other and 0.75 `least` from every anchor.

    Pairs that are too close push each other apart in turn; deterministic, and good enough for tens of labels.

    Args:
        anchors: (n, 2) the points, in pixels.
        starts: (n, 2) wanted label positions, in pixels.
        least: distance in pixels.
        rounds: largest number of passes.
    """
    spots = starts.astype(float).copy()
    for _ in range(rounds):
        moved = False
        for i in range(len(spots)):
            for other, gap, half in (
                *((spots[j], least, True) for j in range(len(spots)) if j != i),
                *((anchor, 0.75 * least, False) for anchor in anchors),
            ):
                away = spots[i] - other
                distance = float(np.hypot(*away))
                if distance < gap - 1e-6:
                    direction = away / distance if distance > 1e-9 else _direction(i)
                    spots[i] = spots[i] + direction * (gap - distance) * (0.5 if half else 1.0)
                    moved = True
        if not moved:
            break
    return spots


def _shown(name: str) -> str:
    """A run's name for the legend: cut when long, and no mathematical markup in it."""
    return (name if len(name) <= 32 else f"{name[:30]}…").replace("$", r"\$")


def _direction(index: int) -> np.ndarray:
    """A direction of its own for each label, for labels that start at one place."""
    angle = 2.399963 * index  # the golden angle spreads any number of directions evenly
    return np.array([np.cos(angle), np.sin(angle)])
