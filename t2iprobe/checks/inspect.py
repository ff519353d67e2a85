"""What can be read in a model, in words and numbers: behind `t2iprobe inspect`.

Without weights it is the module tree, built from the configs on the meta device: classes, layers, sites, widths, prompt
limits, numbers of weights. Streams, shapes, guidance and the layers that a denoiser is fed come from trial calls.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

from torch import nn

from t2iprobe.activations.plan import (
    CapturePlan,
    all_sites,
    bytes_per_image,
    calibrated,
    plan_capture,
    site_shape,
)
from t2iprobe.checks.fed_layers import fed_layers
from t2iprobe.checks.ignored_settings import ignored_settings
from t2iprobe.checks.skeleton import skeleton, weightless_model
from t2iprobe.models.arguments import call_parameters
from t2iprobe.models.index import components, read_index
from t2iprobe.models.loading import find_configs, load_model
from t2iprobe.models.model import Model, token_embedding, word_table
from t2iprobe.models.settings import LoadSettings, weights_settings
from t2iprobe.models.sites import attends, denoiser_blocks, encoder_layers, norms_outside


@dataclass(frozen=True)
class EncoderReport:
    """One text encoder.

    Attributes:
        class_name: its class.
        layers: number of layers.
        parameters: number of weights.
        limit: most tokens of a prompt, template included; None when nothing limits it.
        fed: paths of the layers whose states a denoiser is given; empty when only a pooled vector is, None without
            trial calls.
    """

    class_name: str
    layers: int
    parameters: int
    limit: int | None
    fed: list[str] | None = None


@dataclass(frozen=True)
class DenoiserReport:
    """One denoiser. The fields after `blocks` are None without trial calls."""

    class_name: str
    parameters: int
    blocks: int
    guidance: str | None = None
    conditioning: str | None = None
    steps: int | None = None
    calls: int | None = None


@dataclass(frozen=True)
class PartReport:
    """A component that is neither a text encoder nor a denoiser, such as the VAE."""

    class_name: str
    parameters: int


@dataclass(frozen=True)
class SiteReport:
    """One site.

    Attributes:
        name: where it is; with the stream behind a colon once that is known.
        class_name: class of its module.
        width: channels; None where the module tree does not tell.
        stream: image or text; of a denoiser's block None without trial calls.
        shape: of one image; None without trial calls.
        default: whether a run reads it by default; None without trial calls.
    """

    name: str
    class_name: str
    width: int | None = None
    stream: str | None = None
    shape: tuple[int, ...] | None = None
    default: bool | None = None


_DENOISER_WORDS = ("unet", "transformer", "prior", "decoder")
"""What pipelines call their denoisers: of a part that cannot be built the name is all there is to go by."""


@dataclass
class ModelReport:
    """Everything `t2iprobe inspect` says about a model.

    Attributes:
        tried: whether it was called; image size, batch and activation bytes are None otherwise.
        others: components that are neither text encoders nor denoisers.
        missing: component -> why it cannot be built.
        parameters: weights of all components together.
    """

    name: str
    class_name: str
    tried: bool
    encoders: dict[str, EncoderReport] = field(default_factory=dict)
    denoisers: dict[str, DenoiserReport] = field(default_factory=dict)
    others: dict[str, PartReport] = field(default_factory=dict)
    sites: list[SiteReport] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    parameters: int = 0
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

    In a module of diffusers that holds one of transformers (UniDiffuser's text decoder), loading makes two tensors of
    such a pair.
    """
    weights = {id(weight): weight.numel() for weight in module.parameters()}
    for part in module.modules():
        layer = getattr(part, "get_output_embeddings", lambda: None)()
        tied = getattr(getattr(part, "config", None), "tie_word_embeddings", False)
        table = token_embedding(part)
        if tied and table is not None and layer is not None and layer.weight is not table.weight:
            weights.pop(id(layer.weight), None)
    return sum(weights.values())


