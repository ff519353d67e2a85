"""A time that a run has to end in, and whether more work fits into what is left of it."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from t2iprobe.errors import ConfigError

_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
FORMS = "write hours, minutes and seconds with their letters, e.g. 90s, 30m or 1h30m"


def parse_duration(text: str) -> float:
    """Seconds in a text such as 90s, 30m or 1h30m.

    Raises:
        ConfigError: the text is no such duration, a number without a letter included, or it is zero.

    Example:
        >>> parse_duration("1h30m"), parse_duration("90s")
        (5400.0, 90.0)
    """
    found = _PARTS.fullmatch(text.strip().lower())
    if found is None or not any(found.groups()):
        raise ConfigError(f"--budget {text}: is no time; {FORMS}")
    seconds = sum(
        float(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True)
    )
    if seconds <= 0:
        raise ConfigError(f"--budget {text}: must be more than nothing; {FORMS}")
    return seconds


@dataclass(frozen=True)
class Budget:
    """A time that began to run out at a moment.

    Attributes:
        text: the time as the user wrote it.
        start: reading of the clock when it began.
        clock: gives the present in seconds.
    """

    text: str
    start: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic

    @property
    def seconds(self) -> float:
        """The whole time."""
        return parse_duration(self.text)

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return self.clock() - self.start

    @property
    def left(self) -> float:
        """Seconds that are left; negative when it is over."""
        return self.seconds - self.spent
