"""`t2iprobe score|probe|correlate|report RUN`: run a stage again, and those that depend on it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from t2iprobe.cli.parsing import parse


@dataclass(frozen=True)
class StageConfig:
    """A run folder whose stage is to be run again."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The run folder."""


def score(arguments: list[str]) -> int:
    """Score the images again, then correlate and report."""
    return _again("score", arguments)


def probe(arguments: list[str]) -> int:
    """Fit the probes again, then correlate and report."""
    return _again("probe", arguments)


def correlate(arguments: list[str]) -> int:
    """Correlate again, then report."""
    return _again("correlate", arguments)


def report(arguments: list[str]) -> int:
    """Write the report again."""
    return _again("report", arguments)


def _again(stage: str, arguments: list[str]) -> int:
    description = f"Run the stage '{stage}' of a finished run again, from what its folder holds."
    config = parse(StageConfig, arguments, stage, description)
    from t2iprobe.errors import DataError
    from t2iprobe.report.summary import print_summary
    from t2iprobe.runs import stages
    from t2iprobe.runs.config import from_resolved
    from t2iprobe.runs.folder import RunFolder
    from t2iprobe.runs.records import CORRELATION, SUMMARY
    from t2iprobe.runs.results import require_unchanged

    folder = RunFolder.existing(config.run)
    before = stages.STAGES[: stages.STAGES.index(stage)]
    missing = [name for name in before if not folder.has_results(name)]
    if missing:
        raise DataError(
            f"{config.run}: the stage '{missing[0]}' has not finished; continue the run first with `t2iprobe run`"
        )
    require_unchanged(folder, before)
    stages.rerun(folder, from_resolved(folder.manifest["settings"], config.run), stage)
    print_summary(SUMMARY.read(folder.path), CORRELATION.read(folder.path))
    return 0
