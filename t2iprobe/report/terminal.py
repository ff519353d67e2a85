"""The short table at the end of `t2iprobe run`."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from t2iprobe.report.finding import Verdict, find
from t2iprobe.report.formats import (
    count,
    decimal,
    duration,
    interval,
    model_name,
    p_value,
    percent,
    size,
)
from t2iprobe.report.reading import interval_of, number, pick, value_of

COLORS: dict[Verdict, str] = {"together": "green", "against": "red", "sign flip": "red"}


def print_summary(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the finding, the key numbers with their intervals, and one line per constituent.

    Args:
        summary: the content of summary.json.
        console: where to print; standard output when not given.
    """
    finding = find(summary)
    said = Text(finding.sentence, style="bold")
    notes = [Text(f"- {note}", style="dim") for note in finding.notes]
    title = Text(f"{model_name(summary.get('model'))} on {summary.get('family')}")
    body = Group(said, *notes, Text(), _key_numbers(summary), Text(), _by_constituent(summary))
    out = console or Console()
    out.print(
        Panel(
            body, title=title, title_align="left", border_style=COLORS.get(finding.verdict, "dim")
        )
    )


def _key_numbers(summary: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    success = summary.get("success")
    outcomes = pick(success, "outcomes") or {}
    table.add_row(
        "success", percent(pick(success, "all")), _text(_bracket(success, as_percent=True))
    )
    for name, label in (("seen", "  seen in training"), ("held_out", "  held out")):
        if number(pick(success, name)) is not None:
            table.add_row(label, percent(pick(success, name)), "")
    headline = pick(summary, "decodability", "headline")
    where = f"{pick(headline, 'site')}, step {pick(headline, 'step')}, {pick(summary, 'decodability', 'coding')} coding"
    table.add_row(
        "decodability R²", decimal(pick(headline, "r2")), _text(_bracket(headline), where)
    )
    for name, label in (
        ("shuffled_labels", "  shuffled labels"),
        ("bag_of_words", "  bag of words"),
    ):
        table.add_row(label, decimal(value_of(pick(summary, "decodability", "controls", name))), "")
    rho = pick(summary, "correlation")
    p = (
        p_value(pick(rho, "p"), pick(rho, "p_floor"))
        if pick(rho, "p") is not None
        else str(pick(rho, "reason") or "")
    )
    table.add_row(
        "Spearman",
        decimal(pick(rho, "spearman")),
        _text(_bracket(rho), p, f"n = {count(pick(rho, 'n'))}"),
    )
    if outcomes:
        said = ", ".join(f"{count(outcomes[name])} {name}" for name in outcomes)
        table.add_row("images", count(summary.get("n_images")), _text(said))
    if pick(summary, "stopped") is not None:
        asked = (
            f"of {count(pick(summary, 'tasks_asked'))}: stopped by the {pick(summary, 'stopped')}"
        )
        table.add_row("tasks", count(pick(summary, "n_tasks")), _text(asked))
    cost = summary.get("cost")
    if cost:
        memory = number(pick(cost, "peak_rss_mb"))
        used = "" if memory is None else f"{size(memory * 1e6)} memory"
        made = f"{decimal(pick(cost, 'images_per_s'))} images/s"
        table.add_row("wall time", duration(pick(cost, "wall_s")), _text(made, used))
    return table


def _by_constituent(summary: Mapping[str, Any]) -> Table:
    success = pick(summary, "success", "by_constituent") or {}
    r2 = pick(summary, "decodability", "by_constituent") or {}
    rho = pick(summary, "correlation", "by_constituent") or {}
    coding = pick(summary, "decodability", "coding")
    worded = f"success as worded, R² and Spearman in the {coding} coding"
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, caption=None if coding == "slot" else worded,
        caption_justify="left",
    )  # fmt: skip
    table.add_column("constituent")
    for title in ("success", "R²", "Spearman"):
        table.add_column(title, justify="right")
    table.add_column("95% interval")
    for name in dict.fromkeys([*success, *r2]):
        if name == "all":
            continue
        estimate = rho.get(name)
        table.add_row(
            Text(name), percent(success.get(name)), decimal(value_of(r2.get(name))), decimal(value_of(estimate)),
            Text(interval(estimate) or str(pick(estimate, "reason") or "")),
        )  # fmt: skip
    return table


def _bracket(data: Any, *, as_percent: bool = False) -> str:
    return f"[{interval(data, as_percent=as_percent)}]" if interval_of(data) is not None else ""


def _text(*parts: str) -> Text:
    """Parts joined; as Text, since names from a model or a family are no markup."""
    return Text(", ".join(part for part in parts if part))
