"""The embedded zoo as a table."""

from rich.console import Console
from rich.table import Table

from t2iprobe.models import zoo
from t2iprobe.models.cards import Card


def print_models() -> None:
    """Print every zoo model with what its card says of training and success."""
    table = Table(
        title="The embedded zoo", caption="t2iprobe run --model NAME", box=None, pad_edge=False
    )
    table.add_column("model", no_wrap=True)
    table.add_column("what it was trained on")
    for column in ("steps", "scenes seen", "success, seen", "held out"):
        table.add_column(column, justify="right")
    for name in zoo.names():
        card = Card.read(zoo.path(name) / "card.json")
        figures = card.content["figures"]
        table.add_row(
            name,
            card.content["description"],
            str(card.content["training"]["steps"]),
            f"{sum(count > 0 for count in card.scene_counts):,}",
            _share(figures.get("success_seen")),
            _share(figures.get("success_held_out")),
        )
    Console().print(table)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
