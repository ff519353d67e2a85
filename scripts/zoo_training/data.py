"""What a zoo model sees in training: how often each scene, and its pictures as latents."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from t2iprobe import seeding
from t2iprobe.families import shapes
from t2iprobe.families.reading import load_family
from t2iprobe.families.tasks import Task
from zoo_training.vae import to_tensor

FAMILY = "shapes-pair"
HELD_OUT_SHARE = 0.3
PICTURES_PER_SCENE = 4
FEWEST_PICTURES = 6000
# The long tail. A value is drawn in proportion to its rank to the power of minus the exponent; a shape
# goes with a colour in proportion to a log-normal factor, and each whole scene has such a factor too.
COLOR_EXPONENT, SHAPE_EXPONENT, RELATION_EXPONENT = 0.7, 0.5, 0.5
BINDING_SPREAD, SCENE_SPREAD = 1.85, 0.8

Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Corpus:
    """The scenes of the family and how each can be worded.

    Attributes:
        scenes: canonical assignments, in the family's order.
        wordings: for each scene its tasks.
    """

    scenes: list[dict[str, str]]
    wordings: list[list[Task]]


@cache
def corpus() -> Corpus:
    """All scenes of the family with all their wordings."""
    family = load_family(FAMILY)
    scenes = family.scenes()
    wordings: list[list[Task]] = [[] for _ in scenes]
    for task in family.tasks():
        wordings[family.scene_index[task.scene_id]].append(task)
    return Corpus(scenes, wordings)


def held_out(seed: int) -> NDArray[np.bool_]:
    """Which scenes the large models never see; the same for all of them, so that they can be compared."""
    count = len(corpus().scenes)
    rng = np.random.default_rng(seeding.derive("held-out", seed))
    mask = np.zeros(count, dtype=np.bool_)
    mask[rng.permutation(count)[: round(HELD_OUT_SHARE * count)]] = True
    return mask


def uniform(seed: int) -> Weights:
    """Every scene that is not held out, equally often."""
    return _normalised((~held_out(seed)).astype(np.float64))


def few(seed: int, count: int) -> Weights:
    """Only some of the scenes that are not held out, equally often; fewer are a subset of more.

    Args:
        seed: of the choice.
        count: number of scenes; every value of every constituent is among them.
    """
    scenes = corpus().scenes
    rng = np.random.default_rng(seeding.derive("few", seed))
    order = [i for i in rng.permutation(len(scenes)) if not held_out(seed)[i]]
    chosen: list[int] = []
    seen: set[tuple[str, str]] = set()
    for wanted in (5, 4, 3, 2, 1):  # first, the scenes that bring most values to new places
        for i in order:
            if len(set(scenes[i].items()) - seen) >= wanted:
                chosen.append(i)
                seen |= set(scenes[i].items())
    chosen += [i for i in order if i not in set(chosen)]
    weights = np.zeros(len(scenes))
    weights[chosen[:count]] = 1.0
    return _normalised(weights)


def disconnected(seed: int) -> Weights:
    """Two groups of colours and shapes that never meet in a scene, minus the scenes held out."""
    colors, forms = tuple(shapes.PALETTE), shapes.SHAPES
    weights = (~held_out(seed)).astype(np.float64)
    for i, scene in enumerate(corpus().scenes):
        groups = {colors.index(scene[name]) % 2 for name in ("color1", "color2")}
        groups |= {forms.index(scene[name]) % 2 for name in ("shape1", "shape2")}
        if len(groups) > 1:
            weights[i] = 0.0
    return _normalised(weights)


def long_tail(seed: int) -> Weights:
    """Values with Zipf-like frequencies, shapes that go with some colours more than others, minus the scenes held out.

    The order of the values' frequencies is drawn, separately for each kind, and so are the factors of combinations.
    """
    rng = np.random.default_rng(seeding.derive("long-tail", seed))

    def zipf(values: tuple[str, ...], exponent: float) -> dict[str, float]:
        ranks = rng.permutation(len(values)) + 1
        return {v: float(r) ** -exponent for v, r in zip(values, ranks, strict=True)}

    color = zipf(tuple(shapes.PALETTE), COLOR_EXPONENT)
    shape = zipf(shapes.SHAPES, SHAPE_EXPONENT)
    relation = zipf(("left of", "above"), RELATION_EXPONENT)
    thing = {
        (c, s): color[c] * shape[s] * np.exp(BINDING_SPREAD * rng.standard_normal())
        for c in color
        for s in shape
    }
    weights = np.array(
        [
            thing[scene["color1"], scene["shape1"]]
            * relation[scene["relation"]]
            * thing[scene["color2"], scene["shape2"]]
            for scene in corpus().scenes
        ]
    )
    weights *= np.exp(SCENE_SPREAD * rng.standard_normal(len(weights)))
    return _normalised(np.where(held_out(seed), 0.0, weights))


def _normalised(weights: Weights) -> Weights:
    share: Weights = weights / weights.sum()
    return share


@dataclass(frozen=True)
class Pool:
    """Latents of rendered pictures, ready to train on.

    Attributes:
        latents: (scenes, pictures, 4, 16, 16) float16, shifted and scaled.
        row: for each scene of the family its row, or -1.
    """

    latents: Tensor
    row: NDArray[np.int64]


def latent_pool(vae: AutoencoderKL, weights: Weights, folder: Path, seed: int) -> Pool:
    """Latents of every scene that can be drawn; kept in `folder` for the next call.

    Args:
        vae: the codec.
        weights: (scenes,) chance of each scene; those with 0 get no pictures.
        folder: where pools are kept.
        seed: of the pictures' jitter.
    """
    (chosen,) = np.nonzero(weights)
    per_scene = max(PICTURES_PER_SCENE, -(-FEWEST_PICTURES // len(chosen)))
    row = np.full(len(weights), -1)
    row[chosen] = np.arange(len(chosen))
    name = f"{seeding.derive('pool', seed, per_scene, *chosen.tolist()):016x}"
    file = folder / f"latents-{name}.safetensors"
    if not file.exists():
        print(f"  rendering and encoding {len(chosen)} x {per_scene} pictures", flush=True)
        latents = torch.stack([_encode(vae, int(i), per_scene, seed) for i in chosen])
        folder.mkdir(parents=True, exist_ok=True)
        save_file({"latents": latents}, file.with_suffix(".partial"))
        file.with_suffix(".partial").replace(file)
    return Pool(load_file(file)["latents"], row)


def _encode(vae: AutoencoderKL, index: int, count: int, seed: int) -> Tensor:
    """(count, 4, 16, 16) float16 latents of one scene."""
    rng = np.random.default_rng(seeding.derive("picture", seed, index))
    scene = corpus().scenes[index]
    pictures = np.stack([shapes.render(scene, rng) for _ in range(count)])
    parts = []
    with torch.no_grad():
        for part in torch.split(to_tensor(pictures), 32):
            latents = vae.encode(part).latent_dist.mean
            parts.append((latents - vae.config.shift_factor) * vae.config.scaling_factor)
    return torch.cat(parts).contiguous().half()
