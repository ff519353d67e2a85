"""Makes the images of a run piece by piece, with their activations, and stops where the time for images is over."""

import time
from dataclasses import dataclass

from safetensors import SafetensorError

from t2iprobe.activations.estimate import measure
from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import CapturePlan
from t2iprobe.errors import DataError
from t2iprobe.models.model import Model
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.budget import Budget
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.cost import StageClock
from t2iprobe.runs.folder import RunFolder, atomic
from t2iprobe.runs.pieces import Batch, Piece, is_whole, least, split
from t2iprobe.runs.progress import Bar, bar, console
from t2iprobe.runs.run_tasks import RunTasks
from t2iprobe.runs.shards import Entry, shard_metadata, write_shard


def image_requests(drawn: RunTasks, seeds: int) -> Batch:
    """Every image of a run, task by task."""
    return [
        ImageRequest(task.id, index, task.prompt, drawn.family.spans(task))
        for task in drawn.tasks
        for index in range(seeds)
    ]


def batch_size(config: RunConfig, plan: CapturePlan) -> int:
    """Most images of a batch: what is asked for, or what the pipeline can make at once."""
    return min(config.batch_size, plan.calibration.max_batch or config.batch_size)


@dataclass(frozen=True)
class Job:
    """What is to be made, and with what."""

    folder: RunFolder
    model: Model
    plan: CapturePlan
    drawn: RunTasks
    config: RunConfig


class Maker:
    """Makes the missing pieces of a run in the order of its tasks.

    The first pieces are a fair sample of all: `sampling.draw_tasks` balances values and strata in every prefix.
    """

    def __init__(self, job: Job, clock: StageClock) -> None:
        self._job = job
        self._clock = clock
        self._size = batch_size(job.config, job.plan)
        seeds = job.config.seeds
        self._pieces = split(image_requests(job.drawn, seeds), seeds, self._size)
        self._missing = {
            number
            for piece in self._pieces
            for number, batch in piece.batches.items()
            if not is_whole(job.folder, number, batch)
        }
        before = job.folder.stage("generate")
        self._seconds: float = before.get("making_s", 0.0)
        self._n_before: int = before.get("images_made", 0)
        self.n_made = 0

    @property
    def done(self) -> list[Piece]:
        """The pieces that are whole."""
        return [piece for piece in self._pieces if not self._missing & piece.batches.keys()]

    @property
    def next(self) -> Piece | None:
        """The piece to make next; None when nothing is missing."""
        return next((p for p in self._pieces if self._missing & p.batches.keys()), None)

    def least(self, pace: float) -> tuple[int, float]:
        """The smallest number of tasks, one more piece at least, that can be probed, and the seconds to make them.

        Args:
            pace: seconds of an image.
        """
        job = self._job
        done = {task_id for piece in self.done for task_id in piece.task_ids}
        missing = [piece for piece in self._pieces if self._missing & piece.batches.keys()]
        n_tasks, pieces = least(missing, job.drawn, job.config, done)
        return n_tasks, pace * sum(self._n_missing(piece) for piece in pieces)

    def pace(self) -> float:
        """Seconds of an image, measured on the first two that are missing; nothing is kept of them."""
        piece = self.next or self._pieces[-1]
        return measure(
            self._job.model, self._job.plan, piece.requests[:2], self._job.config.seed
        ).seconds

    def make(self, budget: Budget | None = None, pace: float = 0.0) -> float:
        """Make what is missing; with a budget, the pieces that end in its time for images.

        Args:
            budget: the time of the run.
            pace: seconds of an image; each piece measures it anew.

        Returns:
            Seconds of an image of the last piece.
        """
        n_images = sum(len(piece.requests) for piece in self._pieces)
        n_there = n_images - sum(self._n_missing(piece) for piece in self._pieces)
        if n_there:
            console.print(f"{n_there} of {n_images} images are there already")
        with bar("generate", n_images, "images", done=n_there) as progress:
            while piece := self.next:
                n, start = self._n_missing(piece), time.monotonic()
                if budget is not None and n * pace > budget.left_for_images:
                    break
                self._make(piece, progress)
                pace = (time.monotonic() - start) / n
        return pace

    def _make(self, piece: Piece, progress: Bar) -> None:
        job = self._job
        for number in sorted(self._missing & piece.batches.keys()):
            if not self.n_made:
                self._begin()
            batch, start = piece.batches[number], time.monotonic()
            for made in generate(job.model, batch, job.plan, len(batch), job.config.seed):
                save(job.folder, number, made)
            self._missing.remove(number)
            self.n_made += len(batch)
            self._seconds += time.monotonic() - start
            made_in_all = self._n_before + self.n_made
            self._clock.note(making_s=round(self._seconds, 3), images_made=made_in_all)
            progress.advance(len(batch))

    def _begin(self) -> None:
        """Before the first new batch: what later stages made of fewer tasks is out of date."""
        job = self._job
        for stage in job.folder.manifest["stages"]:
            if stage != "generate":
                job.folder.set_stage(stage, "out of date")
        n_tasks = len(job.drawn.tasks)
        counts = {"tasks": n_tasks, "images_asked": n_tasks * job.config.seeds}
        job.folder.update(counts=counts, fold_overlap=job.drawn.fold_overlap)
        drawing.write(job.folder, job.drawn, {})

    def _n_missing(self, piece: Piece) -> int:
        return sum(len(batch) for n, batch in piece.batches.items() if n in self._missing)


def save(folder: RunFolder, number: int, made: GeneratedBatch) -> None:
    """Write a batch: images first, the shard last, since a shard says that its batch is whole.

    Raises:
        DataError: the shard cannot be written.
    """
    entries, encoders = [], {}
    for row, request in enumerate(made.requests):
        with atomic(folder.image(request.task_id, request.image_index)) as temporary:
            made.images[row].save(temporary, format="PNG")
        entries.append(Entry(request.task_id, request.image_index, made.invalid[row] or ""))
        encoders[request.task_id] = {
            "tokens": made.token_spans[row],
            "lost": made.truncated[row],
            **({"cut_at": made.cut_at[row]} if made.cut_at[row] else {}),
        }
    facts = shard_metadata(entries, made.timesteps, encoders)
    with atomic(folder.shard(number)) as temporary:
        try:
            write_shard(temporary, made.activations, facts)
        except SafetensorError as error:
            raise DataError(
                f"{folder.shard(number)} cannot be written ({error}): "
                "what was finished is kept; free some space and run the same command again"
            ) from None
