"""What a whole run will take and what it can show, before it is made."""

import time
from dataclasses import dataclass

from t2iprobe.activations.estimate import measure_like_the_run
from t2iprobe.activations.plan import check_has_image_site, plan_capture
from t2iprobe.activations.truncation import foresee_cut
from t2iprobe.models.loading import load_model
from t2iprobe.runs.budget import parse_duration
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.forecast import LaterStages, foretell
from t2iprobe.runs.generate import check, notes_on
from t2iprobe.runs.limit import ENDING, LATER_MARGIN, PACE_MARGIN
from t2iprobe.runs.maker import batch_size, image_requests
from t2iprobe.runs.memory import peak_bytes
from t2iprobe.runs.pieces import Piece, cut
from t2iprobe.runs.run_tasks import RunTasks, can_be_probed
from t2iprobe.stats import detectable_correlation

BYTES_PER_TASK = 1500  # of tasks.jsonl and decodability.parquet
BYTES_OF_TABLES = 100_000


@dataclass(frozen=True)
class Outlook:
    """Cost and reach of a run.

    Attributes:
        n_tasks: tasks of the run.
        n_images: its images.
        n_measured: images in the batch that was measured.
        seconds_per_image: wall time of one image in such a batch, capture and saving included.
        loading_s: from the start of the program until the first image.
        making_s: of all images.
        later_s: of scoring, probing, correlating and the report.
        peak_bytes: memory at most; the number of images hardly changes it.
        device_bytes: memory at most on the GPU; None where there is none.
        disk_bytes: the run folder.
        smallest_correlation: smallest Spearman correlation over tasks that the run finds with 80% power; NaN for
            three tasks or fewer.
        tasks_in_budget: tasks that fit into the budget of the settings; None without one.
        least_tasks: the smallest number of tasks that a budget could end the run with.
        least_s: the seconds that a run would ask for to make them, reckoned with its margins.
        notes: sentences about the model that a run would tell.
    """

    n_tasks: int
    n_images: int
    n_measured: int
    seconds_per_image: float
    loading_s: float
    making_s: float
    later_s: float
    peak_bytes: int
    device_bytes: int | None
    disk_bytes: int
    smallest_correlation: float
    tasks_in_budget: int | None
    least_tasks: int
    least_s: float
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """The whole run."""
        return self.loading_s + self.making_s + self.later_s


def look_ahead(config: RunConfig, start: float) -> Outlook:
    """Load the model, make its first batch, time stand-ins of the later stages, and reckon the rest.

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
    cut_off = foresee_cut(model, plan, longest)
    notes = (*notes_on(model, plan, config), *cut_off)
    loading_s = time.monotonic() - start
    n_tasks = len(drawn.tasks)
    size = batch_size(config, plan)
    pieces = cut(image_requests(drawn, config.seeds), config.seeds, size)
    _reset_device()
    first = next(iter(pieces[0].batches.values()))
    measured = measure_like_the_run(model, plan, first, config.seed)
    device_bytes = _device_bytes()
    before = time.monotonic()
    later = foretell(measured.sample, drawn, config, size, n_tasks)
    loading_s += later.import_s
    n_least, least_s = least(pieces, drawn, config, measured.seconds, later)
    least_s += loading_s + measured.seconds + time.monotonic() - before - later.import_s
    n_images = n_tasks * config.seeds
    per_image = measured.png_bytes + measured.activation_bytes
    tables = BYTES_OF_TABLES + BYTES_PER_TASK * n_tasks
    return Outlook(
        n_tasks=n_tasks,
        n_images=n_images,
        n_measured=measured.n_images,
        seconds_per_image=measured.seconds,
        loading_s=loading_s,
        making_s=measured.seconds * n_images,
        later_s=later.at(n_tasks),
        peak_bytes=peak_bytes(),
        device_bytes=device_bytes,
        disk_bytes=n_images * per_image + tables + later.report_bytes,
        smallest_correlation=detectable_correlation(n_tasks),
        tasks_in_budget=None
        if config.budget is None
        else tasks_in(parse_duration(config.budget), pieces, measured.seconds, later, loading_s),
        least_tasks=n_least,
        least_s=least_s,
        notes=notes,
    )


def tasks_in(
    seconds: float, pieces: list[Piece], per_image: float, later: LaterStages, loading_s: float
) -> int:
    """Whole tasks of the first pieces that fit into some seconds with all that precedes and follows them.

    Args:
        seconds: the budget.
        pieces: the run.
        per_image: seconds of an image.
        later: what the stages after generation take.
        loading_s: seconds until the first image.
    """
    before = loading_s + ENDING
    n_tasks = n_images = 0
    for piece in pieces:
        n_images += len(piece.requests)
        more = n_tasks + len(piece.task_ids)
        if before + n_images * per_image + LATER_MARGIN * later.at(more) > seconds:
            break
        n_tasks = more
    return n_tasks


def least(
    pieces: list[Piece],
    drawn: RunTasks,
    config: RunConfig,
    per_image: float,
    later: LaterStages,
) -> tuple[int, float]:
    """The smallest number of tasks, in whole pieces, that can be probed, and the seconds they take once all is loaded.

    Arguments as for `tasks_in`, with the tasks of the run and its settings.
    """
    ids: set[str] = set()
    n_images = 0
    for piece in pieces:
        ids.update(piece.task_ids)
        n_images += len(piece.requests)
        if can_be_probed(drawn, ids, config):
            break
    making = PACE_MARGIN * per_image * n_images
    return len(ids), making + LATER_MARGIN * later.at(len(ids)) + ENDING


def _reset_device() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _device_bytes() -> int | None:
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
