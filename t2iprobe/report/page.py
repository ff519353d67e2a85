"""Puts the one-file HTML page together: tables and figures in, `report.html` and `figures/*.png` out."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from t2iprobe.report import figures, formats, gallery, layers, style, summary
from t2iprobe.report.finding import find, success_varies
from t2iprobe.report.reading import RunData, TaskPoint, read_run
from t2iprobe.report.tables import Column, Table
from t2iprobe.runs.folder import atomic
from t2iprobe.runs.records import OUTCOMES, Correlation
from t2iprobe.stats import Estimate

TERMS = {
    "task family": "a prompt template with slots, and the values each slot can take.",
    "constituent": "one slot of the family, such as color1 or relation.",
    "task": "one choice of a value for every constituent; it makes one prompt.",
    "scene": "what the picture should show; differently worded tasks that show the same share one scene.",
    "site": "a place inside the model where activations are read: component, module and stream (image or text).",
    "step": "index into the denoising schedule; 0 is the first step, from pure noise.",
    "coding": "how a task becomes the probe's target: slot (each constituent as worded), scene (as it should look), "
    "presence (which values occur), binding (which values belong together).",
    "decodability": "held-out R² of a linear probe that predicts the coding from a site's pooled activation; "
    "1 is perfect, 0 is no better than the mean, below 0 is worse.",
    "held-out R²": "measured on combinations of values, and scenes, that the probe was not fitted on.",
    "headline site": "the image-stream site and step chosen on one half of the folds; the value is from the other.",
    "success": "share of a task's images in which the scorer finds every constituent right.",
    "wrong": "clean objects, but another value than asked: a failure to compose.",
    "malformed": "not the right number of clean objects: it says little about composition.",
    "unscored": "no scorer could judge the image (NaN, black frame, broken judge): counted, never taken as a failure.",
    "seen / held out": "whether the model's training showed the task's scene, as its model card says.",
    "shuffled labels": "the same probe fitted on permuted targets: what a probe of this size finds in nothing.",
    "bag of words": "the same probe fitted on which words the prompt has: what the wording gives for free.",
    "Spearman": "rank correlation over tasks, from −1 to 1, with a bootstrap interval and a permutation p, by task.",
}
"""What every word of the page means."""

FILES = {
    "run.json": "settings, versions, model and the state of every stage",
    "tasks.jsonl": "every task with its prompt, values and fold",
    "scores.parquet": "every image with its outcome, reason and constituents",
    "probes.parquet": "every probe: site, step, coding, constituent, R² and controls",
    "headline.json": "the headline site as each half of the folds chose it, and the bag of words by coding",
    "decodability.parquet": "every task's decodability at the headline site, by coding and constituent",
    "correlation.json": "every correlation with its interval, p, n and method",
    "summary.json": "the numbers of this page's first screen",
    "report.md": "the finding and those numbers as text",
    "report.csv": "the table of constituents, unrounded",
}
"""What the files of a run folder hold."""


def build_page(run_folder: Path) -> Path:
    """Write `report.html`, `report.md`, `report.csv` and the figures of a run folder; equal data, equal bytes.

    Raises:
        DataError: the folder is not a run folder, or a table is missing or malformed.
    """
    run = read_run(run_folder)
    _write(run_folder / "report.md", summary.document(run.summary, run.correlation))
    _write(run_folder / "report.csv", summary.part_table(run.summary).csv())
    path = run_folder / "report.html"
    _write(path, render(run, run_folder / "figures"))
    return path


def _write(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render(run: RunData, png_folder: Path) -> str:
    """The page as text; PNGs of its figures go to `png_folder`."""
    at = layers.headline(run)
    rows = run.task_points(at.coding)
    worst, best = gallery.choose(rows)
    model = run.run.model or {}

    def shown(chosen: list[TaskPoint]) -> list[gallery.Exhibit]:
        return [gallery.exhibit(run, row) for row in chosen]

    return environment().get_template("report.html.j2").render(
        run=run.run,
        folder=run.folder,
        summary=run.summary,
        at=at,
        finding=find(run.summary, run.correlation),
        outcomes=_outcomes(run),
        numbers={number.name: number for number in summary.numbers(run.summary)},
        success_table=summary.success_table(run.summary),
        part_table=summary.part_table(run.summary),
        coding_table=summary.coding_table(run.summary),
        varies=success_varies(run.summary),
        codings=_codings(run, at, png_folder),
        stops=figures.scale_stops(),
        text=_text(run, at, png_folder),
        link=_link(run, rows, png_folder),
        frequency=_frequency(run, rows, png_folder),
        galleries=[
            ("Worst", "lowest success first; equal ones by lowest decodability", shown(worst)),
            ("Best", "highest success first; equal ones by highest decodability", shown(best)),
        ],
        settings=_flat(run.run.settings) + _flat(model.get("schedulers")),
        model=_model(model),
        card=_flat(model.get("card"), longest=400),
        terms=TERMS,
        files={name: text for name, text in FILES.items() if (run.folder / name).is_file()},
    )  # fmt: skip


def environment() -> Environment:
    """The template environment: everything is escaped, since prompts and names are foreign text."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "model_name": formats.model_name,
        "decimal": formats.decimal,
        "percent": formats.percent,
        "interval": formats.interval,
        "p_value": formats.p_value,
        "count": formats.count,
        "duration": formats.duration,
        "size": formats.size,
        "width": _width,
    }
    return made


