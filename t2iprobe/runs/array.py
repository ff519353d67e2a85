"""The probes of one array of activations: every coding side by side, shuffled labels included."""

from dataclasses import dataclass, replace
from math import isnan

import numpy as np
from numpy.typing import NDArray

from t2iprobe.errors import DataError
from t2iprobe.probes.controls import SHUFFLED
from t2iprobe.probes.crossfit import CrossPredict, OutOfFold
from t2iprobe.probes.decodability import TaskDecodability, accuracy
from t2iprobe.runs.records import ProbeFit
from t2iprobe.runs.targets import ALL, NOTHING_LOST, Array, Group, Lost, Targets


@dataclass(frozen=True)
class Probed:
    """The probes of one array of activations.

    Attributes:
        rows: what goes into probes.parquet.
        fits: residual and total of each task and group; groups whose images differ have fits of their own.
    """

    rows: list[ProbeFit]
    fits: list[TaskDecodability]

    def tasks(self, names: list[str]) -> TaskDecodability:
        """Residual and total of some groups, over the tasks that have all of them; no task where one is undefined."""
        parts = [fit for fit in self.fits if set(names) & set(fit.groups)]
        if not parts or not set(names) <= {name for fit in parts for name in fit.groups}:
            empty = np.zeros((0, 0))
            return TaskDecodability((), (), empty, empty, np.zeros(0, dtype=np.intp))
        return TaskDecodability.joined(parts)


def probe(
    X: NDArray[np.float32],
    targets: Targets,
    span: str | None,
    predict: CrossPredict,
    lost: Lost = NOTHING_LOST,
) -> Probed:
    """Out-of-fold probes of one array.

    Args:
        X: (n images, d) activations. Rows with NaN (a constituent whose tokens were cut off) are left out.
        targets: what to predict.
        span: the constituent whose own tokens were pooled: only its slot is asked for; None asks for everything.
        predict: one of `t2iprobe.registry.PROBES`.
        lost: what was cut off before it came here; those images are left out of the groups that speak of it.
    """
    groups = [g for g in targets.groups if span is None or g == Group("slot", span)]
    finite = np.isfinite(X).all(axis=1)
    alike: dict[bytes, list[Group]] = {}
    for group in groups:
        cut = lost.rows.get(group.name, np.zeros(len(X), dtype=bool))
        alike.setdefault((finite & ~cut).tobytes(), []).append(group)
    rows: dict[Group, ProbeFit] = {}
    probed = Probed([], [])
    for mask, members in alike.items():
        kept = np.flatnonzero(np.frombuffer(mask, dtype=bool))
        if len(np.unique(targets.folds[kept])) < 3:
            rows |= {g: _undefined(g, _why(g, kept, span, targets, lost)) for g in members}
            continue
        defined, fit = _fit(X[kept], targets, kept, members, predict)
        rows |= defined
        probed.fits.append(fit)
    probed.rows.extend(rows[group] for group in groups)
    for coding in dict.fromkeys(group.coding for group in groups if span is None):
        probed.rows.append(_whole(coding, probed, targets))
    rows_with_cuts = [
        replace(row, n_tasks_cut=_n_cut(row.coding, row.constituent, targets, lost))
        for row in probed.rows
    ]
    return Probed(rows_with_cuts, probed.fits)


def _fit(
    X: NDArray[np.float32],
    targets: Targets,
    kept: NDArray[np.intp],
    groups: list[Group],
    predict: CrossPredict,
) -> tuple[dict[Group, ProbeFit], TaskDecodability]:
    """The probes of some groups on some images; `X` has the rows of these images alone."""
    columns = targets.columns({group.name for group in groups})
    Y, task_ids = targets.Y[kept][:, columns], [targets.task_ids[n] for n in kept]
    fit = predict(X, Y, targets.folds[kept], [targets.column_groups[c] for c in columns])
    if not isinstance(fit, OutOfFold):
        raise DataError(
            f"the probe gave a {type(fit).__name__}; a probe gives a t2iprobe.probes.crossfit.OutOfFold"
        )
    tasks = fit.per_task(Y, task_ids)
    alphas = fit.typical_alpha()
    rows = {}
    for group in groups:
        columns_of_group = fit.columns.of_group(group.name)
        right = accuracy(Y[:, columns_of_group], fit.predictions[:, columns_of_group])
        rows[group] = ProbeFit(
            group.coding,
            group.constituent,
            *_r2(tasks, [group.name]),
            accuracy=or_none(right.value),
            chance=or_none(right.majority),
            alpha=alphas[group.name],
            n_images=len(Y),
            n_tasks=len(tasks.tasks),
            n_folds=len(fit.fold_labels),
            n_tasks_cut=0,
        )
    return rows, tasks


