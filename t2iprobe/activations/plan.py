"""What will be captured: sites, steps and poolings, decided once per model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from t2iprobe.activations.pooling import (
    DEFAULT_POOLING,
    IMAGE_POOLINGS,
    split_poolings,
    text_names,
)
from t2iprobe.calibration.calibrate import calibrate
from t2iprobe.calibration.result import Calibration
from t2iprobe.calibration.steps import step_timesteps
from t2iprobe.errors import ConfigError, SiteError
from t2iprobe.models.hooks import is_compiled, unwrap
from t2iprobe.models.model import Model
from t2iprobe.models.sites import denoiser_blocks, select_sites
from t2iprobe.places import CONDITIONING, Site

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
        levels = {
            name: step_timesteps(found.schedule)
            for name, found in self.calibration.denoisers.items()
        }
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


_CALIBRATIONS: WeakKeyDictionary[Model, Calibration] = WeakKeyDictionary()
"""What is known of each model, for as long as the model is there."""


def calibrated(model: Model) -> Calibration:
    """The calibration of a model, done once.

    Raises:
        ModelError: the pipeline cannot make an image from a text alone.
        SiteError: no denoiser sees the prompt.
    """
    calibration = _CALIBRATIONS.get(model)
    if calibration is None:
        _CALIBRATIONS[model] = calibration = calibrate(model)
        compiled = compiled_inside(model)
        if compiled:
            calibration.notes.append(
                f"blocks inside {', '.join(compiled)} are compiled and cannot be read"
            )
    return calibration


def known_calibration(model: Model) -> Calibration | None:
    """The calibration of a model that has been calibrated; None of another one."""
    return _CALIBRATIONS.get(model)


def forget_calibration(model: Model) -> None:
    """Let a model be calibrated anew, as after its call or its weights were changed."""
    _CALIBRATIONS.pop(model, None)


def all_sites(calibration: Calibration) -> list[Site]:
    """Every site of a model in running order: text encoders, then what each denoiser is given, then its blocks."""
    sites: list[Site] = []
    for name, encoder in calibration.encoders.items():
        sites += [Site(name, path, "text") for path in (encoder.embedding, *encoder.readings)]
    for name, found in calibration.denoisers.items():
        if found.states_shape:
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
    pooling: Sequence[str] = DEFAULT_POOLING,
) -> CapturePlan:
    """Decide what to capture.

    Args:
        model: the model; it is calibrated if it is not yet.
        sites: "default" (at most about 24, well spread), "all", or globs over `component.path:stream`.
        at: fractions of the schedule (0 to 1) or step indices.
        pooling: poolings of both streams; see `t2iprobe.activations.pooling.split_poolings`.

    Raises:
        ConfigError: `at` or a pooling cannot be used.
        SiteError: a glob fits no site, or nothing can be hooked.
    """
    image_poolings, text_poolings = split_poolings(pooling)
    resolve_steps(at, 1_000_000)
    refuse_unreadable(model)
    calibration = calibrated(model)
    refuse_hidden(model, calibration)
    known = all_sites(calibration)
    chosen = select_sites(known, sites, list(calibration.denoisers))
    steps = {}
    for name, found in calibration.denoisers.items():
        made_here = step_timesteps(found.schedule)  # of several denoisers in turn each makes a part
        steps[name] = tuple(step for step in resolve_steps(at, found.n_steps) if step in made_here)
    read = [s for s in chosen if s.path == CONDITIONING or steps.get(s.component, True)]
    if not read:
        why = "; ".join(calibration.notes)
        raise ConfigError(f"--at names no step in which {chosen[0]} runs: {why}")
    return CapturePlan(calibration, tuple(read), steps, image_poolings, text_poolings)


def refuse_unreadable(model: Model) -> None:
    """Refuse modules whose blocks cannot be read rightly, by name.

    A component compiled as a whole skips the hooks of its blocks (blocks compiled one by one do not), a cache leaves
    blocks out, and DataParallel runs copies of them.

    Raises:
        SiteError: the module is named, with what to do.
    """
    parts = getattr(model.pipe, "components", {})
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            _refuse_replicas(name, part)
    for name in (*model.denoisers, *model.encoders):
        part = getattr(model.pipe, name, None)
        if isinstance(part, nn.Module):
            _refuse_shortcuts(name, part)
        if part is not None and is_compiled(part):
            raise SiteError(
                f"{name} is compiled as a whole, its blocks would skip their hooks; use pipe.{name}._orig_mod, or"
                " compile its blocks with compile_repeated_blocks()"
            )


def _refuse_replicas(name: str, part: nn.Module) -> None:
    """DataParallel, DistributedDataParallel, FullyShardedDataParallel and the like, at the top or inside."""
    for path, module in part.named_modules():
        if set(dict(module.named_children())) in ({"module"}, {"_fsdp_wrapped_module"}):
            at = f"{name}.{path}" if path else name
            raise SiteError(
                f"{at} is wrapped in {type(module).__name__}, which splits or moves batches; use pipe.{at}.module"
            )


def _refuse_shortcuts(name: str, part: nn.Module) -> None:
    """Caches: hooks of diffusers that put a forward with a memory in the place of a module's own."""
    if getattr(part, "is_cache_enabled", False):
        raise SiteError(
            f"{name} uses a cache that leaves blocks out; call pipe.{name}.disable_cache() first"
        )
    for path, module in part.named_modules():
        registry: Any = getattr(module, "_diffusers_hook", None)
        for hook_name, hook in getattr(registry, "hooks", {}).items():
            if hasattr(hook, "new_forward") and getattr(hook, "_is_stateful", False):
                at = f"{name}.{path}" if path else name
                raise SiteError(
                    f"{at} has the hook {hook_name}, which can leave it out; load the model again without it"
                )


