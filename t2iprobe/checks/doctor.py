"""Whether a model is captured rightly on this machine: behind `t2iprobe doctor`."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import CapturePlan, check_size, plan_capture
from t2iprobe.models.model import Model

PROMPTS = (
    "a red circle left of a blue square",
    "an orange star above a black triangle",
    "a green cross right of a pink ring",
    "a yellow square below a brown circle",
)

BATCH_TOLERANCE = {"float32": 2, "float16": 8, "bfloat16": 16}
"""Largest difference of a pixel, of 255, between an image of a batch and the same image alone: kernels round
differently on other shapes, and half precision carries that on."""

_SAME_VALUES = 1e-2
"""Relative difference below which two activations are the same, for the same reason."""


@dataclass(frozen=True)
class Check:
    """One check: what was tried, whether it passed, and what was seen."""

    name: str
    ok: bool
    sentence: str


def diagnose(model: Model) -> Iterator[Check]:
    """Run every check; each yields as soon as it is done.

    Raises:
        ModelError: the pipeline cannot be called at all.
        ConfigError: a setting does not fit it.
        SiteError: nothing can be captured.
    """
    plan = plan_capture(model)
    found = plan.calibration
    yield from _size(model, plan)
    size = min(len(PROMPTS), found.max_batch or len(PROMPTS))
    hooks, tensors = count_hooks(model), _count_tensors()
    captured = _make(model, plan, size)
    yield _conditional_rows(model, plan, captured)
    yield _same(
        "capture changes no image", captured, _make(model, None, size), "with and without capture"
    )
    yield _same(
        "the seed decides the image", captured, _make(model, None, size), "twice with one seed"
    )
    yield _batches(model, plan, captured, size)
    yield _frames(model, captured)
    del captured
    yield _left_behind(model, hooks, tensors)


def _size(model: Model, plan: CapturePlan) -> Iterator[Check]:
    """What becomes of the size that was asked for; it never fails, as a run draws at the size that is told."""
    told = check_size(model, plan.calibration)
    if told or {"height", "width"} & set(model.given):
        height, width = plan.calibration.image_size
        yield Check("the size is known", True, told[0] if told else f"{height} x {width}, as asked")


def requests() -> list[ImageRequest]:
    """Four images of four prompts, with the first colour of each as constituent."""
    made = []
    for index, prompt in enumerate(PROMPTS):
        word = prompt.split()[1]
        at = prompt.index(word)
        made.append(ImageRequest(f"doctor-{index}", 0, prompt, {"color1": (at, at + len(word))}))
    return made


def _make(model: Model, plan: CapturePlan | None, size: int) -> list[GeneratedBatch]:
    return list(generate(model, requests(), plan, size, run_seed=0))


def _images(batches: list[GeneratedBatch]) -> list[Image.Image]:
    return [image for batch in batches for image in batch.images]


def _same(name: str, one: list[GeneratedBatch], other: list[GeneratedBatch], how: str) -> Check:
    pairs = list(zip(_images(one), _images(other), strict=True))
    equal = sum(a.tobytes() == b.tobytes() for a, b in pairs)
    return Check(
        name, equal == len(pairs), f"{equal} of {len(pairs)} images are equal bit for bit {how}"
    )


def _batches(model: Model, plan: CapturePlan, together: list[GeneratedBatch], size: int) -> Check:
    name = "an image does not depend on its batch"
    if size == 1:
        return Check(name, True, "this pipeline makes one image a call, so there are no batches")
    alone = _make(model, plan, 1)
    dtype = str(model.provenance.get("dtype", "float32"))
    limit = BATCH_TOLERANCE.get(dtype, 16)
    worst = max(
        int(np.abs(np.asarray(a, dtype=np.int16) - np.asarray(b, dtype=np.int16)).max())
        for a, b in zip(_images(together), _images(alone), strict=True)
    )
    far, total = _apart(together, alone, size)
    ok = worst <= limit and far == 0
    return Check(
        name,
        ok,
        f"{size} images together and alone differ by at most {worst}/255 (tolerance {limit}/255 at {dtype}),"
        f" {total - far} of {total} activations agree{'' if ok else '; use --batch-size 1'}",
    )


def _apart(
    together: list[GeneratedBatch], alone: list[GeneratedBatch], size: int
) -> tuple[int, int]:
    """How many activations differ between batches and single images, and of how many."""
    far = total = 0
    for index, single in enumerate(alone):
        batch = together[index // size].activations
        for key, values in single.activations.items():
            own, other = values[0].nan_to_num(), batch[key][index % size].nan_to_num()
            total += 1
            far += bool((own - other).norm() > 0.1 * max(float(own.norm()), float(other.norm())))
    return far, total


def _frames(model: Model, batches: list[GeneratedBatch]) -> Check:
    reasons = [reason for batch in batches for reason in batch.invalid if reason]
    dtype = model.provenance.get("dtype", "float32")
    what = ", ".join(f"{reasons.count(r)} x {r}" for r in sorted(set(reasons)))
    hint = _remedy(reasons, str(dtype))
    total = len(PROMPTS)
    sentence = f"{total - len(reasons)} of {total} frames can be scored at {dtype}"
    return Check("frames are sound", not reasons, f"{sentence}{': ' if what else ''}{what}{hint}")


def _remedy(reasons: list[str], dtype: str) -> str:
    """What to do about frames that cannot be scored."""
    if not {"NaN in decode", "black frame"} & set(reasons):
        return ""
    if dtype != "float32":
        return "; try --dtype fp32"
    return "; precision is not the cause: check the weights, the scheduler and the guidance scale"


def _conditional_rows(model: Model, plan: CapturePlan, captured: list[GeneratedBatch]) -> Check:
    """Swapping prompts must swap what is captured, whatever the guidance, and other prompts must give other values."""
    size = len(captured[0].requests)
    swapped = list(generate(model, requests()[::-1], plan, size, run_seed=0))[::-1]
    total = wrong = 0
    alike = _alike(captured)
    for one, other in zip(captured, swapped, strict=True):
        for key, values in one.activations.items():
            back = other.activations[key].flip(0).nan_to_num()
            scale = float(values.nan_to_num().abs().max()) + 1e-6
            far = (values.nan_to_num() - back).abs().amax(1) > _SAME_VALUES * scale
            total, wrong = total + len(far), wrong + int(far.sum())
    forms = "; ".join(
        f"{name}: {found.guidance}" for name, found in plan.calibration.denoisers.items()
    )
    follow = f"{total - wrong} of {total} activations follow their prompt"
    sentence = f"{follow} when the order of prompts is turned; {forms}"
    if alike:
        sentence += f"; {alike[0]} is the same for every prompt, so its rows are not the prompts'"
    return Check("conditional rows are found", wrong == 0 and not alike, sentence)


def _alike(captured: list[GeneratedBatch]) -> list[str]:
    """Sites of text streams whose mean is the same for every prompt: unconditional rows, taken for conditional ones."""
    places = [
        place
        for place in captured[0].activations
        if place.site.stream == "text" and place.pooling == "mean"
    ]
    values = {p: torch.cat([batch.activations[p] for batch in captured]) for p in places}
    return [
        str(place.site)
        for place, rows in values.items()
        if float((rows - rows[0]).abs().max()) <= 1e-6 * float(rows.abs().max())
    ]


def _left_behind(model: Model, hooks: int, tensors: int) -> Check:
    more_hooks = count_hooks(model) - hooks
    more = _count_tensors() - tensors
    return Check(
        "nothing is left behind",
        more_hooks == 0 and more <= 0,
        f"{max(more_hooks, 0)} hooks and {max(more, 0)} tensors more than before the first capture",
    )


def count_hooks(model: Model) -> int:
    """Forward hooks on all modules of a model."""
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks)
        for part in model.modules.values()
        for m in part.modules()
    )


def _count_tensors() -> int:
    """Tensors alive that are no weights."""
    gc.collect()
    alive: Callable[[object], bool] = lambda o: type(o) is torch.Tensor  # noqa: E731
    return sum(alive(item) for item in gc.get_objects())
