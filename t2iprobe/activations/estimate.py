"""What an image takes, measured on the first images of a run."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import CapturePlan
from t2iprobe.errors import ConfigError
from t2iprobe.models.model import Model

AFFORDABLE = 30.0
"""Seconds that a whole batch may take to be measured; above it, two images are."""


@dataclass(frozen=True)
class Measured:
    """What some images took.

    Attributes:
        seconds: wall time of one image, capture and saving included.
        png_bytes: of one image.
        activation_bytes: of one image.
        n_images: images that were made at once.
    """

    seconds: float
    png_bytes: int
    activation_bytes: int
    n_images: int


def measure(
    model: Model, plan: CapturePlan, requests: Sequence[ImageRequest], run_seed: int
) -> Measured:
    """Make some images in one batch, as a run does, and time them.

    Args:
        model: a calibrated model, so that nothing is done for the first time.
        plan: what is captured.
        requests: the images.
        run_seed: seed of the run.

    Raises:
        ConfigError: there is no image to make.
    """
    if not requests:
        raise ConfigError("the run has no image; raise --tasks or --seeds")
    start = time.perf_counter()
    made = next(iter(generate(model, requests, plan, len(requests), run_seed)))
    sizes = [_png_bytes(made, row) for row in range(len(made.images))]
    n = len(sizes)
    kept = sum(values.numel() * values.element_size() for values in made.activations.values())
    return Measured((time.perf_counter() - start) / n, sum(sizes) // n, kept // n, n)


def measure_like_the_run(
    model: Model, plan: CapturePlan, batch: Sequence[ImageRequest], run_seed: int
) -> Measured:
    """Time the first two images, and the whole first batch where that takes at most `AFFORDABLE` seconds.

    Args:
        model: a calibrated model.
        plan: what is captured.
        batch: the first batch of the run.
        run_seed: seed of the run.

    Raises:
        ConfigError: there is no image to make.
    """
    two = measure(model, plan, batch[:2], run_seed)
    if len(batch) <= 2 or two.seconds * len(batch) > AFFORDABLE:
        return two
    return measure(model, plan, batch, run_seed)


def _png_bytes(batch: GeneratedBatch, row: int) -> int:
    file = io.BytesIO()
    batch.images[row].save(file, format="PNG")
    return file.tell()
