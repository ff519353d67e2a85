"""The finding of one run in plain words, written from its numbers and never stronger than they are."""

from dataclasses import dataclass
from typing import Literal

from t2iprobe.report.formats import decimal, interval, p_value, percent
from t2iprobe.runs.records import Correlation, Summary

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


def find(summary: Summary, correlation: Correlation | None = None) -> Finding:
    """The finding of a run from its summary and, where at hand, its correlations."""
    verdict, sentence = _link(summary, correlation)
    notes = [_success(summary), _decodability(summary), *_warnings(summary)]
    if summary.correlation.note and verdict in ("together", "against"):  # the others say it already
        notes.append(_clean(summary.correlation.note) + ".")
    return Finding(verdict, sentence, tuple(text for text in notes if text))


def success_varies(summary: Summary) -> bool | None:
    """Whether success differs between tasks by more than chance; None when that was not tested."""
    p = summary.success.between_task.p
    return None if p is None else p <= VARIES_UP_TO


def variation(summary: Summary) -> str:
    """How far success varies between the tasks of a run, in a few words, for tables."""
    between = summary.success.between_task
    if between.p is None:
        return f"not tested ({between.reason})" if between.reason else "not tested"
    return f"{'varies' if success_varies(summary) else 'hardly varies'} ({p_value(between.p)})"


def _link(summary: Summary, correlation: Correlation | None) -> tuple[Verdict, str]:
    success, link = summary.success.all, summary.correlation
    if success is None:
        reason = summary.success.reason or "no image could be scored"
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
        return (
            "nothing to explain",
            f"Success hardly varies between tasks beyond chance ({percent(success)} of images right; "
            f"{p_value(summary.success.between_task.p)} for any difference), so there is little here for decodability "
            "to explain.",
        )
    if link.spearman is None:
        reason = link.reason or link.note or "no reason given"
        return (
            "undefined",
            f"The correlation of decodability and success is not defined: {_clean(reason)}.",
        )
    if correlation is not None and correlation.sign_flip:
        return "sign flip", _flip(link.spearman, correlation)
    return _signed(link.spearman, summary)


def _all_the_same(success: float, summary: Summary) -> str:
    counts = dict(summary.success.outcomes)
    malformed, unscored = counts.pop("malformed", 0), counts.pop("unscored", 0)
    if success == 0.0 and malformed:  # a malformed picture is not right, and not wrong either
        which = "scored image" if unscored else "image"
        return f"No {which} is right ({malformed} of {malformed + sum(counts.values())} malformed)"
    return f"Every scored image is {'wrong' if success == 0.0 else 'right'}"


def _signed(rho: float, summary: Summary) -> tuple[Verdict, str]:
    link = summary.correlation
    over = f"over {link.n} {link.unit}s"
    if link.ci is None:
        return "unclear", (
            f"Decodability and success correlate at {decimal(rho)} (Spearman, {over}), but without an interval "
            "this says nothing certain."
        )
    numbers = f"Spearman {decimal(rho)}, 95% interval {interval(link.ci)}, {over}"
    if link.ci[0] <= 0.0 <= link.ci[1]:
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


def _flip(rho: float, correlation: Correlation) -> str:
    inside = ", ".join(
        f"{_words(name)} {decimal(estimate.value)}"
        for name, estimate in (correlation.strata or {}).items()
    )
    return (
        "Read the groups, not the total: inside groups of tasks decodability and success correlate with another "
        f"sign ({inside}) than pooled over all of them ({decimal(rho)})."
    )


def _success(summary: Summary) -> str:
    success = summary.success
    if success.all is None:
        return ""
    text = f"The model draws {percent(success.all)} of the images right"
    bounds = interval(success.ci, as_percent=True)
    text += f" (95% interval {bounds})" if bounds else ""
    if success.seen is not None and success.held_out is not None:
        text += f": {percent(success.seen)} of scenes it was trained on, {percent(success.held_out)} of held-out ones"
    clean = success.of_clean.value
    return text + (
        f"; of images with clean objects, {percent(clean)}." if clean is not None else "."
    )


def _power(summary: Summary) -> str:
    least = summary.correlation.detectable
    if least is None:
        return ""
    return f" With this many tasks a correlation below {decimal(least)} would often be missed."


def _decodability(summary: Summary) -> str:
    headline, shuffled = (
        summary.decodability.headline,
        summary.decodability.controls.shuffled_labels,
    )
    if headline.r2 is None:
        reason = headline.reason
        return (
            f"Decodability at the headline site is not defined: {_clean(reason)}." if reason else ""
        )
    text = (
        f"A linear probe at {headline.site}, denoising step {headline.step}, recovers the "
        f"{summary.decodability.coding} coding with R² {decimal(headline.r2)}"
    )
    if shuffled is None:
        return text + "."
    if headline.r2 <= shuffled:
        return (
            text
            + f", no better than with shuffled labels ({decimal(shuffled)}): the parts are not read there."
        )
    return text + f" (shuffled labels: {decimal(shuffled)})."


def _cuts(summary: Summary) -> list[str]:
    """One sentence for each text encoder that loses constituents at its limit."""
    notes = []
    for name, lost in (summary.text_lost or {}).items():
        parts: dict[int, list[str]] = {}
        for part, n in lost.items():
            parts.setdefault(n, []).append(part)
        which = ", ".join(f"{', '.join(names)} lost in {n}" for n, names in parts.items())
        limit = (summary.text_limit or {}).get(name)
        at = "" if limit is None else f" at {limit} tokens"
        notes.append(f"{name} cuts prompts{at}: {which} of {summary.n_tasks} tasks.")
    return notes


def _warnings(summary: Summary) -> list[str]:
    notes = _cuts(summary)
    outcomes = summary.success.outcomes
    wrong, malformed = outcomes.get("wrong", 0), outcomes.get("malformed", 0)
    if malformed > wrong:
        notes.append(
            f"Most failures ({malformed} of {wrong + malformed}) are malformed pictures, which say little "
            "about composition."
        )
    if summary.success.coverage < 1.0:
        notes.append(
            f"{summary.n_unscored} images could not be scored and are left out (coverage "
            f"{percent(summary.success.coverage)})."
        )
    return notes


def _clean(text: str) -> str:
    return text.strip().rstrip(".")


def _words(name: str) -> str:
    return name.replace("_", " ").replace("held out", "held-out")
