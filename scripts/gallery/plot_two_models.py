"""
Two checkpoints: one that composes and one that does not
========================================================

Two models of the embedded zoo differ in one thing only: one saw 50 different scenes in training, the other all it could
draw. Does decodability tell them apart?

Five minutes on two cores; `T2IPROBE_GALLERY=small` makes it some seconds and its numbers rough.
"""

# %%
# One run a model. A finished run is opened, not made again.

import os
from pathlib import Path
from typing import Any

import pandas as pd

import t2iprobe

SMALL: dict[str, Any] = {"tasks": 32, "seeds": 1}
SETTINGS = SMALL if os.environ.get("T2IPROBE_GALLERY") == "small" else {"tasks": 192, "seeds": 2}
MODELS = ("shapes-mmdit", "shapes-mmdit-scenes50")
FIGURES = Path("runs/gallery/figures")

runs = [t2iprobe.run(model=name, out=f"runs/gallery/{name}", **SETTINGS) for name in MODELS]
FIGURES.mkdir(parents=True, exist_ok=True)

# %%
# Success and decodability of each, over all tasks of its run.

comparison = t2iprobe.compare(runs, out="runs/gallery/compare")
print(
    comparison.table[["run", "success", "r2_scene", "r2_presence"]].round(2).to_string(index=False)
)
comparison.plot().savefig(FIGURES / "two-models.png")

# %%
# Where they part: mean R2 over the sites of the image stream, by part of the scene.

probes = pd.concat([run.probes.assign(model=name) for name, run in zip(MODELS, runs, strict=True)])
probes = probes.query("stream == 'image' and coding == 'scene'")
print(probes.pivot_table("r2", "constituent", "model").round(2).to_string())

# %%
# Inside one model: each point is a task.

runs[1].plot_success().savefig(FIGURES / "one-model.png")