def inspect_configs(name: str, settings: LoadSettings) -> ModelReport:
    """What the configs alone tell; the weights of the checkpoint are neither fetched nor read.

    Raises:
        ModelError: the folder or a config cannot be used, it brings code that is not trusted, or the pipeline makes no
            image from a text alone.
        ConfigError: a setting does not fit the pipeline.
        MissingExtra: the pipeline needs a library that is not installed.
    """
    folder = find_configs(name, settings)
    tree = skeleton(name, folder, settings.trust_remote_code)
    if tree.missing:
        model = Model(name, SimpleNamespace(components=tree.modules))
    else:
        model = weightless_model(name, folder, tree.modules, settings)
    index = read_index(folder)
    kind = index["_class_name"]
    report = ModelReport(name, str(kind[-1] if isinstance(kind, list) else kind), tried=False)
    report.missing = tree.missing
    _describe_parts(report, model, {})
    for part, module in model.encoders.items():
        report.sites += _encoder_sites(part, module)
    for part, module in model.denoisers.items():
        report.sites += [
            SiteReport(f"{part}.{path}", type(block).__name__, width(block))
            for path, block in denoiser_blocks(module).items()
        ]
    optional = getattr(type(model.pipe), "_optional_components", ())
    absent = [
        part
        for part, entry in components(index).items()
        if entry == [None, None] and part not in optional
    ]
    if absent:
        report.notes.append(
            f"the checkpoint leaves out {', '.join(absent)}; --trial tells whether it works without"
        )
    unused = weights_settings(settings)
    if unused:
        report.notes.append(
            f"no weight was read, so {' and '.join(unused)} changed nothing: --trial loads them"
        )
    return report


def _encoder_sites(name: str, module: nn.Module) -> list[SiteReport]:
    """Sites of a text encoder: its word table, its layers, its final norm."""
    layers = text_layers(module)
    table = word_table(module)
    # T5 has its table as `shared` and once more, with the same weights, in the encoder, where it runs.
    tables = [
        path
        for path, part in module.named_modules()
        if table is not None and isinstance(part, nn.Embedding) and part.weight is table.weight
    ]
    paths = tables[-1:] + layers
    norms = [
        path
        for path in norms_outside(module, layers)
        if layers and f".{layers[0]}".startswith(f".{path}".rpartition(".")[0] + ".")
    ]
    modules = [(path, module.get_submodule(path)) for path in paths + norms[-1:]]
    channels = next((w for path, part in modules if path in layers and (w := width(part))), None)
    return [
        SiteReport(
            f"{name}.{path}:text",
            type(part).__name__,
            part.embedding_dim if isinstance(part, nn.Embedding) else channels,
            "text",
        )
        for path, part in modules
    ]


def text_layers(module: nn.Module) -> list[str]:
    """Paths of the layers of a text encoder: of several lists that which lies nearest to its word table, then longest.

    A vision tower beside the text model (Qwen2.5-VL in Qwen-Image) has a list of its own.
    """
    table = word_table(module)
    at = next((path for path, part in module.named_modules() if part is table), "").split(".")

    def nearness(layers: list[str]) -> tuple[int, int]:
        levels = zip(layers[0].split("."), at, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], levels)), len(layers)

    return max((layers for _, layers in encoder_layers(module)), key=nearness, default=[])


