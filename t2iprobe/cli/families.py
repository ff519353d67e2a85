"""`t2iprobe families [list | show NAME]`."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from t2iprobe.cli.parsing import parse
from t2iprobe.errors import ConfigError, unknown

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
    from t2iprobe.report.families import print_families, show_family

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
