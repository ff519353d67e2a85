"""What can be read in a model, in words and numbers: behind `t2iprobe inspect`."""

import inspect
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from torch import nn

from t2iprobe.capture import HookSet
from t2iprobe.errors import ModelError
from t2iprobe.models.checkpoint.loading import find_configs, load_model, read_index
from t2iprobe.models.checks.handed import handed_on
from t2iprobe.models.checks.skeleton import light_model, quiet, skeleton
from t2iprobe.models.generation.plan import (
    CapturePlan,
    all_sites,
    bytes_per_image,
    plan_capture,
    site_shape,
)
from t2iprobe.models.model import Model, timestep_name, token_embedding
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.sites import denoiser_blocks, encoder_layers


@dataclass(frozen=True)
class EncoderReport:
    """One text encoder.

    Attributes:
        class_name: its class.
        layers: number of layers.
        parameters: number of weights.
        limit: most tokens of a prompt, template included; None when nothing limits it.
        fed: paths of the layers whose states a denoiser is given; empty when only a pooled vector is, None when not
            tried.
    """

    class_name: str
    layers: int
    parameters: int
    limit: int | None
    fed: list[str] | None


@dataclass(frozen=True)
class DenoiserReport:
    """One denoiser. The fields after `blocks` are None until a trial call."""

    class_name: str
    parameters: int
    blocks: int
    guidance: str | None = None
    conditioning: str | None = None
    steps: int | None = None
    calls: int | None = None


@dataclass(frozen=True)
class SiteReport:
    """One site: name, class of its module, shape of its stream for one image, whether it is read by default."""

    name: str
    class_name: str
    shape: tuple[int, ...] | None
    default: bool


@dataclass
class ModelReport:
    """Everything `t2iprobe inspect` says about a model."""

    name: str
    class_name: str
    tried: bool
    encoders: dict[str, EncoderReport] = field(default_factory=dict)
    denoisers: dict[str, DenoiserReport] = field(default_factory=dict)
    sites: list[SiteReport] = field(default_factory=list)
    image_size: tuple[int, int] | None = None
    max_batch: int | None = None
    bytes_per_image: int | None = None
    planned_images: int = 0
    planned_bytes: int | None = None
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return asdict(self)


def parameters(module: nn.Module) -> int:
    """Number of weights of a module."""
    return sum(weight.numel() for weight in module.parameters())


def inspect_configs(
    name: str, settings: LoadSettings, n_constituents: int = 5, n_images: int = 768
) -> ModelReport:
    """What the configs alone tell; the weights of the checkpoint are not read.

    The pipeline is put together with stand-ins for its weights and tried: streams, shapes and the form of guidance
    do not depend on the weights. Where a part cannot be built so, classes, sizes, layers and blocks are told.

    Raises:
        ModelError: the folder or a config cannot be used, or the pipeline makes no image from a text alone.
    """
    folder = find_configs(name, settings)
    planned = (n_constituents, n_images)
    try:
        report, why = _try(name, folder, settings, planned, every_call=False)
    except ModelError:
        report = None
    if report is None:  # some pipelines read what a call has left in its modules
        report, why = _try(name, folder, settings, planned, every_call=True)
    return report or _static_report(name, folder, skeleton(folder).modules, why)


def _try(
    name: str, folder: Path, settings: LoadSettings, planned: tuple[int, int], every_call: bool
) -> tuple[ModelReport | None, str]:
    """The report of trial calls with stand-ins, or None and the part that could not be tried with the reason."""
    found = skeleton(folder)
    if found.missing:
        return None, "; ".join(f"{part}: {reason}" for part, reason in found.missing.items())
    model = light_model(name, folder, found, settings, every_call)
    where = Whereabouts(model)
    try:
        with where, quiet():
            report = inspect_model(model, None, *planned)
    except (RuntimeError, NotImplementedError, LookupError, TypeError, AttributeError) as error:
        what = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        return None, f"{where.last}: {what}"
    report.notes.append("tried with stand-ins for the weights; the checkpoint's own were not read")
    return report, ""


class Whereabouts:
    """Which component of a pipeline was the last to be called while the block is open."""

    def __init__(self, model: Model) -> None:
        self._model, self._hooks = model, HookSet()
        self.last = model.class_name

    def __enter__(self) -> Self:
        for name, module in self._model.modules.items():
            self._hooks.before(module, lambda *_, name=name: setattr(self, "last", name))
        return self

    def __exit__(self, *raised: Any) -> None:
        self._hooks.__exit__(*raised)


