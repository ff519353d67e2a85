"""Make the images of a run and read activations in the same pass: model -> images/, activations/, tasks.jsonl.

Batches are fixed by the task list. A batch is done when its shard is there and its images are whole; any other is
made again as a whole, so an interrupted run ends with the same bytes as an unbroken one.
"""

import sys
import time
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from t2iprobe import registry
from t2iprobe.config import RunConfig
from t2iprobe.errors import DataError
from t2iprobe.memory import peak_bytes
from t2iprobe.models.cards import find_card
from t2iprobe.models.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.models.loading import load_model
from t2iprobe.models.model import Model
from t2iprobe.models.plan import CapturePlan, plan_capture, resolve_steps
from t2iprobe.progress import bar, console
from t2iprobe.stages import drawing
from t2iprobe.stages.activations import ActivationReader, Entry, shard_facts, shard_metadata
from t2iprobe.stages.drawing import RunTasks
from t2iprobe.stages.score import check_scorer
from t2iprobe.store import RunFolder, atomic, intact_png

Batch = list[ImageRequest]


def check(config: RunConfig) -> RunTasks:
    """Everything about a run that can be wrong before a model is loaded.

    Raises:
        T2IProbeError: a setting, the family or the card cannot be used.
    """
    drawn = drawing.draw(config, find_card(config.model))
    check_scorer(config.scorer, drawn.family)
    registry.resolve("probe", registry.PROBES, config.probe)
    resolve_steps(config.steps_to_read, sys.maxsize)
    return drawn


def run(folder: RunFolder, config: RunConfig) -> None:
    """Make every image that is missing.

    Raises:
        DataError: the checkpoint is another one than when the run began.
        ModelError: it cannot be loaded or used.
        SiteError: a site cannot be found or read.
    """
    drawn = check(config)
    model = load_model(config.model, config)
    _remember_model(folder, model)
    plan = plan_capture(model, sites=config.sites, at=config.steps_to_read)
    for note in plan.calibration.notes:
        console.print(f"note: {note}")
    drawing.write(folder, drawn, {})
    size = min(config.batch_size, plan.calibration.max_batch or config.batch_size)
    requests = image_requests(drawn, config.seeds)
    batches = [requests[start : start + size] for start in range(0, len(requests), size)]
    missing = [
        number for number, batch in enumerate(batches) if not _is_whole(folder, number, batch)
    ]
    _remove_stale(folder, len(batches))
    counts = {"tasks": len(drawn.tasks), "images_asked": len(requests)}
    folder.update(counts=counts, fold_overlap=drawn.fold_overlap)
    seconds = _make(folder, model, plan, batches, missing, config)
    drawing.write(folder, drawn, ActivationReader(folder).encoders)
    n_images = len(requests)
    n_made = sum(len(batches[number]) for number in missing)
    folder.set_stage(
        "generate", "running", batches=len(batches), cost=_cost(folder, seconds, n_made)
    )
    folder.update(counts=folder.manifest["counts"] | {"images_done": n_images})


def image_requests(drawn: RunTasks, seeds: int) -> Batch:
    """Every image of a run, task by task."""
    return [
        ImageRequest(task.id, index, task.prompt, drawn.family.spans(task))
        for task in drawn.tasks
        for index in range(seeds)
    ]


def _make(
    folder: RunFolder,
    model: Model,
    plan: CapturePlan,
    batches: list[Batch],
    missing: list[int],
    config: RunConfig,
) -> float:
    """Make the missing batches; returns the seconds it took."""
    n_images = sum(len(batch) for batch in batches)
    n_missing = sum(len(batches[number]) for number in missing)
    if n_missing < n_images:
        console.print(f"{n_images - n_missing} of {n_images} images are there already")
    start = time.monotonic()
    with bar("generate", n_images, "images", done=n_images - n_missing) as progress:
        for number in missing:
            batch = batches[number]
            for made in generate(model, batch, plan, len(batch), config.seed):
                _save(folder, number, made)
            progress.advance(len(batch))
    return time.monotonic() - start


def _save(folder: RunFolder, number: int, made: GeneratedBatch) -> None:
    """Images first, the shard last: a shard says that its batch is whole."""
    entries, encoders = [], {}
    for row, request in enumerate(made.requests):
        with atomic(folder.image(request.task_id, request.image_index)) as temporary:
            made.images[row].save(temporary, format="PNG")
        entries.append(Entry(request.task_id, request.image_index, made.invalid[row] or ""))
        encoders[request.task_id] = {
            "tokens": made.token_spans[row],
            "lost": made.truncated[row],
        }
    facts = shard_metadata(entries, made.timesteps, encoders)
    with atomic(folder.shard(number)) as temporary:
        try:
            save_file(made.activations, temporary, facts)
        except SafetensorError as error:
            raise DataError(
                f"{folder.shard(number)} cannot be written ({error}): "
                "what was finished is kept; free some space and run the same command again"
            ) from None


def _is_whole(folder: RunFolder, number: int, batch: Batch) -> bool:
    try:
        shard_facts(folder.shard(number))
    except (DataError, FileNotFoundError):
        return False
    return all(intact_png(folder.image(r.task_id, r.image_index)) for r in batch)


def _remove_stale(folder: RunFolder, n_batches: int) -> None:
    """Shards beyond the last batch come from a run that was cut into other batches."""
    for shard in folder.shards():
        if int(shard.stem) >= n_batches:
            shard.unlink()


def _remember_model(folder: RunFolder, model: Model) -> None:
    """Write what was loaded into run.json, or refuse a checkpoint that is not the one the run began with."""
    card = (
        None if model.card is None else {k: v for k, v in model.card.items() if k != "scene_counts"}
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


def _cost(folder: RunFolder, seconds: float, n_made: int) -> dict[str, float | int | None]:
    """What the pass took, over all the times the run was continued."""
    before = folder.stage("generate").get("cost", {})
    made = before.get("images_made", 0) + n_made
    wall = before.get("wall_s", 0.0) + seconds
    return {
        "wall_s": round(wall, 3),
        "images_per_s": round(made / wall, 3) if made else None,
        "images_made": made,
        "peak_rss_mb": round(max(peak_bytes() / 2**20, before.get("peak_rss_mb", 0.0)), 1),
        "activation_bytes": sum(shard.stat().st_size for shard in folder.shards()),
    }
