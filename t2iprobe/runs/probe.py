"""Stage 3 of 5. Fit the probes of a run: activations -> probes.parquet, headline.json, decodability.parquet.

Every recorded array is probed for every coding side by side, shuffled labels included. The headline site is a place in
the denoiser's image stream, chosen by `t2iprobe.probes.headline` on one half of the folds and valued on the other.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from t2iprobe import registry
from t2iprobe.errors import DataError
from t2iprobe.places import Place
from t2iprobe.probes.controls import SHUFFLED, bag_of_words
from t2iprobe.probes.crossfit import CrossPredict
from t2iprobe.probes.decodability import TaskDecodability
from t2iprobe.probes.folds import check_groups
from t2iprobe.probes.headline import Choice, choose_headline, first_half, half_r2
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.array import Probed, or_none, probe, ratio, sums
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.progress import bar
from t2iprobe.runs.records import (
    DECODABILITY,
    HEADLINE,
    PROBES,
    ChosenSite,
    DecodabilityRow,
    Headline,
    PlaceRecord,
    ProbeFit,
    ProbeRow,
)
from t2iprobe.runs.run_tasks import RunTasks
from t2iprobe.runs.shards import ActivationReader
from t2iprobe.runs.targets import ALL, Cuts, Targets

Result = TypeVar("Result")


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
    predict = registry.probe(config.probe)
    cuts = Cuts(drawn, reader.encoders, targets)
    rows: list[ProbeRow] = []
    halves: dict[str, dict[Place, tuple[float, float]]] = {"denoiser": {}, "text encoder": {}}

    def work(place: Place) -> tuple[list[ProbeFit], tuple[float, float]]:
        lost = cuts.of(place)
        probed = probe(reader.read(place), targets, place.constituent, predict, lost)
        return probed.rows, _halves(probed, targets, drawn.family.headline)

    with bar("probe", len(reader.places), "arrays") as progress:
        for place, (fits, pair) in _in_threads(work, reader.places):
            at = place.columns() | {"timestep": reader.timestep(place)}
            rows += [ProbeRow(**at, **vars(fit)) for fit in fits]
            if place.site.stream == "image":
                halves["denoiser"][place] = pair
            elif place.in_text_encoder and place.constituent is None:
                halves["text encoder"][place] = pair
            progress.advance()
    if not halves["denoiser"]:
        raise DataError(
            "no site of the denoiser's image stream was recorded: widen --sites and run again"
        )
    PROBES.write(folder.path, rows)
    _write_headline(folder, drawn, reader, targets, halves, predict, _why_no_encoder(rows, drawn))


def _in_threads(
    work: Callable[[Place], Result], places: list[Place]
) -> Iterator[tuple[Place, Result]]:
    """Each place with the result of the work on it, in order; one thread a core.

    The matrices are small: LAPACK's own threads would leave cores idle.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from zip(places, pool.map(work, places), strict=True)


def _halves(probed: Probed, targets: Targets, coding: str) -> tuple[float, float]:
    """R2 of a whole coding over the tasks of the first and of the second half of the folds."""
    names = targets.of_coding(coding)
    tasks = probed.tasks(names)
    if not tasks.tasks:
        return float("nan"), float("nan")
    return half_r2(tasks, _in_first_half(tasks, targets), names)


def _in_first_half(tasks: TaskDecodability, targets: Targets) -> NDArray[np.bool_]:
    half = dict(zip(targets.task_ids, first_half(targets.folds), strict=True))
    return np.array([half[task] for task in tasks.tasks], dtype=bool)


def _write_headline(
    folder: RunFolder,
    drawn: RunTasks,
    reader: ActivationReader,
    targets: Targets,
    halves: dict[str, dict[Place, tuple[float, float]]],
    predict: CrossPredict,
    no_encoder: str | None,
) -> None:
    """Choose the headline site; write it, and what every task's decodability is there.

    `halves` are R2 of every candidate on both halves of the folds, `no_encoder` why no site of a text encoder has any,
    where that is known.
    """
    chosen = choose_headline(halves["denoiser"])
    if chosen.site is None or chosen.other_site is None:
        raise DataError(f"no headline site: {chosen.reason}; draw more tasks with --tasks")
    encoder = choose_headline(halves["text encoder"])
    words, _ = bag_of_words([task.prompt for task in drawn.tasks])
    by_task = Targets.of(drawn, [task.id for task in drawn.tasks], 0)
    bag = probe(words.astype(np.float32), by_task, None, predict)
    HEADLINE.write(
        folder.path,
        Headline(
            coding=drawn.family.headline,
            denoiser=_describe(chosen),
            text_encoder=_describe(encoder, no_encoder),
            bag_of_words={row.coding: row.r2 for row in bag.rows if row.constituent == ALL},
        ),
    )
    names = [group.name for group in targets.groups]
    fits = {
        place: probe(reader.read(place), targets, None, predict).tasks(names)
        for place in (chosen.site, chosen.other_site)
    }
    at_site, at_other = fits[chosen.site], fits[chosen.other_site]
    DECODABILITY.write(folder.path, _task_rows(at_site, at_other, targets))


def _why_no_encoder(rows: list[ProbeRow], drawn: RunTasks) -> str | None:
    """Why the headline coding cannot be read in the text encoders, where it is because they cut the prompts."""
    reasons = [
        row.reason
        for row in rows
        if row.step is None
        and (row.coding, row.constituent) == (drawn.family.headline, ALL)
        and row.n_tasks_cut
        and row.r2 is None
    ]
    return reasons[0] if reasons else None


def _describe(chosen: Choice[Place], why: str | None = None) -> ChosenSite:
    if chosen.site is None:
        return ChosenSite(reason=why or chosen.reason)
    other = chosen.other_site
    return ChosenSite(
        **chosen.site.columns(),
        r2=chosen.r2,
        other=None if other is None else PlaceRecord(**other.columns()),
        n_candidates=chosen.n_candidates,
    )


def _task_rows(
    at_site: TaskDecodability, at_other: TaskDecodability, targets: Targets
) -> list[DecodabilityRow]:
    """One row for each task and group. A task is valued at the site that was chosen on the other half of the folds."""
    first = _in_first_half(at_site, targets)
    names = {(g.coding, g.constituent): [g.name] for g in targets.groups}
    names |= {(g.coding, ALL): targets.of_coding(g.coding) for g in targets.groups}
    rows: list[DecodabilityRow] = []
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
                DecodabilityRow(
                    task_id=task_id,
                    coding=coding,
                    constituent=constituent,
                    decodability=or_none(ratio(residual[t : t + 1], total[t : t + 1])),
                    residual=float(residual[t]),
                    total=float(total[t]),
                    residual_shuffled=float(residual_shuffled[t]),
                    total_shuffled=float(total_shuffled[t]),
                    n_images=int(at_site.n_rows[t]),
                )
            )
    return rows