def _static_report(name: str, folder: Path, modules: dict[str, nn.Module], why: str) -> ModelReport:
    report = ModelReport(name, str(read_index(folder)["_class_name"]), tried=False)
    for part, module in modules.items():
        if token_embedding(module) is not None:
            lists = encoder_layers(module)
            layers = lists[0][1] if lists else []
            limit = getattr(module.config, "max_position_embeddings", None)
            report.encoders[part] = EncoderReport(
                type(module).__name__, len(layers), parameters(module), limit, None
            )
            report.sites += [
                SiteReport(f"{part}.{path}:text", _kind(module, path), None, False)
                for path in layers
            ]
        elif timestep_name(module) is not None:
            blocks = denoiser_blocks(module)
            report.denoisers[part] = DenoiserReport(
                type(module).__name__, parameters(module), len(blocks)
            )
            report.sites += [
                SiteReport(f"{part}.{path}", type(block).__name__, None, False)
                for path, block in blocks.items()
            ]
    report.notes.append(
        f"not tried without weights ({why}): streams, shapes and guidance need --trial, which loads them"
    )
    return report


def inspect_model(
    model: Model, plan: CapturePlan | None = None, n_constituents: int = 5, n_images: int = 768
) -> ModelReport:
    """What trial calls tell: sites with streams and shapes, guidance, prompt limits, bytes.

    Args:
        model: a loaded model; it is calibrated if it is not yet.
        plan: what a run would capture; None takes the default.
        n_constituents: constituents of the task family.
        n_images: images of the planned run.
    """
    plan = plan or plan_capture(model)
    found = plan.calibration
    report = ModelReport(model.name, model.class_name, tried=True)
    fed = handed_on(model, found)
    for name, module in model.encoders.items():
        own = found.encoders.get(name)
        layers = encoder_layers(module)
        report.encoders[name] = EncoderReport(
            type(module).__name__,
            len(layers[0][1]) if layers else 0,
            parameters(module),
            prompt_limit(model, name, own.n_tokens if own else 0),
            fed.get(name),
        )
    for name, module in model.denoisers.items():
        seen = found.denoisers.get(name)
        report.denoisers[name] = DenoiserReport(
            type(module).__name__,
            parameters(module),
            len(denoiser_blocks(module)),
            seen.guidance if seen else None,
            seen.conditioning if seen else None,
            seen.n_steps if seen else None,
            len(seen.schedule) if seen else None,
        )
    report.sites = [
        SiteReport(
            str(site),
            _kind({**model.encoders, **model.denoisers}[site.component], site.path),
            site_shape(found, site),
            site in plan.sites,
        )
        for site in all_sites(found)
    ]
    report.image_size, report.max_batch = found.image_size, found.max_batch
    report.bytes_per_image = bytes_per_image(plan, n_constituents)
    report.planned_images = n_images
    report.planned_bytes = n_images * report.bytes_per_image
    report.notes = list(found.notes)
    return report


def _kind(root: nn.Module, path: str) -> str:
    """Class of a module; the conditioning site is no module's output."""
    try:
        return type(root.get_submodule(path)).__name__
    except AttributeError:
        return "input"


def prompt_limit(model: Model, encoder: str, seen: int) -> int | None:
    """Most tokens of a prompt that an encoder is given, its template included.

    Args:
        model: the model.
        encoder: component name.
        seen: tokens it was given for a short prompt; padding shows a fixed length.
    """
    tokenizer = model.tokenizer(encoder)
    own = getattr(tokenizer, "model_max_length", None)
    own = own if isinstance(own, int) and own < 1_000_000 else None
    if own is not None and seen == own:
        return own
    parameters = inspect.signature(inspect.unwrap(type(model.pipe).__call__)).parameters
    asked = model.call.get("max_sequence_length")
    if asked is None and "max_sequence_length" in parameters:
        asked = parameters["max_sequence_length"].default
    return asked if isinstance(asked, int) else own


def inspect_checkpoint(
    name: str, settings: LoadSettings, trial: bool, n_constituents: int, n_images: int
) -> ModelReport:
    """The report on a checkpoint: from its configs alone, or with trial calls."""
    if not trial:
        return inspect_configs(name, settings, n_constituents, n_images)
    return inspect_model(load_model(name, settings), None, n_constituents, n_images)
