"""What can be read in a model, in words and numbers: behind `t2iprobe inspect`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from torch import nn

from t2iprobe.activations.plan import (
    CapturePlan,
    all_sites,
    bytes_per_image,
    calibrated,
    plan_capture,
    site_shape,
)
from t2iprobe.checks.classes import STAND_IN_ERRORS
from t2iprobe.checks.fed_layers import handed_on
from t2iprobe.checks.ignored_settings import unheeded
from t2iprobe.checks.skeleton import Skeleton, light_model, quiet, skeleton
from t2iprobe.checks.small import calibrate_small
from t2iprobe.errors import T2IProbeError, first_line
from t2iprobe.models.arguments import call_parameters
from t2iprobe.models.hooks import HookSet
from t2iprobe.models.index import read_index
from t2iprobe.models.loading import find_configs, load_model
from t2iprobe.models.model import Model, timestep_name, token_embedding
from t2iprobe.models.settings import LoadSettings, weights_settings
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
    """One site: name, class of its module, stream and its shape for one image, whether it is read by default.

    Stream and shape are None until a trial call.
    """

    name: str
    class_name: str
    stream: str | None
    shape: tuple[int, ...] | None
    default: bool


_DENOISER_WORDS = ("unet", "transformer", "prior", "decoder")
"""What pipelines call their denoisers: of a part that cannot be built the name is all there is to go by."""


@dataclass
class ModelReport:
    """Everything `t2iprobe inspect` says about a model.

    `tried` says whether the pipeline could be called, `missing` which components cannot be built and why.
    """

    name: str
    class_name: str
    tried: bool
    encoders: dict[str, EncoderReport] = field(default_factory=dict)
    denoisers: dict[str, DenoiserReport] = field(default_factory=dict)
    sites: list[SiteReport] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    image_size: tuple[int, int] | None = None
    max_batch: int | None = None
    bytes_per_image: int | None = None
    planned_images: int = 0
    planned_bytes: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def lists_denoisers(self) -> bool:
        """Whether the sites of every denoiser could be listed."""
        unlisted = [
            part
            for part in self.missing
            if "encoder" not in part and any(word in part for word in _DENOISER_WORDS)
        ]
        return bool(self.denoisers) and not unlisted

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, for JSON."""
        return asdict(self)


def parameters(module: nn.Module) -> int:
    """Number of weights of a module; an output layer that is tied to the word table is not counted again.

    In a module of diffusers that holds one of transformers, loading makes two tensors of such a pair.
    """
    weights = {id(weight): weight.numel() for weight in module.parameters()}
    for part in module.modules():
        layer = getattr(part, "get_output_embeddings", lambda: None)()
        tied = getattr(getattr(part, "config", None), "tie_word_embeddings", False)
        table = token_embedding(part)
        if tied and table is not None and layer is not None and layer.weight is not table.weight:
            weights.pop(id(layer.weight), None)
    return sum(weights.values())


def inspect_configs(
    name: str, settings: LoadSettings, n_constituents: int = 5, n_images: int = 768
) -> ModelReport:
    """What the configs alone tell; the weights of the checkpoint are not read.

    The pipeline is put together with stand-ins for its weights and tried: streams, shapes and the form of guidance
    do not depend on the weights. Where a part cannot be built so, classes, sizes, layers and blocks are told.

    Raises:
        ModelError: the folder or a config cannot be used, it brings code that is not trusted, or the pipeline makes no
            image from a text alone.
    """
    folder = find_configs(name, settings)
    why = ""
    for every_call in (False, True):  # some pipelines read what a call has left in its modules
        found = skeleton(name, folder, settings.trust_remote_code)
        if found.missing:
            return _static_report(name, folder, found, "")
        model = light_model(name, folder, found, settings, every_call)
        where = Whereabouts(model)
        try:
            with where, quiet():
                if not every_call:
                    model.calibration = calibrate_small(model, found.shadows)
                report = inspect_model(model, None, n_constituents, n_images)
        except T2IProbeError:
            if every_call:
                raise
            continue
        except STAND_IN_ERRORS as error:
            why = f"{where.last}: {first_line(error)}"
            continue
        unused = weights_settings(settings)
        report.notes.append(
            "tried with stand-ins for the weights; the checkpoint's own were not read"
            + (f", so {' and '.join(unused)} changed nothing: --trial loads them" if unused else "")
        )
        return report
    return _static_report(name, folder, skeleton(name, folder, settings.trust_remote_code), why)


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


def _static_report(name: str, folder: Path, found: Skeleton, why: str) -> ModelReport:
    """What the module tree tells where the pipeline could not be called: because of missing parts, or of `why`."""
    kind = read_index(folder)["_class_name"]
    report = ModelReport(name, str(kind[-1] if isinstance(kind, list) else kind), tried=False)
    report.missing = dict(found.missing)
    for part, module in found.modules.items():
        if token_embedding(module) is not None:
            lists = encoder_layers(module)
            layers = lists[0][1] if lists else []
            limit = getattr(module.config, "max_position_embeddings", None)
            report.encoders[part] = EncoderReport(
                type(module).__name__, len(layers), parameters(module), limit, None
            )
            report.sites += [
                SiteReport(f"{part}.{path}:text", _kind(module, path), "text", None, False)
                for path in layers
            ]
        elif timestep_name(module) is not None:
            blocks = denoiser_blocks(module)
            report.denoisers[part] = DenoiserReport(
                type(module).__name__, parameters(module), len(blocks)
            )
            report.sites += [
                SiteReport(f"{part}.{path}", type(block).__name__, None, None, False)
                for path, block in blocks.items()
            ]
    report.notes.append(_why_unknown(found.missing, why))
    return report


def _why_unknown(missing: Mapping[str, str], why: str) -> str:
    """Why streams, shapes and guidance are not told, and what helps."""
    if missing:
        reasons = "; ".join(f"{part}: {reason}" for part, reason in missing.items())
        return (
            f"not tried, as parts of it cannot be built ({reasons}): streams, shapes, guidance and bytes are unknown;"
            " install what they need, or mend their configs"
        )
    return f"not tried without weights ({why}): streams, shapes and guidance need --trial, which loads them"


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
            site.stream,
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
    parameters = call_parameters(type(model.pipe))
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
    model = load_model(name, settings)
    report = inspect_model(model, None, n_constituents, n_images)
    report.notes += unheeded(model, calibrated(model))
    return report
