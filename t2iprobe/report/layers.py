"""R2 by layer, as figures show it: grids of site by step, and the text streams layer by layer."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from t2iprobe.places import Place, Site
from t2iprobe.report.reading import RunData
from t2iprobe.runs.records import PlaceRecord, SiteR2

T = TypeVar("T")

EARLY_TO_LATE = (
    ("embed", "shared"),
    ("refiner", "down_blocks"),
    ("mid_block",),
    (),
    ("up_blocks", "single_"),
    ("norm", "conditioning"),
)
"""Fragments of module names in the order of computation, for folders that do not say it; () stands for other names."""

CODING_ORDER = ("scene", "slot", "presence", "binding")


@dataclass(frozen=True)
class Headline:
    """Where the headline coding is read.

    Attributes:
        place: chosen before looking; None where none could be.
        pooling: the pooling that figures show: that of the place, or the first one that was probed.
        coding: the headline coding.
        other: the place that the other half of the folds chose; None where it is the same.
    """

    place: Place | None
    pooling: str | None
    coding: str
    other: Place | None = None

    @property
    def step(self) -> int | None:
        """The step of the place."""
        return self.place.step if self.place else None


@dataclass(frozen=True)
class HeatGrid:
    """R2 of one constituent at every image-stream site (row, first layer first) and step (column).

    `values[row][column]` is None where the probe is undefined or was not fitted.
    """

    coding: str
    constituent: str
    sites: tuple[str, ...]
    steps: tuple[int, ...]
    timesteps: dict[int, float | None]
    values: tuple[tuple[float | None, ...], ...]
    marked: tuple[int, int] | None
    other: tuple[int, int] | None


@dataclass(frozen=True)
class TextLine:
    """R2 of the whole coding over the layers of one stream of one component, for one pooling."""

    name: str
    pooling: str
    step: int | None
    sites: tuple[str, ...]
    values: tuple[float | None, ...]


def headline(run: RunData) -> Headline:
    """Where the headline coding of a run is read."""
    read = run.summary.decodability
    chosen, other = _image_place(read.headline), read.headline.other
    probed = (row.pooling for row in run.probes if row.stream == "image")
    if chosen is None:
        return Headline(None, next(probed, None), read.coding)
    second = _image_place(other) if other else None
    return Headline(chosen, chosen.pooling, read.coding, second if second != chosen else None)


def _image_place(where: SiteR2 | PlaceRecord) -> Place | None:
    if where.site is None or where.pooling is None:
        return None
    return Place(Site.of_module(where.site, "image"), where.pooling, where.step)


def codings(run: RunData, first: str) -> list[str]:
    """The codings that were probed, the headline one first."""
    return in_order(sorted({row.coding for row in run.probes}), first)


def in_order(codings: Iterable[str], first: str | None) -> list[str]:
    """Codings in the order of every table and figure: one of them first, then the built-in ones, then others."""
    present = ordered(codings)
    rest = [name for name in present if name not in CODING_ORDER]
    known = [name for name in CODING_ORDER if name in present]
    return sorted([*known, *rest], key=lambda name: name != first)


def constituents(run: RunData, coding: str) -> list[str]:
    """The groups of a coding in the order of the table, with "all" first."""
    names = ordered(row.constituent for row in run.probes if row.coding == coding)
    return sorted(names, key=lambda name: name != "all")


def heat_grid(run: RunData, coding: str, constituent: str, at: Headline) -> HeatGrid | None:
    """The grid of one constituent in the image stream at the headline pooling; None when nothing was probed."""
    rows = [
        row
        for row in run.probes
        if row.stream == "image"
        and row.coding == coding
        and row.constituent == constituent
        and row.pooling == at.pooling
    ]
    steps = tuple(sorted({row.step for row in rows if row.step is not None}))
    if not steps:
        return None
    sites = by_depth((row.site for row in rows), run.running_order)
    table = {(row.site, row.step): row.r2 for row in rows}

    def cell(place: Place | None) -> tuple[int, int] | None:
        if coding != at.coding or place is None or place.pooling != at.pooling:
            return None
        if place.site.module not in sites or place.step not in steps:
            return None
        return sites.index(place.site.module), steps.index(place.step)

    return HeatGrid(
        coding=coding,
        constituent=constituent,
        sites=sites,
        steps=steps,
        timesteps={row.step: row.timestep for row in rows if row.step is not None},
        values=tuple(tuple(table.get((site, step)) for step in steps) for site in sites),
        marked=cell(at.place),
        other=cell(at.other),
    )


def text_lines(run: RunData, at: Headline) -> list[TextLine]:
    """The text encoders' layers and the conditioning (no step), and the denoiser's text stream at the headline step."""
    rows = [
        row
        for row in run.probes
        if row.coding == at.coding
        and row.constituent == "all"
        and row.stream == "text"
        and row.step in (None, at.step)
    ]
    denoisers = {row.component for row in run.probes if row.stream == "image"}
    lines = []
    for component, pooling, step in ordered((row.component, row.pooling, row.step) for row in rows):
        mine = {
            row.site: row.r2
            for row in rows
            if (row.component, row.pooling, row.step) == (component, pooling, step)
        }
        name = component
        if component in denoisers:
            name = "conditioning" if step is None else "text stream"
            name = name if len(denoisers) == 1 else f"{component} {name}"
        sites = by_depth(mine, run.running_order)
        lines.append(TextLine(name, pooling, step, sites, tuple(mine[site] for site in sites)))
    return lines


def image_line(run: RunData, at: Headline) -> TextLine | None:
    """The image stream over depth at the headline step and pooling, to stand beside the text stream."""
    grid = heat_grid(run, at.coding, "all", at)
    if grid is None or at.step not in grid.steps:
        return None
    column = grid.steps.index(at.step)
    values = tuple(row[column] for row in grid.values)
    return TextLine("image stream", at.pooling or "", at.step, grid.sites, values)


LONGEST = 26
"""Letters of a site's name in a heat map."""


