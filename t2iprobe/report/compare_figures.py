"""The figure of a comparison: a panel per coding, and curves along training and along the share of scenes seen."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from math import isnan
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from t2iprobe.report import style
from t2iprobe.report.compare_findings import Across, different, measure_of
from t2iprobe.report.formats import decimal, interval
from t2iprobe.report.layers import ordered
from t2iprobe.report.run_points import RunPoint

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


def groups_of(points: Sequence[RunPoint]) -> list[str]:
    """The group of each run, by name.

    Of images: a training run that several share, else its way of sampling, else its model. Of students: the support,
    and every setting in which it differs from most students; seeds and the number of combinations tell no groups apart.
    """
    shared = [point.training_run for point in points]
    usual = _usual([point for point in points if point.kind == "synthetic"])
    return [
        ", ".join([point.sampling or point.model, *_differs(point, usual)])
        if point.kind == "synthetic"
        else point.training_run
        if point.training_run and shared.count(point.training_run) > 1
        else point.sampling or point.model
        for point in points
    ]


def _usual(students: Sequence[RunPoint]) -> dict[str, str]:
    """The most frequent value of every setting; of equally frequent ones the first."""
    names = ordered(name for student in students for name, _ in _kept(student))
    values = {n: [dict(s.setup)[n] for s in students if n in dict(s.setup)] for n in names}
    return {name: max(ordered(found), key=found.count) for name, found in values.items()}


def _differs(student: RunPoint, usual: dict[str, str]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {value}"
        for name, value in _kept(student)
        if value != usual[name]
    ]


def _kept(student: RunPoint) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, value in student.setup
        if name != "support" and not name.endswith("seed")
    ]


def group_looks(points: Sequence[RunPoint]) -> list[tuple[str, str]]:
    """Colour and marker of each run, one pair per group; 48 groups have different ones."""
    groups = groups_of(points)
    order = ordered(groups)
    return [_look(order.index(group)) for group in groups]


def _look(index: int) -> tuple[str, str]:
    n_colors, n_markers = len(style.SERIES), len(style.MARKERS)
    lap = index // (n_colors * n_markers // 2)  # 6 colours and 8 markers meet again after 24
    return style.SERIES[index % n_colors], style.MARKERS[(index + lap) % n_markers]
