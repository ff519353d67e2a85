"""Numbers as people read them: rounding, intervals, p-values and the sign for a missing value."""

import math
from collections.abc import Mapping

MISSING = "–"


def number(value: object) -> float | None:
    """The finite number a file holds; None for null, NaN, infinities and anything that is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def interval_of(data: object) -> tuple[float, float] | None:
    """The interval of an estimate ({"ci": [low, high]} or the pair itself), None when it has none."""
    pair = data.get("ci") if isinstance(data, Mapping) else data
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return None
    low, high = number(pair[0]), number(pair[1])
    return None if low is None or high is None else (low, high)


def decimal(value: object, digits: int = 2) -> str:
    """A number with a fixed count of decimals and a true minus sign; "–" when it is missing."""
    found = number(value)
    if found is None:
        return MISSING
    text = f"{found:.{digits}f}"
    if float(text) == 0.0:
        text = text.lstrip("-")  # a rounded -0.00 is no negative number
    return text.replace("-", "−")


def percent(value: object) -> str:
    """A share in percent, with one decimal close to 0 and 1, where a whole number would hide a failure."""
    found = number(value)
    if found is None:
        return MISSING
    near_edge = 0.0 < found < 0.02 or 0.98 < found < 1.0
    return f"{100 * found:.{1 if near_edge else 0}f}%"


def interval(data: object, *, as_percent: bool = False) -> str:
    """An interval as "0.29 to 0.52"; empty when there is none."""
    pair = interval_of(data)
    if pair is None:
        return ""
    shown = [percent(end) if as_percent else decimal(end) for end in pair]
    return f"{shown[0]} to {shown[1]}"


def p_value(value: object, floor: object = None) -> str:
    """A p-value as "p = 0.03", or "p ≤ 0.0001" when a permutation test gave the smallest p it can."""
    found, smallest = number(value), number(floor)
    if found is None:
        return "p not defined"
    if smallest is not None and found <= smallest * (1 + 1e-9):
        return f"p ≤ {smallest:.2g}"
    return "p < 0.0001" if found < 1e-4 else f"p = {found:.2g}"


def count(value: object) -> str:
    """A whole number with narrow separators at which no line is broken."""
    found = number(value)
    return MISSING if found is None else f"{int(found):,}".replace(",", "\u202f")


def duration(seconds: object) -> str:
    """Seconds as "48 s", "3 min 20 s" or "2 h 5 min"."""
    found = number(seconds)
    if found is None:
        return MISSING
    whole_seconds = round(found)
    minutes, rest = divmod(whole_seconds, 60)
    if minutes == 0:
        return f"{found:.1f} s" if found < 10 else f"{whole_seconds} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def size(n_bytes: object) -> str:
    """Bytes as "48 MB" (powers of 1000)."""
    found = number(n_bytes)
    if found is None:
        return MISSING
    units = ["TB", "GB", "MB", "kB", "B"]
    while found >= 1000 and len(units) > 1:
        found /= 1000
        units.pop()
    unit = units[-1]
    return f"{found:.0f} {unit}" if found >= 10 or unit == "B" else f"{found:.1f} {unit}"


def model_name(model: object) -> str:
    """A model as people call it: the last part of a local path; hub ids and zoo names as they are."""
    text = str(model)
    return (
        text.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]
        if text.startswith(("/", ".", "~"))
        else text
    )


def seen_range(low: object, high: object) -> str:
    """How often training showed the scenes of a bin: "never", "1 to 3", "over 40"."""
    low_found, high_found = number(low), number(high)
    if low_found is None:
        return MISSING
    if high_found is None:
        return f"{count(low_found)} or more"
    if high_found == 0:
        return "never"
    if low_found == high_found:
        return count(low_found)
    return f"{count(low_found)} to {count(high_found)}"
