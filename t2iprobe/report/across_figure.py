"""The figure of a comparison: one panel per coding, and curves along training and along the share seen."""

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import isnan

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from t2iprobe.report import style
from t2iprobe.report.across import Across, measure_of
from t2iprobe.report.across_curves import draw_shares, draw_steps, share_curves, step_curves
from t2iprobe.report.across_groups import group_looks, groups_of
from t2iprobe.report.formats import decimal, interval
from t2iprobe.report.points import RunPoint

MOST_NUMBERED = 20
"""More runs than this are told apart by their group; so many numbers in a panel could not be read."""

PANEL_WIDTH, PANEL_HEIGHT, LINE = 3.7, 3.2, 0.19
"""Inches; a line of the key."""

LETTER, MARK = 0.068, 0.4
"""Inches of the key: a letter, on average; a mark with the space around it."""


@style.styled
def comparison_figure(points: Sequence[RunPoint], across: Sequence[Across]) -> Figure:
    """Every run a point: numbered as in the table, or coloured by group where there are many.

    Panels: one per kind and coding; then success and headline decodability along the steps of each training run, and
    along the share of scenes or combinations seen.
    """
    draws: list[Callable[[Axes], None]] = [_scatter(points, item) for item in across]
    draws += [partial(draw_steps, curve=curve) for curve in step_curves(points)]
    draws += [partial(draw_shares, curve=curve) for curve in share_curves(points)]
    columns = min(3, len(draws))
    rows = -(-len(draws) // columns)
    width = PANEL_WIDTH * columns
    key, key_columns, key_height = _key(points, width)
    figure = Figure(figsize=(width, PANEL_HEIGHT * rows + key_height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, draw in zip(grid.flat, draws, strict=False):
        draw(axes)
    for axes in grid.flat[len(draws) :]:
        axes.set_axis_off()
    figure.legend(handles=key, loc="outside lower center", ncols=key_columns, handletextpad=0.2)
    style.settle(figure)  # so that labels are placed where the points really are
    if len(points) <= MOST_NUMBERED:
        for axes, item in zip(grid.flat, across, strict=False):
            _number(axes, *_placed(points, item))
    return figure


def caption(points: Sequence[RunPoint]) -> str:
    """What the marks of the figure are."""
    said = [
        "Each point is one run, "
        + (
            "numbered as in the table."
            if len(points) <= MOST_NUMBERED
            else "coloured by the group in the key; n is the number of runs."
        )
    ]
    if any(point.success_ci for point in points):
        said.append("Bars: 95% intervals over a run's tasks.")
    if any(not point.held_out for point in points):
        said.append("Hollow: success over all tasks, as no task is held out.")
    said.append("Spearman with its 95% interval over runs.")
    curves = share_curves(points)
    if any(len({p.share_seen for p in mine}) < len(mine) for _, mine in curves):
        said.append("Along a share, lines go through the means of runs that saw the same share.")
    return " ".join(said)


def _key(points: Sequence[RunPoint], width: float) -> tuple[list[Line2D], int, float]:
    """The key's marks, its columns, and its height in inches; no name is cut, long ones are broken into lines."""
    looks, groups = group_looks(points), groups_of(points)
    if len(points) <= MOST_NUMBERED:
        named = [
            (f"{number}  {point.name}", look)
            for number, (point, look) in enumerate(zip(points, looks, strict=True), start=1)
        ]
    else:
        found = Counter(groups)
        named = [
            (f"{group} (n = {found[group]})", look)
            for group, look in dict(zip(groups, looks, strict=True)).items()
        ]
    letters = max(len(name) for name, _ in named)
    columns = max(1, min(4, len(named), int(width / (LETTER * letters + MARK))))
    broken = int((width / columns - MARK) / LETTER)
    key = [
        Line2D(
            [], [], linestyle="", marker=marker, markersize=5, color=color,
            label=style.plain(textwrap.fill(name, broken)),
        )
        for name, (color, marker) in named
    ]  # fmt: skip
    lines = max(str(mark.get_label()).count("\n") + 1 for mark in key)
    return key, columns, LINE * lines * -(-len(key) // columns) + 0.2


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
            point, (color, marker) = points[number - 1], looks[number - 1]
            for bounds, line in (
                (point.decodability_ci.get(item.coding), axes.hlines),
                (point.success_ci, axes.vlines),
            ):
                if bounds is not None:
                    at = up if line == axes.hlines else right
                    line(at, *bounds, color=color, linewidth=0.9, alpha=0.5)
            face = color if point.held_out else style.PAPER
            axes.plot(right, up, marker, markersize=5.5, color=color, markerfacecolor=face)
        kind = "" if item.kind == "images" else " (students)"
        style.titled(axes, f"{item.coding.capitalize()} coding{kind}", _note(item))
        axes.set_xlabel("decodability, held-out R²")
        mine = [points[number - 1] for number in numbers]
        axes.set_ylabel(measure_of(mine))
        axes.set_xlim(min(0.0, *x, 0.0) - 0.05, 1.05)
        axes.set_ylim(min(0.0, *y, 0.0) - 0.05, 1.12)
        if item.kind == "images":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid()

    return draw


def _note(item: Across) -> str:
    estimate = item.estimate
    if isnan(estimate.value):
        return f"no correlation (n = {estimate.n})"
    bounds = f" [{interval(estimate.ci)}]" if estimate.ci else ""
    return f"Spearman {decimal(estimate.value)}{bounds}, n = {estimate.n} runs"


def _number(axes: Axes, numbers: Sequence[int], x: Sequence[float], y: Sequence[float]) -> None:
    """Write each point's number beside it, pushed apart where points crowd, inside the axes."""
    if not numbers:
        return
    anchors = axes.transData.transform(np.column_stack([x, y]))
    unit = axes.figure.dpi / 72
    box = axes.get_window_extent()
    spots = spread(
        anchors,
        anchors + np.array([7.0, 6.0]) * unit,
        least=10.0 * unit,
        box=np.array([box.min, box.max]) + np.array([[6.0], [-6.0]]) * unit,
    )
    back = axes.transData.inverted().transform(spots)
    for number, (left, up), spot, anchor in zip(numbers, back, spots, anchors, strict=True):
        if np.hypot(*(spot - anchor)) > 14 * unit:
            axes.annotate(
                "", xy=tuple(axes.transData.inverted().transform(anchor)), xytext=(left, up),
                arrowprops={"arrowstyle": "-", "color": style.MUTED, "linewidth": 0.5, "shrinkB": 3, "shrinkA": 4},
            )  # fmt: skip
        axes.text(left, up, str(number), fontsize=7.6, ha="center", va="center", zorder=6)


def spread(
    anchors: np.ndarray,
    starts: np.ndarray,
    least: float,
    box: np.ndarray | None = None,
    rounds: int = 300,
) -> np.ndarray:
    """Positions near `starts` that keep `least` apart from each other and 0.75 `least` from every anchor.

    Pairs that are too close push each other apart in turn; deterministic, and good enough for tens of labels.

    Args:
        anchors: (n, 2) the points, in pixels.
        starts: (n, 2) wanted label positions, in pixels.
        least: distance in pixels.
        box: (2, 2) lowest and highest position, in pixels; None: anywhere.
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
            if box is not None:
                spots[i] = spots[i].clip(*box)
        if not moved:
            break
    return spots


def _direction(index: int) -> np.ndarray:
    """A direction of its own for each label, for labels that start at one place."""
    angle = 2.399963 * index  # the golden angle spreads any number of directions evenly
    return np.array([np.cos(angle), np.sin(angle)])
