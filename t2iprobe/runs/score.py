"""Stage 2 of 5. Judge every image of a run: run folder -> scores.parquet."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from t2iprobe import registry
from t2iprobe.errors import DataError
from t2iprobe.families.tasks import Task
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import RunFolder, intact_png
from t2iprobe.runs.progress import bar
from t2iprobe.runs.records import OUTCOMES, SCORES, ScoreRow
from t2iprobe.runs.shards import Entry, read_index
from t2iprobe.scorers.base import Scorer, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image


def run(folder: RunFolder, config: RunConfig) -> None:
    """Score every image and write one row for each.

    Images that the pipeline itself marked (NaN, safety checker) are unscored with that reason.
    """
    drawn = drawing.read(folder, config)
    scorer = registry.scorer(config.scorer)(config.device)
    tasks = {task.id: task for task in drawn.tasks}
    rows: list[ScoreRow] = []
    index = read_index(folder)
    with bar("score", len(index), "images") as progress:
        for start in range(0, len(index), scorer.batch_size):
            batch = index[start : start + scorer.batch_size]
            verdicts = judge(folder, scorer, config.scorer, batch, tasks)
            rows += [
                ScoreRow(
                    entry.task_id,
                    entry.image_index,
                    verdict.outcome,
                    verdict.reason,
                    verdict.constituents,
                )
                for entry, verdict in zip(batch, verdicts, strict=True)
            ]
            progress.advance(len(batch))
    SCORES.write(folder.path, rows)
    outcomes = Counter(row.outcome for row in rows)
    folder.update(counts=folder.manifest["counts"] | {"unscored": outcomes["unscored"]})


def judge(
    folder: RunFolder,
    scorer: Scorer,
    name: str,
    batch: Sequence[Entry],
    tasks: Mapping[str, Task],
) -> list[Verdict]:
    """The verdict on every image of a batch; the scorer is given those that the pipeline did not mark.

    Raises:
        DataError: an image is missing or cut, or what the scorer gives is not whole.
    """
    valid = [entry for entry in batch if not entry.invalid]
    valid_tasks = [tasks[entry.task_id] for entry in valid]
    images = [_image(folder, entry) for entry in valid]
    scored = scorer.score(images, valid_tasks) if valid else []
    check_verdicts(scored, valid_tasks, name)
    verdicts = iter(scored)
    return [
        Verdict.unscored(tasks[entry.task_id], entry.invalid) if entry.invalid else next(verdicts)
        for entry in batch
    ]


def _image(folder: RunFolder, entry: Entry) -> "Image":
    """An image of a run.

    Raises:
        DataError: it is missing or cut.
    """
    from PIL import Image

    path = folder.image(entry.task_id, entry.image_index)
    if not intact_png(path):
        raise DataError(
            f"{path} is missing or cut: delete it and run `{folder.manifest['command']}` again, "
            "which makes it anew"
        )
    with Image.open(path) as image:
        return image.convert("RGB")


def check_verdicts(verdicts: Sequence[Verdict], tasks: Sequence[Task], name: str) -> None:
    """Refuse what a scorer gives and is not whole: a later stage would fail after all the work.

    Raises:
        DataError: there is not one verdict for each task, one is no verdict, lacks a constituent, or has an outcome
            that does not exist.
    """
    if len(verdicts) != len(tasks):
        raise DataError(
            f"the scorer {name!r} gave {len(verdicts)} verdicts for {len(tasks)} images"
        )
    for verdict, task in zip(verdicts, tasks, strict=True):
        if not isinstance(verdict, Verdict):
            raise DataError(
                f"the scorer {name!r} gave a {type(verdict).__name__}, not a Verdict(outcome, reason, constituents)"
            )
        if verdict.outcome not in OUTCOMES:
            raise DataError(
                f"the scorer {name!r} gave the outcome {verdict.outcome!r}, not one of {', '.join(OUTCOMES)}"
            )
        if verdict.constituents.keys() != task.values.keys():
            raise DataError(
                f"the scorer {name!r} judged the constituents {', '.join(verdict.constituents) or 'none'} instead of"
                f" {', '.join(task.values)}; give True or False for each, None where it cannot be told"
            )
