"""The main job as stages that hand results to each other through the run folder only.

generate -> score -> probe -> correlate -> report. Each can be run again without the earlier ones.
"""

import time
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from t2iprobe.errors import ConfigError
from t2iprobe.families.reading import load_family
from t2iprobe.runs.budget import Budget
from t2iprobe.runs.config import RunConfig, resolved
from t2iprobe.runs.cost import StageClock, settle
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.progress import console, waiting
from t2iprobe.runs.results import changed, digests

# In order; each module has `run(folder, config)`, the first one with a budget behind.
STAGES = ("generate", "score", "probe", "correlate", "report")
WITH_BAR = frozenset(STAGES[:3])


def run(config: RunConfig, budget: Budget | None = None, command: str | None = None) -> RunFolder:
    """Run every stage that has not finished; a finished run is left as it is.

    Args:
        config: the settings.
        budget: the time the run has to end in, when it began to run out before this call; that of the settings if not
            given, from now on.
        command: the command line that does the same, for run.json; that of this process when not given.

    Raises:
        ConfigError: the run folder holds a run with other settings.
        DataError: the folder is in use or holds something else.
    """
    start: float | None = time.monotonic()
    if budget is None and config.budget is not None:
        budget = Budget(config.budget)
    fingerprint = load_family(config.family).fingerprint
    if not RunFolder(config.folder).manifest_path.exists():
        import_module("t2iprobe.runs.generate").check(config)
    folder = RunFolder.open(config.folder, resolved(config), command)
    _check_family(folder, config, fingerprint)
    if not folder.is_whole():
        folder.update(stages={})
    _take_back_changed(folder)
    if all(folder.is_done(stage) for stage in STAGES):
        console.print(f"{folder.path} is complete; nothing to do")
        return folder
    with folder.locked():
        try:
            for stage in STAGES:
                if not folder.is_done(stage):
                    run_stage(stage, folder, config, budget=budget, start=start)
                    start = None
            settle(folder)
        finally:
            folder.discard_if_empty()
    return folder


def _take_back_changed(folder: RunFolder) -> None:
    """Let the stage whose files were cut, changed or removed run again, and all after it."""
    found = changed(folder)
    if found is None:
        return
    first, path = found
    console.print(
        f"note: {path} is not as the run left it; it is made again", soft_wrap=True, markup=False
    )
    for stage in STAGES[STAGES.index(first) :]:
        folder.set_stage(stage, "out of date")


def _check_family(folder: RunFolder, config: RunConfig, fingerprint: str) -> None:
    """Refuse a run whose family was edited since it began: ids would stay, prompts would not."""
    before = folder.manifest.get("family_fingerprint")
    if before is None:
        folder.update(family_fingerprint=fingerprint)
    elif before != fingerprint:
        raise ConfigError(
            f"the family {config.family} was edited since {folder.path} was begun: "
            "undo the edit, or give another --out for a new run"
        )


def run_stage(
    name: str,
    folder: RunFolder,
    config: RunConfig,
    *,
    budget: Budget | None = None,
    anew: bool = False,
    start: float | None = None,
) -> None:
    """Run one stage and record its state and its cost in run.json.

    Args:
        name: one of `STAGES`.
        folder: the run.
        config: its settings.
        budget: the time the run has to end in; only generation can stop half way.
        anew: what the stage took before does not count.
        start: reading of `time.monotonic` when its preparation began; now if not given.
    """
    extra: dict[str, Any] = {"budget": budget} if name == "generate" else {}
    clock = StageClock(folder, name, anew=anew, start=start)
    folder.set_stage(name, "running")
    try:
        with nullcontext() if name in WITH_BAR else waiting(name):
            state = import_module(f"t2iprobe.runs.{name}").run(folder, config, **extra)
    finally:
        clock.note()
    folder.set_stage(name, state or "done", files=digests(folder, name))


def rerun(folder: RunFolder, config: RunConfig, first: str) -> None:
    """Run a stage and everything that depends on it again, from what the run folder holds."""
    with folder.locked():
        for stage in STAGES[STAGES.index(first) :]:
            kept = first == "score" and stage == "probe"  # probes read no scores
            if not (kept and folder.is_done(stage)):
                run_stage(stage, folder, config, anew=True)
        settle(folder)
