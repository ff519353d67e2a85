"""`t2iprobe models`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from t2iprobe.cli.parsing import parse
from t2iprobe.report.tables import Column, Table

if TYPE_CHECKING:
    from t2iprobe.models.cards import Card


@dataclass(frozen=True)
class ModelsConfig:
    """Nothing to set."""


def main(arguments: list[str]) -> int:
    """Print the models of the embedded zoo with what their cards say."""
    parse(ModelsConfig, arguments, "models", "List the models of the embedded zoo.")
    print_models()
    return 0


COLUMNS: tuple[Column[tuple[str, "Card"]], ...] = (
    Column("model", lambda entry: entry[0]),
    Column("steps", lambda entry: entry[1].content["training"]["steps"], str),
    Column("scenes seen", lambda entry: sum(n > 0 for n in entry[1].scene_counts), "{:,}".format),
    Column("success, seen", lambda entry: entry[1].content["figures"]["seen"]["success"], "{:.3f}".format),
    Column("held out", lambda entry: entry[1].content["figures"]["held_out"]["success"], "{:.3f}".format),
)  # fmt: skip


def print_models() -> None:
    """Print every zoo model with what its card says of training and success."""
    from t2iprobe.models import zoo
    from t2iprobe.models.cards import Card

    cards = {name: Card.read(zoo.path(name) / "card.json") for name in zoo.names()}
    console = Console(highlight=False)
    table = Table(COLUMNS, list(cards.items()))
    console.print(table.terminal(title="The embedded zoo", caption="t2iprobe run --model NAME"))
    console.print(
        "\nEach on 192 held-out and up to 64 seen tasks, 4 images a task (its README.md).\n"
    )
    for name, card in cards.items():
        console.print(f"{name}: {card.content['description']}", soft_wrap=True)
