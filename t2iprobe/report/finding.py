"""The finding of one run in plain words, written from its numbers and never stronger than they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from t2iprobe.report.formats import decimal, interval, interval_of, number, p_value, percent
from t2iprobe.report.reading import pick, value_of

Verdict = Literal["together", "against", "unclear", "nothing to explain", "undefined", "sign flip"]

VARIES_UP_TO = 0.05
"""Success counts as varying between tasks when the over-dispersion test's p is at most this."""


@dataclass(frozen=True)
class Finding:
    """What a run shows.

    Attributes:
        verdict: the kind of answer; the page's colour and the comparison table follow it.
        sentence: the answer in one plain sentence, with its numbers.
        notes: further sentences a careful reader needs: where success stands, where the parts are read, warnings.
    """

    verdict: Verdict
    sentence: str
    notes: tuple[str, ...]


def find(summary: Mapping[str, Any], correlation: Mapping[str, Any] | None = None) -> Finding:
    """The finding of a run from its summary.json and, where at hand, its correlation.json."""
    verdict, sentence = _link(summary, correlation or {})
    notes = [_success(summary), _decodability(summary), *_warnings(summary)]
    note = pick(summary, "correlation", "note")
    if note and verdict in ("together", "against"):  # the other sentences say it already
        notes.append(_clean(note) + ".")
    return Finding(verdict, sentence, tuple(text for text in notes if text))


def success_varies(summary: Mapping[str, Any]) -> bool | None:
    """Whether success differs between tasks by more than chance; None when that was not tested."""
    p = number(pick(summary, "success", "between_task", "p"))
    return None if p is None else p <= VARIES_UP_TO


def variation(summary: Mapping[str, Any]) -> str:
    """How far success varies between the tasks of a run, in a few words, for tables."""
    p = number(pick(summary, "success", "between_task", "p"))
    if p is None:
        reason = pick(summary, "success", "between_task", "reason")
        return f"not tested ({reason})" if reason else "not tested"
    return f"{'varies' if p <= VARIES_UP_TO else 'hardly varies'} ({p_value(p)})"


def _link(summary: Mapping[str, Any], correlation: Mapping[str, Any]) -> tuple[Verdict, str]:
    success = number(pick(summary, "success", "all"))
    if success is None:
        reason = pick(summary, "success", "reason") or "no image could be scored"
        return (
            "undefined",
            f"Success is not known ({reason}), so there is nothing to relate decodability to.",
        )
    if success in (0.0, 1.0):
        return (
            "nothing to explain",
            f"{_all_the_same(success, summary)}, so there is no difference in success for decodability to explain.",
        )
    if success_varies(summary) is False:
        p = pick(summary, "success", "between_task", "p")
        return (
            "nothing to explain",
            f"Success hardly varies between tasks beyond chance ({percent(success)} of images right; {p_value(p)} for "
            "any difference), so there is little here for decodability to explain.",
        )
    rho = number(pick(summary, "correlation", "spearman"))
    if rho is None:
        reason = (
            pick(summary, "correlation", "reason")
            or pick(summary, "correlation", "note")
            or "no reason given"
        )
        return (
            "undefined",
            f"The correlation of decodability and success is not defined: {_clean(reason)}.",
        )
    if correlation.get("sign_flip"):
        return "sign flip", _flip(rho, summary, correlation)
    return _signed(rho, summary)


def _all_the_same(success: float, summary: Mapping[str, Any]) -> str:
    outcomes = pick(summary, "success", "outcomes") or {}
    counts = {name: int(number(n) or 0) for name, n in outcomes.items()}
    malformed, unscored = counts.pop("malformed", 0), counts.pop("unscored", 0)
    if success == 0.0 and malformed:  # a malformed picture is not right, and not wrong either
        which = "scored image" if unscored else "image"
        return f"No {which} is right ({malformed} of {malformed + sum(counts.values())} malformed)"
    return f"Every scored image is {'wrong' if success == 0.0 else 'right'}"