def width(block: nn.Module) -> int | None:
    """Channels of the states that a block hands on, as far as its layers tell; None where they do not.

    A UNet's block says it of its last residual block. In a transformer's most linear layers take them: queries, keys,
    values and the first of the feed-forward. Blocks without attention (Stable Cascade's) have linear layers of others.
    """
    resnets = getattr(block, "resnets", None)
    if isinstance(resnets, nn.ModuleList) and len(resnets):
        channels = getattr(resnets[-1], "out_channels", None)
        return channels if isinstance(channels, int) else None
    if not attends(block):
        return None
    taken = Counter(part.in_features for part in block.modules() if isinstance(part, nn.Linear))
    return taken.most_common(1)[0][0] if taken else None


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
    calibration = plan.calibration
    report = ModelReport(model.name, model.class_name, tried=True)
    lengths = {name: encoder.n_tokens for name, encoder in calibration.encoders.items()}
    _describe_parts(report, model, lengths)
    for name, layers in fed_layers(model, calibration).items():
        report.encoders[name] = replace(report.encoders[name], fed=layers)
    for name, denoiser in calibration.denoisers.items():
        report.denoisers[name] = replace(
            report.denoisers[name],
            guidance=denoiser.guidance,
            conditioning=denoiser.conditioning,
            steps=denoiser.n_steps,
            calls=len(denoiser.schedule),
        )
    for site in all_sites(calibration):
        shape = site_shape(calibration, site)
        report.sites.append(
            SiteReport(
                str(site),
                _class_at({**model.encoders, **model.denoisers}[site.component], site.path),
                shape[0] if len(shape) == 3 else shape[-1],
                site.stream,
                shape,
                site in plan.sites,
            )
        )
    report.image_size, report.max_batch = calibration.image_size, calibration.max_batch
    report.bytes_per_image = bytes_per_image(plan, n_constituents)
    report.planned_images = n_images
    report.planned_bytes = n_images * report.bytes_per_image
    report.notes = list(calibration.notes)
    return report


def _describe_parts(report: ModelReport, model: Model, lengths: Mapping[str, int]) -> None:
    """Put every component of a model into its report.

    Args:
        report: gets them.
        model: with or without values.
        lengths: tokens that encoders were given in a trial call.
    """
    distinct = {id(module): name for name, module in reversed(model.modules.items())}
    for name, module in model.modules.items():
        if distinct[id(module)] != name:  # one object under two names
            continue
        kind, count = type(module).__name__, parameters(module)
        report.parameters += count
        if name in model.encoders:
            limit = prompt_limit(model, name, lengths.get(name))
            report.encoders[name] = EncoderReport(kind, len(text_layers(module)), count, limit)
        elif name in model.denoisers:
            report.denoisers[name] = DenoiserReport(kind, count, len(denoiser_blocks(module)))
        else:
            report.others[name] = PartReport(kind, count)


def _class_at(root: nn.Module, path: str) -> str:
    """Class of a module; the conditioning site is no module's output."""
    try:
        return type(root.get_submodule(path)).__name__
    except AttributeError:
        return "input"


def prompt_limit(model: Model, encoder: str, n_tokens: int | None = None) -> int | None:
    """Most tokens of a prompt that an encoder is given, its template included; None where nothing tells.

    Args:
        model: the model.
        encoder: component name.
        n_tokens: tokens that it was given for a short prompt, where padding shows a fixed length; None without a trial
            call: a table of positions then tells it (CLIP's 77).
    """
    module = model.modules[encoder]
    limit = getattr(model.tokenizer(encoder), "model_max_length", None)
    limit = limit if isinstance(limit, int) and limit < 1_000_000 else None
    tables = [part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)]
    if limit is not None and (limit in tables if n_tokens is None else n_tokens == limit):
        return limit
    parameters = call_parameters(type(model.pipe))
    setting = model.call.get("max_sequence_length")
    if setting is None and "max_sequence_length" in parameters:
        setting = parameters["max_sequence_length"].default
    return setting if isinstance(setting, int) else limit


def inspect_checkpoint(
    name: str, settings: LoadSettings, trial: bool, n_constituents: int, n_images: int
) -> ModelReport:
    """The report on a checkpoint: from its configs alone, or with trial calls."""
    if not trial:
        return inspect_configs(name, settings)
    model = load_model(name, settings)
    report = inspect_model(model, None, n_constituents, n_images)
    report.notes += ignored_settings(model, calibrated(model))
    return report
