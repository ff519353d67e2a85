"""The images of a run in batches, and batches in pieces that end with whole tasks."""

from collections.abc import Iterable
from dataclasses import dataclass

from t2iprobe.activations.generate import ImageRequest
from t2iprobe.errors import DataError
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import RunFolder, intact_png
from t2iprobe.runs.run_tasks import RunTasks, can_be_probed
from t2iprobe.runs.shards import shard_facts

Batch = list[ImageRequest]


@dataclass(frozen=True)
class Piece:
    """The least that is made or left: some tasks with all their images.

    Attributes:
        batches: number of a batch -> its images.
    """

    batches: dict[int, Batch]

    @property
    def requests(self) -> Batch:
        """All its images."""
        return [request for batch in self.batches.values() for request in batch]

    @property
    def task_ids(self) -> list[str]:
        """Its tasks, in order."""
        return list(dict.fromkeys(request.task_id for request in self.requests))


def split(requests: Batch, seeds: int, size: int) -> list[Piece]:
    """Batches of at most `size` images, which depend on the task list alone.

    A batch holds whole tasks. A task with more images than a batch takes has batches of its own, of about one size.

    Args:
        requests: every image of the run, task by task.
        seeds: images of each task.
        size: most images of a batch.

    Example:
        >>> tasks = [ImageRequest(task, n, "") for task in "abc" for n in range(3)]
        >>> [[len(batch) for batch in piece.batches.values()] for piece in split(tasks, 3, 8)]
        [[6], [3]]
        >>> [[len(batch) for batch in piece.batches.values()] for piece in split(tasks, 3, 2)]
        [[2, 1], [2, 1], [2, 1]]
    """
    together = max(1, size // seeds) * seeds
    in_piece = -(-seeds // size)
    pieces: list[Piece] = []
    for start in range(0, len(requests), together):
        images = requests[start : start + together]
        step = -(-len(images) // in_piece)
        batches = [images[at : at + step] for at in range(0, len(images), step)]
        first = len(pieces) * in_piece
        pieces.append(Piece(dict(enumerate(batches, start=first))))
    return pieces


def least(
    pieces: Iterable[Piece], drawn: RunTasks, config: RunConfig, done: Iterable[str] = ()
) -> tuple[int, list[Piece]]:
    """The smallest number of tasks that can be probed, and the pieces that have to be made for them: one at least.

    Args:
        pieces: what can be made, in order; all of it where no fewer can be probed.
        drawn: the tasks of the run.
        config: its settings.
        done: ids of tasks that are made already.
    """
    ids = set(done)
    needed: list[Piece] = []
    for piece in pieces:
        needed.append(piece)
        ids.update(piece.task_ids)
        if can_be_probed(drawn, ids, config):
            break
    return len(ids), needed


def is_whole(folder: RunFolder, number: int, batch: Batch) -> bool:
    """Whether a batch has its shard, with the rows it should have, and all its images."""
    try:
        rows = shard_facts(folder.shard(number))["entries"]
    except (DataError, FileNotFoundError):
        return False
    if [(row[0], row[1]) for row in rows] != [(r.task_id, r.image_index) for r in batch]:
        return False
    return all(intact_png(folder.image(r.task_id, r.image_index)) for r in batch)


def keep_only(folder: RunFolder, pieces: Iterable[Piece]) -> None:
    """Remove images and shards of everything else: what was made of a task that is not whole."""
    kept = list(pieces)
    shards = {folder.shard(number) for piece in kept for number in piece.batches}
    images = {folder.image(r.task_id, r.image_index) for piece in kept for r in piece.requests}
    for path in {*folder.shards(), *(folder.path / "images").glob("*.png")} - shards - images:
        path.unlink()
