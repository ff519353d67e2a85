"""A run whose activations are the words of its prompts: every stage after generation, without any model."""

from pathlib import Path
from typing import Any

import torch
from PIL import Image

from t2iprobe.runs import run_tasks as drawing
from t2iprobe.runs.config import RunConfig, resolved
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.records import SCORES, ScoreRow
from t2iprobe.runs.results import digests
from t2iprobe.runs.run_tasks import RunTasks
from t2iprobe.runs.shards import Entry, shard_metadata, write_shard
from t2iprobe.runs.stages import run_stage
from t2iprobe.runs.targets import Targets

CONFIG = RunConfig(tasks=48, seeds=1, folds=4, resamples=99)
SITES = ("text_encoder.layers.0:text/mean", "text_encoder_2.layers.0:text/mean", "transformer.conditioning:text/mean",
         "transformer.blocks.0:image/mean@0")  # fmt: skip


def encoders(drawn: RunTasks, lost: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, Any]]:
    """What two encoders made of every prompt; `lost` is task id -> encoder -> constituents."""
    tokens: dict[str, Any] = {"text_encoder": {}, "text_encoder_2": {}}
    return {task.id: {"tokens": tokens, "lost": lost.get(task.id, {})} for task in drawn.tasks}


def written(path: Path, drawn: RunTasks, lost: dict[str, dict[str, list[str]]]) -> RunFolder:
    """Such a run, up to the report."""
    folder = RunFolder.open(path, resolved(CONFIG))
    n = len(drawn.tasks)
    folder.update(counts={"images_asked": n, "images_done": n})
    drawing.write(folder, drawn, encoders(drawn, lost))
    targets = Targets.of(drawn, [task.id for task in drawn.tasks], 0)
    words = targets.Y[:, [name.startswith("slot/") for name in targets.column_groups]]
    values = torch.tensor(words, dtype=torch.float32)
    entries = [Entry(task.id, 0, "") for task in drawn.tasks]
    facts = shard_metadata(entries, {}, encoders(drawn, lost))
    folder.shard(0).parent.mkdir()
    write_shard(folder.shard(0), dict.fromkeys(SITES, values), facts)
    right: dict[str, bool | None] = dict.fromkeys(drawn.family.names, True)
    scores = [
        ScoreRow(task.id, 0, "right" if at % 3 else "wrong", "", right)
        for at, task in enumerate(drawn.tasks)
    ]
    SCORES.write(path, scores)
    for task in drawn.tasks:
        folder.image(task.id, 0).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder.image(task.id, 0))
    folder.set_stage("generate", "done", batches=1, files=digests(folder, "generate"))
    folder.set_stage("score", "done", files=digests(folder, "score"))
    for stage in ("probe", "correlate"):
        run_stage(stage, folder, CONFIG)
    return folder
