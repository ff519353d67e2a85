"""What a run took, over every time it was started and over all its stages."""

import time
from dataclasses import replace
from typing import Any

from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.memory import peak_bytes
from t2iprobe.runs.records import SUMMARY, Cost
from t2iprobe.runs.results import digests


class StageClock:
    """Keeps the seconds and the peak memory of one stage in run.json, on top of what earlier starts took.

    Args:
        folder: the run.
        stage: name of the stage.
        anew: forget what the stage took before.
        start: reading of `time.monotonic` when the stage began; now if not given.
    """

    def __init__(
        self, folder: RunFolder, stage: str, *, anew: bool = False, start: float | None = None
    ) -> None:
        before = {} if anew else folder.stage(stage)
        self._folder = folder
        self._stage = stage
        self._seconds: float = before.get("seconds", 0.0)
        self._peak: float = before.get("peak_rss_mb", 0.0)
        self._start = time.monotonic() if start is None else start

    def note(self, **facts: Any) -> None:
        """Write what the stage took up to now, and facts about it, beside its status."""
        self._folder.set_stage(
            self._stage,
            seconds=round(self._seconds + time.monotonic() - self._start, 2),
            peak_rss_mb=round(max(self._peak, peak_bytes() / 1e6), 1),
            **facts,
        )


def total(folder: RunFolder) -> Cost:
    """The cost of a run up to now."""
    stages = folder.manifest["stages"]
    seconds = {name: state["seconds"] for name, state in stages.items() if "seconds" in state}
    made = stages.get("generate", {}).get("images_made", 0)
    making = stages.get("generate", {}).get("making_s", 0.0)
    peaks = [state["peak_rss_mb"] for state in stages.values() if "peak_rss_mb" in state]
    return Cost(
        wall_s=round(sum(seconds.values()), 2),
        by_stage=seconds,
        images_per_s=round(made / making, 3) if making else None,
        images_made=made,
        peak_rss_mb=max(peaks, default=None),
        activation_bytes=sum(shard.stat().st_size for shard in folder.shards()),
    )


def settle(folder: RunFolder) -> None:
    """Bring the cost in summary.json up to date once the last stage has ended."""
    SUMMARY.write(folder.path, replace(SUMMARY.read(folder.path), cost=total(folder)))
    folder.set_stage("correlate", files=digests(folder, "correlate"))
