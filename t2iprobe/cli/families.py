"""`t2iprobe families [list | show NAME]`."""

from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from t2iprobe.cli.parsing import parse
from t2iprobe.errors import ConfigError, unknown
from t2iprobe.families.reading import family_names, load_family
from t2iprobe.families.tasks import Constituent, Family
from t2iprobe.report.tables import Column, Table

_N_EXAMPLES = 6

DESCRIPTION = """\
List the task families, or show one: examples, constituents, and which values meet.

  t2iprobe families
  t2iprobe families show shapes-pair
  t2iprobe families show ./my-family.yaml"""


@dataclass(frozen=True)
class FamiliesConfig:
    """What to show."""

    action: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="list|show")] = "list"
    """list (the default) or show."""
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None
    """A family, or a path to a YAML file."""


def main(arguments: list[str]) -> int:
    """Print the families, or one of them."""
    config = parse(FamiliesConfig, arguments, "families", DESCRIPTION)
    if config.action not in ("list", "show"):
        raise ConfigError(unknown("action", config.action, ("list", "show")))
    if config.action == "list":
        print_families()
        return 0
    if config.name is None:
        raise ConfigError(
            "families show: give the name of a family, e.g. `t2iprobe families show shapes-pair`"
        )
    show_family(config.name)
    return 0


FAMILY_COLUMNS: tuple[Column[Family], ...] = (
    Column("family", lambda family: family.name),
    Column("tasks", lambda family: f"{family.n_tasks:,}"),
    Column("scenes", lambda family: f"{family.n_scenes:,}"),
    Column("headline", lambda family: family.headline),
    Column("description", lambda family: family.description),
)


def print_families(console: Console | None = None) -> None:
    """One line per built-in family: its size, its headline coding, what it is."""
    families = [load_family(name) for name in family_names()]
    (console or Console()).print(Table(FAMILY_COLUMNS, families).terminal())


CONSTITUENT_COLUMNS: tuple[Column[Constituent], ...] = (
    Column("constituent", lambda constituent: constituent.name),
    Column("kind", lambda constituent: constituent.kind),
    Column("values", lambda part: f"{len(part.values)}: {', '.join(part.values)}"),
)


def show_family(name_or_path: str | Path, console: Console | None = None) -> None:
    """A family's constituents, codings, examples and coverage.

    Raises:
        ConfigError: there is no such family.
        DataError: the file is not a valid family.
    """
    family = load_family(name_or_path)
    console = console or Console()
    console.print(f"[bold]{escape(family.name)}[/bold]  {escape(family.description)}")
    console.print(f"template  {escape(family.template.text)}", highlight=False)
    console.print(
        f"{family.n_tasks:,} tasks, {family.n_scenes:,} scenes; "
        f"codings {', '.join(family.codings)}; headline {family.headline}\n"
    )
    console.print(Table(CONSTITUENT_COLUMNS, family.constituents).terminal())
    console.print()
    for line in examples(family):
        console.print(f"  {escape(line)}", highlight=False)
    for kinds in list(family.bound_pairs):
        table = coverage_table(family, kinds)
        console.print()
        console.print(table.terminal(title=table.caption, title_justify="left"))


def examples(family: Family, n: int = _N_EXAMPLES) -> list[str]:
    """Prompts spread over the family, n of them, each with the other wording of its scene."""
    from t2iprobe.families.sampling import draw_tasks

    lines = []
    for task in draw_tasks(family, min(n, family.n_tasks), seed=0):
        rule = family.scene_rule
        other = family.task(rule.other(task.values)) if rule else task
        lines.append(task.prompt if other == task else f"{task.prompt}  =  {other.prompt}")
    return lines


def coverage(family: Family, kinds: tuple[str, str]) -> Counter[tuple[str, ...]]:
    """How many scenes show each pair of one thing, e.g. ("red", "circle"), in any position."""
    return Counter(pair for scene in family.scenes() for pair in set(family.things(scene, kinds)))


def coverage_table(family: Family, kinds: tuple[str, str]) -> Table[str]:
    """The coverage: rows and columns are the two kinds' values; a * marks a pair under hold_out."""
    values = {constituent.kind: constituent.values for constituent in family.constituents}
    counts = coverage(family, kinds)
    pairs = product(*(values[kind] for kind in kinds))
    held = {pair for pair in pairs if dict(zip(kinds, pair, strict=True)) in family.hold_out}

    def column(second: str) -> Column[str]:
        def cell(first: str) -> str:
            return f"{counts[first, second]}{'*' if (first, second) in held else ''}"

        return Column(second, cell, str)

    columns = [
        Column(f"{kinds[0]} \\ {kinds[1]}", lambda first: first),
        *(column(second) for second in values[kinds[1]]),
    ]
    title = f"scenes with each {kinds[0]} and {kinds[1]}" + (" (* held out)" if held else "")
    return Table(columns, values[kinds[0]], title)
