"""One progress bar for everything that takes time: count, rate, time left. Plain lines when stderr is no terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

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


EVERY = 30.0
"""Seconds between two lines where there is no terminal."""


@dataclass
class Bar:
    """A handle to advance a bar, or to say now and then how far it is."""

    progress: Progress
    task: "Task"
    unit: str
    start: float
    done_before: float
    said: float

    def advance(self, n: int = 1) -> None:
        """Say that n more things are done."""
        self.progress.advance(self.task.id, n)
        now = time.monotonic()
        if now - self.said >= EVERY and not self.task.finished:
            self.said = now
            rate = (self.task.completed - self.done_before) / (now - self.start)
            left = self.task.remaining / rate if rate and self.task.remaining else 0.0
            self.tell(f"{rate:.1f} {self.unit}/s, about {left:.0f} s left")

    def tell(self, more: str) -> None:
        """Print where it is, if no bar shows that."""
        if self.progress.disable:
            label = self.task.description
            say(f"{label}: {self.task.completed:.0f} of {self.task.total:.0f} {self.unit}, {more}")


def say(line: str) -> None:
    """Print a line on stderr as it is."""
    console.print(line, soft_wrap=True, markup=False, highlight=False)


@contextmanager
def bar(label: str, total: int, unit: str, done: int = 0) -> Iterator[Bar]:
    """Show a bar while the block runs; without a terminal a line every half minute and one at the end.

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
        now = time.monotonic()
        shown = Bar(
            progress, progress.tasks[progress.task_ids.index(identity)], unit, now, done, now
        )
        yield shown
        if shown.task.completed > done:
            shown.tell(f"{time.monotonic() - shown.start:.0f} s")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """While the block runs, and where there is no terminal, say every half minute what is being waited for."""
    over, start = Event(), time.monotonic()

    def remind() -> None:
        while not over.wait(EVERY):
            say(f"{what}: {time.monotonic() - start:.0f} s so far")

    reminder = Thread(target=remind, daemon=True)
    if not sys.stderr.isatty():
        reminder.start()
    try:
        yield
    finally:
        over.set()
        if reminder.is_alive():
            reminder.join()
