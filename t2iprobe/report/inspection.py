"""`t2iprobe inspect` as text."""

from rich.console import Console
from rich.table import Table

from t2iprobe.checks.inspect import ModelReport


def print_inspection(found: ModelReport) -> None:
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


def _parts(found: ModelReport) -> Table:
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


def _sites(found: ModelReport) -> Table:
    table = Table(title="sites, * read by default", title_justify="left", box=None, pad_edge=False)
    for column in ("", "site", "class", "shape"):
        table.add_column(column, overflow="fold")
    for site in found.sites:
        shape = "unknown" if site.shape is None else " x ".join(map(str, site.shape))
        table.add_row("*" if site.default else "", site.name, site.class_name, shape)
    return table


def _millions(count: int) -> str:
    return f"{count / 1e6:,.2f} M"
