"""The main job as stages that hand results to each other through the run folder only.

generate -> score -> probe -> correlate -> report. Each can be run again without the earlier ones.
"""

import time
from collections.abc import Callable
from importlib import import_module

from t2iprobe.config import RunConfig, resolved
from t2iprobe.errors import ConfigError
from t2iprobe.families import load_family
from t2iprobe.progress import console
from t2iprobe.store import RunFolder

# In order; each module has `run(folder, config)`.
STAGES = ("generate", "score", "probe", "correlate", "report")


def run(config: RunConfig) -> RunFolder:
    """Run every stage that has not finished; a finished run is left as it is.

    Raises:
        ConfigError: the run folder holds a run with other settings.
        DataError: the folder is in use or holds something else.
    """
    fingerprint = load_family(config.family).fingerprint
    if not RunFolder(config.folder).manifest_path.exists():
        import_module("t2iprobe.stages.generate").check(config)
    folder = RunFolder.open(config.folder, resolved(config))
    _check_family(folder, config, fingerprint)
    if not folder.is_whole():
        folder.update(stages={})
    if all(folder.is_done(stage) for stage in STAGES):
        console.print(f"{folder.path} is complete; nothing to do")
        return folder
    with folder.locked():
        try:
            for stage in STAGES:
                if not folder.is_done(stage):
                    run_stage(stage, folder, config)
        finally:
            folder.discard_if_empty()
    return folder


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


def run_stage(name: str, folder: RunFolder, config: RunConfig) -> None:
    """Run one stage and record its state in run.json."""
    work: Callable[[RunFolder, RunConfig], None] = import_module(f"t2iprobe.stages.{name}").run
    folder.set_stage(name, "running")
    start = time.monotonic()
    work(folder, config)
    folder.set_stage(name, "done", seconds=round(time.monotonic() - start, 2))


def rerun(folder: RunFolder, config: RunConfig, first: str) -> None:
    """Run a stage and everything that depends on it again, from what the run folder holds."""
    with folder.locked():
        for stage in STAGES[STAGES.index(first) :]:
            run_stage(stage, folder, config)
