"""What a run will take and what it can show, from its first images."""

import time
from dataclasses import dataclass

import torch

from t2iprobe.activations.estimate import measure_like_the_run
from t2iprobe.activations.plan import check_has_image_site, plan_capture
from t2iprobe.activations.truncation import foresee_cut
from t2iprobe.models.loading import load_model
from t2iprobe.runs.budget import GENERATION_SHARE, enough, parse_duration
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.generate import check, notes_on
from t2iprobe.runs.maker import batch_size, image_requests
from t2iprobe.runs.memory import peak_bytes
from t2iprobe.runs.pieces import Piece, least, split
from t2iprobe.stats import detectable_correlation


@dataclass(frozen=True)
class Estimate:
    """Cost and reach of a run.

    Attributes:
        n_tasks: tasks of the run.
        n_images: its images.
        n_measured: images in the batch that was measured.
        seconds_per_image: wall time of one image in such a batch, capture and saving included.
        loading_s: from the start of the program until the first image.
        making_s: of all images. Scoring, probing and the report come after; they are not measured.
        peak_bytes: memory at most; the number of images hardly changes it.
        device_bytes: memory at most on the GPU; None where there is none.
        disk_bytes: images and activations.
        smallest_correlation: smallest Spearman correlation over tasks that the run finds with 80% power; NaN for
            three tasks or fewer.
        tasks_in_budget: tasks that fit into the budget of the settings; None without one.
        least_tasks: the smallest number of tasks that can be probed.
        least_budget: seconds of a budget that is enough for them.
        notes: sentences about the model that a run would tell.
    """

    n_tasks: int
    n_images: int
    n_measured: int
    seconds_per_image: float
    loading_s: float
    making_s: float
    peak_bytes: int
    device_bytes: int | None
    disk_bytes: int
    smallest_correlation: float
    tasks_in_budget: int | None
    least_tasks: int
    least_budget: int
    notes: tuple[str, ...]


def estimate(config: RunConfig, start: float) -> Estimate:
    """Cost and reach of a run: the model is loaded and its first images are made.

    Args:
        config: the settings of the run.
        start: reading of `time.monotonic` when the program began.

    Raises:
        T2IProbeError: a run with these settings cannot be made.
    """
    drawn = check(config)
    model = load_model(config.model, config)
    plan = plan_capture(model, config.sites, config.steps_to_read, config.pooling)
    check_has_image_site(plan)
    longest = max(image_requests(drawn, 1), key=lambda request: len(request.prompt))
    notes = (*notes_on(model, plan, config), *foresee_cut(model, plan, longest))
    loading_s = time.monotonic() - start
    requests = image_requests(drawn, config.seeds)
    pieces = split(requests, config.seeds, batch_size(config, plan))
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    measured = measure_like_the_run(
        model, plan, next(iter(pieces[0].batches.values())), config.seed
    )
    least_tasks, needed = least(pieces, drawn, config)
    least_s = measured.seconds * sum(len(piece.requests) for piece in needed)
    budget = None if config.budget is None else parse_duration(config.budget)
    return Estimate(
        n_tasks=len(drawn.tasks),
        n_images=len(requests),
        n_measured=measured.n_images,
        seconds_per_image=measured.seconds,
        loading_s=loading_s,
        making_s=measured.seconds * len(requests),
        peak_bytes=peak_bytes(),
        device_bytes=torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
        disk_bytes=len(requests) * (measured.png_bytes + measured.activation_bytes),
        smallest_correlation=detectable_correlation(len(drawn.tasks)),
        tasks_in_budget=None
        if budget is None
        else tasks_in(budget, pieces, measured.seconds, loading_s),
        least_tasks=least_tasks,
        least_budget=enough(loading_s, least_s),
        notes=notes,
    )


def tasks_in(seconds: float, pieces: list[Piece], per_image: float, loading_s: float) -> int:
    """Whole tasks of the first pieces that are made in the share of a budget that is for images.

    Args:
        seconds: the budget.
        pieces: the run.
        per_image: seconds of an image.
        loading_s: seconds until the first image.
    """
    left = GENERATION_SHARE * seconds - loading_s
    n_tasks = 0
    for piece in pieces:
        left -= per_image * len(piece.requests)
        if left < 0:
            break
        n_tasks += len(piece.task_ids)
    return n_tasks
