"""Numbers as people read them: rounding, intervals, p-values and the sign for a missing value."""

from math import isfinite

MISSING = "–"

Interval = tuple[float, float] | None


def known(value: float | None) -> float | None:
    """The number itself; None when it is NaN or infinite."""
    return value if value is not None and isfinite(value) else None


def decimal(value: float | None, digits: int = 2) -> str:
    """A number with a fixed count of decimals and a true minus sign; "–" when it is missing."""
    number = known(value)
    if number is None:
        return MISSING
    text = f"{number:.{digits}f}"
    if float(text) == 0.0:
        text = text.lstrip("-")  # a rounded -0.00 is no negative number
    return text.replace("-", "−")


def percent(value: float | None) -> str:
    """A share in percent, with one decimal close to 0 and 1, where a whole number would hide a failure."""
    number = known(value)
    if number is None:
        return MISSING
    near_edge = 0.0 < number < 0.02 or 0.98 < number < 1.0
    return f"{100 * number:.{1 if near_edge else 0}f}%"


def interval(ends: Interval, *, as_percent: bool = False) -> str:
    """An interval as "0.29 to 0.52"; empty when there is none."""
    form = percent if as_percent else decimal
    return "" if ends is None else " to ".join(form(end) for end in ends)


def p_value(value: float | None, floor: float | None = None) -> str:
    """A p-value as "p = 0.03", or "p ≤ 0.0001" when a permutation test gave the smallest p it can."""
    number, smallest = known(value), floor
    if number is None:
        return "p not defined"
    if smallest is not None and number <= smallest * (1 + 1e-9):
        return f"p ≤ {smallest:.2g}"
    return "p < 0.0001" if number < 1e-4 else f"p = {number:.2g}"


def count(value: float | None) -> str:
    """A whole number with narrow separators at which no line is broken."""
    number = known(value)
    return MISSING if number is None else f"{int(number):,}".replace(",", "\u202f")


def duration(seconds: float | None) -> str:
    """Seconds as "48 s", "3 min 20 s" or "2 h 5 min"."""
    number = known(seconds)
    if number is None:
        return MISSING
    whole_seconds = round(number)
    minutes, rest = divmod(whole_seconds, 60)
    if minutes == 0:
        return f"{number:.1f} s" if number < 10 else f"{whole_seconds} s"
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def size(n_bytes: float | None) -> str:
    """Bytes as "48 MB" (powers of 1000)."""
    number = known(n_bytes)
    if number is None:
        return MISSING
    units = ["TB", "GB", "MB", "kB", "B"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop()
    unit = units[-1]
    return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"


def model_name(model: str) -> str:
    """A model as people call it: the last part of a local path; hub ids and zoo names as they are."""
    text = model
    return (
        text.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]
        if text.startswith(("/", ".", "~"))
        else text
    )


def seen_range(low: int | None, high: int | None) -> str:
    """How often training showed the scenes of a bin: "never", "1 to 3", "over 40"."""
    if low is None:
        return MISSING
    if high is None:
        return f"{count(low)} or more"
    if high == 0:
        return "never"
    return count(low) if low == high else f"{count(low)} to {count(high)}"
