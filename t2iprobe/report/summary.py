"""The numbers of one run as tables, for its page and its files and for the end of `t2iprobe run`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from t2iprobe.report.finding import Verdict, find
from t2iprobe.report.formats import (
    Interval,
    count,
    decimal,
    duration,
    interval,
    model_name,
    p_value,
    percent,
    size,
)
from t2iprobe.report.layers import in_order
from t2iprobe.report.tables import Column, Table
from t2iprobe.runs.records import CodingR2, Correlation, Link, Summary

COLORS: dict[Verdict, str] = {"together": "green", "against": "red", "sign flip": "red"}


@dataclass(frozen=True)
class Part:
    """One constituent of the family.

    Attributes:
        name: its slot.
        success: the share of scored images that have it as worded.
        r2: its decodability in the headline coding at the headline site.
        link: Spearman's correlation of both over tasks; None where there is none.
    """

    name: str
    success: float | None
    r2: float | None
    link: Link | None


PART_COLUMNS: tuple[Column[Part], ...] = (
    Column("constituent", lambda part: part.name),
    Column("success", lambda part: part.success, percent, bar="success"),
    Column("r2", lambda part: part.r2, decimal, heading="R²", bar="r2"),
    Column(
        "spearman",
        lambda part: part.link.spearman if part.link else None,
        decimal,
        heading="Spearman",
        interval=lambda part: part.link.ci if part.link else None,
        note=lambda part: (part.link.reason if part.link else "") or "",
    ),
)


@dataclass(frozen=True)
class Number:
    """One key number of a run.

    Attributes:
        name: what it is.
        value, format: the number, unrounded, and how it is written.
        interval: its 95% interval.
        notes: what belongs to it, in words; why it is missing.
        detail: whether it belongs to the number above it.
    """

    name: str
    value: float | None
    format: Callable[[Any], str]
    interval: Interval = None
    notes: tuple[str, ...] = ()
    detail: bool = False

    @property
    def text(self) -> str:
        """The number as people read it."""
        return self.format(self.value)

    @property
    def ends(self) -> str:
        """Its interval as people read it; empty when there is none."""
        return interval(self.interval, as_percent=self.format is percent)


NUMBER_COLUMNS: tuple[Column[Number], ...] = (
    Column("number", lambda n: f"  {n.name}" if n.detail else n.name),
    Column("value", lambda n: n.text, str),
    Column("notes", lambda n: ", ".join([f"[{n.ends}]"] * bool(n.ends) + [*n.notes])),
)

SUCCESS_COLUMNS: tuple[Column[Number], ...] = (
    Column("tasks", lambda n: "all tasks" if n.name == "success" else n.name),
    Column("success", lambda n: n.value, percent, interval=lambda n: n.interval, bar="success"),
)


def numbers(summary: Summary) -> list[Number]:
    """The key numbers of a run, in the order in which they are read; not its cost."""
    return [
        *success_numbers(summary),
        *_decodability(summary),
        _correlation(summary),
        _images(summary),
    ]


def success_numbers(summary: Summary) -> list[Number]:
    """Success over all tasks, over those whose scene training showed or did not show, and of clean images."""
    success, clean = summary.success, summary.success.of_clean
    reason = (success.reason,) if success.reason else ()
    details = [
        Number("seen in training", success.seen, percent, success.seen_ci, detail=True),
        Number("held out", success.held_out, percent, success.held_out_ci, detail=True),
        Number("clean images only", clean.value, percent, clean.ci, detail=True),
    ]
    return [
        Number("success", success.all, percent, success.ci, reason),
        *(number for number in details if number.value is not None),
    ]


def _decodability(summary: Summary) -> list[Number]:
    read = summary.decodability
    headline, controls = read.headline, read.controls
    where = f"{headline.site}, step {headline.step}, {read.coding} coding"
    notes = (where,) if headline.site else (headline.reason or "not defined",)
    return [
        Number("decodability R²", headline.r2, decimal, headline.ci, notes),
        Number("shuffled labels", controls.shuffled_labels, decimal, detail=True),
        Number("bag of words", controls.bag_of_words, decimal, detail=True),
    ]


def _correlation(summary: Summary) -> Number:
    link = summary.correlation
    p = (link.reason or "") if link.p is None else p_value(link.p, link.p_floor)
    notes = tuple(note for note in (p, f"n = {count(link.n)}") if note)
    return Number("Spearman", link.spearman, decimal, link.ci, notes)


def _images(summary: Summary) -> Number:
    tasks = f"{count(summary.n_tasks)} tasks"
    if summary.stopped:
        asked = count(summary.tasks_asked)
        tasks = f"{count(summary.n_tasks)} of {asked} tasks, stopped by the {summary.stopped}"
    outcomes = [f"{count(n)} {name}" for name, n in summary.success.outcomes.items()]
    return Number("images", summary.n_images, count, notes=(tasks, *outcomes))


def _cost(summary: Summary) -> Number:
    cost = summary.cost
    memory = () if cost.peak_rss_mb is None else (f"{size(cost.peak_rss_mb * 1e6)} memory",)
    notes = (f"{decimal(cost.images_per_s)} images/s", *memory)
    return Number("wall time", cost.wall_s, duration, notes=notes)


def success_table(summary: Summary) -> Table[Number]:
    """Success by whether training showed the scene, and without malformed pictures."""
    caption = "Success: by whether training showed the scene, and without malformed pictures"
    return Table(SUCCESS_COLUMNS, success_numbers(summary), caption)


def part_table(summary: Summary) -> Table[Part]:
    """The constituents, one a row, in the order of the family."""
    success, read = summary.success.by_constituent, summary.decodability
    links = summary.correlation.by_constituent
    parts = [
        Part(name, success.get(name), read.by_constituent.get(name), links.get(name))
        for name in dict.fromkeys([*success, *read.by_constituent])
        if name != "all"
    ]
    coding = read.coding
    worded = "" if coding == "slot" else " (as worded)"
    caption = f"Success{worded}, decodability ({coding} coding, headline site) and their correlation over tasks"
    return Table(PART_COLUMNS, parts, caption)


CODING_COLUMNS: tuple[Column[tuple[str, CodingR2]], ...] = (
    Column("coding", lambda row: row[0]),
    Column("r2", lambda row: row[1].r2, decimal, heading="R²", bar="r2"),
)


def coding_table(summary: Summary) -> Table[tuple[str, CodingR2]]:
    """The codings, one a row, the headline first."""
    read = summary.decodability
    rows = [
        (f"{name} (headline)" if name == read.coding else name, read.by_coding[name])
        for name in in_order(read.by_coding, read.coding)
    ]
    return Table(CODING_COLUMNS, rows, "R² of each coding at the headline site")


def document(summary: Summary, correlation: Correlation) -> str:
    """The finding and the tables of a run as Markdown."""
    finding = find(summary, correlation)
    tables = (Table(NUMBER_COLUMNS, numbers(summary)), part_table(summary), coding_table(summary))
    parts = [
        f"# {model_name(summary.model)} on {summary.family}",
        finding.sentence,
        "\n".join(f"- {note}" for note in finding.notes),
        *(table.markdown() for table in tables if table.rows),
    ]
    return "\n\n".join(parts) + "\n"


def print_summary(
    summary: Summary, correlation: Correlation, console: Console | None = None
) -> None:
    """Print the finding, the key numbers with their intervals, and one line per constituent.

    Args:
        summary: of summary.json.
        correlation: of correlation.json.
        console: where to print; standard output when not given.
    """
    finding = find(summary, correlation)
    said = Text(finding.sentence, style="bold")
    notes = [Text(f"- {note}", style="dim") for note in finding.notes]
    rows = [*numbers(summary), _cost(summary)]
    pairs = Table(NUMBER_COLUMNS, rows).terminal(show_header=False, padding=(0, 2, 0, 0))
    pairs.columns[0].style = "dim"
    parts = part_table(summary)
    drawn = parts.terminal(
        box=box.SIMPLE_HEAD, padding=(0, 1), caption=parts.caption, caption_justify="left"
    )
    title = Text(f"{model_name(summary.model)} on {summary.family}")
    color = COLORS.get(finding.verdict, "dim")
    body = Group(said, *notes, Text(), pairs, Text(), drawn)
    (console or Console()).print(Panel(body, title=title, title_align="left", border_style=color))
