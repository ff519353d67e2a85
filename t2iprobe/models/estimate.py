"""What a run will take, measured on two images, and what it can show at best."""

import io
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from t2iprobe.errors import ConfigError
from t2iprobe.memory import peak_bytes
from t2iprobe.models.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.models.model import Model
from t2iprobe.models.plan import CapturePlan, bytes_per_image

POWER = 0.8
LEVEL = 0.05


@dataclass(frozen=True)
class Estimate:
    """Cost and reach of a run.

    Attributes:
        n_images: images of the run.
        seconds_per_image: wall time of one image, capture included.
        seconds: of all images; scoring and probing come on top and are small beside it.
        peak_bytes: memory at most, so far in this process; the number of images does not change it.
        device_bytes: memory at most on the GPU; None where there is none.
        disk_bytes: images and activations.
        smallest_correlation: smallest Spearman correlation over tasks that the run finds with 80% power; None below
            four tasks.
    """

    n_images: int
    seconds_per_image: float
    seconds: float
    peak_bytes: int
    device_bytes: int | None
    disk_bytes: int
    smallest_correlation: float | None


def smallest_correlation(n_tasks: int) -> float | None:
    """Smallest Spearman correlation that n tasks show with 80% power at a two-sided level of 5%.

    tanh((z_0.975 + z_0.8) sqrt(1.06 / (n - 3))): Fisher's z with the variance of Fieller, Hartley and Pearson (1957,
    section 3) for ranks.
    """
    if n_tasks < 4:
        return None
    z = NormalDist().inv_cdf(1 - LEVEL / 2) + NormalDist().inv_cdf(POWER)
    return math.tanh(z * math.sqrt(1.06 / (n_tasks - 3)))


def estimate(
    model: Model,
    plan: CapturePlan,
    requests: Sequence[ImageRequest],
    n_tasks: int,
    n_constituents: int,
    run_seed: int,
) -> Estimate:
    """Measure the first two images of a run and reckon the rest.

    Args:
        model: a loaded model.
        plan: what is captured.
        requests: every image of the run.
        n_tasks: tasks of the run.
        n_constituents: constituents of the family.
        run_seed: seed of the run.

    Raises:
        ConfigError: the run has no image.
    """
    if not requests:
        raise ConfigError("the run has no image; raise --tasks or --seeds")
    first = list(requests[:2])
    _reset_device()
    start = time.perf_counter()
    made = list(generate(model, first, plan, len(first), run_seed))
    each = (time.perf_counter() - start) / len(first)
    pictures = _png_bytes(made) // len(first)
    n = len(requests)
    return Estimate(
        n_images=n,
        seconds_per_image=each,
        seconds=each * n,
        peak_bytes=peak_bytes(),
        device_bytes=_device_bytes(),
        disk_bytes=n * (pictures + bytes_per_image(plan, n_constituents)),
        smallest_correlation=smallest_correlation(n_tasks),
    )


def _png_bytes(batches: Sequence[GeneratedBatch]) -> int:
    total = 0
    for batch in batches:
        for image in batch.images:
            file = io.BytesIO()
            image.save(file, format="PNG")
            total += file.tell()
    return total


def _reset_device() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _device_bytes() -> int | None:
    import torch

    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
