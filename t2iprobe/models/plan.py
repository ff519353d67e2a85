"""What will be captured: sites, steps and poolings, decided once per model."""

from collections.abc import Sequence
from dataclasses import dataclass

from t2iprobe.capture import is_compiled
from t2iprobe.errors import ConfigError, SiteError
from t2iprobe.models.calibrate import Calibration, Denoiser, calibrate, step_timesteps
from t2iprobe.models.model import Model
from t2iprobe.models.pooling import IMAGE_POOLINGS, TEXT_POOLINGS, check_poolings
from t2iprobe.models.sites import CONDITIONING, Site, select_sites

DEFAULT_AT = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class CapturePlan:
    """Sites, steps and poolings of one model.

    Attributes:
        calibration: what is known about the model.
        sites: the sites to read, in running order.
        steps: for each denoiser the indices of its schedule to read.
        image_poolings: poolings of image streams.
        text_poolings: poolings of text streams; "span" stands for one per constituent.
    """

    calibration: Calibration
    sites: tuple[Site, ...]
    steps: dict[str, tuple[int, ...]]
    image_poolings: tuple[str, ...]
    text_poolings: tuple[str, ...]

    @property
    def timesteps(self) -> dict[str, dict[int, float]]:
        """Noise level of every step to read, in the denoiser's own scale, by denoiser."""
        levels = {name: step_timesteps(found) for name, found in self.calibration.denoisers.items()}
        return {
            name: {step: levels[name][step] for step in steps} for name, steps in self.steps.items()
        }


def resolve_steps(at: Sequence[float], n_steps: int) -> tuple[int, ...]:
    """Indices of the schedule for a list of fractions or of indices.

    Whole numbers of which one is above 1 are indices; everything else is a list of fractions of the schedule, 0 its
    first and 1 its last entry.

    Raises:
        ConfigError: a fraction outside [0, 1], an index the schedule does not have, an empty list.

    Example:
        >>> resolve_steps((0, 0.25, 0.5, 0.75, 1), 12), resolve_steps((0, 3, 11), 12)
        ((0, 3, 6, 8, 11), (0, 3, 11))
    """
    if not at:
        raise ConfigError("--at is empty; give fractions such as 0,0.5,1 or indices such as 0,3,7")
    whole = all(float(value).is_integer() for value in at)
    if whole and max(at) > 1:
        for value in at:
            if not 0 <= value < n_steps:
                raise ConfigError(
                    f"--at {int(value)}: the schedule has steps 0 to {n_steps - 1}; give those, or fractions 0 to 1"
                )
        return tuple(sorted({int(value) for value in at}))
    for value in at:
        if not 0 <= value <= 1:
            raise ConfigError(
                f"--at {value:g}: give fractions from 0 to 1, or whole numbers for step indices"
            )
    return tuple(sorted({int(value * (n_steps - 1) + 0.5) for value in at}))


def calibrated(model: Model) -> Calibration:
    """The calibration of a model, done once.

    Raises:
        SiteError: a compiled module hides its blocks from hooks.
    """
    if model.calibration is None:
        model.calibration = calibrate(model)
    assert isinstance(model.calibration, Calibration)
    return model.calibration


def all_sites(calibration: Calibration) -> list[Site]:
    """Every site of a model in running order: text encoders, then what each denoiser is given, then its blocks."""
    sites: list[Site] = []
    for name, encoder in calibration.encoders.items():
        sites += [Site(name, path, "text") for path in (encoder.embedding, *encoder.readings)]
    for name, found in calibration.denoisers.items():
        sites.append(Site(name, CONDITIONING, "text"))
        for path, streams in found.readings.items():
            if "image" in streams:
                sites.append(Site(name, path, "image"))
            if "text" in streams:
                sites.append(Site(name, path, "text"))
    return list(dict.fromkeys(sites))


def plan_capture(
    model: Model,
    sites: str | Sequence[str] = "default",
    at: Sequence[float] = DEFAULT_AT,
    image_pooling: Sequence[str] = IMAGE_POOLINGS,
    text_pooling: Sequence[str] = TEXT_POOLINGS,
) -> CapturePlan:
    """Decide what to capture.

    Args:
        model: the model; it is calibrated if it is not yet.
        sites: "default" (at most about 24, well spread), "all", or globs over `component.path:stream`.
        at: fractions of the schedule (0 to 1) or step indices.
        image_pooling: poolings of image streams, from "mean" and "grid".
        text_pooling: poolings of text streams, from "mean", "eot" and "span".

    Raises:
        ConfigError: `at` or a pooling cannot be used.
        SiteError: a glob fits no site, or nothing can be hooked.
    """
    check_poolings(image_pooling, text_pooling)
    resolve_steps(at, 1_000_000)
    calibration = calibrated(model)
    refuse_hidden(model, calibration)
    known = all_sites(calibration)
    chosen = select_sites(known, sites, list(calibration.denoisers))
    steps = {
        name: resolve_steps(at, found.n_steps) for name, found in calibration.denoisers.items()
    }
    return CapturePlan(calibration, tuple(chosen), steps, tuple(image_pooling), tuple(text_pooling))


def refuse_hidden(model: Model, calibration: Calibration) -> None:
    """A denoiser without a readable block is an error that shows what was seen.

    Raises:
        SiteError: the blocks of a denoiser never called their hooks.
    """
    for name, found in calibration.denoisers.items():
        if not found.readings:
            raise SiteError(_nothing_read(model, name, found))


def _nothing_read(model: Model, name: str, found: Denoiser) -> str:
    part = getattr(model.pipe, name, None)
    why = (
        "it was compiled and run before; load it afresh or compile it later"
        if part is not None and is_compiled(part)
        else f"blocks gave no stream that could be told; guidance seen: {found.guidance}"
    )
    return f"{name} ({type(model.denoisers[name]).__name__}): no block can be read: {why}"
