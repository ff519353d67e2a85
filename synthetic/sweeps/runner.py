"""Runs the cells of a sweep, keeps what came out in one table, and can be stopped and continued at any time."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from synthetic.runs import train_together
from synthetic.settings import SweepSettings
from synthetic.supports import make_support
from synthetic.sweeps.presets import Cell, command, get
from t2iprobe.errors import ConfigError
from t2iprobe.runs.folder import RunFolder, write_json, write_table
from t2iprobe.runs.progress import console

RESULTS = "results.parquet"
MEASURES = ("r2", "r2_pooled", "r2_median", "accuracy", "episode_accuracy", "accuracy_optimal")
LARGEST_STACK = 16
FREE_IN_STACK = ("out", "seed", "support", "frac_ood", "train_tasks")
"""What may differ between students side by side; every other setting shapes the step."""


def sweep(settings: SweepSettings) -> list[dict[str, Any]]:
    """Train what is missing of a sweep, then write its tables, figure and report; the rows of results.parquet.

    Cells that cannot exist (a fraction that leaves too few combinations, say) are kept with the reason.

    Raises:
        ConfigError: unknown preset, or a folder that holds another sweep.
        DataError: the folder is no sweep or in use.
    """
    kind = get(settings.preset)
    cells = list(kind.cells(settings))
    record = {
        k: v for k, v in asdict(settings).items() if k not in ("out", "config", "device", "stack")
    }
    RunFolder(settings.out).accepts(record)
    if cells:
        from synthetic.training import usable_device

        usable_device(settings.device)
    with RunFolder(settings.out).locked():
        folder = RunFolder.open(settings.out, record)
        folder.set_stage("sweep", "running", cells=len(cells))
        rows = _train_all(settings, cells) + kind.untrained(settings)
        write_table(settings.out / RESULTS, rows)
        folder.set_stage("sweep", "done", cells=len(rows))
        _summarise(settings, rows)
        from synthetic.report import build_report

        build_report(settings.out)
    return rows


def _train_all(settings: SweepSettings, planned: list[Cell]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    possible = []
    for cell in planned:
        reason = _impossible(cell)
        if reason:
            rows.append(_place(cell, settings) | {"status": "impossible", "reason": reason})
        else:
            possible.append(cell)
    done = 0
    for group in ensembles(possible, settings):
        console.print(
            f"{done + 1} to {done + len(group)} of {len(possible)}: {group[0].name}",
            highlight=False,
        )
        summaries = train_together([cell.settings for cell in group], group[0].settings.out)
        for cell, summary in zip(group, summaries, strict=True):
            rows.append(
                _place(cell, settings) | {"status": "done", "reason": ""} | flatten(summary)
            )
        done += len(group)
        write_table(settings.out / RESULTS, _aligned(rows))
    return _aligned(rows)


def _impossible(cell: Cell) -> str:
    """Why a cell's support cannot exist; empty when it can."""
    s = cell.settings
    try:
        make_support(s.support, s.modules, s.hot, s.frac_ood, s.train_tasks, s.seeds()["split"])
    except ConfigError as error:
        return str(error)
    return ""


def ensembles(planned: list[Cell], settings: SweepSettings) -> Iterator[list[Cell]]:
    """Cells one by one, or side by side those that differ in seed and support alone, where that is faster."""
    side_by_side = settings.stack == "yes" or (
        settings.stack == "auto" and settings.device != "cpu"
    )
    if not side_by_side:
        yield from ([cell] for cell in planned)
        return
    alike: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in planned:
        shape = (value for name, value in vars(cell.settings).items() if name not in FREE_IN_STACK)
        alike.setdefault(tuple(shape), []).append(cell)
    for group in alike.values():
        for start in range(0, len(group), LARGEST_STACK):
            yield group[start : start + LARGEST_STACK]


def _place(cell: Cell, settings: SweepSettings) -> dict[str, Any]:
    axes = {k: "x".join(map(str, v)) if isinstance(v, tuple) else v for k, v in cell.axes.items()}
    folder = Path("runs") / cell.name
    return {
        "cell": cell.name,
        "folder": str(folder),
        "command": command(cell.settings),
        "size": settings.size,
        **axes,
    }


def flatten(summary: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a run's summary that a sweep compares, under flat names.

    The layer whose decodability is compared is fixed beforehand: the last hidden layer after its non-linearity (for a
    transformer, the last block's output).
    """
    flat: dict[str, Any] = {}
    for split in ("test", "held_out"):
        sources = {
            "": summary[split],
            "additive_": summary["baselines"]["additive"][split],
            "blind_": summary["baselines"]["blind"][split],
        }
        for prefix, scores in sources.items():
            flat |= {f"{prefix}{split}_{m}": scores[m] for m in MEASURES if m in scores}
    layer = list(summary["decodability"])[-1] if summary["decodability"] else ""
    flat["layer"] = layer
    for split in ("test", "held_out"):
        of_layer = summary["decodability"].get(layer, {})
        flat[f"decodability_{split}"] = of_layer.get(split)
        flat[f"from_input_{split}"] = of_layer.get("from_input", {}).get(split)
    support = summary["support"]
    flat |= {name: support[name] for name in ("seen", "held_out", "components")}
    flat["unseen_modules"] = len(support["unseen_modules"])
    flat["beats_additive"] = summary["composes"]["beats_additive"]
    flat |= {"steps": summary["settings"]["steps"], "parameters": summary["parameters"]}
    flat |= {name: summary["cost"][name] for name in ("cpu_ms_per_step", "wall_s")}
    return flat


def _aligned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same columns in every row, in order of first appearance."""
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    return [{name: row.get(name) for name in columns} for row in rows]


def _summarise(settings: SweepSettings, rows: list[dict[str, Any]]) -> None:
    summary: dict[str, Any] = {
        "schema_version": 1,
        "kind": "synthetic sweep",
        "preset": settings.preset,
        "size": settings.size,
        "task": settings.task,
        "cells": len(rows),
        "impossible": sum(row["status"] == "impossible" for row in rows),
        "beats_additive": sum(bool(row.get("beats_additive")) for row in rows),
    }
    done = [row for row in rows if row["status"] == "done"]
    summary |= get(settings.preset).facts(done)
    write_json(settings.out / "summary.json", summary)
