"""summary.json: the numbers of a run that fit on one screen. Undefined is null with a reason beside it."""

import numpy as np
from numpy.typing import NDArray

from t2iprobe.probes.headline import first_half
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.cost import total
from t2iprobe.runs.folder import SCHEMA_VERSION, RunFolder
from t2iprobe.runs.outcomes import Outcomes, Success, draws
from t2iprobe.runs.records import (
    HEADLINE,
    PROBES,
    TASKS,
    BetweenTasks,
    CodingR2,
    Controls,
    Correlation,
    DecodabilitySummary,
    EncoderR2,
    Frequency,
    FrequencyBin,
    HeadlineR2,
    Link,
    LinkSummary,
    Share,
    SiteR2,
    SuccessSummary,
    Summary,
)
from t2iprobe.stats import (
    Dispersion,
    Estimate,
    detectable_correlation,
    overdispersion,
    spearman,
    split_half_r2,
    success_rate,
)

ALL = "all"
FREQUENCY_BINS = 4
Array = NDArray[np.float64]


def summarise(
    folder: RunFolder, outcomes: Outcomes, correlation: Correlation, config: RunConfig
) -> Summary:
    """The summary of a run. Everything but `cost` depends on the settings alone.

    Args:
        folder: the run.
        outcomes: its tables.
        correlation: the content of correlation.json.
        config: its settings.
    """
    success = outcomes.success()
    counts = outcomes.counts()
    spread = overdispersion(success.right, success.scored, **draws(config))
    lost, limits = _cuts(folder)
    return Summary(
        schema_version=SCHEMA_VERSION,
        model=config.model,
        family=outcomes.family.name,
        n_tasks=len(outcomes.tasks),
        n_images=len(outcomes.scores),
        n_unscored=counts["unscored"],
        success=_success(outcomes, success, counts, spread),
        decodability=_decodability(folder, outcomes, config),
        correlation=_correlation(correlation, outcomes, spread),
        frequency=_frequency(outcomes, success, config),
        text_lost=lost or None,
        text_limit=limits or None,
        tasks_asked=config.tasks,
        stopped="budget" if folder.stage("generate").get("status") == "stopped" else None,
        cost=total(folder),
    )


def _cuts(folder: RunFolder) -> tuple[dict[str, dict[str, int]], dict[str, int | None]]:
    """Text encoder -> constituent -> tasks whose prompt is cut before it; encoder -> its limit in tokens."""
    lost: dict[str, dict[str, int]] = {}
    limits: dict[str, int | None] = {}
    for task in TASKS.read(folder.path):
        for name, parts in task.encoders.lost.items():
            for part in parts:
                counts = lost.setdefault(name, {})
                counts[part] = counts.get(part, 0) + 1
                limits[name] = task.encoders.cut_at.get(name)
    return lost, limits


def _success(
    outcomes: Outcomes, success: Success, counts: dict[str, int], spread: Dispersion
) -> SuccessSummary:
    overall = success_rate(success.right, success.scored)
    clean = success_rate(success.right, success.clean)
    scored = sum(counts.values()) - counts["unscored"]
    seen, held_out, reason = _by_seen(outcomes, success)
    return SuccessSummary(
        all=_number(overall.value),
        ci=overall.ci,
        reason=overall.reason or None,
        of_clean=Share(_number(clean.value), clean.ci, clean.reason or None),
        outcomes=counts,
        coverage=scored / sum(counts.values()),
        seen=None if seen is None else _number(seen.value),
        held_out=None if held_out is None else _number(held_out.value),
        seen_ci=None if seen is None else seen.ci,
        held_out_ci=None if held_out is None else held_out.ci,
        seen_reason=reason,
        by_constituent={
            name: _number(_mean(outcomes.constituent_success("slot", name)))
            for name in outcomes.family.names
        },
        between_task=BetweenTasks(
            ratio=_number(spread.ratio.value),
            p=spread.ratio.p,
            sd=_number(spread.sd.value),
            reliability=_number(spread.reliability.value),
            differs=spread.differs,
            reason=spread.ratio.reason or None,
        ),
    )


def _by_seen(
    outcomes: Outcomes, success: Success
) -> tuple[Estimate | None, Estimate | None, str | None]:
    """Success of tasks whose scene training showed and of the others, and why one is missing."""
    if outcomes.seen is None:
        return None, None, "no model card says which scenes were seen in training"
    parts = {"seen": outcomes.seen > 0, "held_out": outcomes.seen == 0}
    rates = {k: success_rate(success.right[m], success.scored[m]) for k, m in parts.items()}
    missing = "; ".join(f"{k}: {r.reason}" for k, r in rates.items() if r.reason)
    return rates["seen"], rates["held_out"], missing or None


