"""Activations on disk: one shard a batch, one array a place, whose spelling is its key."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from t2iprobe.errors import DataError
from t2iprobe.places import Place
from t2iprobe.runs.folder import RunFolder

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Entry:
    """One image of a run, in the order of the shards' rows.

    Attributes:
        invalid: why the pipeline's own output cannot be scored; empty when it can.
    """

    task_id: str
    image_index: int
    invalid: str


def shard_metadata(
    entries: list[Entry],
    timesteps: dict[str, dict[int, float]],
    encoders: dict[str, dict[str, Any]],
) -> dict[str, str]:
    """What a shard says of its rows: one string, since safetensors writes several in an order that changes.

    Args:
        entries: the image of each row.
        timesteps: denoiser -> step -> the scheduler's value.
        encoders: task id -> what each text encoder made of the prompt (see `tasks.jsonl`).
    """
    facts = {
        "entries": [[e.task_id, e.image_index, e.invalid] for e in entries],
        "timesteps": timesteps,
        "encoders": encoders,
    }
    return {"facts": json.dumps(facts)}


def write_shard(
    path: Path, activations: Mapping[Place, "Tensor"], metadata: Mapping[str, str] | None = None
) -> None:
    """Write the activations of one batch, place -> (b, d) on the CPU.

    As numpy arrays: safetensors looks every torch tensor over for shared memory, which takes longer than writing
    hundreds of small ones.
    """
    from safetensors.numpy import save_file

    arrays = {
        str(place): np.ascontiguousarray(values.numpy()) for place, values in activations.items()
    }
    save_file(arrays, path, dict(metadata or {}))


def shard_facts(shard: Path) -> dict[str, Any]:
    """What `shard_metadata` wrote into a shard: entries, timesteps and encoders.

    Raises:
        DataError: the file is cut or no shard.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(shard, framework="np") as file:
            facts: dict[str, Any] = json.loads(file.metadata()["facts"])
            return facts
    except (SafetensorError, TypeError, KeyError) as error:
        raise DataError(
            f"{shard} is broken ({error}): delete it and run the command of its run again, which makes it anew"
        ) from None


def read_index(folder: RunFolder) -> list[Entry]:
    """Every image of the run, in row order."""
    return ActivationReader(folder).entries


class ActivationReader:
    """Reads one place at a time from all shards, so that memory holds one array, not all."""

    def __init__(self, folder: RunFolder) -> None:
        self.shards = folder.shards()
        if not self.shards:
            raise DataError(f"{folder.path} holds no activations: run `t2iprobe run` first")

        manifest = folder.manifest
        n_images = manifest["counts"].get("images_done", manifest["counts"].get("images_asked"))
        if n_images is not None and len(self.entries) != n_images:
            raise DataError(
                f"{folder.path} holds activations of {len(self.entries)} of {n_images} images: "
                f"run `{manifest['command']}` again, which makes the missing ones"
            )

    @cached_property
    def _facts(self) -> list[dict[str, Any]]:
        return [shard_facts(shard) for shard in self.shards]

    @property
    def entries(self) -> list[Entry]:
        """Every image, in row order."""
        return [Entry(*row) for facts in self._facts for row in facts["entries"]]

    def timestep(self, place: Place) -> float | None:
        """The scheduler's value at the step of a place; None where there is no step."""
        stored: dict[str, dict[str, float]] = self._facts[0]["timesteps"]
        return stored.get(place.site.component, {}).get(str(place.step))

    @property
    def encoders(self) -> dict[str, dict[str, Any]]:
        """Task id -> what each text encoder made of its prompt."""
        return {
            task_id: seen for facts in self._facts for task_id, seen in facts["encoders"].items()
        }

    @cached_property
    def places(self) -> list[Place]:
        """Every place that all shards have, in order of site and step."""
        from safetensors import safe_open

        common: set[str] | None = None
        for shard in self.shards:
            with safe_open(shard, framework="np") as file:
                keys = set(file.keys())
            common = keys if common is None else common & keys
        return sorted(map(Place.parse, common or ()), key=lambda place: place.order)

    def read(self, place: Place) -> NDArray[np.float32]:
        """(n images, d) activations of one place.

        Raises:
            DataError: the shards do not agree on the width.
        """
        from safetensors import safe_open

        parts = []
        for shard in self.shards:
            with safe_open(shard, framework="np") as file:
                parts.append(file.get_tensor(str(place)).astype(np.float32))
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise DataError(
                f"{place} has several widths {sorted(widths)}: images of one size are needed"
            )
        return np.concatenate(parts)
