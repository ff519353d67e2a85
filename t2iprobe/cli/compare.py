"""`t2iprobe compare RUN...`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from t2iprobe.cli.parsing import parse

DESCRIPTION = """\
Put decodability against success across runs: one table, one figure, and a rank correlation over models when there are
at least four.

  t2iprobe compare runs/a runs/b runs/c runs/d
  t2iprobe compare runs/* --out compare"""


@dataclass(frozen=True)
class CompareConfig:
    """Which runs to compare."""

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Finished run folders."""
    out: Path = Path("runs/compare")
    """Where the table and the figure go."""


def main(arguments: list[str]) -> int:
    """Compare finished runs."""
    config = parse(CompareConfig, arguments, "compare", DESCRIPTION)
    from t2iprobe.report.compare import compare, print_comparison

    print_comparison(compare(config.runs, config.out))
    return 0
