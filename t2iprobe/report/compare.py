"""Decodability against success across runs: one table, one figure, one page."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.report import across_tables as tables
from t2iprobe.report.compare_findings import Across, correlate_runs, sentences
from t2iprobe.report.run_points import RunPoint, read_points

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
    for table in tables.terminal_tables(comparison.points):
        printer.print(table)
    printer.print(tables.terminal_correlations(comparison.across))
    for index, sentence in enumerate(comparison.sentences):
        printer.print(Text(sentence, style="bold" if index == 0 else ""))
    for path in comparison.files:
        printer.print(Text(f"  {path}", style="dim"))


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
    shown = tables.kind_tables(points)
    over_header, over = tables.correlation_cells(found)
    figure = comparison_figure(points, found)
    drawing = picture(figure, "compare", said[0])
    command = ["t2iprobe", "compare", *(str(point.path) for point in points), "--out", str(out)]
    page = environment().get_template("compare.html.j2").render(
        said=said, tables=shown, over_header=over_header, over=over, drawing=drawing, caption=caption(points),
        points=points, command=shlex.join(command),
    )  # fmt: skip
    document = "\n\n".join(
        ["# Runs compared", "\n".join(f"- {line}" for line in said), "![Decodability against success](compare.png)",
         caption(points), *(f"{table.caption}\n\n{tables.markdown(table.header, table.rows)}" for table in shown),
         tables.markdown(over_header, over)]
    )  # fmt: skip
    texts = {
        "compare.html": page,
        "compare.md": document + "\n",
        "compare.csv": tables.csv_text(points),
    }
    try:
        for name, text in texts.items():
            with atomic(out / name) as temporary:
                temporary.write_text(text, encoding="utf-8")
        write_table(out / "compare.parquet", tables.records(points))
        style.save_png(figure, out / "compare.png")
    except OSError as error:
        raise _unwritable(out, error) from error
    return [
        out / name
        for name in ("compare.html", "compare.png", "compare.md", "compare.csv", "compare.parquet")
    ]


def _unwritable(out: Path, error: OSError) -> DataError:
    return DataError(f"cannot write the comparison to {out} ({error.strerror}): give another --out")
