"""A small run of the embedded model, made once a session by the product itself, and copies of it with other numbers.

Tests that need special values change records of a copy and write them as the product does.
"""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from t2iprobe.runs.config import RunConfig, resolved
from t2iprobe.runs.cost import settle
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.records import MANIFEST, SUMMARY, Manifest, Summary
from t2iprobe.runs.results import digests
from t2iprobe.runs.stages import run_stage

SETTINGS: dict[str, Any] = {
    "tasks": 24,
    "seeds": 2,
    "steps": 4,
    "at": "0,0.5,1",
    "folds": 3,
    "resamples": 99,
}
STAGES = ("generate", "score", "probe", "correlate")
Content = TypeVar("Content")


class File(Protocol[Content]):
    """A file of `t2iprobe.runs.records`."""

    def read(self, folder: Path) -> Content: ...
    def write(self, folder: Path, content: Content, /) -> None: ...


@cache
def recording() -> Path:
    """The run up to its report; tests leave it as it is."""
    root = Path(tempfile.mkdtemp(prefix="t2iprobe-recorded-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    config = RunConfig(out=root / "run", **SETTINGS)
    folder = RunFolder.open(config.folder, resolved(config), "t2iprobe run")
    for stage in STAGES:
        run_stage(stage, folder, config)
    settle(folder)
    return folder.path


def recorded(folder: Path) -> Path:
    """A copy of the run, without its activations and a report."""
    ignored = shutil.ignore_patterns("activations", ".lock")
    return Path(shutil.copytree(recording(), folder, ignore=ignored))


def edit(file: File[Content], folder: Path, change: Callable[[Content], Content]) -> None:
    """Change the records of a file, and let run.json know of it."""
    file.write(folder, change(file.read(folder)))
    run = RunFolder(folder)
    for stage in STAGES:
        run.set_stage(stage, files=digests(run, stage))


def with_card(**facts: Any) -> Callable[[Manifest], Manifest]:
    """Change what the model card says: facts at its top, or `run`, `steps`, `sampling` of its training."""
    training = {name: facts.pop(name) for name in ("run", "steps", "sampling") if name in facts}

    def change(manifest: Manifest) -> Manifest:
        model = manifest.model or {}
        card = model["card"] | facts
        return replace(
            manifest, model=model | {"card": card | {"training": card["training"] | training}}
        )

    return change


def without_card(folder: Path) -> None:
    """Let the model of a run have no card: nothing is known of what training showed."""
    edit(MANIFEST, folder, lambda run: replace(run, model=(run.model or {}) | {"card": None}))
    edit(SUMMARY, folder, _unseen)


def _unseen(summary: Summary) -> Summary:
    success = replace(
        summary.success, seen=None, held_out=None, seen_ci=None, held_out_ci=None, seen_reason="no model card"
    )  # fmt: skip
    frequency = replace(
        summary.frequency, bins=None, success=None, decodability=None, reason="no model card says what was seen"
    )  # fmt: skip
    return replace(summary, success=success, frequency=frequency)


def at_level(success: float, r2: float, *, varies: bool = True) -> Callable[[Summary], Summary]:
    """Other success (held-out tasks a little below) and R2 of every coding in a summary."""

    def change(summary: Summary) -> Summary:
        between = replace(summary.success.between_task, p=0.001 if varies else 0.4, differs=varies)
        read = summary.decodability
        shares = {"scene": 1.0, "slot": 0.6, "presence": 1.1, "binding": 0.9}
        by_coding = {name: replace(c, r2=r2 * shares[name]) for name, c in read.by_coding.items()}
        return replace(
            summary,
            success=replace(
                summary.success, all=success, held_out=0.9 * success, between_task=between
            ),
            decodability=replace(read, headline=replace(read.headline, r2=r2), by_coding=by_coding),
        )

    return change


def each(change: Callable[[Any], Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """The change of every row of a table."""
    return lambda rows: [change(row) for row in rows]
