"""Layer by step heat maps of R2: one drawing per constituent, all on one colour scale."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from t2iprobe.report import style
from t2iprobe.report.formats import decimal
from t2iprobe.report.places import HeatGrid, short_sites

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
