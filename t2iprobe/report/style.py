"""The look of every figure: colours safe for colour-blind readers, SVG that follows the page's light or dark theme.

Figures are drawn with matplotlib's object-oriented interface. In the SVG, the colours become CSS variables,
so that one drawing serves both themes; the PNG of the same drawing is for light paper.
"""

import functools
import io
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar
from xml.etree import ElementTree

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

INK, MUTED, RULE, PAPER = "#1b2330", "#5a6472", "#d3d9e2", "#fefefe"
BLUE, ORANGE, GREEN, PINK, SKY, YELLOW = (
    "#2a78b8",
    "#d9700e",
    "#12936b",
    "#b65591",
    "#56a9dc",
    "#b89400",
)
"""Okabe and Ito's palette, slightly adjusted to keep a contrast of 3:1 on light paper."""

THEME = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    RULE: "var(--rule)",
    PAPER: "var(--card)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREEN: "var(--green)",
    PINK: "var(--pink)",
}
"""Colours of the drawing that the page replaces by its own, so that they stand out on dark paper as well."""

SERIES = (BLUE, ORANGE, GREEN, PINK, SKY, YELLOW)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
HEAT = "viridis"

ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")

DPI = 200
"""Of the PNGs."""

RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8.6,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.6,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.2,
    "ytick.labelsize": 8.2,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.2,
    "figure.dpi": DPI,  # texts are measured at the size at which they are drawn
    "figure.constrained_layout.h_pad": 0.07,
    "figure.constrained_layout.w_pad": 0.07,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
}


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """A drawing function that runs with this module's settings and leaves matplotlib's own as they were."""

    @functools.wraps(draw)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.rc_context(RC):
            return draw(*args, **kwargs)

    return inner


def new_figure(width: float = 4.6, height: float = 3.0) -> tuple[Figure, Axes]:
    """An empty figure with one axes; sizes in inches, drawn for about 100 CSS pixels per inch."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def titled(axes: Axes, title: str, note: str) -> None:
    """Give an axes its title, and under it a line of what is behind it, broken where it is long."""
    lines = textwrap.wrap(note, 50)
    axes.set_title(plain(title), pad=5 + 11 * len(lines))
    axes.text(
        0, 1.02, plain("\n".join(lines)), transform=axes.transAxes, fontsize=8, color=MUTED, va="bottom"
    )  # fmt: skip


def plain(text: str) -> str:
    """Text without mathematical markup."""
    return text.replace("$", r"\$")


def settle(figure: Figure) -> None:
    """Lay the figure out once and keep it so; matplotlib would do it again, twice, for every file."""
    engine = figure.get_layout_engine()
    if engine is not None:
        FigureCanvasAgg(figure)
        with matplotlib.rc_context(RC):
            engine.execute(figure)
        figure.set_layout_engine("none")


def svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element for inlining; its colours are the page's, its ids are of this `name` alone.

    The result depends on the drawing alone: no date, and ids hashed from `name`. The page gives it its label.
    """
    buffer = io.StringIO()
    settle(figure)
    FigureCanvasSVG(figure)
    with matplotlib.rc_context({**RC, "svg.hashsalt": name}):
        figure.savefig(
            buffer,
            format="svg",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    drawn = buffer.getvalue()
    root = ElementTree.fromstring(drawn)
    for attribute in ("width", "height", "version"):  # the page gives the width
        del root.attrib[attribute]
    root.attrib |= {"aria-hidden": "true", "focusable": "false"}
    for element in root.iter():
        # Clip paths and markers are referred to, by hashed ids. Groups have the same ids in every figure.
        if "id" in element.attrib and f"#{element.attrib['id']}" not in drawn:
            del element.attrib["id"]
    ElementTree.indent(root, space="")
    text = ElementTree.tostring(root, encoding="unicode")
    for color, variable in THEME.items():
        text = text.replace(color, variable)
    return text


def save_png(figure: Figure, path: Path) -> None:
    """Write the figure at 200 dots per inch on white paper."""
    path.parent.mkdir(parents=True, exist_ok=True)
    settle(figure)
    FigureCanvasAgg(figure)
    with matplotlib.rc_context(RC):
        figure.savefig(path, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
