"""`t2iprobe inspect MODEL`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from t2iprobe.cli.parsing import parse
from t2iprobe.errors import ConfigError
from t2iprobe.runs.config import OneModel

if TYPE_CHECKING:
    from t2iprobe.checks.inspect import ModelReport

DESCRIPTION = """\
Say what can be read in a model. Without --trial that is the module tree, built from the configs alone (no weight is
downloaded or loaded, whatever the size): components, classes, layers, every site with its width, prompt limits, numbers
of weights. With --trial the weights are loaded and the pipeline is called: streams, shapes, the form of guidance, the
layers that the denoiser is fed, and the bytes of a run's activations.

  t2iprobe inspect shapes-mmdit
  t2iprobe inspect stabilityai/stable-diffusion-3.5-medium --json
  t2iprobe inspect ./my-checkpoint --trial
  t2iprobe inspect shapes-mmdit --why transformer.transformer_blocks.0     what its streams are told by"""


@dataclass(frozen=True)
class InspectConfig(OneModel):
    """Which model to look at, and how it is loaded."""

    trial: bool = False
    """Load the weights and call the pipeline: streams, shapes, guidance, and which layers are fed."""
    why: str | None = None
    """Print by what rule and what numbers a site is text or image. Loads the weights and makes the trial calls."""
    json: bool = False
    """Print JSON."""
    images: int = 768
    """Images of the planned run whose bytes are told with --trial."""

    def __post_init__(self) -> None:
        """Reject numbers that cannot be meant.

        Raises:
            ConfigError: a count is below its minimum.
        """
        super().__post_init__()
        if self.images < 1:
            raise ConfigError(f"--images {self.images}: must be 1 or more")


def main(arguments: list[str]) -> int:
    """Print what is known of a model; 1 where the sites of a denoiser could not be listed."""
    config = parse(InspectConfig, arguments, "inspect", DESCRIPTION)
    if config.why is not None:
        print("\n".join(_reasons(config, config.why)))
        return 0
    import json

    from t2iprobe.checks.inspect import inspect_checkpoint
    from t2iprobe.runs.memory import give_back_soon

    give_back_soon()
    report = inspect_checkpoint(config.model, config, config.trial, 5, config.images)
    if config.json:
        print(json.dumps(report.as_dict(), indent=1))
    else:
        print_inspection(report)
    return 0 if report.lists_denoisers else 1


def _reasons(config: InspectConfig, site: str) -> list[str]:
    """Why a site is read as it is."""
    from t2iprobe.activations.plan import calibrated
    from t2iprobe.calibration.result import why
    from t2iprobe.calibration.streams import MOVED
    from t2iprobe.models.loading import load_model

    lines = why(calibrated(load_model(config.model, config)), site)
    if any(": moved " in line for line in lines):
        lines.append(f"(in units of a position's own length; above {MOVED:.0e} counts as moved)")
    return lines


def print_inspection(report: "ModelReport") -> None:
    """Print what is known of a model: parts, sites, and what a run would cost."""
    from t2iprobe.report.formats import size

    console = _console()
    console.print(f"{report.name}  {report.class_name}", style="bold")
    console.print(_parts(report))
    console.print(_sites(report))
    count = report.parameters
    console.print(
        f"weights {_millions(count)}: {size(2 * count)} in bf16 or fp16, {size(4 * count)} in fp32"
    )
    if report.tried:
        picture = "unknown" if report.image_size is None else "{} x {}".format(*report.image_size)
        batch = "any" if report.max_batch is None else str(report.max_batch)
        console.print(f"images {picture}, batch size {batch}")
    else:
        console.print("streams, shapes, guidance and the layers that are fed: add --trial")
    if report.bytes_per_image is not None and report.planned_bytes is not None:
        console.print(
            f"activations {size(report.bytes_per_image)} an image, "
            f"{size(report.planned_bytes)} for {report.planned_images} images"
        )
    for note in report.notes:
        console.print(f"note: {note}", soft_wrap=True)


def _console() -> Console:
    """On a terminal tables fold to its width; in a file or a pipe every line is as long as it has to be."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 1000
    return console


def _parts(report: "ModelReport") -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("part", "class", "weights", "blocks", ""):
        right = column in ("weights", "blocks")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for name, encoder in report.encoders.items():
        facts = [] if encoder.limit is None else [f"at most {encoder.limit} tokens"]
        if encoder.fed is not None:
            facts.append(f"denoiser is fed {', '.join(encoder.fed) or 'a pooled vector only'}")
        weights = _millions(encoder.parameters)
        table.add_row(name, encoder.class_name, weights, str(encoder.layers), "; ".join(facts))
    for name, denoiser in report.denoisers.items():
        fact = "" if denoiser.guidance is None else f"guidance: {denoiser.guidance}"
        weights = _millions(denoiser.parameters)
        table.add_row(name, denoiser.class_name, weights, str(denoiser.blocks), fact)
    for name, part in report.others.items():
        table.add_row(name, part.class_name, _millions(part.parameters), "", "")
    for name, reason in report.missing.items():
        table.add_row(name, "unknown", "unknown", "unknown", f"cannot be built: {reason}")
    return table


def _sites(report: "ModelReport") -> Table:
    title = "sites, * read by default" if report.tried else "sites"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("", "site", "class", "shape" if report.tried else "width"):
        table.add_column(column, overflow="fold")
    for site in report.sites:
        sizes = site.shape or (site.width,)
        size = " x ".join("unknown" if size is None else str(size) for size in sizes)
        table.add_row("*" if site.default else "", site.name, site.class_name, size)
    return table


def _millions(count: int) -> str:
    return f"{count / 1e6:,.2f} M"
