"""Loading a tiny model, changing a component, and what has to stay the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tiny
import torch
from torch import nn

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import CapturePlan, plan_capture
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings

Folder = Callable[[str], Path]

CPU = torch.device("cpu")
FAMILIES = ("sd15", "flux", "sd3")
REQUESTS = [
    ImageRequest("one", 0, "a red circle left of a blue square", {"color1": (2, 5)}),
    ImageRequest("two", 0, "an orange star above a black triangle", {"color1": (3, 9)}),
]


def fresh(folder: Folder, family: str) -> Any:
    return load_model(str(folder(family)), LoadSettings(pipe_arg=tiny.pipe_args(family)))


def replace(model: Any, component: str, part: nn.Module) -> None:
    """Put another module in a component's place, as a user does who holds the pipeline."""
    setattr(model.pipe, component, part)
    for name in ("modules", "encoders", "denoisers"):
        model.__dict__.pop(name, None)


def make(model: Any, plan: CapturePlan | None) -> GeneratedBatch:
    (batch,) = generate(model, REQUESTS, plan, 2, run_seed=0)
    return batch


def pixels(batch: GeneratedBatch) -> list[bytes]:
    return [image.tobytes() for image in batch.images]


def plain(folder: Folder) -> Callable[[str], GeneratedBatch]:
    """What a plain model gives at every site, by family; each is made once."""
    known: dict[str, GeneratedBatch] = {}

    def batch(family: str) -> GeneratedBatch:
        if family not in known:
            model = fresh(folder, family)
            known[family] = make(model, plan_capture(model, sites="all"))
        return known[family]

    return batch


def assert_same(got: GeneratedBatch, expected: GeneratedBatch) -> None:
    assert list(got.activations) == list(expected.activations)
    for key, values in expected.activations.items():
        assert torch.equal(values.nan_to_num(), got.activations[key].nan_to_num()), key
    assert pixels(got) == pixels(expected)


def assert_capture_changes_nothing(model: Any) -> GeneratedBatch:
    captured = make(model, plan_capture(model, sites="all"))
    assert pixels(captured) == pixels(make(model, None))
    return captured
