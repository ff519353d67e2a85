"""The codec that all zoo models share: 64 x 64 pictures to 16 x 16 x 4 latents and back."""

from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray
from torch import Tensor

from t2iprobe import seeding
from t2iprobe.families import shapes
from zoo_training.loop import Schedule, Trainer

SCHEDULE = Schedule(steps=2600, learning_rate=3e-3, warmup=100, floor=0.01, ema=0.99)
BATCH_SIZE = 16
OBJECT_WEIGHT = 5.0
KL_WEIGHT = 1e-5
CHANNELS = (16, 32, 32)


def build(seed: int) -> AutoencoderKL:
    """An untrained codec, factor 4, 4 latent channels, without attention."""
    torch.manual_seed(seed)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=CHANNELS,
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=shapes.IMAGE_SIZE,
        mid_block_add_attention=False,
        use_quant_conv=False,
        use_post_quant_conv=False,
    ).to(memory_format=torch.channels_last)


def to_tensor(pictures: NDArray[np.uint8]) -> Tensor:
    """(n, 64, 64, 3) uint8 to (n, 3, 64, 64) float32 in [-1, 1], channels last in memory."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1


def random_scene(rng: np.random.Generator) -> dict[str, str]:
    """A `shapes-pair` assignment, all equally often."""
    first, second = rng.permutation(len(shapes.PALETTE))[:2]
    colors = tuple(shapes.PALETTE)
    return {
        "color1": colors[first],
        "shape1": shapes.SHAPES[rng.integers(len(shapes.SHAPES))],
        "relation": shapes.RELATIONS[rng.integers(len(shapes.RELATIONS))],
        "color2": colors[second],
        "shape2": shapes.SHAPES[rng.integers(len(shapes.SHAPES))],
    }


def pictures(rng: np.random.Generator, count: int) -> NDArray[np.uint8]:
    """(count, 64, 64, 3) uint8 renderings of random scenes."""
    return np.stack([shapes.render(random_scene(rng), rng) for _ in range(count)])


def loss(vae: AutoencoderKL, batch: Tensor, noise: torch.Generator) -> Tensor:
    """Squared error with object pixels counted OBJECT_WEIGHT times, plus a little KL divergence.

    Without the weight the light ground dominates, and the colours of small objects collapse.
    """
    posterior = vae.encode(batch).latent_dist
    decoded = vae.decode(posterior.sample(noise)).sample
    background = batch[:, :, :1, :1]
    is_object = (batch - background).abs().amax(1, keepdim=True) > 0.1
    weight = 1 + (OBJECT_WEIGHT - 1) * is_object
    reconstruction = (weight * (decoded - batch) ** 2).mean()
    divergence = (posterior.mean**2 + posterior.var - 1 - posterior.logvar).mean() / 2
    total: Tensor = reconstruction + KL_WEIGHT * divergence
    return total


def measure_scale(vae: AutoencoderKL, seed: int) -> None:
    """Sets shift and scaling factor so that latents have mean 0 and standard deviation 1."""
    rng = np.random.default_rng(seeding.derive("vae-scale", seed))
    with torch.no_grad():
        latents = vae.encode(to_tensor(pictures(rng, 256))).latent_dist.mean
    vae.register_to_config(
        shift_factor=round(float(latents.mean()), 4),
        scaling_factor=round(1 / float(latents.std()), 4),
    )


def reconstruct(vae: AutoencoderKL, batch: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(n, 64, 64, 3) pictures, encoded and decoded."""
    with torch.no_grad():
        decoded = vae.decode(vae.encode(to_tensor(batch)).latent_dist.mean).sample
    scaled = ((decoded + 1) * 127.5).clamp(0, 255).round().byte()
    return np.ascontiguousarray(scaled.permute(0, 2, 3, 1).numpy())


def train(folder: Path, seed: int) -> AutoencoderKL:
    """The trained codec; it is written to `folder` and read from there when it is finished.

    Args:
        folder: where the state and, at the end, the weights are kept.
        seed: of the weights and the pictures.
    """
    finished = folder / "vae"
    if not finished.exists():
        vae = build(seed)
        trainer = Trainer(vae, SCHEDULE, folder / "vae-state.safetensors")

        def loss_at(step: int) -> Tensor:
            rng = np.random.default_rng(seeding.derive("vae", seed, step))
            batch = to_tensor(pictures(rng, BATCH_SIZE))
            return loss(vae, batch, seeding.generator("vae-noise", seed, step))

        trainer.run(loss_at, lambda _: None)
        trainer.swap_average()
        vae.eval()
        measure_scale(vae, seed)
        vae.half().save_pretrained(folder / "vae.partial")
        (folder / "vae.partial").rename(finished)
    return AutoencoderKL.from_pretrained(finished, torch_dtype=torch.float32).eval()
