"""Stage 4 of 5. Relate decodability to success: scores and decodability -> correlation.json and summary.json.

The unit is the task. A task's decodability is that of the family's headline coding at the headline site.
"""

import numpy as np

from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.outcomes import Draws, Outcomes, draws
from t2iprobe.runs.records import CORRELATION, SUMMARY, Correlation
from t2iprobe.runs.summary import summarise
from t2iprobe.runs.targets import Array
from t2iprobe.stats import Estimate, auroc, pearson, spearman, stratified_spearman
from t2iprobe.stats.estimate import undefined

ALL = "all"
NAMES = ("decodability", "success")
MIN_DIFFERENT = 5  # tasks whose success is not the most common one


def run(folder: RunFolder, config: RunConfig) -> None:
    """Write the correlations and the summary."""
    outcomes = Outcomes(folder, config)
    correlation = correlate(outcomes, config)
    CORRELATION.write(folder.path, correlation)
    SUMMARY.write(folder.path, summarise(folder, outcomes, correlation, config))


def correlate(outcomes: Outcomes, config: RunConfig) -> Correlation:
    """Every correlation between decodability and success; undefined ones are NaN with a reason."""
    coding = outcomes.family.headline
    success = outcomes.success()
    decodability = outcomes.decodability(coding, ALL)
    how = draws(config)

    def relate(of: str, group: str, y: Array) -> Estimate:
        x = outcomes.decodability(of, group)
        return _nothing(outcomes, of, group, x, y) or _relate(x, y, how)

    strata, within, sign_flip, reason = _within_strata(outcomes, decodability, success.share, how)
    return Correlation(
        unit="task",
        coding=coding,
        overall=relate(coding, ALL, success.share),
        pearson=pearson(decodability, success.share, names=NAMES, **how),
        among_clean=relate(coding, ALL, success.share_of_clean),
        by_coding={c: relate(c, ALL, success.share) for c in outcomes.codings},
        by_constituent={
            group: relate(coding, group, outcomes.constituent_success(coding, group))
            for group in outcomes.groups(coding)
        },
        auroc_per_image=_auroc(outcomes, decodability, how),
        strata=strata,
        within=within,
        sign_flip=sign_flip,
        reason=reason,
    )


def _nothing(
    outcomes: Outcomes, coding: str, group: str, decodability: Array, success: Array
) -> Estimate | None:
    """The undefined estimate, with what is missing in plain words, where fewer than two tasks have both values."""
    n = int((~np.isnan(decodability) & ~np.isnan(success)).sum())
    if n >= 2:
        return None
    reasons = []
    if np.isnan(success).all():
        reasons.append(outcomes.why_not_judged())
    if np.isnan(decodability).all():
        reasons.append(outcomes.why_not_read(coding, group))
    few = f"only {n} of {len(success)} tasks can be both read and judged"
    return undefined("; ".join(reasons) or few, n, "task", "Spearman")


def _relate(decodability: Array, success: Array, how: Draws) -> Estimate:
    """Spearman over tasks; undefined when success is the same in all but a few of them.

    Resampling cannot tell how a handful of failing tasks would fall out another time: its interval would be far too
    narrow and a single task would pass for a finding.
    """
    known = ~(np.isnan(decodability) | np.isnan(success))
    few = _too_few(success[known])
    return few or spearman(decodability, success, names=NAMES, **how)


def _too_few(*strata: Array) -> Estimate | None:
    """The undefined estimate where success, given for each stratum, is not its most common value in too few tasks."""
    different = sum(
        len(stratum) - np.unique(stratum, return_counts=True)[1].max(initial=0)
        for stratum in strata
    )
    n = sum(map(len, strata))
    if not 0 < different < MIN_DIFFERENT:
        return None
    return undefined(f"success differs in only {different} of {n} tasks", n, "task", "Spearman")


def _auroc(outcomes: Outcomes, decodability: Array, how: Draws) -> Estimate:
    """How well a task's decodability tells its right images from the others."""
    of_task = dict(zip([task.id for task in outcomes.tasks], decodability, strict=True))
    scored = [row for row in outcomes.scores if row.outcome != "unscored"]
    return auroc(
        [of_task[row.task_id] for row in scored],
        [float(row.outcome == "right") for row in scored],
        units=[row.task_id for row in scored],
        **how,
    )


def _within_strata(
    outcomes: Outcomes,
    decodability: Array,
    success: Array,
    how: Draws,
) -> tuple[dict[str, Estimate] | None, Estimate | None, str | None, str | None]:
    """Seen and held-out scenes apart, and within them together: pooled values can mislead (Simpson's paradox).

    Returns:
        The estimate in each stratum, that within them, a warning where signs differ, and why there are none.
    """
    seen = outcomes.seen
    defined = ~(np.isnan(decodability) | np.isnan(success))
    if seen is None:
        return None, None, None, "no model card says what was seen"
    if not defined.any():
        return None, None, None, "no task has both values"
    names = ["seen" if count > 0 else "held_out" for count in seen[defined]]
    stratified = stratified_spearman(decodability[defined], success[defined], names, **how)
    of = {name: success[defined][[n == name for n in names]] for name in stratified.by_stratum}
    few = _too_few(*of.values())
    strata = {
        name: _too_few(of[name]) or estimate for name, estimate in stratified.by_stratum.items()
    }
    return strata, few or stratified.within, None if few else stratified.warning or None, None