def picture(figure: Figure, name: str, alt: str, png_folder: Path | None = None) -> dict[str, Any]:
    """What the template needs to inline a figure; with `png_folder` its PNG is written as well."""
    if png_folder is not None:
        style.save_png(figure, png_folder / f"{name}.png")
    return {
        "svg": Markup(style.svg(figure, name)),
        "alt": alt,
        "name": name,
    }  # our own drawing, text escaped by it


def _outcomes(run: RunData) -> list[dict[str, Any]]:
    counts = run.summary.success.outcomes
    total = sum(counts.values())
    return [
        {"name": name, "n": counts.get(name, 0), "share": counts.get(name, 0) / total}
        for name in OUTCOMES
        if total
    ]


def _codings(run: RunData, at: layers.Headline, png_folder: Path) -> list[dict[str, Any]]:
    shown = []
    for coding in layers.codings(run, at.coding):
        found = (
            layers.heat_grid(run, coding, name, at) for name in layers.constituents(run, coding)
        )
        grids = [grid for grid in found if grid is not None]
        if not grids:
            continue
        sheet = figures.heat_sheet(
            grids,
            f"{coding.capitalize()} coding, image stream, {at.pooling} pooling, n = {len(run.tasks)} tasks\n"
            "R² of 0 and below share one colour",
        )
        style.save_png(sheet, png_folder / f"heat-{coding}.png")
        panels = []
        for index, grid in enumerate(grids):
            panel = picture(figures.heat_panel(grid), f"heat-{coding}-{index}", _heat_alt(grid))
            panels.append({**panel, "constituent": grid.constituent, "grid": grid})
        shown.append(
            {
                "name": coding,
                "panels": panels,
                "table": heat_table(grids),
                "headline": coding == at.coding,
            }
        )
    return shown


HeatRow = tuple[str, str, tuple[float | None, ...]]


def heat_table(grids: Sequence[layers.HeatGrid]) -> Table[HeatRow]:
    """The values of one coding's heat maps: a row for each constituent and site, a column for each step."""

    def at_step(index: int, step: int) -> Column[HeatRow]:
        t = grids[0].timesteps.get(step)
        time = "" if t is None else f" (t = {formats.decimal(t, 0)})"
        return Column(f"step {step}{time}", lambda row: row[2][index], formats.decimal)

    columns: list[Column[HeatRow]] = [
        Column("constituent", lambda row: row[0]),
        Column("site", lambda row: row[1]),
        *(at_step(index, step) for index, step in enumerate(grids[0].steps)),
    ]
    rows = [
        (grid.constituent, site, values)
        for grid in grids
        for site, values in zip(grid.sites, grid.values, strict=True)
    ]
    return Table(columns, rows, f"R² by constituent, site and step ({grids[0].coding} coding)")


def _heat_alt(grid: layers.HeatGrid) -> str:
    cells = [
        (value, site, step)
        for site, row in zip(grid.sites, grid.values, strict=True)
        for step, value in zip(grid.steps, row, strict=True)
        if value is not None
    ]
    shape = f"{len(grid.sites)} sites by {len(grid.steps)} steps"
    what = f"Heat map of R² for {grid.constituent}, {grid.coding} coding: {shape}"
    if not cells:
        return f"{what}; no value is defined."
    value, site, step = max(cells, key=lambda cell: cell[0])
    return f"{what}; highest {formats.decimal(value)} at {site}, step {step}. The values are in the table below."


