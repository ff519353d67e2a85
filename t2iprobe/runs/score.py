"""Judge every image of a run: run folder -> scores.parquet."""

from collections import Counter
from typing import get_args

from t2iprobe import registry
from t2iprobe.errors import DataError
from t2iprobe.families.reading import Family, Task
from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import Row, RunFolder, intact_png, write_table
from t2iprobe.runs.progress import bar
from t2iprobe.runs.shards import read_index
from t2iprobe.scorers.verdict import Outcome, Scorer, Verdict


def check_scorer(name: str, family: Family) -> None:
    """Refuse a scorer that cannot judge a family, before anything is generated.

    Raises:
        ConfigError: no such scorer, or one that says it cannot.
    """
    check = getattr(registry.resolve("scorer", registry.SCORERS, name), "check_family", None)
    if check is not None:
        check(family)


def run(folder: RunFolder, config: RunConfig) -> None:
    """Score every image and write one row for each.

    Images that the pipeline itself marked (NaN, safety checker) are unscored with that reason.
    """
    from PIL import Image

    drawn = drawing.read(folder, config)
    scorer: Scorer = registry.resolve("scorer", registry.SCORERS, config.scorer)()
    tasks: dict[str, Task] = {task.id: task for task in drawn.tasks}
    rows: list[Row] = []
    index = read_index(folder)
    with bar("score", len(index), "images") as progress:
        for entry in index:
            task = tasks[entry.task_id]
            if entry.invalid:
                nothing = dict.fromkeys(task.values)
                verdict = Verdict(task.id, entry.image_index, "unscored", entry.invalid, nothing)
            else:
                path = folder.image(task.id, entry.image_index)
                if not intact_png(path):
                    raise DataError(
                        f"{path} is missing or cut: delete it and run `{folder.manifest['command']}` again, "
                        "which makes it anew"
                    )
                with Image.open(path) as image:
                    verdict = scorer.score(image, task, entry.image_index)
                _check_verdict(verdict, task, config.scorer)
            rows.append(_row(verdict))
            progress.advance()
    write_table(folder.path / "scores.parquet", rows)
    outcomes = Counter(row["outcome"] for row in rows)
    folder.update(counts=folder.manifest["counts"] | {"unscored": outcomes["unscored"]})


def _check_verdict(verdict: Verdict, task: Task, name: str) -> None:
    """What a scorer gives must be whole, or a later stage would fail after all the work.

    Raises:
        DataError: it is no verdict, lacks a constituent, or has an outcome that does not exist.
    """
    wanted = "Verdict(task_id, image_index, outcome, reason, constituents)"
    if not isinstance(verdict, Verdict):
        raise DataError(f"the scorer {name!r} gave a {type(verdict).__name__}, not a {wanted}")
    if verdict.outcome not in get_args(Outcome):
        raise DataError(
            f"the scorer {name!r} gave the outcome {verdict.outcome!r}, not one of {', '.join(get_args(Outcome))}"
        )
    if verdict.constituents.keys() != task.values.keys():
        raise DataError(
            f"the scorer {name!r} judged the constituents {', '.join(verdict.constituents) or 'none'} instead of"
            f" {', '.join(task.values)}; give True or False for each, None where it cannot be told"
        )


def _row(verdict: Verdict) -> Row:
    return {
        "task_id": verdict.task_id,
        "image_index": verdict.image_index,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
    } | {f"ok_{name}": right for name, right in verdict.constituents.items()}