def _whole(coding: str, probed: Probed, targets: Targets) -> ProbeFit:
    """The row of a whole coding: over the tasks of which nothing was cut off, if every constituent could be probed."""
    undefined = [r.reason for r in probed.rows if r.coding == coding and r.n_tasks is None]
    if undefined:
        return _undefined(Group(coding, ALL), undefined[0])
    names = targets.of_coding(coding)
    tasks = probed.tasks(names)
    if not tasks.tasks:
        return _undefined(Group(coding, ALL), "every prompt is cut before one of the constituents")
    fold = dict(zip(targets.task_ids, targets.folds.tolist(), strict=True))
    return ProbeFit(
        coding,
        ALL,
        *_r2(tasks, names),
        accuracy=None,
        chance=None,
        alpha=None,
        n_images=int(tasks.n_rows.sum()),
        n_tasks=len(tasks.tasks),
        n_folds=len({fold[task] for task in tasks.tasks}),
        n_tasks_cut=0,
    )


def _why(
    group: Group, kept: NDArray[np.intp], span: str | None, targets: Targets, lost: Lost
) -> str:
    """Why a group cannot be probed on the images that are left."""
    before = lost.before.get(group.name) or (span if span and not len(kept) else None)
    few = "fewer than 3 folds have activations"
    if before is None:
        return few
    if not len(kept):
        return f"prompts are cut before {before}"
    n_cut = _n_cut(group.coding, group.constituent, targets, lost)
    return f"prompts of {n_cut} tasks are cut before {before}, and {few}"


def _n_cut(coding: str, constituent: str, targets: Targets, lost: Lost) -> int:
    """Tasks that are left out of a row because their prompts were cut."""
    names = targets.of_coding(coding) if constituent == ALL else [f"{coding}/{constituent}"]
    cut = [lost.rows[name] for name in names if name in lost.rows]
    return len({targets.task_ids[n] for rows in cut for n in np.flatnonzero(rows)})


def sums(tasks: TaskDecodability, names: list[str]) -> tuple[Array, Array]:
    """(t,) residual and total of each task, summed over some groups."""
    at = [tasks.groups.index(name) for name in names]
    return tasks.residual[:, at].sum(axis=1), tasks.total[:, at].sum(axis=1)


def ratio(residual: Array, total: Array) -> float:
    """1 - residual / total over tasks; NaN where there is nothing to explain."""
    return 1.0 - float(residual.sum() / total.sum()) if total.sum() > 0 else float("nan")


def _r2(tasks: TaskDecodability, names: list[str]) -> tuple[float | None, float | None, str | None]:
    """R2, R2 of shuffled labels, and why it is undefined."""
    value = ratio(*sums(tasks, names))
    shuffled = ratio(*sums(tasks, [SHUFFLED + name for name in names]))
    reason = "the target does not vary among these tasks" if isnan(value) else None
    return or_none(value), or_none(shuffled), reason


def or_none(value: float) -> float | None:
    """A number as JSON and tables hold it: undefined is null."""
    return None if isnan(value) else value


def _undefined(group: Group, reason: str | None) -> ProbeFit:
    return ProbeFit(
        group.coding,
        group.constituent,
        r2=None,
        r2_shuffled=None,
        reason=reason,
        accuracy=None,
        chance=None,
        alpha=None,
        n_images=None,
        n_tasks=None,
        n_folds=None,
        n_tasks_cut=0,
    )
