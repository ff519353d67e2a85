"""The time a run has, of which a fixed share is for making images."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from t2iprobe.errors import ConfigError

_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
GENERATION_SHARE = 0.5
"""Part of a budget after which no further images are begun; the rest is for scoring, probing and the report."""

FORMS = "write hours, minutes and seconds with their letters, e.g. 90s, 30m or 1h30m"


def parse_duration(text: str) -> float:
    """Seconds in a text such as 90s, 30m or 1h30m.

    Raises:
        ConfigError: the text is no such duration, a number without a letter included, or it is zero.

    Example:
        >>> parse_duration("1h30m"), parse_duration("90s")
        (5400.0, 90.0)
    """
    parts = _PARTS.fullmatch(text.strip().lower())
    if parts is None or not any(parts.groups()):
        raise ConfigError(f"--budget {text}: is no time; {FORMS}")
    seconds = sum(
        float(part or 0) * unit for part, unit in zip(parts.groups(), (3600, 60, 1), strict=True)
    )
    if seconds <= 0:
        raise ConfigError(f"--budget {text}: must be more than nothing; {FORMS}")
    return seconds


@dataclass(frozen=True)
class Budget:
    """The time a run has.

    Attributes:
        text: the time as the user wrote it.
        start: reading of the clock when the program began.
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
    def left_for_images(self) -> float:
        """Seconds in which images may still be made; negative when they are over."""
        return GENERATION_SHARE * self.seconds - self.spent


def enough(loading_s: float, making_s: float) -> int:
    """Whole seconds of a budget in whose share for images some can be made, and a fifth more for slower moments.

    Args:
        loading_s: seconds from the start of the program until the first image.
        making_s: seconds to make the images.

    Example:
        >>> enough(10, 20)
        72
    """
    return ceil(1.2 * (loading_s + making_s) / GENERATION_SHARE)
