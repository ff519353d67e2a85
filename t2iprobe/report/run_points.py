"""One run as one point: what a comparison across runs needs of a run folder, of images or synthetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from t2iprobe.errors import DataError
from t2iprobe.report.finding import success_varies, variation
from t2iprobe.report.formats import model_name
from t2iprobe.report.reading import missing_stage, read_object, require_run
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.records import MANIFEST, SUMMARY
from t2iprobe.runs.results import require_unchanged

Kind = Literal["images", "synthetic"]

SYNTHETIC_CODING = "modules"
"""The name under which a synthetic run's decodability stands beside the codings of image runs."""

Bounds = tuple[float, float] | None


@dataclass(frozen=True)
class RunPoint:
    """One run of a comparison.

    Attributes:
        name: the folder's name, made distinct among the compared runs.
        kind: "images": success is the share of images right; "synthetic": it is R2 (or accuracy) on held-out tasks.
        pipeline: the class of an image run's pipeline; "" of a synthetic run.
        measure: the unit of success: "success", "R²" or "accuracy".
        success: over held-out tasks where the run knows them, else over all; `held_out` says which.
        success_all: over all tasks; of a synthetic run, on new samples of the combinations it was trained on.
        decodability: R2 of each coding at the headline site.
        success_ci, success_all_ci, decodability_ci, spearman_ci: 95% intervals over the run's tasks.
        headline: the coding that was the run's own headline.
        spearman: decodability against success inside the run, over tasks.
        varies: whether success differs between the run's tasks by more than chance; None: not tested.
        variation: the same in words, with p; "" of a synthetic run.
        beats_additive: of a synthetic run, whether the held-out score passes the additive baseline; None: no baseline.
        from_input: of a synthetic run, decodability of the input encoding itself on held-out tasks.
        training_run, training_step, sampling: from the model card; None when it does not say.
        share_possible, share_seen: of all scenes or combinations, those that training could draw and those it drew.
        setup: of a synthetic run, its settings without places and what says how much it saw.
        number: its place among the compared runs, from 1; in tables and figures.
    """

    name: str
    path: Path
    kind: Kind
    model: str
    pipeline: str
    family: str
    n_tasks: int | None
    measure: str
    success: float | None
    success_ci: Bounds
    success_all: float | None
    success_all_ci: Bounds
    held_out: bool
    decodability: dict[str, float | None]
    decodability_ci: dict[str, Bounds]
    headline: str
    spearman: float | None
    spearman_ci: Bounds
    varies: bool | None
    variation: str
    training_run: str | None
    training_step: int | None
    sampling: str | None
    share_possible: float | None
    share_seen: float | None
    beats_additive: bool | None = None
    from_input: float | None = None
    setup: tuple[tuple[str, str], ...] = ()
    number: int = 0

    @property
    def r2(self) -> float | None:
        """Decodability of the headline coding."""
        return self.decodability.get(self.headline)


def read_points(folders: Sequence[Path]) -> list[RunPoint]:
    """One point per finished run folder.

    The folder of a synthetic sweep stands for the runs in it. Folders that an earlier comparison wrote are passed over,
    so that `runs/*` can be given twice.

    Raises:
        DataError: a folder is not a run, is not finished (the stage is named) or is given twice.
    """
    seen: dict[Path, Path] = {}
    points = []
    for folder in [run for given in folders for run in _runs_of(given)]:
        real = folder.resolve()
        if real in seen:
            raise DataError(f"{folder} is given twice (first as {seen[real]}): give each run once")
        seen[real] = folder
        points.append(read_point(folder))
    return _numbered(points)


def _runs_of(folder: Path) -> list[Path]:
    """The run folders that a given folder stands for."""
    if is_comparison(folder):
        return []
    if (folder / "run.json").is_file():
        require_unchanged(RunFolder(folder))
    summary = folder / "summary.json"
    if summary.is_file() and read_object(summary).get("kind") == "synthetic sweep":
        found = sorted(run for run in (folder / "runs").glob("*") if (run / "run.json").is_file())
        if not found:
            raise DataError(f"{folder} is a sweep that trained no students: leave it out")
        return found
    return [folder]


def is_comparison(folder: Path) -> bool:
    """Whether a folder is what an earlier `t2iprobe compare` wrote."""
    return (folder / "compare.csv").is_file() and not (folder / "run.json").exists()


def read_point(folder: Path) -> RunPoint:
    """The point of one run.

    Raises:
        DataError: not a run folder, or an unfinished run.
    """
    summary_path = folder / "summary.json"
    summary = read_object(summary_path) if summary_path.is_file() else None
    if summary is not None and summary.get("kind") == "synthetic":
        return _synthetic(folder, summary)
    run = require_run(folder)
    stage = "train" if "train" in run.get("stages", {}) else missing_stage(folder, run)
    if stage is not None or summary is None:
        raise DataError(
            f"{folder} is not finished: its stage '{stage or 'correlate'}' is missing; "
            "run its command again to continue it, or leave it out"
        )
    return _images(folder)


