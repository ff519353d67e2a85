"""report.html of a run or a sweep: one self-contained page.

The figures lie beside it as PNG, the table of a sweep as markdown.
"""

from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from synthetic import figures
from synthetic.sweeps.presets import get
from synthetic.sweeps.table import measure_of
from t2iprobe.errors import DataError
from t2iprobe.report import style
from t2iprobe.report.tables import markdown
from t2iprobe.runs.folder import RunFolder, atomic, read_json, read_table

TABLE = "table.md"
TEMPLATES = Path(__file__).with_name("templates")


def build_report(folder: Path) -> Path:
    """Write report.html of a finished run or sweep; its path.

    Raises:
        DataError: the folder is neither, or has not finished.
    """
    run = RunFolder.existing(folder)
    if run.is_done("sweep"):
        page = _sweep_page(folder)
    elif run.is_done("train"):
        page = _run_page(folder)
    else:
        raise DataError(
            f"{folder} holds no finished synthetic run or sweep: run the command it was made with again"
        )
    path = folder / "report.html"
    with atomic(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def _run_page(folder: Path) -> str:
    summary = read_json(folder / "summary.json")
    rows = read_table(folder / "metrics.parquet")
    measure = "accuracy" if "accuracy" in summary["held_out"] else "r2_pooled"
    lines = {
        name: summary["baselines"][name]["held_out"][measure] for name in ("additive", "blind")
    }
    drawn = [_draw(folder, "learning", "Learning", figures.learning_curve(rows, lines, measure))]
    of_layers = figures.layers(summary["decodability"])
    if of_layers is not None:
        drawn.append(_draw(folder, "layers", "Decodability by layer", of_layers))
    return _render(
        "run.html.j2", summary=summary, figures=drawn, verdict=verdict(summary["composes"])
    )


def _sweep_page(folder: Path) -> str:
    summary = read_json(folder / "summary.json")
    if "preset" not in summary:
        raise DataError(f"{folder / 'summary.json'} is not that of a sweep: run its command again")
    rows = read_table(folder / "results.parquet")
    sweep = get(summary["preset"])
    done = [row for row in rows if row["status"] == "done"]
    drawn = [_draw(folder, summary["preset"], sweep.title, sweep.figure(done))]
    header, places = sweep.table(done, summary["size"])
    with atomic(folder / TABLE) as temporary:
        temporary.write_text(markdown(header, places) + "\n", encoding="utf-8")
    return _render(
        "sweep.html.j2",
        summary=summary,
        sweep=sweep,
        figures=drawn,
        header=header,
        places=places,
        columns=_columns(done),
        done=done,
        impossible=[row for row in rows if row["status"] == "impossible"],
    )


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Columns of the table on the page: the axes and the headline numbers."""
    measure = measure_of(rows)
    numbers = [
        f"test_{measure}",
        f"held_out_{measure}",
        f"additive_held_out_{measure}",
        f"blind_held_out_{measure}",
        "decodability_held_out",
        "from_input_held_out",
        "seen",
        "components",
        "unseen_modules",
        "cpu_ms_per_step",
    ]
    approximate = ["modules", "pieces", "neurons", "error_bound", "error_found"]
    return ["cell", *(name for name in [*numbers, *approximate] if rows and name in rows[0])]


def verdict(composes: dict[str, Any]) -> str:
    """One sentence on whether the student composes."""
    if composes["beats_additive"] is None:
        return f"Whether it composes cannot be told: {composes['reason']}."
    student, additive = composes["student"], composes["additive"]
    if composes["beats_additive"]:
        return f"It composes: {student:.3f} on held-out combinations, above the additive baseline's {additive:.3f}."
    return (
        f"It has not composed: {student:.3f} on held-out combinations is not above the {additive:.3f} that adding up "
        "single-module functions gives."
    )


def _draw(folder: Path, name: str, title: str, figure: Figure) -> dict[str, Any]:
    style.save_png(figure, folder / "figures" / f"{name}.png")
    return {"svg": Markup(style.svg(figure, name)), "title": title, "alt": title}  # our own drawing


def _render(template: str, **values: Any) -> str:
    shared = Path(style.__file__).with_name("templates")
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(TEMPLATES), FileSystemLoader(shared)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = _number
    return environment.get_template(template).render(codings=[], **values)


def _number(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.2g}"
    return str(value)
