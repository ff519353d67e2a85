"""Writes a model in training as an ordinary diffusers folder, float16."""

import copy
import json
import shutil
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from safetensors.torch import load_file, save_file
from transformers import CLIPTokenizer

from zoo_training.denoiser import Denoiser
from zoo_training.loop import Trainer


def write(
    model: Denoiser, trainer: Trainer, vae: AutoencoderKL, words: CLIPTokenizer, folder: Path
) -> None:
    """Saves the averaged weights; the training goes on unchanged.

    Args:
        model: in training.
        trainer: of the model.
        vae: the codec.
        words: the tokenizer.
        folder: the pipeline's folder, replaced when it exists.
    """
    trainer.swap_average()
    averaged = copy.deepcopy(model)
    trainer.swap_average()
    pipe = averaged.pipeline(copy.deepcopy(vae), words)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    pipe.to(dtype=torch.float16).save_pretrained(partial)
    for config in partial.glob("*/config.json"):
        _forget_origin(config)
    for weights in partial.glob("text_encoder*/model.safetensors"):
        _as_published(weights)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _as_published(weights: Path) -> None:
    """Names CLIP's tensors as all published checkpoints do: the first releases of transformers 5 know no others."""
    tensors = load_file(weights)
    if not any(name.startswith("text_model.") for name in tensors):
        named = {f"text_model.{name}": tensor for name, tensor in tensors.items()}
        save_file(named, weights, metadata={"format": "pt"})


def _forget_origin(config: Path) -> None:
    """Diffusers notes the folder a part was loaded from; a published model has no business with it."""
    settings = json.loads(config.read_text())
    settings.pop("_name_or_path", None)
    config.write_text(json.dumps(settings, indent=2) + "\n")
