"""Whether one more piece of generation fits into a budget, the stages after it included."""

from collections import deque

from t2iprobe.runs.budget import Budget
from t2iprobe.runs.forecast import LaterStages

PACE_MARGIN = 1.2  # on the slowest of the last pieces
LATER_MARGIN = 1.5  # their time is foretold from stand-ins
ENDING = 1.0  # seconds to write the last files and leave
N_LAST = 5


class Limit:
    """Foretells what a piece of generation and everything after it take.

    The pace is that of the slowest of the last pieces, before the first one that of a single image. When the machine
    becomes slower, the later stages are taken to become slower too.

    Args:
        budget: the time that runs.
        later: what the later stages take.
        seconds_per_image: of an image alone.
    """

    def __init__(self, budget: Budget, later: LaterStages, seconds_per_image: float) -> None:
        self.budget = budget
        self._later = later
        self._alone = seconds_per_image
        self._last: deque[float] = deque(maxlen=N_LAST)
        self._first: float | None = None

    def need(self, n_tasks: int, n_images: int) -> float:
        """Seconds for some more images and for all that follows when the run then ends with so many tasks."""
        pace = max(self._last, default=self._alone)
        slower = 1.0 if self._first is None else max(1.0, self._last[-1] / self._first)
        making = PACE_MARGIN * pace * n_images
        return making + LATER_MARGIN * slower * self._later.at(n_tasks) + ENDING

    def allows(self, n_tasks: int, n_images: int) -> bool:
        """Whether some more images, and all that follows on so many tasks, fit into what is left."""
        return self.need(n_tasks, n_images) <= self.budget.left

    def took(self, n_images: int, seconds: float) -> None:
        """Learn what a piece took."""
        self._last.append(seconds / n_images)
        self._first = self._first or self._last[0]
