"""
A network of one's own: what does each layer still know?
========================================================

A small convolutional network learns to name the colour of a shape and nothing else. Linear probes, on combinations
they were not fitted on, ask each of its layers for the colour, the shape, the size and the place. Nothing here is a
diffusion model: activations come from any `torch.nn.Module`.

Half a minute on two cores; `T2IPROBE_GALLERY=small` makes it some seconds and its numbers rough.
"""

# %%
# Tasks of a built-in family, each drawn once: (n, 3, 32, 32) pixels from 0 to 1.

import os
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import t2iprobe
from t2iprobe.families.codings import encode
from t2iprobe.families.sampling import draw_tasks
from t2iprobe.families.shapes import render
from t2iprobe.families.splits import fold_index, task_folds
from t2iprobe.probes.crossfit import cross_predict
from t2iprobe.probes.decodability import r2

SMALL = os.environ.get("T2IPROBE_GALLERY") == "small"
FIGURES = Path("runs/gallery/figures")

family = t2iprobe.load_family("shapes-single")
tasks = draw_tasks(family, 120 if SMALL else 300, seed=0)
rng = np.random.default_rng(0)
pixels = np.stack([render(task.values, rng) for task in tasks])
images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
images = nn.functional.avg_pool2d(images, 2)

# %%
# The targets: which value each slot has, one-hot. Folds keep every combination on one side.

targets = encode(family, tasks, "slot")
folds = fold_index(task_folds(tasks, n_folds=5, seed=0), len(tasks))

# %%
# A network that learns the colour.

torch.manual_seed(0)
layers: list[nn.Module] = []
for width_in, width_out in ((3, 16), (16, 32), (32, 32), (32, 32)):
    layers += [nn.Conv2d(width_in, width_out, 3, stride=2, padding=1), nn.ReLU()]
network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))

is_color = np.array([name == "color" for name in targets.constituents])
colors = torch.from_numpy(targets.matrix[:, is_color].argmax(axis=1))
optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
for _ in range(10 if SMALL else 150):
    loss = nn.functional.cross_entropy(network(images), colors)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
right = (network(images).argmax(dim=1) == colors).float().mean()
print(f"colours named right in training: {right:.0%}")

# %%
# Read every ReLU, pooled to the means of its four quarters, and probe it.

sites = ["1", "3", "5", "7"]
with torch.no_grad(), t2iprobe.capture(network, sites, pooling="grid") as recording:
    network(images)

scores: dict[str, dict[str, float]] = {}
for site in sites:
    probe = cross_predict(recording[site], targets.matrix, folds, targets.constituents)
    scores[site] = {}
    for name in family.names:
        columns = probe.columns.of_group(name)
        truth, guess = targets.matrix[:, columns], probe.predictions[:, columns]
        scores[site][name] = r2(truth, guess, probe.baseline[:, columns]).value
    print(site, {name: round(value, 2) for name, value in scores[site].items()})

# %%
# Held-out R² of every slot, layer by layer.

figure = Figure(figsize=(5, 3.2), layout="constrained")
axes = figure.subplots()
for name in family.names:
    axes.plot(range(len(sites)), [scores[site][name] for site in sites], marker="o", label=name)
axes.set_xticks(range(len(sites)), [f"ReLU {number}" for number in range(1, len(sites) + 1)])
axes.set_ylabel("held-out R²")
axes.legend()
FIGURES.mkdir(parents=True, exist_ok=True)
figure.savefig(FIGURES / "own-network.png")