def _decodability(folder: RunFolder, outcomes: Outcomes, config: RunConfig) -> DecodabilitySummary:
    headline = HEADLINE.read(folder.path)
    coding = outcomes.family.headline
    by_coding = {c: _coding_r2(_r2(outcomes, c, ALL, config)) for c in outcomes.codings}
    place, encoder = headline.denoiser, headline.text_encoder
    return DecodabilitySummary(
        coding=coding,
        headline=HeadlineR2(
            site=place.site,
            pooling=place.pooling,
            step=place.step,
            **vars(by_coding[coding]),
            other=place.other,
            n_candidates=place.n_candidates,
        ),
        by_constituent={
            group: _number(_r2(outcomes, coding, group, config).value)
            for group in outcomes.groups(coding)
        },
        by_coding=by_coding,
        controls=Controls(
            shuffled_labels=_number(_shuffled_r2(outcomes, coding)),
            bag_of_words=headline.bag_of_words[coding],
        ),
        text_encoder=EncoderR2(encoder.site, encoder.pooling, encoder.r2, encoder.reason),
        best_by_component=_best_by_component(folder, coding),
    )


def _coding_r2(estimate: Estimate) -> CodingR2:
    return CodingR2(_number(estimate.value), estimate.ci, estimate.reason or None)


def _r2(outcomes: Outcomes, coding: str, group: str, config: RunConfig) -> Estimate:
    """R2 of a group at the headline site.

    The mean over the two halves of the folds, each valued at the site chosen on the other half.
    """
    residual = outcomes.decodability(coding, group, "residual")
    total = outcomes.decodability(coding, group, "total")
    known = ~np.isnan(total)
    first = first_half(np.array(outcomes.drawn.folds))
    return split_half_r2(
        np.stack([residual, residual], axis=1)[known],
        total[known],
        first[known],
        seed=config.seed,
        n_resamples=config.resamples,
    )


def _shuffled_r2(outcomes: Outcomes, coding: str) -> float:
    residual = outcomes.decodability(coding, ALL, "residual_shuffled")
    total = outcomes.decodability(coding, ALL, "total_shuffled")
    known = np.nansum(total)
    return 1.0 - float(np.nansum(residual) / known) if known > 0 else float("nan")


def _best_by_component(folder: RunFolder, coding: str) -> dict[str, SiteR2]:
    """The highest R2 in each component and stream, as a map of where the parts are.

    Not a headline, since the best of many sites looks better than it is.
    """
    best: dict[str, SiteR2] = {}
    highest: dict[str, float] = {}
    for row in PROBES.read(folder.path):
        if row.coding != coding or row.constituent != ALL or row.r2 is None:
            continue
        name = f"{row.component}:{row.stream}"
        if name not in highest or row.r2 > highest[name]:
            highest[name] = row.r2
            best[name] = SiteR2(row.site, row.pooling, row.step, row.r2)
    return best


def _correlation(correlation: Correlation, outcomes: Outcomes, spread: Dispersion) -> LinkSummary:
    overall, within, strata = correlation.overall, correlation.within, correlation.strata
    notes = [
        None
        if spread.differs
        else "success does not differ between tasks beyond chance: there is nothing to explain",
        correlation.sign_flip,
    ]
    return LinkSummary(
        **vars(_link(overall)),
        p_floor=overall.p_floor,
        unit=correlation.unit,
        by_constituent={name: _link(e) for name, e in correlation.by_constituent.items()},
        by_coding={name: _link(e) for name, e in correlation.by_coding.items()},
        pearson=_number(correlation.pearson.value),
        auroc=_number(correlation.auroc_per_image.value),
        among_clean=_link(correlation.among_clean),
        within=None if within is None else _link(within),
        strata=None if strata is None else {name: _link(e) for name, e in strata.items()},
        detectable=_number(detectable_correlation(len(outcomes.tasks))),
        note="; ".join(note for note in notes if note) or None,
    )


def _link(estimate: Estimate) -> Link:
    return Link(
        spearman=_number(estimate.value),
        ci=estimate.ci,
        p=estimate.p,
        n=estimate.n,
        reason=estimate.reason or None,
    )


def _frequency(outcomes: Outcomes, success: Success, config: RunConfig) -> Frequency:
    """Success and decodability against how often a scene was seen in training."""
    if outcomes.seen is None:
        return Frequency(None, None, None, reason="no model card says what was seen")
    decodability = outcomes.decodability(outcomes.family.headline, ALL)
    how = draws(config)
    return Frequency(
        bins=[_bin(outcomes.seen, mask, success, decodability) for mask in _bins(outcomes.seen)],
        success=spearman(outcomes.seen, success.share, **how),
        decodability=spearman(outcomes.seen, decodability, **how),
        reason=None,
    )


def _bins(seen: Array) -> list[NDArray[np.bool_]]:
    """Held-out scenes, then quantiles of the seen ones."""
    counts = seen[seen > 0]
    masks = [seen == 0]
    if len(counts):
        edges = np.unique(np.quantile(counts, np.linspace(0, 1, FREQUENCY_BINS + 1)))
        inner = np.searchsorted(edges[1:-1], seen, side="left")
        masks += [(seen > 0) & (inner == b) for b in range(max(len(edges) - 1, 1))]
    return [mask for mask in masks if mask.any()]


def _bin(
    seen: Array, mask: NDArray[np.bool_], success: Success, decodability: Array
) -> FrequencyBin:
    rate = success_rate(success.right[mask], success.scored[mask])
    return FrequencyBin(
        seen_low=int(seen[mask].min()),
        seen_high=int(seen[mask].max()),
        n_tasks=int(mask.sum()),
        success=_number(rate.value),
        ci=rate.ci,
        decodability=_number(_mean(decodability[mask])),
    )


def _mean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
