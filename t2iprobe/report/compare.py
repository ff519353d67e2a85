"""Decodability against success across runs: one table, one figure, one page."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.report.compare_findings import (
    Across,
    codings_of,
    correlate_runs,
    measure_of,
    sentences,
)
from t2iprobe.report.formats import MISSING, count, decimal, p_value, percent
from t2iprobe.report.layers import ordered
from t2iprobe.report.run_points import SYNTHETIC_CODING, RunPoint, read_points
from t2iprobe.report.tables import Column, Medium, Table
from t2iprobe.stats import Estimate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

DEFAULT_OUT = Path("runs/compare")


@dataclass(frozen=True)
class Comparison:
    """What a comparison found and where it lies.

    Attributes:
        points: one per run, in the order of the table.
        across: the rank correlation over runs for each coding.
        sentences: the finding in plain words.
        files: what was written: compare.html, compare.png, compare.md, compare.csv, compare.parquet.
    """

    points: tuple[RunPoint, ...]
    across: tuple[Across, ...]
    sentences: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def table(self) -> "pd.DataFrame":
        """One row a run, as in compare.csv: success and its interval (shares), R2 of every coding, Spearman inside."""
        import pandas as pd

        return pd.DataFrame(run_table(self.points).records())

    def plot(self) -> "Figure":
        """Decodability of every coding against success, one point a run."""
        from t2iprobe.report.compare_figures import comparison_figure

        return comparison_figure(self.points, self.across)


def compare(runs: Sequence[Path], out: Path | None = None) -> Comparison:
    """Compare finished runs and write the table, the figure and the page.

    Args:
        runs: run folders, of images or synthetic. Folders of earlier comparisons among them are passed over.
        out: folder for the results; runs/compare when not given.

    Returns:
        The comparison; Spearman over runs is undefined, with a reason, below four runs.

    Raises:
        ConfigError: no run is given.
        DataError: a folder is not a run, is not finished or is given twice; or `out` is itself a run or cannot be
            written.
    """
    points = read_points(runs)
    if not points:
        raise ConfigError(
            "no run to compare: give the folders that `t2iprobe run` wrote, e.g. runs/a runs/b"
        )
    found = correlate_runs(points)
    said = sentences(points, found)
    files = _write(points, found, said, out or DEFAULT_OUT)
    return Comparison(tuple(points), tuple(found), tuple(said), tuple(files))


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print the tables, the finding and where the files are."""
    printer = console or Console()
    for table in kind_tables(comparison.points):
        printer.print(_narrow(table))
    printer.print(
        correlation_table(comparison.across).terminal(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0))
    )
    for index, sentence in enumerate(comparison.sentences):
        printer.print(Text(sentence, style="bold" if index == 0 else ""))
    for path in comparison.files:
        printer.print(Text(f"  {path}", style="dim"))


def _narrow(table: Table[RunPoint]) -> RichTable:
    """A table of runs for a terminal of 80 columns."""
    if table.rows[0].kind == "images":
        codings = ", ".join(codings_of(table.rows))
        title = f"seen: of all scenes; success; and R² of the codings {codings}"
        caption = "inside: Spearman over the run's tasks, * when its interval leaves out 0; flat: success hardly varies"
    else:
        measure = measure_of(table.rows).removeprefix("held-out ")
        title = f"seen: of all combinations; {measure} on held-out and on seen ones; decodability, last hidden layer"
        caption = "additive: whether the held-out score (R²: pooled) is above the additive baseline"
    return table.terminal(
        narrow=True, box=box.SIMPLE_HEAD, padding=0, title=title, title_justify="left", title_style="dim",
        caption=caption, caption_justify="left",
    )  # fmt: skip


