"""Fit the probes of a run: activations -> probes.parquet, headline.json, decodability.parquet.

Every recorded array is probed for every coding side by side, shuffled labels included. The headline site is a place in
the denoiser's image stream, chosen by `t2iprobe.probes.headline` on one half of the folds and valued on the other.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isnan
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from t2iprobe import registry
from t2iprobe.config import RunConfig
from t2iprobe.errors import DataError
from t2iprobe.probes.controls import SHUFFLED, bag_of_words
from t2iprobe.probes.crossfit import OutOfFold
from t2iprobe.probes.decodability import TaskDecodability, accuracy
from t2iprobe.probes.folds import check_groups
from t2iprobe.probes.headline import Headline, choose_headline, first_half, half_r2
from t2iprobe.progress import bar
from t2iprobe.stages import drawing
from t2iprobe.stages.activations import ActivationReader, Key
from t2iprobe.stages.drawing import RunTasks
from t2iprobe.stages.targets import ALL, Array, Group, Targets
from t2iprobe.store import Row, RunFolder, write_json, write_table

Predict = Callable[..., OutOfFold]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Probed:
    """The probes of one array of activations.

    Attributes:
        rows: what goes into probes.parquet.
        tasks: residual and total of each task and group.
    """

    rows: list[Row]
    tasks: TaskDecodability


def run(folder: RunFolder, config: RunConfig) -> None:
    """Probe every recorded array.

    Raises:
        DataError: nothing was recorded in the denoiser's image stream.
    """
    drawn = drawing.read(folder, config)
    reader = ActivationReader(folder)
    targets = Targets.of(drawn, [entry.task_id for entry in reader.entries], config.seed)
    scene = {task.id: task.scene_id for task in drawn.tasks}
    check_groups(targets.folds, [scene[task_id] for task_id in targets.task_ids])
    predict: Predict = registry.resolve("probe", registry.PROBES, config.probe)
    rows: list[Row] = []
    halves: dict[str, dict[Key, tuple[float, float]]] = {"denoiser": {}, "text encoder": {}}

    def work(key: Key) -> tuple[list[Row], tuple[float, float]]:
        probed = probe(reader.read(key), targets, key.span, predict)
        return probed.rows, _halves(probed.tasks, targets, drawn.family.headline)

    with bar("probe", len(reader.keys), "arrays") as progress:
        for key, (found, pair) in _in_threads(work, reader.keys):
            rows += [_place(key) | {"timestep": reader.timestep(key)} | row for row in found]
            if key.stream == "image":
                halves["denoiser"][key] = pair
            elif key.in_text_encoder and key.span is None:
                halves["text encoder"][key] = pair
            progress.advance()
    if not halves["denoiser"]:
        raise DataError(
            "no site of the denoiser's image stream was recorded: widen --sites and run again"
        )
    write_table(folder.path / "probes.parquet", rows)
    _write_headline(folder, drawn, reader, targets, halves, predict)


def _in_threads(work: Callable[[Key], Result], keys: list[Key]) -> Iterator[tuple[Key, Result]]:
    """Each key with the result of the work on it, in order; one thread a core.

    The matrices are small: LAPACK's own threads would leave cores idle.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(keys, pool.map(work, keys), strict=True)


def probe(X: NDArray[np.float32], targets: Targets, span: str | None, predict: Predict) -> Probed:
    """Out-of-fold probes of one array.

    Args:
        X: (n images, d) activations. Rows with NaN (a constituent whose tokens were cut off) are left out.
        targets: what to predict.
        span: the constituent whose own tokens were pooled: only its slot is asked for; None asks for everything.
        predict: a function of `t2iprobe.registry.PROBES`.
    """
    groups = [g for g in targets.groups if span is None or g == Group("slot", span)]
    columns = targets.columns({group.name for group in groups})
    kept = np.flatnonzero(np.isfinite(X).all(axis=1))
    Y, task_ids = targets.Y[kept][:, columns], [targets.task_ids[n] for n in kept]
    names = [targets.column_groups[c] for c in columns]
    folds = targets.folds[kept]
    if len(np.unique(folds)) < 3:
        cut = span is not None and not len(kept)
        reason = f"prompts are cut before {span}" if cut else "fewer than 3 folds have activations"
        return Probed([_undefined(g, reason) for g in groups], _nothing())
    fit = predict(X[kept], Y, folds, names)
    if not isinstance(fit, OutOfFold):
        raise DataError(
            f"the probe gave a {type(fit).__name__}; a probe gives a t2iprobe.probes.crossfit.OutOfFold"
        )
    tasks = fit.per_task(Y, task_ids)
    alphas = fit.typical_alpha()
    common = {"n_images": len(Y), "n_tasks": len(tasks.tasks), "n_folds": len(fit.fold_labels)}
    rows: list[Row] = []
    for group in groups:
        hits = _accuracy(fit, Y, group)
        rows.append(
            {"coding": group.coding, "constituent": group.constituent}
            | _r2(tasks, [group.name])
            | hits
            | {"alpha": alphas[group.name]}
            | common
        )
    for coding in dict.fromkeys(group.coding for group in groups if span is None):
        of_coding = [group.name for group in groups if group.coding == coding]
        nothing = {"accuracy": None, "chance": None, "alpha": None}
        rows.append(
            {"coding": coding, "constituent": ALL} | _r2(tasks, of_coding) | nothing | common
        )
    return Probed(rows, tasks)


def sums(tasks: TaskDecodability, names: list[str]) -> tuple[Array, Array]:
    """(t,) residual and total of each task, summed over some groups."""
    at = [tasks.groups.index(name) for name in names]
    return tasks.residual[:, at].sum(axis=1), tasks.total[:, at].sum(axis=1)


