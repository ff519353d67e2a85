"""The numbers of one run as tables, for its page and its files and for the end of `t2iprobe run`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from t2iprobe.report.finding import Verdict, find
from t2iprobe.report.formats import (
    count,
    decimal,
    duration,
    interval,
    interval_of,
    model_name,
    number,
    p_value,
    percent,
    size,
)
from t2iprobe.report.layers import in_order
from t2iprobe.report.reading import pick, value_of
from t2iprobe.report.tables import Column, Interval, Table

COLORS: dict[Verdict, str] = {"together": "green", "against": "red", "sign flip": "red"}


@dataclass(frozen=True)
class Part:
    """One constituent of the family.

    Attributes:
        name: its slot.
        success: the share of scored images that have it as worded.
        r2: its decodability in the headline coding at the headline site.
        correlation: the estimate of Spearman's correlation of both over tasks.
    """

    name: str
    success: float | None
    r2: float | None
    correlation: Mapping[str, Any]


PART_COLUMNS: tuple[Column[Part], ...] = (
    Column("constituent", lambda part: part.name),
    Column("success", lambda part: part.success, percent, bar="success"),
    Column("r2", lambda part: part.r2, decimal, heading="R²", bar="r2"),
    Column(
        "spearman",
        lambda part: value_of(part.correlation),
        decimal,
        heading="Spearman",
        interval=lambda part: interval_of(part.correlation),
        note=lambda part: str(part.correlation.get("reason") or ""),
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


def numbers(summary: Mapping[str, Any]) -> list[Number]:
    """The key numbers of a run from its summary.json, in the order in which they are read; not its cost."""
    return [
        *success_numbers(summary),
        *_decodability(summary),
        _correlation(summary),
        _images(summary),
    ]


def success_numbers(summary: Mapping[str, Any]) -> list[Number]:
    """Success over all tasks, over those whose scene training showed or did not show, and of clean images."""
    success = summary.get("success") or {}
    clean = success.get("of_clean")
    reason = success.get("reason")
    return [
        Number(
            "success",
            number(success.get("all")),
            percent,
            interval_of(success),
            (reason,) if reason else (),
        ),
        *(
            Number(
                name,
                number(success.get(key)),
                percent,
                interval_of(success.get(f"{key}_ci")),
                detail=True,
            )
            for key, name in (("seen", "seen in training"), ("held_out", "held out"))
            if number(success.get(key)) is not None
        ),
        *(
            [Number("clean images only", value_of(clean), percent, interval_of(clean), detail=True)]
            if value_of(clean) is not None
            else []
        ),
    ]


def _decodability(summary: Mapping[str, Any]) -> list[Number]:
    read = summary.get("decodability") or {}
    headline = read.get("headline") or {}
    where = f"{headline.get('site')}, step {headline.get('step')}, {read.get('coding')} coding"
    notes = (where,) if headline.get("site") else (str(headline.get("reason") or "not defined"),)
    controls = read.get("controls") or {}
    return [
        Number(
            "decodability R²", number(headline.get("r2")), decimal, interval_of(headline), notes
        ),
        *(
            Number(name, value_of(controls.get(key)), decimal, detail=True)
            for key, name in (
                ("shuffled_labels", "shuffled labels"),
                ("bag_of_words", "bag of words"),
            )
        ),
    ]


def _correlation(summary: Mapping[str, Any]) -> Number:
    rho = summary.get("correlation") or {}
    p = (
        str(rho.get("reason") or "")
        if rho.get("p") is None
        else p_value(rho["p"], rho.get("p_floor"))
    )
    notes = [note for note in (p, f"n = {count(rho.get('n'))}") if note]
    return Number("Spearman", number(rho.get("spearman")), decimal, interval_of(rho), tuple(notes))


def _images(summary: Mapping[str, Any]) -> Number:
    n, stopped = count(summary.get("n_tasks")), summary.get("stopped")
    tasks = f"{n} tasks"
    if stopped:
        tasks = f"{n} of {count(summary.get('tasks_asked'))} tasks, stopped by the {stopped}"
    outcomes = pick(summary, "success", "outcomes") or {}
    counts = [f"{count(n_images)} {name}" for name, n_images in outcomes.items()]
    return Number("images", number(summary.get("n_images")), count, notes=(tasks, *counts))


def _cost(summary: Mapping[str, Any]) -> list[Number]:
    cost = summary.get("cost")
    if not cost:
        return []
    memory = number(cost.get("peak_rss_mb"))
    used = () if memory is None else (f"{size(memory * 1e6)} memory",)
    speed = f"{decimal(cost.get('images_per_s'))} images/s"
    return [Number("wall time", number(cost.get("wall_s")), duration, notes=(speed, *used))]


def success_table(summary: Mapping[str, Any]) -> Table[Number]:
    """Success by whether training showed the scene, and without malformed pictures."""
    caption = "Success: by whether training showed the scene, and without malformed pictures"
    return Table(SUCCESS_COLUMNS, success_numbers(summary), caption)


def part_table(summary: Mapping[str, Any]) -> Table[Part]:
    """The constituents, one a row, in the order of the family."""
    success = pick(summary, "success", "by_constituent") or {}
    r2 = pick(summary, "decodability", "by_constituent") or {}
    rho = pick(summary, "correlation", "by_constituent") or {}
    parts = [
        Part(name, number(success.get(name)), value_of(r2.get(name)), rho.get(name) or {})
        for name in dict.fromkeys([*success, *r2])
        if name != "all"
    ]
    coding = pick(summary, "decodability", "coding")
    worded = "" if coding == "slot" else " (as worded)"
    caption = f"Success{worded}, decodability ({coding} coding, headline site) and their correlation over tasks"
    return Table(PART_COLUMNS, parts, caption)


@dataclass(frozen=True)
class CodingR2:
    """Decodability of one coding at the headline site."""

    name: str
    r2: float | None


CODING_COLUMNS: tuple[Column[CodingR2], ...] = (
    Column("coding", lambda coding: coding.name),
    Column("r2", lambda coding: coding.r2, decimal, heading="R²", bar="r2"),
)


def coding_table(summary: Mapping[str, Any]) -> Table[CodingR2]:
    """The codings, one a row, the headline first."""
    r2 = pick(summary, "decodability", "by_coding") or {}
    headline = pick(summary, "decodability", "coding")
    rows = [
        CodingR2(f"{name} (headline)" if name == headline else name, value_of(r2[name]))
        for name in in_order(r2, headline)
    ]
    return Table(CODING_COLUMNS, rows, "R² of each coding at the headline site")


def document(summary: Mapping[str, Any], correlation: Mapping[str, Any]) -> str:
    """The finding and the tables of a run as Markdown."""
    finding = find(summary, correlation)
    tables = (Table(NUMBER_COLUMNS, numbers(summary)), part_table(summary), coding_table(summary))
    parts = [
        f"# {model_name(summary.get('model'))} on {summary.get('family')}",
        finding.sentence,
        "\n".join(f"- {note}" for note in finding.notes),
        *(table.markdown() for table in tables if table.rows),
    ]
    return "\n\n".join(parts) + "\n"


def print_summary(
    summary: Mapping[str, Any], correlation: Mapping[str, Any], console: Console | None = None
) -> None:
    """Print the finding, the key numbers with their intervals, and one line per constituent.

    Args:
        summary: the content of summary.json.
        correlation: the content of correlation.json.
        console: where to print; standard output when not given.
    """
    finding = find(summary, correlation)
    said = Text(finding.sentence, style="bold")
    notes = [Text(f"- {note}", style="dim") for note in finding.notes]
    rows = [*numbers(summary), *_cost(summary)]
    pairs = Table(NUMBER_COLUMNS, rows).terminal(show_header=False, padding=(0, 2, 0, 0))
    pairs.columns[0].style = "dim"
    parts = part_table(summary)
    drawn = parts.terminal(
        box=box.SIMPLE_HEAD, padding=(0, 1), caption=parts.caption, caption_justify="left"
    )
    title = Text(f"{model_name(summary.get('model'))} on {summary.get('family')}")
    color = COLORS.get(finding.verdict, "dim")
    body = Group(said, *notes, Text(), pairs, Text(), drawn)
    (console or Console()).print(Panel(body, title=title, title_align="left", border_style=color))
