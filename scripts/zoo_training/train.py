"""Trains one denoiser of the zoo on one distribution over scenes."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import CLIPTokenizer

from t2iprobe import seeding
from zoo_training import text
from zoo_training.data import Pool, Weights, corpus
from zoo_training.denoiser import Denoiser
from zoo_training.loop import Schedule, Trainer

EMPTY_SHARE = 0.1
BATCH_SIZE = 64


class Draw(NamedTuple):
    """What one step sees, each (size,): scene, task (counted scene by scene), picture, empty prompt."""

    scenes: NDArray[np.int64]
    tasks: NDArray[np.int64]
    pictures: NDArray[np.int64]
    empty: NDArray[np.bool_]


class Batches:
    """Draws scenes, wordings and pictures; a batch depends on (name, seed, step) alone.

    Args:
        pool: latents of the scenes' pictures.
        weights: (scenes,) chance of each scene.
        words: the tokenizer.
        seed: of the draws.
        size: pictures in a batch.
    """

    def __init__(
        self, pool: Pool, weights: Weights, words: CLIPTokenizer, seed: int, size: int
    ) -> None:
        self.pool, self.weights, self.seed, self.size = pool, weights, seed, size
        wordings = corpus().wordings
        prompts = [task.prompt for tasks in wordings for task in tasks]
        self.starts = np.cumsum([0] + [len(tasks) for tasks in wordings])
        self.ids = text.token_ids(words, [*prompts, ""])

    def draw(self, step: int) -> Draw:
        """What a step sees."""
        rng = np.random.default_rng(seeding.derive("batch", self.seed, step))
        scenes = rng.choice(len(self.weights), self.size, p=self.weights)
        tasks = self.starts[scenes] + rng.integers(0, self.starts[scenes + 1] - self.starts[scenes])
        pictures = rng.integers(0, self.pool.latents.shape[1], self.size)
        return Draw(scenes, tasks, pictures, rng.random(self.size) < EMPTY_SHARE)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """(size, 4, 16, 16) latents and (size, 16) token ids."""
        draw = self.draw(step)
        latents = self.pool.latents[self.pool.row[draw.scenes], draw.pictures].float()
        return latents, self.ids[np.where(draw.empty, len(self.ids) - 1, draw.tasks)]


def train(
    model: Denoiser,
    batches: Batches,
    schedule: Schedule,
    state_file: Path,
    keep: Callable[[Trainer], None],
    compiled: bool = False,
) -> Trainer:
    """Trains to the end.

    Args:
        model: what to train.
        batches: what it sees.
        schedule: steps and learning rate.
        state_file: where the state is kept, so that training can be stopped.
        keep: called after each step, with the trainer; may save checkpoints.
        compiled: compile the loss first.
    """
    trainer = Trainer(model, schedule, state_file)
    loss_of: Callable[[Tensor, Tensor, torch.Generator], Tensor] = model.loss
    if compiled:
        loss_of = torch.compile(loss_of)

    def loss_at(step: int) -> Tensor:
        latents, ids = batches.batch(step)
        noise = seeding.generator("noise", batches.seed, step)
        return loss_of(latents, ids, noise)

    trainer.run(loss_at, lambda _: keep(trainer))
    return trainer