def _halves(tasks: TaskDecodability, targets: Targets, coding: str) -> tuple[float, float]:
    """R2 of a whole coding over the tasks of the first and of the second half of the folds."""
    if not tasks.tasks or not set(targets.of_coding(coding)) <= set(tasks.groups):
        return float("nan"), float("nan")
    return half_r2(tasks, _in_first_half(tasks, targets), targets.of_coding(coding))


def _in_first_half(tasks: TaskDecodability, targets: Targets) -> NDArray[np.bool_]:
    half = dict(zip(targets.task_ids, first_half(targets.folds), strict=True))
    return np.array([half[task] for task in tasks.tasks], dtype=bool)


def _ratio(residual: Array, total: Array) -> float:
    """1 - residual / total over tasks; NaN where there is nothing to explain."""
    return 1.0 - float(residual.sum() / total.sum()) if total.sum() > 0 else float("nan")


def _r2(tasks: TaskDecodability, names: list[str]) -> Row:
    value = _ratio(*sums(tasks, names))
    shuffled = _ratio(*sums(tasks, [SHUFFLED + name for name in names]))
    return {
        "r2": _or_none(value),
        "r2_shuffled": _or_none(shuffled),
        "reason": "the target does not vary among these tasks" if isnan(value) else None,
    }


def _accuracy(fit: OutOfFold, Y: Array, group: Group) -> Row:
    columns = fit.columns.of_group(group.name)
    found = accuracy(Y[:, columns], fit.predictions[:, columns])
    return {"accuracy": _or_none(found.value), "chance": _or_none(found.majority)}


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _undefined(group: Group, reason: str) -> Row:
    fields = ("r2", "r2_shuffled", "accuracy", "chance", "alpha", "n_images", "n_tasks", "n_folds")
    place = {"coding": group.coding, "constituent": group.constituent, "reason": reason}
    return place | dict.fromkeys(fields)


def _nothing() -> TaskDecodability:
    empty = np.zeros((0, 0))
    return TaskDecodability((), (), empty, empty, np.zeros(0, dtype=np.intp))


def _place(key: Key) -> Row:
    pooling = "span" if key.span else key.pooling
    return {
        "site": key.site,
        "component": key.component,
        "stream": key.stream,
        "pooling": pooling,
        "step": key.step,
    }


def _write_headline(
    folder: RunFolder,
    drawn: RunTasks,
    reader: ActivationReader,
    targets: Targets,
    halves: dict[str, dict[Key, tuple[float, float]]],
    predict: Predict,
) -> None:
    """Choose the headline site; write it, and what every task's decodability is there."""
    keys = {key.text: key for key in reader.keys}
    chosen = choose_headline({key.text: pair for key, pair in halves["denoiser"].items()})
    if chosen.site is None or chosen.other_site is None:
        raise DataError(f"no headline site: {chosen.reason}; draw more tasks with --tasks")
    encoder = choose_headline({key.text: pair for key, pair in halves["text encoder"].items()})
    words, _ = bag_of_words([task.prompt for task in drawn.tasks])
    by_task = Targets.of(drawn, [task.id for task in drawn.tasks], 0)
    bag = probe(words.astype(np.float32), by_task, None, predict)
    write_json(
        folder.path / "headline.json",
        {
            "coding": drawn.family.headline,
            "denoiser": _describe(chosen, keys),
            "text_encoder": _describe(encoder, keys),
            "bag_of_words": {r["coding"]: r["r2"] for r in bag.rows if r["constituent"] == ALL},
        },
    )
    fits = {
        text: probe(reader.read(keys[text]), targets, None, predict).tasks
        for text in (chosen.site, chosen.other_site)
    }
    write_table(folder.path / "decodability.parquet", _task_rows(fits, chosen, targets))


def _describe(chosen: Headline, keys: dict[str, Key]) -> Row:
    if chosen.site is None:
        return {"site": None, "r2": None, "reason": chosen.reason}
    key = keys[chosen.site]
    return _place(key) | {
        "r2": chosen.r2,
        "other": None if chosen.other_site is None else _place(keys[chosen.other_site]),
        "n_candidates": chosen.n_candidates,
    }


def _task_rows(fits: dict[str, TaskDecodability], chosen: Headline, targets: Targets) -> list[Row]:
    """One row for each task and group. A task is valued at the site that was chosen on the other half of the folds."""
    at_site, at_other = fits[str(chosen.site)], fits[str(chosen.other_site)]
    first = _in_first_half(at_site, targets)
    names = {(g.coding, g.constituent): [g.name] for g in targets.groups}
    names |= {(g.coding, ALL): targets.of_coding(g.coding) for g in targets.groups}
    rows: list[Row] = []
    for (coding, constituent), groups in names.items():
        parts = {
            prefix: [
                np.where(first, other, site)
                for site, other in zip(
                    sums(at_site, [prefix + g for g in groups]),
                    sums(at_other, [prefix + g for g in groups]),
                    strict=True,
                )
            ]
            for prefix in ("", SHUFFLED)
        }
        (residual, total), (residual_shuffled, total_shuffled) = parts[""], parts[SHUFFLED]
        for t, task_id in enumerate(at_site.tasks):
            rows.append(
                {
                    "task_id": task_id,
                    "coding": coding,
                    "constituent": constituent,
                    "decodability": _or_none(_ratio(residual[t : t + 1], total[t : t + 1])),
                    "residual": float(residual[t]),
                    "total": float(total[t]),
                    "residual_shuffled": float(residual_shuffled[t]),
                    "total_shuffled": float(total_shuffled[t]),
                    "n_images": int(at_site.n_rows[t]),
                }
            )
    return rows
