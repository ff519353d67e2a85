"""The table of a comparison: as rows for csv and parquet, as markdown, and for the terminal."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from t2iprobe.report.across import Across, codings_of, ends
from t2iprobe.report.formats import count, decimal, interval, p_value, percent
from t2iprobe.report.points import RunPoint


def records(points: Sequence[RunPoint]) -> list[dict[str, Any]]:
    """One flat row per run, every number unrounded; missing ones None."""
    codings = codings_of(points)
    return [
        {
            "number": number,
            "run": point.name,
            "path": str(point.path),
            "kind": point.kind,
            "model": point.model,
            "family": point.family,
            "training_run": point.training_run,
            "training_step": point.training_step,
            "sampling": point.sampling,
            "share_seen": point.share_seen,
            "n_tasks": point.n_tasks,
            "success": point.success,
            "success_is_held_out": point.held_out,
            "success_all": point.success_all,
            "success_all_low": point.success_ci[0] if point.success_ci else None,
            "success_all_high": point.success_ci[1] if point.success_ci else None,
            "headline_coding": point.headline,
            **{f"r2_{coding}": point.decodability.get(coding) for coding in codings},
            "r2_headline_low": point.headline_ci[0] if point.headline_ci else None,
            "r2_headline_high": point.headline_ci[1] if point.headline_ci else None,
            "spearman_within": point.spearman,
            "spearman_within_low": point.spearman_ci[0] if point.spearman_ci else None,
            "spearman_within_high": point.spearman_ci[1] if point.spearman_ci else None,
            "success_varies_within": point.varies,
        }
        for number, point in enumerate(points, start=1)
    ]


def csv_text(points: Sequence[RunPoint]) -> str:
    """The rows as comma-separated values; a missing number is an empty field."""
    rows = records(points)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def cells(points: Sequence[RunPoint]) -> tuple[list[str], list[list[str]]]:
    """Header and rounded cells of the table for readers; columns that no run fills are left out."""
    codings = codings_of(points)
    columns: list[tuple[str, list[str]]] = [
        ("#", [str(number) for number in range(1, len(points) + 1)]),
        ("run", [point.name for point in points]),
    ]
    if any(point.training_step is not None for point in points):
        columns.append(("step", [count(point.training_step) for point in points]))
    if any(point.share_seen is not None for point in points):
        columns.append(("seen", [percent(point.share_seen) for point in points]))
    columns.append(("held-out success (all)", [ends(point) for point in points]))
    columns += [
        (f"R² {coding}", [decimal(point.decodability.get(coding)) for point in points])
        for coding in codings
    ]
    columns.append(("inside the run", [inside(point) for point in points]))
    header = [title for title, _ in columns]
    return header, [list(row) for row in zip(*(column for _, column in columns), strict=True)]


def inside(point: RunPoint) -> str:
    """The correlation inside one run, or why there is none worth giving."""
    if point.kind == "synthetic":
        return point.variation
    if point.varies is False:
        return f"success {point.variation}"
    if point.spearman is None:
        return "not defined"
    bounds = interval(point.spearman_ci) if point.spearman_ci else "no interval"
    return f"ρ {decimal(point.spearman)} ({bounds})"


def correlation_cells(across: Sequence[Across]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the rank correlations over runs."""
    header = ["coding", "Spearman over runs", "95% interval", "p", "runs", "note"]
    rows = []
    for item in across:
        estimate = item.estimate
        name = item.coding if item.kind == "images" else f"{item.coding} (synthetic)"
        p = (
            "–"
            if estimate.p is None
            else p_value(estimate.p, estimate.p_floor).removeprefix("p ").removeprefix("= ")
        )
        rows.append(
            [
                name,
                decimal(estimate.value),
                interval(estimate.ci) or "–",
                p,
                str(estimate.n),
                estimate.reason,
            ]
        )
    return header, rows


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table; pipes and line breaks in names cannot break it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_safe(cell) for cell in line) + " |" for line in lines)


def terminal_table(points: Sequence[RunPoint]) -> Table:
    """The table for a terminal of 80 columns: short titles, the correlation inside a run without its interval."""
    codings = codings_of(points)
    table = Table(
        box=box.SIMPLE_HEAD, padding=0, pad_edge=False,
        title=f"success, and R² of the codings {', '.join(codings)}", title_justify="left", title_style="dim",
        caption="inside: Spearman over the run's tasks, * when its interval leaves out 0; flat: success hardly varies",
        caption_justify="left",
    )  # fmt: skip
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("run", overflow="fold")
    for title in ("step", "seen", "held out", "all", *codings, "inside"):
        table.add_column(title, justify="right", no_wrap=True)
    for number, point in enumerate(points, start=1):
        success = (point.success if point.held_out else None, point.success_all)
        shown = [
            decimal(value) if point.kind == "synthetic" else percent(value) for value in success
        ]
        r2 = [decimal(point.decodability.get(coding)) for coding in codings]
        table.add_row(
            str(number),
            Text(point.name),
            count(point.training_step),
            percent(point.share_seen),
            *shown,
            *r2,
            _mark(point),
        )
    return table


def terminal_correlations(across: Sequence[Across]) -> Table:
    """The rank correlations over runs for the terminal."""
    header, rows = correlation_cells(across)
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), pad_edge=False)
    for title in header:
        table.add_column(title)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _mark(point: RunPoint) -> str:
    if point.varies is False:
        return "flat"
    away = point.spearman_ci is not None and not point.spearman_ci[0] <= 0 <= point.spearman_ci[1]
    return decimal(point.spearman) + ("*" if away else " ")


def _safe(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
