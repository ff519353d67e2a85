"""Model cards: `card.json` for programs, `README.md` for people."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo_training.data import FAMILY, Weights, corpus
from zoo_training.evaluate import SEEDS_PER_TASK, Figures
from zoo_training.recipes import Recipe
from zoo_training.train import Batches

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Training:
    """What a card says about the training of one model.

    Attributes:
        recipe: of its run.
        step: updates of its weights.
        minutes: of training up to there.
        seed: of everything.
    """

    recipe: Recipe
    step: int
    minutes: float
    seed: int


def exposure(batches: Batches, steps: int) -> tuple[dict[str, dict[str, int]], NDArray[np.int64]]:
    """How often each value and each scene was seen with its prompt, by drawing the same batches again.

    Args:
        batches: of the training.
        steps: number of updates.

    Returns:
        constituent -> value -> count, as worded; and (scenes,) counts.
    """
    tasks = [task for wordings in corpus().wordings for task in wordings]
    per_task = np.zeros(len(tasks), dtype=np.int64)
    per_scene = np.zeros(len(corpus().scenes), dtype=np.int64)
    for step in range(steps):
        draw = batches.draw(step)
        np.add.at(per_task, draw.tasks[~draw.empty], 1)
        np.add.at(per_scene, draw.scenes[~draw.empty], 1)
    values: dict[str, dict[str, int]] = {name: {} for name in tasks[0].values}
    for task, count in zip(tasks, per_task.tolist(), strict=True):
        for name, value in task.values.items():
            values[name][value] = values[name].get(value, 0) + count
    return values, per_scene


def write(
    folder: Path,
    training: Training,
    batches: Batches,
    weights: Weights,
    measured: dict[str, Figures],
) -> None:
    """Writes both cards into a model's folder.

    Args:
        folder: of the model.
        training: its history.
        batches: what was seen.
        weights: (scenes,) chance of each scene.
        measured: "seen" and "held_out" figures.
    """
    recipe = training.recipe
    values, scenes = exposure(batches, training.step)
    share = float((weights > 0).mean())
    seen, held_out = measured["seen"].success, measured["held_out"].success
    figures: dict[str, Any] = {
        "success": round(share * seen + (1 - share) * held_out, 4),
        "success_seen": seen,
        "success_held_out": held_out,
        "seeds_per_task": SEEDS_PER_TASK,
    }
    figures |= {name: dataclasses.asdict(f) for name, f in measured.items()}
    description = recipe.description
    if training.step != recipe.schedule.steps:
        description = f"{recipe.name} as it was after {training.step} of its steps"
    card = {
        "schema_version": SCHEMA_VERSION,
        "name": folder.name,
        "family": FAMILY,
        "description": description,
        "pipeline": recipe.pipeline,
        "call": recipe.call,
        "training": {
            "run": recipe.name,
            "sampling": recipe.sampling,
            "steps": training.step,
            "batch_size": batches.size,
            "seed": training.seed,
            "minutes": round(training.minutes, 1),
        },
        "share_possible": round(share, 4),
        "share_seen": round(float((scenes > 0).mean()), 4),
        "value_counts": values,
        "scene_counts": scenes.tolist(),
        "figures": figures,
    }
    text = json.dumps(card, indent=1)
    # One scene per line would make thousands of lines.
    listed = json.dumps(card["scene_counts"], indent=1).replace("\n", "\n ")
    text = text.replace(listed, json.dumps(card["scene_counts"], separators=(",", ":")))
    (folder / "card.json").write_text(text + "\n")
    (folder / "README.md").write_text(_readme(card, measured))


def _readme(card: dict[str, Any], measured: dict[str, Figures]) -> str:
    training = card["training"]
    counts = np.array(card["scene_counts"])
    absent = "".join(
        f", {name}=None"
        for name in ("text_encoder_3", "tokenizer_3")
        if card["pipeline"] == "StableDiffusion3Pipeline"
    )
    lines = [
        f"# {card['name']}",
        "",
        f"{card['description']}. A stock `{card['pipeline']}` of the family `{card['family']}`, 64 x 64 pixels, "
        "float16 on disk, MIT licence like the package. It knows the words of the shapes families and nothing else.",
        "",
        "```python",
        "import torch",
        f"from diffusers import {card['pipeline']}",
        "",
        f'pipe = {card["pipeline"]}.from_pretrained("path/to/{card["name"]}"{absent}).to(torch.float32)',
        'pipe("a red circle left of a blue square", '
        + ", ".join(f"{name}={value}" for name, value in card["call"].items())
        + ").images[0]",
        "```",
        "",
        "## Training",
        "",
        f"Run `{training['run']}` of `scripts/train_zoo.py`: {training['steps']} steps of {training['batch_size']} "
        f"pictures, {training['sampling']} sampling, seed {training['seed']}, {training['minutes']} minutes on one "
        "core. One prompt in ten was left empty.",
        "",
        f"{card['share_possible']:.1%} of the {len(counts)} scenes could be drawn, in both wordings; "
        f"{int((counts > 0).sum())} were seen at least once, the median of these {_median(counts)} times, the most "
        f"frequent {counts.max()} times. `card.json` has the count of every scene.",
        "",
        "How often each value was seen, as worded:",
        "",
        "| constituent | counts |",
        "|---|---|",
    ]
    for name, values in card["value_counts"].items():
        ordered = sorted(values.items(), key=lambda item: -item[1])
        lines.append(f"| {name} | {', '.join(f'{value} {count}' for value, count in ordered)} |")
    lines += [
        "",
        "## Figures",
        "",
        f"By the exact scorer, {card['figures']['seeds_per_task']} seeds per task, stock pipeline in float32. "
        "Held out: scenes that training could never draw; seen: scenes that it could.",
        "",
        "| scenes | tasks | success | wrong | malformed | variance between tasks / binomial | p |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, figures in measured.items():
        ratio, p = figures.dispersion, figures.dispersion_p
        spread = "| - | - |" if ratio is None or p is None else f"| {ratio:.2f} | {p:.1e} |"
        lines.append(
            f"| {name.replace('_', ' ')} | {figures.tasks} | {figures.success:.3f} | {figures.wrong} "
            f"| {figures.malformed} {spread}"
        )
    return "\n".join(lines) + "\n"


def _median(counts: NDArray[np.int64]) -> int:
    return int(np.median(counts[counts > 0])) if counts.any() else 0
