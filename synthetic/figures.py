"""Figures of runs and sweeps: every one carries the additive and the blind line."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from synthetic.settings import PROBLEM_FREE
from synthetic.sweeps.table import MEASURE_NAMES, measure_of, tasks_needed
from t2iprobe.report.style import BLUE, GREEN, INK, MARKERS, MUTED, ORANGE, SERIES, styled

Rows = Sequence[dict[str, Any]]


@styled
def learning_curve(rows: Rows, baselines: dict[str, float | None], measure: str) -> Figure:
    """Test and held-out score by step, with the two baselines of the held-out set.

    Args:
        rows: the rows of metrics.parquet.
        baselines: "additive" and "blind", on held-out tasks.
        measure: the column drawn.
    """
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for split, color, marker in (("test", BLUE, "o"), ("held_out", ORANGE, "s")):
        part = [
            (row["step"], row[measure])
            for row in rows
            if row["split"] == split and row[measure] is not None
        ]
        if part:
            axes.plot(
                *zip(*part, strict=True),
                color=color,
                marker=marker,
                ms=3.5,
                lw=1.4,
                label=split.replace("_", " "),
            )
    _lines(axes, baselines)
    values = [row[measure] for row in rows if row[measure] is not None]
    _limits(axes, [*values, *baselines.values()])
    axes.set_xlabel("step")
    axes.set_ylabel(MEASURE_NAMES[measure])
    axes.legend(loc="best")
    axes.grid(axis="y")
    return figure


@styled
def layers(decodability: dict[str, dict[str, Any]]) -> Figure | None:
    """Decodability of each layer on test and held-out tasks, beside what the encoding gives; None without probes."""
    names = [name for name in decodability if decodability[name].get("held_out") is not None]
    if not names:
        return None
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    places = range(len(names))
    for split, color, marker in (("test", BLUE, "o"), ("held_out", ORANGE, "s")):
        values = [decodability[name][split] for name in names]
        axes.plot(
            places, values, color=color, marker=marker, ms=4, lw=1.4, label=split.replace("_", " ")
        )
    from_input = decodability[names[0]]["from_input"]["held_out"]
    if from_input is not None:
        axes.axhline(from_input, color=GREEN, lw=1, ls=":", label="from the encoding alone")
    _limits(axes, [decodability[n][s] for n in names for s in ("test", "held_out")])
    axes.set_xticks(places, names, rotation=30, ha="right")
    axes.set_ylabel("decodability (R²)")
    axes.legend(loc="best")
    axes.grid(axis="y")
    return figure


@styled
def sweep_figure(rows: Rows, x: str, line: str, log_x: bool, law: bool) -> Figure:
    """Scores along an axis; beside it decodability against held-out score, or the combinations needed.

    Args:
        rows: finished rows of results.parquet.
        x: the column drawn horizontally: numbers as curves, anything else as one column for each value.
        line: the column that makes separate lines; empty for one.
        log_x: whether numbers are on a logarithmic scale.
        law: draw the combinations that each value of `line` needs.
    """
    figure = Figure(figsize=(10.4, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    measure = measure_of(rows)
    if all(_is_number(row[x]) for row in rows):
        _curves(left, rows, measure, x, line, log_x)
    else:
        _categories(left, rows, measure, x, line)
    left.set_ylabel(MEASURE_NAMES[measure])
    left.grid(axis="y")
    if law:
        _needed(right, tasks_needed(rows, line, measure), line)
    else:
        _scatter(right, rows, measure, line or x)
    return figure


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _needed(axes: Axes, needed: dict[Any, float | None], line: str) -> None:
    """Combinations needed by value of the line axis; what was never enough is left out and said."""
    enough = {value: count for value, count in needed.items() if count is not None}
    if not enough:
        axes.text(0.5, 0.5, "no number of tasks that was tried is enough", ha="center", wrap=True)
        axes.set_axis_off()
        return
    places = list(enough) if all(map(_is_number, enough)) else [str(value) for value in enough]
    axes.plot(places, list(enough.values()), color=BLUE, marker="o", ms=5, lw=1.3)
    missing = [str(value) for value, count in needed.items() if count is None]
    axes.set_title(f"never enough: {_axis(line)} {', '.join(missing)}" if missing else "")
    axes.set_xlabel(_axis(line))
    axes.set_ylabel("combinations needed to pass the additive baseline")
    axes.grid(axis="y")


def _categories(axes: Axes, rows: Rows, measure: str, x: str, line: str) -> None:
    """One column per category: every seed a mark, with short lines for the baselines of the category."""
    columns: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        columns[f"{row[x]}\n{_axis(line)} {row[line]}" if line else str(row[x])].append(row)
    for place, part in enumerate(columns.values()):
        first = place == 0
        for split, color, marker, shift in (
            ("test", BLUE, "o", -0.15),
            ("held_out", ORANGE, "s", 0.15),
        ):
            values = [row[f"{split}_{measure}"] for row in part]
            label = split.replace("_", " ") if first else None
            axes.plot(
                [place + shift] * len(values),
                values,
                color=color,
                marker=marker,
                ms=5,
                ls="",
                label=label,
                mfc="none",
            )
        for baseline, style in (("additive", "-"), ("blind", ":")):
            value = _mean([row[f"{baseline}_held_out_{measure}"] for row in part])
            if value is not None:
                label = f"{baseline} (held out)" if first else None
                axes.plot(
                    [place - 0.35, place + 0.35],
                    [value, value],
                    color=INK,
                    ls=style,
                    lw=1.2,
                    label=label,
                )
    _limits(
        axes,
        [
            row[f"{s}_{measure}"]
            for row in rows
            for s in ("test", "held_out", "blind_held_out", "additive_held_out")
        ],
    )
    axes.set_xticks(range(len(columns)), list(columns), rotation=25, ha="right")
    axes.legend(loc="best")


def _curves(axes: Axes, rows: Rows, measure: str, x: str, line: str, log_x: bool) -> None:
    """Mean over seeds along a numeric axis with the range of the seeds, a pair of lines per value of the line axis.

    Lines whose students are asked the same share the lines of the baselines; others have their own.
    """
    # An encoding changes what a student is told, not what it is asked.
    shared = not line or line == "encoding" or line in PROBLEM_FREE
    by_line: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_line[row[line] if line else ""].append(row)
    for number, (name, part) in enumerate(by_line.items()):
        color, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
        for split, style, fill in (("held_out", "-", color), ("test", "--", "none")):
            points = _averaged(part, x, f"{split}_{measure}")
            for place, scores in _by(part, x, f"{split}_{measure}").items():
                axes.vlines(place, min(scores), max(scores), color=color, lw=1)
            label = f"{_axis(line)} {name}" if line and split == "held_out" else None
            axes.plot(
                *points, color=color, marker=marker, ms=4, ls=style, lw=1.3, mfc=fill, label=label
            )
        if not shared:
            _baselines(axes, x, part, measure, color, labelled=number == 0)
    if shared:
        _baselines(axes, x, rows, measure, MUTED, labelled=True)
    _limits(
        axes,
        [
            row[f"{s}_{measure}"]
            for row in rows
            for s in ("test", "held_out", "additive_held_out", "blind_held_out")
        ],
    )
    if log_x:
        axes.set_xscale("log")
        values = sorted({row[x] for row in rows})
        if len(values) <= 8:
            axes.set_xticks(values, [str(value) for value in values])
            axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("combinations seen in training" if x == "seen" else x)
    n_seeds = len({row["seed"] for row in rows})
    seeds = f"mean of {n_seeds} seeds, bars from least to most" if n_seeds > 1 else "one seed"
    axes.legend(loc="best", title=f"{seeds}\nsolid: held out, dashed: test", alignment="left")


def _baselines(axes: Axes, x: str, rows: Rows, measure: str, color: str, labelled: bool) -> None:
    for baseline, style in (("additive", "-."), ("blind", ":")):
        label = f"{baseline} baseline (held out)" if labelled else None
        points = _averaged(rows, x, f"{baseline}_held_out_{measure}")
        axes.plot(*points, color=color, ls=style, lw=1.1, label=label)


def _scatter(axes: Axes, rows: Rows, measure: str, by: str) -> None:
    """Decodability of the compared layer on held-out tasks against the held-out score, one mark per student."""
    names = list(dict.fromkeys(row.get(by) for row in rows))
    points = []
    for number, name in enumerate(names):
        part = [
            (row["decodability_held_out"], row[f"held_out_{measure}"])
            for row in rows
            if row.get(by) == name
            and row["decodability_held_out"] is not None
            and row[f"held_out_{measure}"] is not None
        ]
        points += part
        if part:
            color, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
            axes.plot(
                *zip(*part, strict=True),
                color=color,
                marker=marker,
                ms=4.5,
                ls="",
                mfc="none",
                label=str(name),
            )
    if points:
        _limits(axes, [y for _, y in points])
        axes.set_xlim(left=max(-0.6, min(x for x, _ in points) - 0.05))
    axes.set_xlabel("decodability on held-out tasks (R²)")
    axes.set_ylabel(f"held-out {MEASURE_NAMES[measure]}")
    axes.set_title(f"{len(points)} students", fontweight="normal", fontsize=8.6)
    if 1 < len(names) <= 8:
        axes.legend(loc="best", fontsize=7)


@styled
def approximation_figure(rows: Rows) -> Figure:
    """Error against pieces (slope -2) and neurons against error, by number of modules."""
    figure = Figure(figsize=(10.4, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, modules in enumerate(dict.fromkeys(row["modules"] for row in rows)):
        part = [row for row in rows if row["modules"] == modules]
        color, marker = SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)]
        pieces = [row["pieces"] for row in part]
        left.plot(
            pieces,
            [r["error_found"] for r in part],
            color=color,
            marker=marker,
            ms=4,
            lw=1.3,
            label=f"M = {modules}",
        )
        left.plot(pieces, [r["error_bound"] for r in part], color=color, lw=1, ls=":")
        right.plot(
            [r["error_bound"] for r in part],
            [r["neurons"] for r in part],
            color=color,
            marker=marker,
            ms=4,
            lw=1.3,
        )
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid()
    left.set_xlabel("pieces per square")
    left.set_ylabel("largest error (dotted: guaranteed)")
    right.set_xlabel("guaranteed error")
    right.set_ylabel("neurons")
    left.legend(loc="best")
    return figure


def _axis(name: str) -> str:
    """What an axis is called in a figure."""
    return "M x K =" if name == "modules_hot" else name.replace("_", " ")


def _by(rows: Rows, x: str, y: str) -> dict[float, list[float]]:
    """The defined values of a column at each place of an axis, in order."""
    groups: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        if row.get(y) is not None:
            groups[float(row[x])].append(row[y])
    return dict(sorted(groups.items()))


def _averaged(rows: Rows, x: str, y: str) -> tuple[list[float], list[float]]:
    groups = _by(rows, x, y)
    return list(groups), [sum(values) / len(values) for values in groups.values()]


def _lines(axes: Axes, baselines: dict[str, float | None]) -> None:
    for (name, value), style in zip(baselines.items(), ("-.", ":"), strict=False):
        if value is not None:
            axes.axhline(value, color=MUTED, lw=1.2, ls=style, label=f"{name} baseline (held out)")


def _limits(axes: Axes, values: Sequence[float | None]) -> None:
    """R2 has a heavy lower tail: what lies far below 0 is cut off at -0.3, and counted."""
    defined = [value for value in values if value is not None]
    if not defined:
        return
    axes.set_ylim(max(-0.3, min(defined) - 0.05), min(1.03, max(defined) + 0.08))
    below = sum(value < -0.3 for value in defined)
    if below:
        axes.annotate(
            f"{below} below −0.3", (0.01, 0.01), xycoords="axes fraction", fontsize=7, color=MUTED
        )


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
