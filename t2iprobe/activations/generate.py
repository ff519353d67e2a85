"""Images and pooled activations from one pass."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from PIL import Image
from torch import Tensor

from t2iprobe import seeding
from t2iprobe.activations.pictures import pictures
from t2iprobe.activations.plan import CapturePlan, known_calibration
from t2iprobe.activations.recorder import BatchRecorder
from t2iprobe.calibration.tokens import Span, TokenReader
from t2iprobe.errors import DataError, ModelError
from t2iprobe.models.calling import call_pipeline
from t2iprobe.models.failures import no_memory_for
from t2iprobe.models.foreign import ForeignError, is_out_of_memory
from t2iprobe.models.model import Model
from t2iprobe.places import Place


@dataclass(frozen=True)
class ImageRequest:
    """One image to make: its task, its number among the task's images, and where constituents are in the prompt."""

    task_id: str
    image_index: int
    prompt: str
    spans: dict[str, Span] = field(default_factory=dict)


@dataclass
class GeneratedBatch:
    """Images of some requests.

    Attributes:
        requests: the images that were to be made, in order.
        images: one RGB image per request.
        invalid: for each image why it cannot be scored; None where it can.
        activations: place -> (b, d) float32; empty without a plan.
        timesteps: denoiser -> step -> noise level, for the captured steps.
        token_spans: for each request, text encoder -> constituent -> token positions; None where it was cut off.
        truncated: for each request, text encoder -> constituents lost because the prompt was cut.
        cut_at: for each request, text encoder -> tokens it was given, where it cut the prompt.
    """

    requests: list[ImageRequest]
    images: list[Image.Image]
    invalid: list[str | None]
    activations: dict[Place, Tensor] = field(default_factory=dict)
    timesteps: dict[str, dict[int, float]] = field(default_factory=dict)
    token_spans: list[dict[str, dict[str, tuple[int, ...] | None]]] = field(default_factory=list)
    truncated: list[dict[str, list[str]]] = field(default_factory=list)
    cut_at: list[dict[str, int]] = field(default_factory=list)


def generate(
    model: Model,
    requests: Sequence[ImageRequest],
    plan: CapturePlan | None,
    batch_size: int,
    run_seed: int,
) -> Iterator[GeneratedBatch]:
    """Make images in fixed batches, in the order of the requests, and capture what the plan says.

    The noise of an image depends on the run seed, its task and its number alone. Images are the same with and
    without a plan.

    Args:
        model: the model.
        requests: the images to make.
        plan: what to capture; None captures nothing.
        batch_size: images per call; 1 is used where the pipeline cannot make several.
        run_seed: seed of the run.

    Raises:
        DataError: a prompt is blank.
        ModelError: the machine runs out of memory.
    """
    for number, request in enumerate(requests):
        if not request.prompt.strip():
            raise DataError(
                f"request {number} (task {request.task_id}): the prompt is blank; give it words"
            )
    readers = token_readers(model)
    calibration = known_calibration(model)
    largest = calibration.max_batch if calibration else None
    size = min(batch_size, largest or batch_size)
    for start in range(0, len(requests), size):
        yield _batch(model, list(requests[start : start + size]), plan, run_seed, readers)


def token_readers(model: Model) -> dict[str, TokenReader]:
    """A token reader for every text encoder with a tokenizer."""
    return {
        name: TokenReader(tokenizer)
        for name in model.encoders
        if (tokenizer := model.tokenizer(name)) is not None
    }


def _batch(
    model: Model,
    requests: list[ImageRequest],
    plan: CapturePlan | None,
    run_seed: int,
    readers: dict[str, TokenReader],
) -> GeneratedBatch:
    prompts = [request.prompt for request in requests]
    recorder = (
        None
        if plan is None
        else BatchRecorder(model, plan, prompts, [r.spans for r in requests], readers)
    )
    generators = [seeding.generator(run_seed, r.task_id, r.image_index) for r in requests]
    try:
        # Some pipelines draw from the global generator too; its state outside is left alone.
        with torch.random.fork_rng(devices=[]), recorder or nullcontext():
            torch.manual_seed(
                seeding.derive(run_seed, requests[0].task_id, requests[0].image_index)
            )
            output = call_pipeline(model, prompts, generators, "np")
    except ForeignError as failure:
        if not is_out_of_memory(failure.error):
            raise
        raise no_memory_for(model, len(prompts)) from failure.error
    images, invalid = pictures(output, model.class_name)
    if len(images) != len(requests):
        alone = "; with --batch-size 1 it is known whose they are" if len(requests) > 1 else ""
        raise ModelError(
            f"{model.class_name} gave {len(images)} images for {len(requests)} prompts{alone}"
        )
    batch = GeneratedBatch(requests, images, invalid)
    if recorder is not None and plan is not None:
        batch.activations = recorder.activations()
        batch.timesteps = plan.timesteps
        batch.token_spans, batch.truncated = _token_report(recorder, requests)
        batch.cut_at = [_limits(recorder, index) for index in range(len(requests))]
    return batch


def _token_report(
    recorder: BatchRecorder, requests: Sequence[ImageRequest]
) -> tuple[list[dict[str, dict[str, tuple[int, ...] | None]]], list[dict[str, list[str]]]]:
    spans: list[dict[str, dict[str, tuple[int, ...] | None]]] = []
    truncated: list[dict[str, list[str]]] = []
    for index, request in enumerate(requests):
        spans.append({})
        truncated.append({})
        for name, watch in recorder.encoders.items():
            tokens = watch.tokens[index]
            if tokens is None:
                continue
            positions = {part: tokens.span(span) for part, span in request.spans.items()}
            spans[-1][name] = positions
            if tokens.truncated:
                truncated[-1][name] = [part for part, at in positions.items() if at is None]
    return spans, truncated


def _limits(recorder: BatchRecorder, index: int) -> dict[str, int]:
    rows = {name: watch.tokens[index] for name, watch in recorder.encoders.items()}
    return {name: tokens.length for name, tokens in rows.items() if tokens and tokens.truncated}
