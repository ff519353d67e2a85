"""The tables of a comparison: as rows for csv and parquet, as markdown, and for the terminal.

Image runs and synthetic runs measure different things, so that each kind has a table of its own.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from t2iprobe.report.compare_findings import Across, codings_of, measure_of
from t2iprobe.report.formats import MISSING, count, decimal, interval, p_value, percent
from t2iprobe.report.layers import ordered
from t2iprobe.report.run_points import BEATS, SYNTHETIC_CODING, Bounds, Kind, RunPoint


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
            "share_possible": point.share_possible,
            "share_seen": point.share_seen,
            "n_tasks": point.n_tasks,
            "measure": point.measure,
            "success": point.success,
            **_ends("success", point.success_ci),
            "success_is_held_out": point.held_out,
            "success_all": point.success_all,
            **_ends("success_all", point.success_all_ci),
            "headline_coding": point.headline,
            **{f"r2_{coding}": point.decodability.get(coding) for coding in codings},
            **{
                name: end
                for coding in codings
                for name, end in _ends(f"r2_{coding}", point.decodability_ci.get(coding)).items()
            },
            "spearman_within": point.spearman,
            **_ends("spearman_within", point.spearman_ci),
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


@dataclass(frozen=True)
class KindTable:
    """The runs of one kind, for readers.

    Attributes:
        caption: what the columns are.
        header, rows: titles and rounded cells; columns that no run fills are left out.
    """

    kind: Kind
    caption: str
    header: list[str]
    rows: list[list[str]]


Column = tuple[str, Callable[[RunPoint], str]]


def kind_tables(points: Sequence[RunPoint]) -> list[KindTable]:
    """One table for each kind of run; the numbers are those of the figure."""
    numbered = list(enumerate(points, start=1))
    found = []
    for kind in ordered(point.kind for point in points):
        mine = [(number, point) for number, point in numbered if point.kind == kind]
        kept = [point for _, point in mine]
        caption, columns = (_of_images if kind == "images" else _of_students)(kept)
        every = [(title, [cell(point) for point in kept]) for title, cell in columns]
        filled = [(title, cells) for title, cells in every if set(cells) != {MISSING}]
        header = ["#", *(title for title, _ in filled)]
        rows = zip(
            (str(number) for number, _ in mine), *(cells for _, cells in filled), strict=True
        )
        found.append(KindTable(kind, caption, header, [list(row) for row in rows]))
    return found


def _of_images(points: Sequence[RunPoint]) -> tuple[str, list[Column]]:
    caption = (
        "Of all scenes, possible: training could draw them; seen: it drew them. Success of held-out tasks (scenes "
        "not seen) and of all tasks; R² of each coding at the headline site; ρ: Spearman over the run's tasks. "
        "In brackets: 95% intervals over tasks."
    )
    return caption, [
        ("run", lambda point: point.name),
        ("step", lambda point: count(point.training_step)),
        ("possible", lambda point: percent(point.share_possible)),
        ("seen", lambda point: percent(point.share_seen)),
        ("held-out success", _held_out),
        ("success", lambda point: _with(percent(point.success_all), point.success_all_ci, True)),
        *_r2(points, "R² {}"),
        ("inside the run", inside),
    ]


def _of_students(points: Sequence[RunPoint]) -> tuple[str, list[Column]]:
    measure = measure_of(points).removeprefix("held-out ")
    caption = (
        f"Of all combinations, seen: in training. {measure} on held-out combinations, and on new samples of seen ones; "
        "decodability of the modules at the last hidden layer."
    )
    return caption, [
        ("run", lambda point: point.name),
        ("step", lambda point: count(point.training_step)),
        ("seen", lambda point: percent(point.share_seen)),
        (f"held-out {measure}", lambda point: decimal(point.success if point.held_out else None)),
        (f"{measure} of seen", lambda point: decimal(point.success_all)),
        *_r2(points, "decodability"),
        ("held out", lambda point: point.variation),
    ]


def _r2(points: Sequence[RunPoint], title: str) -> list[Column]:
    def column(coding: str) -> Column:
        return title.format(coding), lambda point: decimal(point.decodability.get(coding))

    return [column(coding) for coding in codings_of(points)]


def _held_out(point: RunPoint) -> str:
    return _with(percent(point.success), point.success_ci, True) if point.held_out else MISSING


def _with(value: str, bounds: Bounds, as_percent: bool = False) -> str:
    shown = interval(bounds, as_percent=as_percent)
    return f"{value} ({shown})" if shown else value


def _ends(name: str, bounds: Bounds) -> dict[str, float | None]:
    low, high = bounds or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def inside(point: RunPoint) -> str:
    """The correlation inside an image run, or why there is none worth giving."""
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


def terminal_tables(points: Sequence[RunPoint]) -> list[Table]:
    """The tables for a terminal of 80 columns: short titles, no intervals."""
    numbered = list(enumerate(points, start=1))
    return [
        (_image_table if kind == "images" else _student_table)(
            [(number, point) for number, point in numbered if point.kind == kind]
        )
        for kind in ordered(point.kind for point in points)
    ]


def _image_table(runs: Sequence[tuple[int, RunPoint]]) -> Table:
    codings = codings_of([point for _, point in runs])
    table = _terminal(
        f"seen: of all scenes; success; and R² of the codings {', '.join(codings)}",
        "inside: Spearman over the run's tasks, * when its interval leaves out 0; flat: success hardly varies",
        ["step", "seen", "held out", "all", *codings, "inside"],
    )
    for number, point in runs:
        table.add_row(
            str(number), Text(point.name), count(point.training_step), percent(point.share_seen),
            percent(point.success if point.held_out else None), percent(point.success_all),
            *(decimal(point.decodability.get(coding)) for coding in codings), _mark(point),
        )  # fmt: skip
    return table


def _student_table(runs: Sequence[tuple[int, RunPoint]]) -> Table:
    measure = measure_of([point for _, point in runs]).removeprefix("held-out ")
    table = _terminal(
        f"seen: of all combinations; {measure} on held-out and on seen ones; decodability, last hidden layer",
        "additive: whether the held-out score (R²: pooled) passes the additive baseline",
        ["seen", "held out", "on seen", "decodability", "additive"],
    )
    for number, point in runs:
        passes = {name: word for word, name in (("passes", BEATS[True]), ("below", BEATS[False]))}
        table.add_row(
            str(number), Text(point.name), percent(point.share_seen),
            decimal(point.success if point.held_out else None), decimal(point.success_all),
            decimal(point.decodability.get(SYNTHETIC_CODING)), passes.get(point.variation, MISSING),
        )  # fmt: skip
    return table


def _terminal(title: str, caption: str, columns: Sequence[str]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, padding=0, pad_edge=False, title=title, title_justify="left", title_style="dim",
        caption=caption, caption_justify="left",
    )  # fmt: skip
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("run", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
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
