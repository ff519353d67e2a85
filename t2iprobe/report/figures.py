"""The figures of a report: heat maps of R2, lines over layers, decodability against success, training frequency."""

import zlib
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from t2iprobe.report import style
from t2iprobe.report.formats import decimal, seen_range
from t2iprobe.report.layers import HeatGrid, TextLine, by_depth, short_sites
from t2iprobe.report.reading import TaskPoint
from t2iprobe.runs.records import FrequencyBin
from t2iprobe.stats import Estimate, bootstrap_interval

ENCODER_AXIS = "layer of the text encoder, input first"
DENOISER_AXIS = "block of the denoiser, input first"

BOOTSTRAP_DRAWS = 2000

FOREST = {
    "all tasks": style.INK,
    "within seen and held out": style.INK,
    "only seen": style.BLUE,
    "only held out": style.ORANGE,
}
"""The groups' colours are those of the scatter; constituents share another one."""


@style.styled
def layers_figure(
    lines: Sequence[TextLine],
    baselines: Mapping[str, float | None],
    xlabel: str,
    running_order: Sequence[str] = (),
) -> Figure:
    """R2 over layers, one line per stream and pooling, beside horizontal baselines.

    Lines that share sites (the streams of one denoiser) share positions. A line of a single site that shares none (the
    conditioning that the denoiser receives) stands behind the last layer.
    """
    figure, axes = style.new_figure(4.6, 3.1)
    shared = by_depth((site for line in lines for site in line.sites), running_order)
    of_denoiser = xlabel == DENOISER_AXIS
    longest = len(shared) if of_denoiser else max(len(line.sites) for line in lines)
    for index, line in enumerate(lines):
        y = [np.nan if value is None else value for value in line.values]
        x = [shared.index(site) for site in line.sites] if of_denoiser else list(range(len(y)))
        if len(y) == 1 and longest > 1 and not of_denoiser:
            x = [longest]
        axes.plot(
            x, y, marker=style.MARKERS[index % len(style.MARKERS)], markersize=4.5, linewidth=1.6,
            color=style.SERIES[index % len(style.SERIES)], label=f"{line.name} ({line.pooling})",
        )  # fmt: skip
    for (name, value), dash in zip(baselines.items(), ((4, 2), (1, 1.5)), strict=True):
        if value is not None:
            axes.axhline(
                value,
                color=style.MUTED,
                linewidth=1.1,
                dashes=dash,
                label=f"{name} ({decimal(value)})",
            )
    axes.set_xticks(range(0, longest, max(1, longest // 8)))
    axes.set_xlabel(xlabel)
    axes.set_ylabel("held-out R²")
    axes.set_ylim(min(-0.1, axes.get_ylim()[0]), 1.02)
    axes.grid(axis="y")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@style.styled
def scatter_figure(rows: Sequence[TaskPoint]) -> Figure | None:
    """Decodability against success, one point per task, with the mean of five equal groups and its 95% interval."""
    known = [row for row in rows if row.decodability is not None and row.success is not None]
    if not known:
        return None
    figure, axes = style.new_figure(4.9, 3.7)
    for label, color, marker, members in _by_training(known):
        x = np.array([row.decodability for row in members], dtype=float)
        y = np.array([row.success for row in members], dtype=float)
        jitter = np.array([_jitter(row.task_id) for row in members])
        axes.scatter(
            x,
            y + jitter,
            s=17,
            c=color,
            marker=marker,
            alpha=0.7,
            linewidths=0,
            label=f"{label} ({len(members)} tasks)",
        )
    _group_means(axes, known)
    axes.set_xlabel("decodability of the task's parts at the headline site")
    axes.set_ylabel("success (share of images right)")
    axes.set_ylim(-0.07, 1.07)
    axes.set_yticks(np.linspace(0, 1, 5), ["0%", "25%", "50%", "75%", "100%"])
    axes.grid()
    figure.legend(loc="outside lower center", ncols=2, handletextpad=0.6)
    return figure


@style.styled
def forest_figure(estimates: Mapping[str, Estimate]) -> Figure:
    """Correlations with their intervals, one line each; undefined ones are written as such."""
    figure, axes = style.new_figure(4.9, 0.75 + 0.3 * len(estimates))
    axes.axvline(0, color=style.MUTED, linewidth=0.9)
    for index, (name, estimate) in enumerate(estimates.items()):
        value, ci = estimate.value, estimate.ci
        color = FOREST.get(name, style.PINK)
        if isnan(value):
            axes.text(0.02, index, "not defined", va="center", fontsize=8.2, color=style.MUTED)
            continue
        if ci is not None:
            axes.plot(ci, (index, index), color=color, linewidth=2.0, solid_capstyle="butt")
        axes.plot(value, index, "o", color=color, markersize=5.5)
        axes.annotate(
            f"{decimal(value)}  ({estimate.n})",
            (1.0, index), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", va="center", fontsize=8.2,
        )  # fmt: skip
    axes.set_yticks(range(len(estimates)), list(estimates))
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    axes.set_xlim(-1, 1)
    axes.set_xticks((-1, -0.5, 0, 0.5, 1))
    axes.set_xlabel("Spearman correlation, 95% interval")
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


@style.styled
def frequency_figure(
    bins: Sequence[FrequencyBin],
    rows: Sequence[TaskPoint],
    measure: Literal["success", "decodability"],
    ylabel: str,
) -> Figure | None:
    """Success or decodability against how often training showed the task's scene, in bins, with 95% intervals."""
    if all(getattr(entry, measure) is None for entry in bins):
        return None
    figure, axes = style.new_figure(4.6, 3.0)
    for index, entry in enumerate(bins):
        value = getattr(entry, measure)
        if value is None:
            continue
        inside = [
            getattr(row, measure)
            for row in rows
            if row.seen is not None and entry.seen_low <= row.seen <= entry.seen_high
        ]
        sample = np.array([item for item in inside if item is not None], dtype=float)
        color, marker = (style.ORANGE, "s") if entry.seen_high == 0 else (style.BLUE, "o")
        ends = entry.ci if measure == "success" else mean_interval(sample)
        if ends is not None:
            axes.plot((index, index), ends, color=color, linewidth=2.0, solid_capstyle="butt")
        axes.plot(index, value, marker, color=color, markersize=7)
    axes.set_xticks(range(len(bins)), [_bin_label(entry) for entry in bins])
    axes.set_xlim(-0.5, len(bins) - 0.5)
    axes.set_xlabel("times training showed the task's scene")
    axes.set_ylabel(ylabel)
    if measure == "success":
        axes.set_ylim(-0.03, 1.03)
        axes.set_yticks(np.linspace(0, 1, 5), ["0%", "25%", "50%", "75%", "100%"])
    axes.grid(axis="y")
    return figure


def mean_interval(sample: np.ndarray) -> tuple[float, float] | None:
    """The 95% percentile bootstrap interval of a mean over tasks; None below four tasks or without spread.

    The draws come from one fixed seed, so that a report of the same run is the same file.
    """
    if len(sample) < 4:
        return None
    ci, _ = bootstrap_interval(
        lambda index: sample[index].mean(axis=1),
        np.arange(len(sample)),
        seed=0,
        n_resamples=BOOTSTRAP_DRAWS,
    )
    return ci


def _by_training(
    rows: Sequence[TaskPoint],
) -> list[tuple[str, str, str, list[TaskPoint]]]:
    if all(row.seen is None for row in rows):
        return [("tasks", style.BLUE, "o", list(rows))]
    groups = [
        ("seen in training", style.BLUE, "o", [row for row in rows if row.seen]),
        ("held out", style.ORANGE, "^", [row for row in rows if row.seen == 0]),
    ]
    return [group for group in groups if group[3]]


def _group_means(axes: Axes, rows: Sequence[TaskPoint]) -> None:
    """Means of five groups of equal size along decodability; fewer groups when tasks are few."""
    n_groups = min(5, len(rows) // 8)
    if n_groups < 2:
        return
    x = np.array([row.decodability for row in rows], dtype=float)
    y = np.array([row.success for row in rows], dtype=float)
    groups = np.array_split(np.argsort(x, kind="stable"), n_groups)
    centers = [float(x[group].mean()) for group in groups]
    means = [float(y[group].mean()) for group in groups]
    for center, group in zip(centers, groups, strict=True):
        ends = mean_interval(y[group])
        if ends is not None:
            axes.plot((center, center), ends, color=style.INK, linewidth=1.6, solid_capstyle="butt")
    axes.plot(
        centers,
        means,
        "D-",
        color=style.INK,
        markersize=5,
        linewidth=1.1,
        label=f"mean of {n_groups} equal groups, 95%",
    )


def _jitter(task_id: str) -> float:
    """A vertical shift within ±0.03 that belongs to the task, so that equal shares do not hide each other."""
    return (zlib.crc32(task_id.encode()) / 0xFFFFFFFF - 0.5) * 0.06


def _bin_label(entry: FrequencyBin) -> str:
    label = seen_range(entry.seen_low, entry.seen_high)
    return f"{'never seen' if label == 'never' else label}\nn = {entry.n_tasks}"


SCALE = Normalize(0.0, 1.0, clip=True)
"""One scale for every heat map of every report: R2 from 0 (and below) to 1, so that runs can be compared by eye."""

MARK = "#ff3b8d"

MOST_STEPS = 8
"""Values are written into the cells of a grid of at most this many steps; more would overlap."""


@style.styled
def heat_panel(grid: HeatGrid) -> Figure:
    """One constituent's heat map."""
    figure, axes = style.new_figure(3.5, _height(grid))
    draw_heat(axes, grid, labels=True)
    return figure


@style.styled
def heat_sheet(grids: Sequence[HeatGrid], title: str) -> Figure:
    """All constituents of one coding beside each other with a colour bar, for the PNG."""
    columns = min(3, len(grids))
    rows = -(-len(grids) // columns)
    figure = Figure(
        figsize=(3.2 * columns + 0.6, _height(grids[0]) * rows + 0.4), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for index, panel in enumerate(axes.flat):
        if index < len(grids):
            draw_heat(panel, grids[index], labels=index % columns == 0)
            panel.set_title(grids[index].constituent)
        else:
            panel.set_axis_off()
    bar = figure.colorbar(ScalarMappable(SCALE, style.HEAT), ax=axes, fraction=0.03, pad=0.01)
    bar.set_label("held-out R²")
    bar.outline.set_visible(False)
    figure.suptitle(title, fontsize=10, x=0.015, ha="left")
    return figure


def draw_heat(axes: Axes, grid: HeatGrid, *, labels: bool) -> None:
    """Draw one grid: first layer on top, first denoising step on the left, undefined cells hatched."""
    values = np.array(
        [[np.nan if cell is None else cell for cell in row] for row in grid.values], dtype=float
    )
    axes.pcolormesh(
        np.ma.masked_invalid(values),
        cmap=style.HEAT,
        norm=SCALE,
        edgecolors=style.PAPER,
        linewidth=1.0,
    )
    written = len(grid.steps) <= MOST_STEPS
    size = 7.4 if len(grid.sites) <= 12 else 6.6
    for (row, column), value in np.ndenumerate(values):
        if np.isnan(value):
            axes.add_patch(
                Rectangle(
                    (column, row),
                    1,
                    1,
                    fill=False,
                    hatch="////",
                    edgecolor=style.MUTED,
                    linewidth=0,
                )
            )
        elif written:
            ink = _readable_on(colormaps[style.HEAT](float(SCALE(value))))
            cell = axes.text(
                column + 0.5,
                row + 0.5,
                decimal(value),
                ha="center",
                va="center",
                fontsize=size,
                color=ink,
            )
            cell.set_in_layout(
                False
            )  # it lies inside the axes; measuring hundreds of them takes seconds
    for place, dash in ((grid.marked, "-"), (grid.other, (0, (1.2, 0.8)))):
        if place is not None:
            corner = (place[1], place[0])
            axes.add_patch(
                Rectangle(
                    corner,
                    1,
                    1,
                    fill=False,
                    edgecolor=MARK,
                    linewidth=2.2,
                    linestyle=dash,
                    zorder=5,
                )
            )
    axes.set_ylim(len(grid.sites), 0)
    every = -(-len(grid.steps) // 10)
    axes.set_xticks(
        np.arange(0, len(grid.steps), every) + 0.5, [str(step) for step in grid.steps[::every]]
    )
    names = short_sites(grid.sites) if labels else [""] * len(grid.sites)
    axes.set_yticks(np.arange(len(grid.sites)) + 0.5, names)
    axes.set_xlabel("denoising step")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _readable_on(color: tuple[float, float, float, float]) -> str:
    """Black or white, whichever has the higher contrast on a colour (WCAG 2 relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#ffffff"


def scale_stops(n_stops: int = 9) -> list[str]:
    """Hex colours along the scale, from R2 = 0 to 1, for the colour bar the page draws."""
    return [to_hex(colormaps[style.HEAT](position)) for position in np.linspace(0.0, 1.0, n_stops)]


def _height(grid: HeatGrid) -> float:
    per_row = 0.27 if len(grid.sites) <= 12 else 0.2
    return 0.62 + per_row * max(len(grid.sites), 3)
