"""
Where a model keeps the parts of a prompt
=========================================

A prompt like "a red circle left of a blue square" has five parts. Here the embedded model draws such prompts, a linear
probe at every place of its denoiser is asked for every part, and the answers are tables and figures.

It takes two minutes on two cores; `T2IPROBE_GALLERY=small` makes it some seconds and its numbers rough.
"""

# %%
# A run makes the images, reads the activations in the same pass, scores, probes and correlates. The same line opens the
# run again when it is finished.

import os
from pathlib import Path
from typing import Any

import t2iprobe

SMALL: dict[str, Any] = {"tasks": 32, "seeds": 1}
SETTINGS = SMALL if os.environ.get("T2IPROBE_GALLERY") == "small" else {"tasks": 192, "seeds": 2}
FIGURES = Path("runs/gallery/figures")

run = t2iprobe.run(model="shapes-mmdit", out="runs/gallery/shapes-mmdit", **SETTINGS)
FIGURES.mkdir(parents=True, exist_ok=True)

# %%
# Sites down, denoising steps across, one panel a part. Both marked places were chosen before looking: each by one half
# of the folds.

figure = run.plot_decodability("scene")
figure.savefig(FIGURES / "sites-by-steps.png")

# %%
# The same numbers as a table: the best step of each part in the image stream, beside what shuffled labels give.

image = run.probes.query("stream == 'image' and coding == 'scene' and constituent != 'all'")
best = image.loc[image.groupby("constituent").r2.idxmax()]
print(best[["constituent", "site", "step", "r2", "r2_shuffled"]].to_string(index=False))

# %%
# How often each part is drawn right, in percent of the images that could be judged.

right = run.scores.filter(like="ok_").astype("Float64").mean() * 100
print(right.round(1).to_string())
