"""Measures a saved model of the zoo as a user would run it: stock pipeline, float32, one generator per image."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, DiffusionPipeline
from scipy.stats import chi2

from t2iprobe import seeding
from t2iprobe.families import shapes
from t2iprobe.families.tasks import Task
from t2iprobe.scorers.base import Verdict
from t2iprobe.scorers.pixels import PixelScorer
from zoo_training.data import Weights, corpus
from zoo_training.vae import reconstruct

SEEDS_PER_TASK = 4
BATCH_SIZE = 64


@dataclass(frozen=True)
class Figures:
    """What a set of images shows.

    Attributes:
        tasks: number of tasks, each with SEEDS_PER_TASK images.
        success: share of the images that are right.
        wrong: number of images with clean objects and another value.
        malformed: number of images without the right number of clean objects.
        dispersion: variance of the tasks' successes over that of a binomial with one rate; 1 when tasks do not differ.
        dispersion_p: chance of so much variance when tasks do not differ; None when all images agree.
    """

    tasks: int
    success: float
    wrong: int
    malformed: int
    dispersion: float | None
    dispersion_p: float | None


def sample_tasks(weights: Weights, seen: bool, count: int, seed: int) -> list[Task]:
    """Tasks of different scenes, seen or held out, each in one random wording.

    Args:
        weights: (scenes,) chance of each scene in training; 0 means held out.
        seen: which of the two.
        count: number of tasks, or all scenes when there are fewer.
        seed: of the draw.
    """
    (candidates,) = np.nonzero((weights > 0) == seen)
    rng = np.random.default_rng(seeding.derive("evaluate", seed, int(seen)))
    chosen = rng.permutation(candidates)[:count]
    wordings = corpus().wordings
    return [wordings[i][rng.integers(len(wordings[i]))] for i in chosen]


def load(folder: Path) -> DiffusionPipeline:
    """The pipeline as saved, but in float32; components that were saved as absent have to be named."""
    index = json.loads((folder / "model_index.json").read_text())
    absent = {name: None for name, value in index.items() if value == [None, None]}
    pipe = DiffusionPipeline.from_pretrained(folder, local_files_only=True, **absent)
    pipe.to(torch.float32)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def judge(
    pipe: DiffusionPipeline, call: dict[str, Any], tasks: list[Task], seed: int = 0
) -> list[Verdict]:
    """A verdict on SEEDS_PER_TASK images of each task, task by task.

    Args:
        pipe: a stock pipeline.
        call: its arguments.
        tasks: what to ask for.
        seed: of the images.
    """
    scorer = PixelScorer()
    jobs = [(task, index) for task in tasks for index in range(SEEDS_PER_TASK)]
    verdicts = []
    for start in range(0, len(jobs), BATCH_SIZE):
        part = jobs[start : start + BATCH_SIZE]
        generators = [seeding.generator("image", seed, task.id, index) for task, index in part]
        images = pipe([task.prompt for task, _ in part], generator=generators, **call).images
        verdicts += scorer.score(images, [task for task, _ in part])
    return verdicts


def figures(verdicts: list[Verdict]) -> Figures:
    """Success, failures by kind, and whether tasks differ.

    The test of dispersion is Pearson's chi-square of the tasks' counts against one common rate.
    """
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    right = np.array([verdict.outcome == "right" for verdict in verdicts])
    per_task = right.reshape(-1, SEEDS_PER_TASK).sum(1)
    rate, tasks = float(right.mean()), len(per_task)
    dispersion = probability = None
    if 0 < rate < 1 and tasks > 1:
        binomial = SEEDS_PER_TASK * rate * (1 - rate)
        statistic = float(((per_task - SEEDS_PER_TASK * rate) ** 2).sum() / binomial)
        dispersion = statistic / (tasks - 1)
        probability = float(chi2.sf(statistic, tasks - 1))
    return Figures(tasks, rate, outcomes["wrong"], outcomes["malformed"], dispersion, probability)


def measure(
    folder: Path, call: dict[str, Any], weights: Weights, tasks: int, seed: int
) -> dict[str, Figures]:
    """Figures of a saved model on seen and on held-out scenes.

    Args:
        folder: of the pipeline.
        call: its arguments.
        weights: (scenes,) chance of each scene in training.
        tasks: number of tasks, three quarters of them held out.
        seed: of the tasks and the images.
    """
    pipe = load(folder)
    measured = {}
    for name, seen, count in (("held_out", False, tasks - tasks // 4), ("seen", True, tasks // 4)):
        chosen = sample_tasks(weights, seen, count, seed)
        measured[name] = figures(judge(pipe, call, chosen, seed))
    return measured


def ceiling(vae: AutoencoderKL, count: int = 1000) -> float:
    """Share of rendered scenes whose reconstruction the scorer finds right: no denoiser can do better.

    Args:
        vae: the codec.
        count: number of scenes.
    """
    rng = np.random.default_rng(seeding.derive("ceiling"))
    tasks = [tasks[0] for tasks in corpus().wordings]
    scorer, right = PixelScorer(), 0
    for start in range(0, count, BATCH_SIZE):
        part = [tasks[i] for i in rng.integers(len(tasks), size=min(BATCH_SIZE, count - start))]
        pictures = np.stack([shapes.render(task.values, rng) for task in part])
        images = [shapes.to_image(decoded) for decoded in reconstruct(vae, pictures)]
        right += sum(verdict.outcome == "right" for verdict in scorer.score(images, part))
    return right / count