def compiled_inside(model: Model) -> list[str]:
    """Blocks of the denoisers that are compiled and hold further blocks: those inside cannot be read."""
    return [
        f"{name}.{path}"
        for name, denoiser in model.denoisers.items()
        for path, block in denoiser_blocks(denoiser).items()
        if is_compiled(block) and denoiser_blocks(unwrap(block))
    ]


def refuse_hidden(model: Model, calibration: Calibration) -> None:
    """A denoiser without a readable block is an error that shows what was seen.

    Raises:
        SiteError: no block of a denoiser can be read.
    """
    for name, found in calibration.denoisers.items():
        if not found.readings:
            why = "".join(f"; {note}" for note in found.notes)
            raise SiteError(
                f"{name} ({type(model.denoisers[name]).__name__}): no block gave a stream that could be told;"
                f" guidance seen: {found.guidance}{why}"
            )


def check_has_image_site(plan: CapturePlan) -> None:
    """Refuse sites that a run can draw no headline from.

    Raises:
        SiteError: none is in a denoiser's image stream.
    """
    if any(site.stream == "image" for site in plan.sites):
        return
    known = [str(site) for site in all_sites(plan.calibration) if site.stream == "image"]
    for_example = f": add one, e.g. {known[0]!r}" if known else ", and the model has none to read"
    raise SiteError(
        f"--sites names no site of a denoiser's image stream, which a run needs{for_example}"
        " (`t2iprobe inspect` lists them)"
    )


def check_size(model: Model, calibration: Calibration) -> list[str]:
    """Compare the size asked for with that of the image of the rehearsal.

    Returns:
        A sentence where height and width are both asked for and the pipeline rounds them, puts them into a bin or
        draws at its own size.

    Raises:
        ConfigError: one of the two is asked for alone and not kept to; diffusers ignores half a size.
    """
    made = dict(zip(("height", "width"), calibration.image_size, strict=True))
    typed = {name: model.call[name] for name in made if model.call.get(name) is not None}
    if all(made[name] == value for name, value in typed.items()):
        return []
    sizes = ", ".join(f"{name} {value}" for name, value in typed.items())
    sentence = f"asked for {sizes}, the pipeline makes {made['height']} x {made['width']}"
    if len(typed) == 1:
        raise ConfigError(f"{sentence}: give both --height and --width")
    return [sentence]


def site_shape(calibration: Calibration, site: Site) -> tuple[int, ...]:
    """Shape of a site's stream for one image: (tokens, width) or (channels, height, width)."""
    if site.component in calibration.encoders:
        encoder = calibration.encoders[site.component]
        if site.path in encoder.readings:
            return encoder.readings[site.path].shape
        first = next(iter(encoder.readings.values()), None)
        return first.shape if first else ()
    found = calibration.denoisers[site.component]
    if site.path == CONDITIONING:
        return found.states_shape
    return found.readings[site.path][site.stream].shape


def bytes_per_image(plan: CapturePlan, n_constituents: int) -> int:
    """Bytes of float32 activations that one image adds to a run folder.

    Args:
        plan: what is captured.
        n_constituents: constituents of the task family: each has a text pooling of its own.
    """
    n_text = len(text_names(plan.text_poolings, [str(i) for i in range(n_constituents)]))
    n_image = sum(IMAGE_POOLINGS[name].rows for name in plan.image_poolings)
    total = 0
    for site in plan.sites:
        shape = site_shape(plan.calibration, site)
        width = (shape[0] if len(shape) == 3 else shape[-1]) if shape else 0
        single = site.component in plan.calibration.encoders or site.path == CONDITIONING
        steps = 1 if single else len(plan.steps[site.component])
        total += 4 * width * steps * (n_image if site.stream == "image" else n_text)
    return total