def _text(run: RunData, at: layers.Headline, png_folder: Path) -> list[dict[str, Any]]:
    controls = run.summary.decodability.controls
    baselines = {
        "bag of words": controls.bag_of_words,
        "shuffled labels": controls.shuffled_labels,
    }
    lines = layers.text_lines(run, at)
    encoders = [line for line in lines if line.step is None]
    streams = [line for line in lines if line.step is not None]
    image = layers.image_line(run, at)
    shown = []
    for name, title, members, label in (
        ("text-encoders", f"Text encoders, {len(run.tasks)} tasks", encoders, figures.ENCODER_AXIS),
        (
            "streams",
            f"Denoiser, step {at.step}, {len(run.tasks)} tasks",
            ([image] if image else []) + streams,
            figures.DENOISER_AXIS,
        ),
    ):
        if not members:
            continue
        figure = figures.layers_figure(members, baselines, label, run.running_order)
        best = {
            f"{m.name} {m.pooling}": max((v for v in m.values if v is not None), default=None)
            for m in members
        }
        alt = f"R² of the {at.coding} coding over layers. Highest: " + ", ".join(
            f"{line} {formats.decimal(value)}" for line, value in best.items()
        )
        shown.append({**picture(figure, name, alt, png_folder), "title": title})
    return shown


def _link(run: RunData, rows: list[TaskPoint], png_folder: Path) -> list[dict[str, Any]]:
    shown = []
    figure = figures.scatter_figure(rows)
    if figure is not None:
        alt = f"Scatter of decodability (across) and success (up) of {len(rows)} tasks, with group means and intervals."
        shown.append(
            {**picture(figure, "scatter", alt, png_folder), "title": "Each point is one task"}
        )
    estimates = correlations(run.correlation)
    alt = "Spearman correlations: " + ", ".join(
        f"{name} {formats.decimal(estimate.value)}" for name, estimate in estimates.items()
    )
    forest = picture(figures.forest_figure(estimates), "correlations", alt, png_folder)
    shown.append({**forest, "title": "Correlation, overall and by group (n tasks)"})
    return shown


def correlations(correlation: Correlation) -> dict[str, Estimate]:
    """Every correlation over tasks by its name: overall, strata, clean images, parts, codings."""
    strata = sorted((correlation.strata or {}).items(), key=lambda item: item[0] != "seen")
    return {
        "all tasks": correlation.overall,
        **({"within seen and held out": correlation.within} if correlation.within else {}),
        **{f"only {name.replace('_', ' ')}": estimate for name, estimate in strata},
        "only clean images": correlation.among_clean,
        **{name: part for name, part in correlation.by_constituent.items() if name != "all"},
        **{
            f"{name} coding": estimate
            for name, estimate in correlation.by_coding.items()
            if name != correlation.coding
        },
    }


def _frequency(run: RunData, rows: list[TaskPoint], png_folder: Path) -> dict[str, Any]:
    data = run.summary.frequency
    bins = data.bins or []
    shown = []
    measures: tuple[tuple[Literal["success", "decodability"], str], ...] = (
        ("success", "success"),
        ("decodability", "decodability at the headline site"),
    )
    for measure, label in measures:
        figure = figures.frequency_figure(bins, rows, measure, label)
        if figure is not None:
            values = ", ".join(
                f"{formats.seen_range(b.seen_low, b.seen_high)}: {formats.decimal(getattr(b, measure))}"
                for b in bins
            )
            alt = f"{label} by how often training showed the scene. {values}"
            shown.append(
                {
                    **picture(figure, f"frequency-{measure}", alt, png_folder),
                    "title": f"{label.capitalize()}, with 95% intervals",
                }
            )
    reason = (
        data.reason or "the model has no card that says how often each scene was seen in training"
    )
    return {"figures": shown, "reason": reason, "rho": data.success}


def _model(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What run.json says of the model; of schedulers only the class, the rest stands under the settings."""
    schedulers = model.get("schedulers") or {}
    named = {name: scheduler["class"] for name, scheduler in schedulers.items()}
    return _flat(
        {key: value for key, value in model.items() if key not in ("card", "schedulers")} | named
    )


def _flat(data: object, prefix: str = "", longest: int = 2000) -> list[tuple[str, str]]:
    """Nested settings as (dotted name, text) pairs, long values cut."""
    if isinstance(data, Mapping):
        pairs: list[tuple[str, str]] = []
        for key, value in data.items():
            pairs += _flat(value, f"{prefix}.{key}" if prefix else str(key), longest)
        return pairs
    if not prefix:
        return []
    text = _joined(data)
    return [
        (prefix, text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)")
    ]


def _joined(data: object) -> str:
    if data is None:
        return "not set"
    if isinstance(data, Iterable) and not isinstance(data, str):
        return ", ".join(_joined(item) for item in data)
    return str(data)


def _width(share: float | None) -> str:
    """A bar's width in percent, within 0 and 100."""
    return f"{100 * min(1.0, max(0.0, formats.known(share) or 0.0)):.1f}%"
