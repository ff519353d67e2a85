"""`t2iprobe inspect MODEL`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from t2iprobe.cli.parsing import parse
from t2iprobe.errors import ConfigError
from t2iprobe.models.names import local_folder
from t2iprobe.runs.config import OneModel

if TYPE_CHECKING:
    from t2iprobe.checks.inspect import ModelReport

DESCRIPTION = """\
Say what can be read in a model: its text encoders and which of their layers the denoiser is fed, its denoisers and the
form of guidance, prompt limits, every site with its stream and shape, and the bytes a run would take. The configs are
enough: no weight is downloaded or loaded, whatever the size.

  t2iprobe inspect shapes-mmdit
  t2iprobe inspect stabilityai/stable-diffusion-3.5-medium --json
  t2iprobe inspect ./my-checkpoint --trial          the same from calls with the weights of the checkpoint
  t2iprobe inspect shapes-mmdit --why transformer.blocks.0     what its streams are told by"""


@dataclass(frozen=True)
class InspectConfig(OneModel):
    """Which model to look at, and how it is loaded."""

    trial: bool = False
    """Load the weights and make the trial calls with them, instead of with stand-ins."""
    why: str | None = None
    """Print by what rule and what numbers a site is text or image. Loads the weights and makes the trial calls."""
    json: bool = False
    """Print JSON."""
    images: int = 768
    """Images of the planned run whose bytes are told."""

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
    local_folder(config.model)  # a mistyped name is told before the heavy libraries are loaded
    if config.why is not None:
        print("\n".join(_reasons(config, config.why)))
        return 0
    import json

    from t2iprobe.checks.inspect import inspect_checkpoint
    from t2iprobe.runs.memory import give_back_soon

    give_back_soon()
    found = inspect_checkpoint(config.model, config, config.trial, 5, config.images)
    if config.json:
        print(json.dumps(found.as_dict(), indent=1))
    else:
        print_inspection(found)
    return 0 if found.lists_denoisers else 1


def _reasons(config: InspectConfig, site: str) -> list[str]:
    """Why a site is read as it is."""
    from t2iprobe.activations.plan import calibrated
    from t2iprobe.calibration.result import why
    from t2iprobe.models.loading import load_model

    return why(calibrated(load_model(config.model, config)), site)


def print_inspection(found: "ModelReport") -> None:
    """Print what is known of a model: parts, sites, and what a run would cost."""
    console = _console()
    console.print(f"{found.name}  {found.class_name}", style="bold")
    console.print(_parts(found))
    console.print(_sites(found))
    if found.tried:
        size = "unknown" if found.image_size is None else "{} x {}".format(*found.image_size)
        batch = "any" if found.max_batch is None else str(found.max_batch)
        console.print(f"images {size}, batch size {batch}")
        if found.bytes_per_image is not None and found.planned_bytes is not None:
            console.print(
                f"activations {found.bytes_per_image / 1e3:.1f} kB an image, "
                f"{found.planned_bytes / 1e6:.1f} MB for {found.planned_images} images"
            )
    elif found.missing:
        console.print("streams, shapes, guidance and bytes: unknown")
    else:
        console.print("streams, shapes, guidance and bytes: add --trial")
    for note in found.notes:
        console.print(f"note: {note}", soft_wrap=True)


def _console() -> Console:
    """On a terminal tables fold to its width; in a file or a pipe every line is as long as it has to be."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 1000
    return console


def _parts(found: "ModelReport") -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("part", "class", "weights", "blocks", ""):
        right = column in ("weights", "blocks")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for name, encoder in found.encoders.items():
        limit = "" if encoder.limit is None else f"at most {encoder.limit} tokens"
        fed = (
            ""
            if encoder.fed is None
            else f"denoiser is fed {', '.join(encoder.fed) or 'a pooled vector only'}"
        )
        said = "; ".join(part for part in (limit, fed) if part)
        table.add_row(
            name,
            encoder.class_name,
            _millions(encoder.parameters),
            str(encoder.layers),
            said,
        )
    for name, denoiser in found.denoisers.items():
        said = "" if denoiser.guidance is None else f"guidance: {denoiser.guidance}"
        table.add_row(
            name,
            denoiser.class_name,
            _millions(denoiser.parameters),
            str(denoiser.blocks),
            said,
        )
    for name, reason in found.missing.items():
        table.add_row(name, "unknown", "unknown", "unknown", f"cannot be built: {reason}")
    return table


def _sites(found: "ModelReport") -> Table:
    table = Table(title="sites, * read by default", title_justify="left", box=None, pad_edge=False)
    for column in ("", "site", "class", "shape"):
        table.add_column(column, overflow="fold")
    for site in found.sites:
        shape = "unknown" if site.shape is None else " x ".join(map(str, site.shape))
        table.add_row("*" if site.default else "", site.name, site.class_name, shape)
    return table


def _millions(count: int) -> str:
    return f"{count / 1e6:,.2f} M"