def short_sites(sites: Sequence[str]) -> list[str]:
    """Site names without the parts they all share, at most 26 characters long.

    Of a longer name, what the line above says already is left out ("….transformer_blocks.0" under "up_blocks.0"), then
    "_blocks" in its parts, then its middle.

    Example:
        >>> short_sites(["transformer.transformer_blocks.0", "transformer.transformer_blocks.1"])
        ['transformer_blocks.0', 'transformer_blocks.1']
    """
    parts = [site.split(".") for site in sites]
    shared = len({part[0] for part in parts}) == 1 and all(len(part) > 1 for part in parts)
    names = [".".join(part[1:] if shared else part) for part in parts]
    return [_short(name, above) for name, above in zip(names, ["", *names], strict=False)]


def _short(name: str, above: str) -> str:
    if len(name) > LONGEST and above and name.startswith(f"{above}."):
        name = "…" + name.removeprefix(above)
    if len(name) > LONGEST:
        name = re.sub(r"_blocks?(?=\.)", "", name)
    return name if len(name) <= LONGEST else f"{name[:8]}…{name[9 - LONGEST :]}"


def by_depth(sites: Iterable[str], running_order: Sequence[str] = ()) -> tuple[str, ...]:
    """Distinct sites, first layer first: in the order in which the model runs them, where all of them are in it.

    Otherwise (a folder that does not say) block lists go by the rank of their names, blocks by number: the table is
    sorted by name, which puts `single_transformer_blocks` before `transformer_blocks` and block 10 before block 2.
    Unknown lists keep the order of the table.
    """
    distinct = ordered(sites)
    position = {site: index for index, site in enumerate(running_order)}
    if position.keys() >= set(distinct):
        return tuple(sorted(distinct, key=position.__getitem__))
    roots = ordered(_root(site) for site in distinct)
    components = ordered(root.split(".")[0] for root in roots)
    roots.sort(key=lambda root: (components.index(root.split(".")[0]), _rank(root)))
    return tuple(sorted(distinct, key=lambda site: (roots.index(_root(site)), _numbers(site))))


def _rank(root: str) -> int:
    for rank, fragments in enumerate(EARLY_TO_LATE):
        if any(fragment in root for fragment in fragments):
            return rank
    return EARLY_TO_LATE.index(())


def _root(site: str) -> str:
    """The block list a site belongs to: its path up to the first number, a mid block up to its own name."""
    head, mid, _ = site.partition("mid_block")
    return head + mid if mid else re.split(r"\.\d", site, maxsplit=1)[0]


def _numbers(site: str) -> list[tuple[int, int, str]]:
    return [
        (0, int(piece), "") if piece.isdigit() else (1, 0, piece)
        for piece in re.split(r"[.]", site)
        if piece
    ]


def ordered(values: Iterable[T]) -> list[T]:
    """The distinct values in the order of their first appearance."""
    return list(dict.fromkeys(values))
