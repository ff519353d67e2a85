"""Stage 5 of 5. Write the report of a run: tables -> report.html and figures."""

from t2iprobe import report
from t2iprobe.runs.config import RunConfig
from t2iprobe.runs.folder import RunFolder


def run(folder: RunFolder, config: RunConfig) -> None:  # noqa: ARG001
    """Write report.html and figures/."""
    report.build(folder.path)
