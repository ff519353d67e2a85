"""Judge every image of a run: run folder -> scores.parquet."""

from collections import Counter

from t2iprobe import registry
from t2iprobe.config import RunConfig
from t2iprobe.errors import ConfigError, DataError
from t2iprobe.families import Family, Task
from t2iprobe.progress import bar
from t2iprobe.records import Verdict
from t2iprobe.stages import drawing
from t2iprobe.stages.activations import read_index
from t2iprobe.store import Row, RunFolder, intact_png, write_table


def check_scorer(name: str, family: Family) -> None:
    """Refuse a scorer that cannot judge a family, before anything is generated.

    Raises:
        ConfigError: no such scorer, or one for other families.
    """
    scorer = registry.resolve("scorer", registry.SCORERS, name)
    families: tuple[str, ...] | None = getattr(scorer, "families", None)
    if families is not None and family.name not in families:
        raise ConfigError(
            f"the scorer {name!r} judges {', '.join(families)}, not {family.name!r}: choose one of these families"
        )


def run(folder: RunFolder, config: RunConfig) -> None:
    """Score every image and write one row for each.

    Images that the pipeline itself marked (NaN, safety checker) are unscored with that reason.
    """
    from PIL import Image

    drawn = drawing.read(folder, config)
    scorer = registry.resolve("scorer", registry.SCORERS, config.scorer)()
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
            rows.append(_row(verdict))
            progress.advance()
    write_table(folder.path / "scores.parquet", rows)
    outcomes = Counter(row["outcome"] for row in rows)
    folder.update(counts=folder.manifest["counts"] | {"unscored": outcomes["unscored"]})


def _row(verdict: Verdict) -> Row:
    return {
        "task_id": verdict.task_id,
        "image_index": verdict.image_index,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
    } | {f"ok_{name}": right for name, right in verdict.constituents.items()}