def _signed(rho: float, summary: Mapping[str, Any]) -> tuple[Verdict, str]:
    ci = interval_of(pick(summary, "correlation"))
    n = pick(summary, "correlation", "n")
    unit = pick(summary, "correlation", "unit") or "task"
    over = f"over {n} {unit}s" if n is not None else f"over {unit}s"
    if ci is None:
        return "unclear", (
            f"Decodability and success correlate at {decimal(rho)} (Spearman, {over}), but without an interval "
            "this says nothing certain."
        )
    numbers = f"Spearman {decimal(rho)}, 95% interval {interval(ci)}, {over}"
    if ci[0] <= 0.0 <= ci[1]:
        return "unclear", (
            "In this run decodability and success do not clearly go together: the interval of their correlation "
            f"contains 0 ({numbers}).{_power(summary)}"
        )
    if rho > 0:
        return "together", (
            f"Tasks whose parts are easier to read inside the model are also drawn right more often ({numbers})."
        )
    return "against", (
        f"Tasks whose parts are easier to read inside the model are drawn right less often, against the "
        f"claim ({numbers})."
    )


def _flip(rho: float, summary: Mapping[str, Any], correlation: Mapping[str, Any]) -> str:
    within = correlation.get("strata") or pick(summary, "correlation", "strata") or {}
    inside = ", ".join(
        f"{_words(name)} {decimal(value_of(value))}" for name, value in within.items()
    )
    return (
        "Read the groups, not the total: inside groups of tasks decodability and success correlate with another "
        f"sign ({inside}) than pooled over all of them ({decimal(rho)})."
    )


def _success(summary: Mapping[str, Any]) -> str:
    share = number(pick(summary, "success", "all"))
    if share is None:
        return ""
    text = f"The model draws {percent(share)} of the images right"
    bounds = interval(pick(summary, "success"), as_percent=True)
    text += f" (95% interval {bounds})" if bounds else ""
    seen, held_out = (number(pick(summary, "success", name)) for name in ("seen", "held_out"))
    if seen is not None and held_out is not None:
        text += (
            f": {percent(seen)} of scenes it was trained on, {percent(held_out)} of held-out ones"
        )
    clean = number(pick(summary, "success", "of_clean", "value"))
    return text + (
        f"; of images with clean objects, {percent(clean)}." if clean is not None else "."
    )


def _power(summary: Mapping[str, Any]) -> str:
    least = number(pick(summary, "correlation", "detectable"))
    if least is None:
        return ""
    return f" With this many tasks a correlation below {decimal(least)} would often be missed."


def _decodability(summary: Mapping[str, Any]) -> str:
    r2 = number(pick(summary, "decodability", "headline", "r2"))
    coding = pick(summary, "decodability", "coding")
    if r2 is None:
        reason = pick(summary, "decodability", "headline", "reason")
        return (
            f"Decodability at the headline site is not defined: {_clean(reason)}." if reason else ""
        )
    site = pick(summary, "decodability", "headline", "site")
    step = pick(summary, "decodability", "headline", "step")
    shuffled = number(pick(summary, "decodability", "controls", "shuffled_labels"))
    text = f"A linear probe at {site}, denoising step {step}, recovers the {coding} coding with R² {decimal(r2)}"
    if shuffled is None:
        return text + "."
    if r2 <= shuffled:
        return (
            text
            + f", no better than with shuffled labels ({decimal(shuffled)}): the parts are not read there."
        )
    return text + f" (shuffled labels: {decimal(shuffled)})."


def _cuts(summary: Mapping[str, Any]) -> list[str]:
    """One sentence for each text encoder that loses constituents at its limit."""
    notes = []
    for name, lost in (pick(summary, "text_lost") or {}).items():
        parts: dict[int, list[str]] = {}
        for part, n in lost.items():
            parts.setdefault(n, []).append(part)
        which = ", ".join(f"{', '.join(names)} lost in {n}" for n, names in parts.items())
        limit = pick(summary, "text_limit", name)
        at = "" if limit is None else f" at {limit} tokens"
        notes.append(f"{name} cuts prompts{at}: {which} of {pick(summary, 'n_tasks')} tasks.")
    return notes


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    notes = _cuts(summary)
    outcomes = pick(summary, "success", "outcomes") or {}
    wrong, malformed = number(outcomes.get("wrong")) or 0, number(outcomes.get("malformed")) or 0
    if malformed > wrong:
        notes.append(
            f"Most failures ({malformed:.0f} of {wrong + malformed:.0f}) are malformed pictures, which say little "
            "about composition."
        )
    coverage = number(pick(summary, "success", "coverage"))
    if coverage is not None and coverage < 1.0:
        unscored = pick(summary, "n_unscored")
        notes.append(
            f"{unscored} images could not be scored and are left out (coverage {percent(coverage)})."
        )
    return notes


def _clean(text: object) -> str:
    return str(text).strip().rstrip(".")


def _words(name: str) -> str:
    return name.replace("_", " ").replace("held out", "held-out")
