"""Remakes the embedded zoo from a seed: the codec, then each denoiser, its figures and its model card.

Stopped at any moment, the same command continues. Everything unfinished is kept in --work.

Examples:
    python scripts/train_zoo.py                                    # all of it, in hours
    python scripts/train_zoo.py shapes-mmdit shapes-unet           # these two runs
    python scripts/train_zoo.py shapes-mmdit --out /tmp/zoo        # beside the packaged weights, not over them
    python scripts/train_zoo.py --tasks 32                         # quicker, less exact figures
"""

import os

# Without these, glibc gives each large tensor back to the system, and half of the time goes into page faults.
if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
    import sys

    os.environ |= {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}
    os.execv(sys.executable, [sys.executable, *sys.argv])

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from diffusers import AutoencoderKL
from diffusers.utils import logging as diffusers_logging
from transformers.utils import logging as transformers_logging
from zoo_training import cards, data, evaluate, snapshot, tokenizer, train, vae
from zoo_training.loop import Trainer
from zoo_training.recipes import RECIPES, Recipe

from t2iprobe.errors import ConfigError, T2IProbeError, unknown

ZOO = Path(__file__).parent.parent / "t2iprobe" / "models" / "zoo"


@dataclass(frozen=True)
class Settings:
    """Remakes the embedded zoo from a seed."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Runs to make; without any, all: their names are those of the models without "-step...". """
    out: Path = ZOO
    """Where finished models go."""
    work: Path = Path("build/zoo")
    """Where states, latents and checkpoints are kept until everything is finished."""
    seed: int = 0
    """Of weights, pictures, draws and the choice of scenes."""
    tasks: int = 256
    """Tasks for the figures of each model, three quarters of them held out; 4 images of each."""
    threads: int = 1
    """Threads of this process. Two processes of one thread each do more than one of two threads."""
    compile: bool = True
    """Compile the MMDiT for training: 20% faster after a minute, needs a C++ compiler."""


def main(settings: Settings) -> None:
    """Makes the codec, then each run that was asked for."""
    known = {recipe.name: recipe for recipe in RECIPES}
    for name in settings.names:
        if name not in known:
            raise ConfigError(unknown("training run", name, known))
    torch.set_num_threads(settings.threads)
    diffusers_logging.set_verbosity_error()
    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()
    print("codec", flush=True)
    codec = vae.train(settings.work, settings.seed)
    print(
        f"  the scorer is right on {evaluate.ceiling(codec):.4f} of its reconstructions", flush=True
    )
    for name in settings.names or known:
        make(known[name], codec, settings)


def make(recipe: Recipe, codec: AutoencoderKL, settings: Settings) -> None:
    """Trains one run, measures its models and writes their folders.

    Args:
        recipe: of the run.
        codec: shared by all runs.
        settings: of the command.
    """
    print(recipe.name, flush=True)
    weights = recipe.weights(settings.seed)
    words = tokenizer.build()
    pool = data.latent_pool(codec, weights, settings.work, settings.seed)
    batches = train.Batches(pool, weights, words, settings.seed, train.BATCH_SIZE)
    model = recipe.build(words, codec, settings.seed)

    def keep(trainer: Trainer) -> None:
        for folder, step in recipe.folders.items():
            if step == trainer.step:
                snapshot.write(model, trainer, codec, words, settings.work / folder)

    state = settings.work / f"{recipe.name}-state.safetensors"
    compiled = settings.compile and recipe.compiles
    trainer = train.train(model, batches, recipe.schedule, state, keep, compiled)
    for folder, step in recipe.folders.items():
        measured = evaluate.measure(
            settings.work / folder, recipe.call, weights, settings.tasks, settings.seed
        )
        for name, figures in measured.items():
            print(f"  {folder}, {name}: {figures}", flush=True)
        minutes = trainer.seconds / 60 * step / recipe.schedule.steps
        training = cards.Training(recipe, step, minutes, settings.seed)
        cards.write(settings.work / folder, training, batches, weights, measured)
        settings.out.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(settings.out / folder, ignore_errors=True)
        shutil.copytree(settings.work / folder, settings.out / folder)


if __name__ == "__main__":
    try:
        main(tyro.cli(Settings, description=__doc__))
    except T2IProbeError as error:
        raise SystemExit(f"error: {error}") from None
