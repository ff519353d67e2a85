"""Stage 1 of 5. Make images and read activations in one pass: model -> images/, activations/, tasks.jsonl.

Batches are fixed by the task list. A batch is done when its shard is there and its images are whole; any other is
made again as a whole, so an interrupted run ends with the same bytes as an unbroken one.
"""

import sys
from typing import Any

from t2iprobe import registry
from t2iprobe.activations.plan import (
    CapturePlan,
    check_has_image_site,
    check_size,
    plan_capture,
    resolve_steps,
)
from t2iprobe.activations.pooling import split_poolings
from t2iprobe.activations.truncation import foresee_cut
from t2iprobe.checks.ignored_settings import ignored_settings
from t2iprobe.errors import ConfigError, DataError
from t2iprobe.models.cards import find_card
from t2iprobe.models.loading import load_model
from t2iprobe.models.model import Model
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.budget import GENERATION_SHARE, Budget, enough
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.cost import StageClock
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.maker import Job, Maker, batch_size, image_requests
from t2iprobe.runs.pieces import Piece, keep_only
from t2iprobe.runs.progress import console, say, waiting
from t2iprobe.runs.run_tasks import RunTasks
from t2iprobe.runs.shards import ActivationReader


def check(config: RunConfig) -> RunTasks:
    """Everything about a run that can be wrong before a model is loaded.

    Raises:
        T2IProbeError: a setting, the family or the card cannot be used.
    """
    drawn = drawing.draw(config, find_card(config.model))
    registry.scorer(config.scorer).check_family(drawn.family)
    registry.probe(config.probe)
    resolve_steps(config.steps_to_read, sys.maxsize)
    split_poolings(config.pooling)
    if not any(part.strip() for pattern in config.sites for part in pattern.split(",")):
        raise ConfigError("--sites is empty; give default, all, or globs over site names")
    return drawn


def run(folder: RunFolder, config: RunConfig, budget: Budget | None = None) -> str:
    """Make the images that are missing, or as many whole tasks of them as fit into a budget.

    Returns:
        "done", or "stopped" when the budget ended it: the folder then holds all images of some tasks and none of the
        others, and tasks.jsonl lists the finished ones, with folds of their own.

    Raises:
        DataError: the checkpoint is another one than when the run began, or the finished tasks are too few to probe.
        ConfigError: the budget is too short for another task.
        ModelError: the model cannot be loaded or used.
        SiteError: a site cannot be found or read.
    """
    clock = StageClock(folder, "generate")
    drawn = check(config)
    with waiting(f"loading {config.model}"):
        model = load_model(config.model, config)
    _remember_model(folder, model)
    with waiting("trial calls"):
        plan = plan_capture(model, config.sites, config.steps_to_read, config.pooling)
    check_has_image_site(plan)
    sites = [f"{site.component}.{site.path}" for site in plan.sites]
    folder.update(capture={"sites": list(dict.fromkeys(sites))})  # in running order
    for note in notes_on(model, plan, config):
        say(f"note: {note}")
    maker = Maker(Job(folder, model, plan, drawn, config), clock)
    if maker.next is not None:
        longest = max(image_requests(drawn, 1), key=lambda request: len(request.prompt))
        for note in foresee_cut(model, plan, longest):
            say(f"note: {note}")
    if budget is None or maker.next is None:
        maker.make()
    else:
        pace = maker.pace()
        loading_s = budget.spent
        pace = maker.make(budget, pace)
        if maker.next is not None:
            return _stop(folder, drawn, config, maker, budget, _more_time(maker, loading_s, pace))
    _write(folder, drawn, drawn, maker.done)
    return "done"


def notes_on(model: Model, plan: CapturePlan, config: RunConfig) -> tuple[str, ...]:
    """Sentences about the model, and about settings that are not kept to or change nothing.

    Raises:
        ConfigError: half a size was asked for and the pipeline takes none.
    """
    found = plan.calibration
    few = []
    if config.batch_size not in (RunConfig.batch_size, batch_size(config, plan)):
        few = [
            f"--batch-size {config.batch_size} is not reached: this pipeline makes {found.max_batch} image a call"
        ]
    return (*check_size(model, found), *found.notes, *ignored_settings(model, found), *few)


def _stop(
    folder: RunFolder,
    drawn: RunTasks,
    config: RunConfig,
    maker: Maker,
    budget: Budget,
    more_time: str,
) -> str:
    """End with the tasks that are whole, if they are enough for the folds.

    `more_time` says how much time is enough.

    Raises:
        ConfigError: not one task more than before fits into the budget.
        DataError: the tasks are too few.
    """
    ids = [task_id for piece in maker.done for task_id in piece.task_ids]
    so_far = f"{len(ids)} of {len(drawn.tasks)} tasks"
    later_are_done = all(folder.is_done(name) for name in ("score", "probe", "correlate", "report"))
    if not maker.n_made and (not ids or later_are_done):
        if ids:
            folder.set_stage("generate", "stopped")
        kept = f"; {so_far} are done" if ids else ""
        raise ConfigError(
            f"--budget {budget.text} is too short: loading and measuring took {budget.spent:.0f} s{kept}; {more_time}"
        )
    try:
        part = drawing.restrict(drawn, set(ids), config)
    except DataError:
        raise DataError(
            f"the budget of {budget.text} ended the run after {so_far}, too few to probe; they are kept, and the same "
            f"command with more time goes on from them: {more_time}"
        ) from None
    _write(folder, drawn, part, maker.done)
    folder.set_stage("generate", reason="budget")
    console.print(
        f"stopped by the budget of {budget.text} after {so_far}; the same command again makes more of them"
    )
    return "stopped"


def _more_time(maker: Maker, loading_s: float, pace: float) -> str:
    """How much time is enough for as many tasks as can be probed."""
    n_tasks, making_s = maker.least(pace)
    return (
        f"the least that can be probed, {n_tasks} tasks, takes about {loading_s + making_s:.0f} s to load and make, "
        f"which may be {GENERATION_SHARE:.0%} of the budget; give {enough(loading_s, making_s)}s or more"
    )


def _write(folder: RunFolder, drawn: RunTasks, part: RunTasks, pieces: list[Piece]) -> None:
    """Write down what is there: the tasks that are whole, and what the text encoders made of their prompts."""
    keep_only(folder, pieces)
    n_images = sum(len(piece.requests) for piece in pieces)
    seeds = n_images // len(part.tasks)
    counts = {
        "tasks": len(drawn.tasks),
        "tasks_done": len(part.tasks),
        "images_asked": len(drawn.tasks) * seeds,
        "images_done": n_images,
    }
    folder.update(counts=counts, fold_overlap=part.fold_overlap)
    drawing.write(folder, part, ActivationReader(folder).encoders)
    folder.set_stage("generate", batches=len(folder.shards()), reason=None)


def _remember_model(folder: RunFolder, model: Model) -> None:
    """Write what was loaded into run.json, or refuse a checkpoint that is not the one the run began with."""
    card = (
        None
        if model.card is None
        else {k: v for k, v in model.card.content.items() if k != "scene_counts"}
    )
    found: dict[str, Any] = {
        "name": model.name,
        "pipeline_class": model.class_name,
        "call": model.call,
        "card": card,
        **model.provenance,
    }
    before = folder.manifest["model"]
    if before is not None and before["weights"] != found["weights"]:
        raise DataError(
            f"{folder.path} was begun with other weights of {model.name}: give another --out for a new run"
        )
    folder.update(model=found)
