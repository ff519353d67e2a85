"""The record every statistic comes in: value, uncertainty, how it was found, why it is missing."""

from dataclasses import dataclass
from math import isnan, nan


class StatisticsWarning(UserWarning):
    """Something about a statistic that a reader should know."""


@dataclass(frozen=True)
class Estimate:
    """One statistic.

    Attributes:
        value: NaN when it is not defined.
        ci: interval (low, high) at the level named in `method`; None when there is none.
        p: p-value; None when there is none.
        n: number of units the value rests on.
        unit: what is counted and resampled, usually "task".
        method: how value, interval and p were found, in words.
        reason: why value, interval or p is missing; empty when nothing is.
        p_floor: the smallest p this test could have given; None when there is no p.
    """

    value: float
    ci: tuple[float, float] | None
    p: float | None
    n: int
    unit: str
    method: str
    reason: str = ""
    p_floor: float | None = None

    @property
    def at_floor(self) -> bool:
        """Whether p is as small as this test allows: the true one may be smaller."""
        return (
            self.p is not None and self.p_floor is not None and self.p <= self.p_floor * (1 + 1e-9)
        )

    def __str__(self) -> str:
        if isnan(self.value):
            return f"undefined ({self.reason})"
        text = f"{self.value:.3f}"
        if self.ci is not None:
            text += f" [{self.ci[0]:.3f}, {self.ci[1]:.3f}]"
        if self.p is not None:
            text += f", p {'<=' if self.at_floor else '='} {self.p:.3g}"
            text += " (the smallest this test can give)" if self.at_floor else ""
        return f"{text}, n = {self.n} {self.unit}s"


def undefined(reason: str, n: int, unit: str, method: str) -> Estimate:
    """An estimate without a value, for a reason."""
    return Estimate(nan, None, None, n, unit, method, reason)