def _images(folder: Path) -> RunPoint:
    manifest, summary = MANIFEST.read(folder), SUMMARY.read(folder)
    model = manifest.model or {}
    card = model.get("card") or {}
    training = card.get("training") or {}
    success, read = summary.success, summary.decodability
    has_held_out = success.held_out is not None
    return RunPoint(
        name=folder.resolve().name,
        path=folder,
        kind="images",
        model=model_name(summary.model),
        pipeline=model.get("pipeline_class") or "",
        family=summary.family,
        n_tasks=summary.n_tasks,
        measure="success",
        success=success.held_out if has_held_out else success.all,
        success_ci=success.held_out_ci if has_held_out else success.ci,
        success_all=success.all,
        success_all_ci=success.ci,
        held_out=has_held_out,
        decodability={coding: estimate.r2 for coding, estimate in read.by_coding.items()},
        decodability_ci={coding: estimate.ci for coding, estimate in read.by_coding.items()},
        headline=read.coding,
        spearman=summary.correlation.spearman,
        spearman_ci=summary.correlation.ci,
        varies=success_varies(summary),
        variation=variation(summary),
        training_run=training.get("run"),
        training_step=training.get("steps"),
        sampling=training.get("sampling"),
        share_possible=card.get("share_possible"),
        share_seen=card.get("share_seen"),
    )


def pick(data: object, *path: str) -> Any:
    """What lies at a path of keys in nested mappings; None when a key on the way is missing."""
    for key in path:
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    return data


def _synthetic(folder: Path, summary: Mapping[str, Any]) -> RunPoint:
    held_out = _score(summary.get("held_out"))
    test = _score(summary.get("test"))
    settings = summary.get("settings")
    return RunPoint(
        name=folder.resolve().name,
        path=folder,
        kind="synthetic",
        model=str(pick(settings, "student") or summary.get("model") or "student"),
        pipeline="",
        family=str(
            pick(settings, "task") or summary.get("family") or summary.get("task") or "synthetic"
        ),
        n_tasks=pick(summary, "support", "seen"),
        measure="R²" if pick(summary, "test", "accuracy") is None else "accuracy",
        success=held_out if held_out is not None else test,
        success_ci=None,
        success_all=test,
        success_all_ci=None,
        held_out=held_out is not None,
        decodability={
            SYNTHETIC_CODING: _score(pick(_last_layer(summary.get("decodability")), "held_out"))
        },
        decodability_ci={},
        headline=SYNTHETIC_CODING,
        spearman=None,
        spearman_ci=None,
        varies=None,
        variation="",
        beats_additive=pick(summary, "composes", "beats_additive"),
        training_run=None,
        training_step=pick(settings, "steps"),
        sampling=pick(settings, "support"),
        share_possible=None,
        share_seen=_share(summary.get("support"), settings),
        from_input=_score(pick(_last_layer(summary.get("decodability")), "from_input", "held_out")),
        setup=tuple(
            (name, _joined(value))
            for name, value in (settings or {}).items()
            if name not in ("out", "config", "device", "frac_ood", "train_tasks")
        ),
    )


def _score(data: Any) -> float | None:
    """R2 of the hyperteacher, accuracy of the preference grid."""
    for name in ("r2", "accuracy"):
        score: float | None = pick(data, name)
        if score is not None:
            return score
    return data if isinstance(data, float | int) else None


def _last_layer(layers: Any) -> Mapping[str, Any]:
    """What a synthetic summary says of the last hidden layer that was probed on held-out tasks; layers are in order."""
    rows = layers.values() if isinstance(layers, Mapping) else []
    found = [row for row in rows if isinstance(row, Mapping) and "held_out" in row]
    return found[-1] if found else {}


def _share(support: Any, settings: Any) -> float | None:
    seen, held_out = pick(support, "seen"), pick(support, "held_out")
    if seen is not None and held_out is not None and seen + held_out > 0:
        return float(seen / (seen + held_out))
    left_out = pick(settings, "frac_ood")
    return None if left_out is None else 1.0 - float(left_out)


def _joined(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _numbered(points: list[RunPoint]) -> list[RunPoint]:
    """The points with their numbers; runs whose folders share a name get their parent's name in front."""
    names = [point.name for point in points]
    return [
        replace(
            point,
            number=number,
            name=f"{point.path.resolve().parent.name}/{point.name}"
            if names.count(point.name) > 1
            else point.name,
        )
        for number, point in enumerate(points, start=1)
    ]