def _write(points: list[RunPoint], found: list[Across], said: list[str], out: Path) -> list[Path]:
    from t2iprobe.report import style
    from t2iprobe.report.compare_figures import caption, comparison_figure
    from t2iprobe.report.page import environment, picture
    from t2iprobe.runs.folder import atomic, write_table

    if (out / "run.json").exists():
        raise DataError(f"{out} is a run folder: give another --out for the comparison")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(out, error) from error
    shown = kind_tables(points)
    over = correlation_table(found)
    every = run_table(points)
    figure = comparison_figure(points, found)
    drawing = picture(figure, "compare", said[0])
    command = ["t2iprobe", "compare", *(str(point.path) for point in points), "--out", str(out)]
    page = environment().get_template("compare.html.j2").render(
        said=said, codings=[], tables=shown, over=over, drawing=drawing, caption=caption(points),
        points=points, command=shlex.join(command),
    )  # fmt: skip
    document = "\n\n".join(
        ["# Runs compared", "\n".join(f"- {line}" for line in said), "![Decodability against success](compare.png)",
         caption(points), *(table.markdown() for table in shown), over.markdown()]
    )  # fmt: skip
    texts = {
        "compare.html": page,
        "compare.md": document + "\n",
        "compare.csv": every.csv(),
    }
    try:
        for name, text in texts.items():
            with atomic(out / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        write_table(out / "compare.parquet", every.records())
        style.save_png(figure, out / "compare.png")
    except OSError as error:
        raise _unwritable(out, error) from error
    return [
        out / name
        for name in ("compare.html", "compare.png", "compare.md", "compare.csv", "compare.parquet")
    ]


def _unwritable(out: Path, error: OSError) -> DataError:
    return DataError(f"cannot write the comparison to {out} ({error.strerror}): give another --out")


def run_table(points: Sequence[RunPoint]) -> Table[RunPoint]:
    """The runs, one a row.

    Readers get a table for each kind, since image runs and synthetic runs measure different things; files hold all.
    """
    students = all(point.kind == "synthetic" for point in points)
    measure = measure_of(points).removeprefix("held-out ")
    share = decimal if students else percent
    columns: list[Column[RunPoint]] = [
        Column("number", lambda p: p.number, count, heading="#"),
        Column("run", lambda p: p.name),
        Column("path", lambda p: str(p.path), shown=Medium.FILE),
        Column("kind", lambda p: p.kind, shown=Medium.FILE),
        Column("model", lambda p: p.model, shown=Medium.FILE),
        Column("family", lambda p: p.family, shown=Medium.FILE),
        Column("training_run", lambda p: p.training_run, shown=Medium.FILE),
        Column("training_step", lambda p: p.training_step, count, heading="step"),
        Column("sampling", lambda p: p.sampling, shown=Medium.FILE),
        Column(
            "share_possible", lambda p: p.share_possible, percent, heading="possible",
            shown=Medium.PAGE | Medium.FILE,
        ),
        Column("share_seen", lambda p: p.share_seen, percent, heading="seen"),
        Column("n_tasks", lambda p: p.n_tasks, shown=Medium.FILE),
        Column("measure", lambda p: p.measure, shown=Medium.FILE),
        Column("success", lambda p: p.success, interval=lambda p: p.success_ci, shown=Medium.FILE),
        Column("success_is_held_out", lambda p: p.held_out, shown=Medium.FILE),
        Column(
            "held_out", lambda p: p.success if p.held_out else None, share, heading=f"held-out {measure}",
            short="held out", interval=lambda p: p.success_ci if p.held_out else None, shown=Medium.READ,
        ),
        Column(
            "success_all", lambda p: p.success_all, share, heading=f"{measure} of seen" if students else "success",
            short="on seen" if students else "all", interval=lambda p: p.success_all_ci,
        ),
        Column("headline_coding", lambda p: p.headline, shown=Medium.FILE),
        *(column for coding in codings_of(points) for column in _coding_columns(coding)),
        Column("beats_additive", lambda p: p.beats_additive, _above, heading="additive baseline", short="additive"),
        Column("spearman_within", lambda p: p.spearman, interval=lambda p: p.spearman_ci, shown=Medium.FILE),
        Column("success_varies_within", lambda p: p.varies, shown=Medium.FILE),
        Column(
            "inside", lambda p: None if p.varies is False else p.spearman, decimal, heading="ρ inside the run",
            short="inside", interval=lambda p: None if p.varies is False else p.spearman_ci, note=_why_none,
            brief=_mark, shown=Medium.READ,
        ),
    ]  # fmt: skip
    return Table(columns, points, _caption(students, measure))


def _coding_columns(coding: str) -> tuple[Column[RunPoint], ...]:
    """Decodability of a coding; the ends of its interval stand in files only."""
    name = "decodability" if coding == SYNTHETIC_CODING else f"R² {coding}"
    short = name if coding == SYNTHETIC_CODING else coding

    def end(index: int) -> Callable[[RunPoint], float | None]:
        return lambda p: (p.decodability_ci.get(coding) or (None, None))[index]

    return (
        Column(f"r2_{coding}", lambda p: p.decodability.get(coding), decimal, heading=name, short=short),
        Column(f"r2_{coding}_low", end(0), shown=Medium.FILE),
        Column(f"r2_{coding}_high", end(1), shown=Medium.FILE),
    )  # fmt: skip


def _caption(students: bool, measure: str) -> str:
    if students:
        return (
            f"Of all combinations, seen: in training. {measure} on held-out combinations, and on new samples of seen "
            "ones; decodability of the modules at the last hidden layer; whether the held-out score (R²: pooled) is "
            "above the additive baseline."
        )
    return (
        "Of all scenes, possible: training could draw them; seen: it drew them. Success of held-out tasks (scenes "
        "not seen) and of all tasks; R² of each coding at the headline site; ρ: Spearman over the run's tasks. "
        "In brackets: 95% intervals over tasks."
    )


def _above(beats: bool | None) -> str:
    return MISSING if beats is None else "above" if beats else "not above"


def _why_none(point: RunPoint) -> str:
    """Why no correlation inside an image run is given."""
    if point.kind == "synthetic":
        return ""
    if point.varies is False:
        return f"success {point.variation}"
    return "not defined" if point.spearman is None else "" if point.spearman_ci else "no interval"


def _mark(point: RunPoint) -> str:
    """The correlation inside an image run on a narrow terminal."""
    if point.varies is False:
        return "flat"
    away = point.spearman_ci is not None and not point.spearman_ci[0] <= 0 <= point.spearman_ci[1]
    return decimal(point.spearman) + ("*" if away else " ")


def kind_tables(points: Sequence[RunPoint]) -> list[Table[RunPoint]]:
    """The table of each kind of run, for readers; the numbers are those of the figure."""
    kinds = ordered(point.kind for point in points)
    return [run_table([point for point in points if point.kind == kind]) for kind in kinds]


def correlation_table(across: Sequence[Across]) -> Table[Across]:
    """The rank correlations over runs, one coding a row."""
    columns: list[Column[Across]] = [
        Column("coding", lambda a: a.coding if a.kind == "images" else f"{a.coding} (synthetic)"),
        Column("Spearman over runs", lambda a: a.estimate.value, decimal, interval=lambda a: a.estimate.ci),
        Column("p", lambda a: _p(a.estimate), str),
        Column("runs", lambda a: a.estimate.n, count),
        Column("note", lambda a: a.estimate.reason),
    ]  # fmt: skip
    return Table(
        columns, across, "Rank correlation of decodability and success, the unit is the run"
    )


def _p(estimate: Estimate) -> str:
    if estimate.p is None:
        return MISSING
    return p_value(estimate.p, estimate.p_floor).removeprefix("p ").removeprefix("= ")
