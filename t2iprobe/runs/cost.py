"""What a run took, over every time it was started and over all its stages."""

import time
from typing import Any

from t2iprobe.runs.folder import RunFolder, read_json, write_json
from t2iprobe.runs.memory import peak_bytes
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


def total(folder: RunFolder) -> dict[str, Any]:
    """The cost of a run up to now.

    Returns:
        wall_s: seconds of all stages over all starts, imports and loading included; by_stage: the same stage by stage;
        images_per_s: images made per second of making them; images_made: also those made twice; peak_rss_mb: largest
        resident memory in 10^6 bytes; activation_bytes: of the shards on disk. None where nothing is known.
    """
    stages = folder.manifest["stages"]
    seconds = {name: found["seconds"] for name, found in stages.items() if "seconds" in found}
    made = stages.get("generate", {}).get("images_made", 0)
    making = stages.get("generate", {}).get("making_s", 0.0)
    return {
        "wall_s": round(sum(seconds.values()), 2),
        "by_stage": seconds,
        "images_per_s": round(made / making, 3) if making else None,
        "images_made": made,
        "peak_rss_mb": max(
            (s["peak_rss_mb"] for s in stages.values() if "peak_rss_mb" in s), default=None
        ),
        "activation_bytes": sum(shard.stat().st_size for shard in folder.shards()),
    }


def settle(folder: RunFolder) -> None:
    """Bring the cost in summary.json up to date once the last stage has ended."""
    path = folder.path / "summary.json"
    write_json(path, read_json(path) | {"cost": total(folder)})
    folder.set_stage("correlate", files=digests(folder, "correlate"))
