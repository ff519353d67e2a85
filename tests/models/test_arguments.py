"""Which pipelines make an image of a text: each one of diffusers is in the matrix, or refused with a reason."""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import matrix
import pytest

from t2iprobe.errors import ModelError
from t2iprobe.models.arguments import call_parameters, check_takes_prompt, refusal


@dataclass
class Pictures:
    images: list[Any]


@dataclass
class Vectors:
    image_embeds: list[Any]


def from_text(self: Any, prompt: str, height: int | None = None) -> Pictures | tuple[Any]:
    raise NotImplementedError


def to_vector(self: Any, prompt: str) -> Vectors | tuple[Any]:
    raise NotImplementedError


def from_numbers(self: Any, label: int, image: Any = None) -> Pictures:
    raise NotImplementedError


def from_vector(self: Any, image_embeddings: Any, prompt: str = "") -> Pictures:
    raise NotImplementedError


def controlled(self: Any, prompt: str, controlnet_conditioning_scale: float = 1.0) -> Pictures:
    raise NotImplementedError


def moving(self: Any, prompt: str, video_length: int = 16) -> Pictures:
    raise NotImplementedError


def edited(self: Any, prompt: str, image: Any = None) -> Pictures:
    raise NotImplementedError


def edited_or_drawn(self: Any, prompt: str, image: Any = None, height: int = 8) -> Pictures:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (from_text, None),
        (edited_or_drawn, None),
        (to_vector, "gives no image (its output has: image_embeds)"),
        (from_numbers, "takes no prompt"),
        (from_vector, "needs image_embeddings beside a prompt"),
        (controlled, "needs a control image"),
        (moving, "makes videos"),
        (edited, "takes the size of its output from an image"),
    ],
)
def test_signatures(call: Any, expected: str | None) -> None:
    found = refusal(type("Pipeline", (), {"__call__": call}))
    assert found == expected if expected is None else expected in str(found)


class Drawing:
    def __call__(self, prompt: str, steps: int = 4, **kwargs: Any) -> Pictures:
        raise NotImplementedError


class Handing(Drawing):
    """Hands everything on, as extensions of a pipeline do."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs)


class Closed(Drawing):
    def __call__(self, label: int) -> Any:  # type: ignore[override]
        raise NotImplementedError


def test_what_a_pipeline_hands_on_is_looked_up() -> None:
    assert list(call_parameters(Drawing)) == ["prompt", "steps"]
    assert list(call_parameters(Handing)) == ["prompt", "steps"]
    assert refusal(Handing) is None
    assert list(call_parameters(Closed)) == ["label"]
    assert "takes no prompt" in str(refusal(Closed))


def pipelines() -> Iterator[type]:
    """Every pipeline class of the installed diffusers."""
    import diffusers.pipelines as home

    for module in pkgutil.walk_packages(home.__path__, "diffusers.pipelines."):
        try:
            importlib.import_module(module.name)
        except (ImportError, RuntimeError):
            continue  # it needs a library that is not installed

    def below(kind: type) -> Iterator[type]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    for kind in set(below(home.DiffusionPipeline)):
        if kind.__module__.startswith("diffusers.pipelines."):
            yield kind


def test_every_pipeline_of_diffusers_has_a_verdict() -> None:
    tried = {kind for _, kind in matrix.ALL.values()} | {"StableDiffusionLDM3DPipeline"}
    unknown = []
    for kind in pipelines():
        try:
            check_takes_prompt(kind, "it")
        except ModelError:
            assert kind.__name__ not in tried, f"{kind.__name__} is in the matrix"
            continue
        if kind.__name__ not in tried | matrix.NO_IMAGE_OF_A_TEXT.keys():
            unknown.append(kind.__name__)
    assert unknown == []
