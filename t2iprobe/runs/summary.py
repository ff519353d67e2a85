"""summary.json: the numbers of a run that fit on one screen. Undefined is null with a reason beside it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from t2iprobe.probes.headline import first_half
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.cost import total
from t2iprobe.runs.folder import SCHEMA_VERSION, Row, RunFolder, read_json, read_table
from t2iprobe.runs.outcomes import Outcomes, Success, draws
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
    folder: RunFolder, outcomes: Outcomes, correlation: dict[str, Any], config: RunConfig
) -> dict[str, Any]:
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
    return {
        "schema_version": SCHEMA_VERSION,
        "model": config.model,
        "family": outcomes.family.name,
        "n_tasks": len(outcomes.tasks),
        "n_images": len(outcomes.scores),
        "n_unscored": counts["unscored"],
        "success": _success(outcomes, success, counts, spread),
        "decodability": _decodability(folder, outcomes, config),
        "correlation": _correlation(correlation, outcomes, spread),
        "frequency": _frequency(outcomes, success, config),
        **_cuts(folder),
        "tasks_asked": config.tasks,
        "stopped": "budget" if folder.stage("generate").get("status") == "stopped" else None,
        "cost": total(folder),
    }


def _cuts(folder: RunFolder) -> dict[str, Any]:
    """Text encoder -> constituent -> tasks whose prompt is cut before it, and the limits in tokens; null for none."""
    lost: dict[str, dict[str, int]] = {}
    limits: dict[str, int] = {}
    for row in folder.read_lines("tasks.jsonl"):
        for name, parts in row["encoders"].get("lost", {}).items():
            for part in parts:
                counts = lost.setdefault(name, {})
                counts[part] = counts.get(part, 0) + 1
                limits[name] = row["encoders"].get("cut_at", {}).get(name)
    return {"text_lost": lost or None, "text_limit": limits or None}


def _success(
    outcomes: Outcomes, success: Success, counts: dict[str, int], spread: Dispersion
) -> dict[str, Any]:
    overall = success_rate(success.right, success.scored)
    clean = success_rate(success.right, success.clean)
    scored = sum(counts.values()) - counts["unscored"]
    return {
        "all": _number(overall.value),
        "ci": _pair(overall),
        "reason": overall.reason or None,
        "of_clean": {
            "value": _number(clean.value),
            "ci": _pair(clean),
            "reason": clean.reason or None,
        },
        "outcomes": counts,
        "coverage": scored / sum(counts.values()),
        **_by_seen(outcomes, success),
        "by_constituent": {
            name: _number(_mean(outcomes.constituent_success("slot", name)))
            for name in outcomes.family.names
        },
        "between_task": {
            "ratio": _number(spread.ratio.value),
            "p": spread.ratio.p,
            "sd": _number(spread.sd.value),
            "reliability": _number(spread.reliability.value),
            "differs": spread.differs,
            "reason": spread.ratio.reason or None,
        },
    }


def _by_seen(outcomes: Outcomes, success: Success) -> dict[str, Any]:
    if outcomes.seen is None:
        reason = "no model card says which scenes were seen in training"
        return {"seen": None, "held_out": None, "seen_reason": reason}
    parts = {"seen": outcomes.seen > 0, "held_out": outcomes.seen == 0}
    rates = {k: success_rate(success.right[m], success.scored[m]) for k, m in parts.items()}
    missing = "; ".join(f"{k}: {r.reason}" for k, r in rates.items() if r.reason)
    return (
        {k: _number(rate.value) for k, rate in rates.items()}
        | {f"{k}_ci": _pair(rate) for k, rate in rates.items()}
        | {"seen_reason": missing or None}
    )


def _decodability(folder: RunFolder, outcomes: Outcomes, config: RunConfig) -> dict[str, Any]:
    headline = read_json(folder.path / "headline.json")
    coding = outcomes.family.headline
    estimates = {c: _r2(outcomes, c, ALL, config) for c in outcomes.codings}
    place = headline["denoiser"]
    return {
        "coding": coding,
        "headline": {
            **{name: place[name] for name in ("site", "pooling", "step")},
            "r2": _number(estimates[coding].value),
            "ci": _pair(estimates[coding]),
            "reason": estimates[coding].reason or None,
            "other": place["other"],
            "n_candidates": place["n_candidates"],
        },
        "by_constituent": {
            group: _number(_r2(outcomes, coding, group, config).value)
            for group in outcomes.groups(coding)
        },
        "by_coding": {
            c: {"r2": _number(e.value), "ci": _pair(e), "reason": e.reason or None}
            for c, e in estimates.items()
        },
        "controls": {
            "shuffled_labels": _number(_shuffled_r2(outcomes, coding)),
            "bag_of_words": headline["bag_of_words"][coding],
        },
        "text_encoder": {
            name: headline["text_encoder"].get(name) for name in ("site", "pooling", "r2", "reason")
        },
        "best_by_component": _best_by_component(folder, coding),
    }


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


def _best_by_component(folder: RunFolder, coding: str) -> dict[str, Row]:
    """The highest R2 in each component and stream, as a map of where the parts are.

    Not a headline, since the best of many sites looks better than it is.
    """
    best: dict[str, Row] = {}
    for row in read_table(folder.path / "probes.parquet"):
        if row["coding"] != coding or row["constituent"] != ALL or row["r2"] is None:
            continue
        name = f"{row['component']}:{row['stream']}"
        if name not in best or row["r2"] > best[name]["r2"]:
            best[name] = {k: row[k] for k in ("site", "pooling", "step", "r2")}
    return best


def _correlation(
    correlation: dict[str, Any], outcomes: Outcomes, spread: Dispersion
) -> dict[str, Any]:
    def short(estimate: dict[str, Any]) -> dict[str, Any]:
        kept = {
            "spearman": estimate["value"],
            "ci": estimate["ci"],
            "p": estimate["p"],
            "n": estimate["n"],
        }
        return kept | {"reason": estimate["reason"] or None}

    overall = correlation["overall"]
    notes = [
        None
        if spread.differs
        else "success does not differ between tasks beyond chance: there is nothing to explain",
        correlation["sign_flip"],
    ]
    return {
        **short(overall),
        "p_floor": overall["p_floor"],
        "unit": correlation["unit"],
        "by_constituent": {k: short(v) for k, v in correlation["by_constituent"].items()},
        "by_coding": {k: short(v) for k, v in correlation["by_coding"].items()},
        "pearson": correlation["pearson"]["value"],
        "auroc": correlation["auroc_per_image"]["value"],
        "among_clean": short(correlation["among_clean"]),
        "within": None if correlation["within"] is None else short(correlation["within"]),
        "strata": None
        if correlation["strata"] is None
        else {k: short(v) for k, v in correlation["strata"].items()},
        "detectable": _number(detectable_correlation(len(outcomes.tasks))),
        "note": "; ".join(note for note in notes if note) or None,
    }


def _frequency(outcomes: Outcomes, success: Success, config: RunConfig) -> dict[str, Any]:
    """Success and decodability against how often a scene was seen in training."""
    if outcomes.seen is None:
        return {
            "bins": None,
            "success": None,
            "decodability": None,
            "reason": "no model card says what was seen",
        }
    decodability = outcomes.decodability(outcomes.family.headline, ALL)
    how = draws(config)
    return {
        "bins": [_bin(outcomes.seen, mask, success, decodability) for mask in _bins(outcomes.seen)],
        "success": spearman(outcomes.seen, success.share, **how).to_dict(),
        "decodability": spearman(outcomes.seen, decodability, **how).to_dict(),
        "reason": None,
    }


def _bins(seen: Array) -> list[NDArray[np.bool_]]:
    """Held-out scenes, then quantiles of the seen ones."""
    counts = seen[seen > 0]
    masks = [seen == 0]
    if len(counts):
        edges = np.unique(np.quantile(counts, np.linspace(0, 1, FREQUENCY_BINS + 1)))
        inner = np.searchsorted(edges[1:-1], seen, side="left")
        masks += [(seen > 0) & (inner == b) for b in range(max(len(edges) - 1, 1))]
    return [mask for mask in masks if mask.any()]


def _bin(seen: Array, mask: NDArray[np.bool_], success: Success, decodability: Array) -> Row:
    rate = success_rate(success.right[mask], success.scored[mask])
    return {
        "seen_low": int(seen[mask].min()),
        "seen_high": int(seen[mask].max()),
        "n_tasks": int(mask.sum()),
        "success": _number(rate.value),
        "ci": _pair(rate),
        "decodability": _number(_mean(decodability[mask])),
    }


def _mean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _pair(estimate: Estimate) -> list[float] | None:
    return None if estimate.ci is None else list(estimate.ci)
