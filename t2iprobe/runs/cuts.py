"""Which targets a site cannot know: a text encoder cut the prompt before the constituents they speak of."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t2iprobe.places import Place
from t2iprobe.runs.outcomes import slots_behind
from t2iprobe.runs.run_tasks import RunTasks
from t2iprobe.runs.targets import Targets


@dataclass(frozen=True)
class Lost:
    """What is lost at a site.

    Attributes:
        rows: group name -> (n images,) whether the prompt was cut before something that the group speaks of. Only
            groups of which something is lost.
        before: group name -> the constituents that were cut off, for a sentence.
    """

    rows: Mapping[str, NDArray[np.bool_]]
    before: Mapping[str, str]


NOTHING_LOST = Lost({}, {})


class Cuts:
    """What the text encoders of a run cut off, for every place.

    What a denoiser receives, its conditioning, lacks what every encoder lost. Where only some of them lost it, nothing
    tells by which of them the denoiser is fed, and nothing is taken for lost.

    Args:
        drawn: the tasks of the run.
        encoders: task id -> what each text encoder made of its prompt, as `ActivationReader.encoders` gives it.
        targets: what the probes predict.
    """

    def __init__(
        self, drawn: RunTasks, encoders: Mapping[str, Mapping[str, Any]], targets: Targets
    ) -> None:
        self._drawn, self._targets = drawn, targets
        self._lost = {task: found.get("lost", {}) for task, found in encoders.items()}
        self._names = {name for found in encoders.values() for name in found.get("tokens", {})}
        self._of = cache(self._look_up)

    def of(self, place: Place) -> Lost:
        """What is lost at a place; nothing in the streams of a denoiser."""
        if place.site.component in self._names:
            return self._of((place.site.component,))
        return self._of(tuple(sorted(self._names)) if place.site.is_conditioning else ())

    def _look_up(self, encoders: tuple[str, ...]) -> Lost:
        """What all of some encoders lost."""
        gone = {
            task: set.intersection(*(set(lost.get(name, ())) for name in encoders))
            for task, lost in self._lost.items()
            if encoders
        }
        family = self._drawn.family
        rows, before = {}, {}
        for group in self._targets.groups if any(gone.values()) else ():
            missing = {
                task.id: [
                    slot
                    for slot in slots_behind(family, task, group.coding, group.constituent)
                    if slot in gone[task.id]
                ]
                for task in self._drawn.tasks
            }
            cut = np.array([bool(missing[task]) for task in self._targets.task_ids])
            if cut.any():
                rows[group.name] = cut
                parts = dict.fromkeys(slot for slots in missing.values() for slot in slots)
                before[group.name] = " or ".join(parts)
        return Lost(rows, before)
