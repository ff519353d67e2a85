"""`t2iprobe models`."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from t2iprobe.cli.parsing import parse


@dataclass(frozen=True)
class ModelsConfig:
    """Nothing to set."""


def main(arguments: list[str]) -> int:
    """Print the models of the embedded zoo with what their cards say."""
    parse(ModelsConfig, arguments, "models", "List the models of the embedded zoo.")
    print_models()
    return 0


def print_models() -> None:
    """Print every zoo model with what its card says of training and success."""
    from t2iprobe.models import zoo
    from t2iprobe.models.cards import Card

    table = Table(
        title="The embedded zoo", caption="t2iprobe run --model NAME", box=None, pad_edge=False
    )
    table.add_column("model", no_wrap=True)
    for column in ("steps", "scenes seen", "success, seen", "held out"):
        table.add_column(column, justify="right")
    for name in zoo.names():
        card = Card.read(zoo.path(name) / "card.json")
        figures = card.content["figures"]
        table.add_row(
            name,
            str(card.content["training"]["steps"]),
            f"{sum(count > 0 for count in card.scene_counts):,}",
            _share(figures["seen"]),
            _share(figures["held_out"]),
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "\nEach on 192 held-out and up to 64 seen tasks, 4 images a task (its README.md).\n"
    )
    for name in zoo.names():
        card = Card.read(zoo.path(name) / "card.json")
        console.print(f"{name}: {card.content['description']}", soft_wrap=True)


def _share(figures: dict[str, float]) -> str:
    return f"{figures['success']:.3f}"
