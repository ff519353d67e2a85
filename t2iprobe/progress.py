"""One progress bar for everything that takes time: count, rate, time left. Silent when stderr is no terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

console = Console(stderr=True)


class _Rate(ProgressColumn):
    """Things per second, of the time since the bar began."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.speed
        return Text(
            "" if speed is None else f"{speed:.1f} {self.unit}/s", style="progress.data.speed"
        )


@dataclass(frozen=True)
class Bar:
    """A handle to advance a bar."""

    progress: Progress
    task: "Task"

    def advance(self, n: int = 1) -> None:
        """Say that n more things are done."""
        self.progress.advance(self.task.id, n)


@contextmanager
def bar(label: str, total: int, unit: str, done: int = 0) -> Iterator[Bar]:
    """Show a bar while the block runs.

    Args:
        label: what is being done, e.g. "generate".
        total: number of things in all.
        unit: what is counted, in the plural, e.g. "images".
        done: things that an earlier run already did; they do not count for the rate.
    """
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _Rate(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        identity = progress.add_task(label, total=total, completed=done)
        yield Bar(progress, progress.tasks[progress.task_ids.index(identity)])
