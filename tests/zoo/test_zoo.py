import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from t2iprobe import seeding
from t2iprobe.errors import ModelError
from t2iprobe.families.reading import load_family
from t2iprobe.models import zoo
from t2iprobe.models.cards import Card
from t2iprobe.scorers.pixels import PixelScorer

NAMES = zoo.names()


def test_the_zoo_has_the_models_that_the_paper_claim_needs() -> None:
    cards = {name: Card.read(zoo.path(name) / "card.json").content for name in NAMES}
    assert {"shapes-mmdit", "shapes-mmdit-uniform", "shapes-unet"} <= set(NAMES)
    earlier = [n for n in NAMES if cards[n]["training"]["run"] == "shapes-mmdit"]
    assert len(earlier) == 6
    assert len([n for n in NAMES if n.startswith("shapes-mmdit-scenes")]) >= 3
    same = [c for n, c in cards.items() if "step" not in n and c["pipeline"].endswith("3Pipeline")]
    assert len({(c["training"]["steps"], c["training"]["batch_size"]) for c in same}) == 1


def test_text_encoders_are_stored_in_the_layout_of_published_checkpoints() -> None:
    """transformers dropped a level of CLIP's names on the way: all of 5.x read the old names, the first only those."""
    for name in NAMES:
        for file in zoo.path(name).glob("text_encoder*/model.safetensors"):
            with safe_open(file, "pt") as tensors:
                assert "text_model.final_layer_norm.weight" in tensors.keys()  # noqa: SIM118


def test_the_cards_say_what_was_asked_of_the_models() -> None:
    figures = {n: Card.read(zoo.path(n) / "card.json").content["figures"] for n in NAMES}
    default = figures["shapes-mmdit"]["held_out"]
    assert 0.6 <= default["success"] <= 0.9
    assert default["dispersion_p"] < 1e-6
    assert default["wrong"] > default["malformed"]
    assert figures["shapes-mmdit-uniform"]["success_held_out"] >= 0.93
    assert figures["shapes-unet"]["success_held_out"] >= 0.5
    fewest = [f["success_held_out"] for n, f in figures.items() if "scenes" in n]
    assert min(fewest) < 0.4
    assert max(fewest) > 0.9
    run = sorted(n for n in NAMES if n.startswith("shapes-mmdit-step"))
    grown = [figures[n]["success_held_out"] for n in [*run, "shapes-mmdit"]]
    assert grown == sorted(grown)
    assert grown[0] < 0.1


def test_all_of_it_is_small_and_half_precision() -> None:
    files = [file for file in zoo.FOLDER.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 64e6
    for file in (file for file in files if file.suffix == ".safetensors"):
        with safe_open(file, framework="np") as weights:
            kinds = {weights.get_slice(key).get_dtype() for key in weights.keys()}  # noqa: SIM118
        assert kinds <= {"F16", "I64"}, file


@pytest.mark.parametrize("name", NAMES)
def test_a_card_agrees_with_itself(name: str) -> None:
    folder = zoo.path(name)
    card = Card.read(folder / "card.json")
    family = load_family(card.family)
    counts = np.array(card.scene_counts)
    training = card.content["training"]
    assert card.name == name
    assert counts.shape == (family.n_scenes,)
    per_value = card.content["value_counts"]
    for constituent in family.constituents:
        assert set(per_value[constituent.name]) == set(constituent.values)
        assert sum(per_value[constituent.name].values()) == counts.sum()
    # One prompt in ten was left empty.
    assert counts.sum() == pytest.approx(0.9 * training["steps"] * training["batch_size"], rel=0.02)
    assert card.content["share_seen"] == pytest.approx((counts > 0).mean(), abs=5e-5)
    assert card.content["share_seen"] <= card.content["share_possible"] + 1e-4
    assert f"# {name}\n" in (folder / "README.md").read_text()


def test_scene_counts_follow_the_order_of_the_family() -> None:
    """A value's count over both places does not depend on wording, so it follows from the scenes."""
    card = Card.read(zoo.path("shapes-mmdit") / "card.json")
    scenes = load_family(card.family).scenes()
    for kind in ("color", "shape"):
        by_scene: dict[str, int] = {}
        for scene, count in zip(scenes, card.scene_counts, strict=True):
            for place in "12":
                value = scene[kind + place]
                by_scene[value] = by_scene.get(value, 0) + count
        one, two = (card.content["value_counts"][kind + place] for place in "12")
        assert by_scene == {value: one[value] + two[value] for value in one}


@pytest.mark.parametrize("name", ["shapes-mmdit-uniform", "shapes-unet"])
def test_stock_diffusers_makes_what_the_prompt_says(name: str) -> None:
    import torch
    from diffusers import DiffusionPipeline

    folder = zoo.path(name)
    index = json.loads((folder / "model_index.json").read_text())
    absent = {key: None for key, value in index.items() if value == [None, None]}
    pipe: Callable[..., Any] = DiffusionPipeline.from_pretrained(folder, **absent).to(torch.float32)
    card = Card.read(folder / "card.json")
    family = load_family(card.family)
    frequent = np.argsort(card.scene_counts)[::-1][:8]
    tasks = [family.task(family.scenes()[i]) for i in frequent]
    generators = [seeding.generator("zoo", task.id) for task in tasks]
    images = pipe([task.prompt for task in tasks], generator=generators, **card.call).images
    verdicts = PixelScorer().score(images, tasks)
    assert sum(verdict.outcome == "right" for verdict in verdicts) >= 7


def test_a_name_that_is_none_is_answered_with_near_ones() -> None:
    with pytest.raises(ModelError, match="unknown zoo model 'shapes-mmdut': did you mean"):
        zoo.path("shapes-mmdut")


def test_listing_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    script = (
        "import sys; from t2iprobe.models import zoo; zoo.names(); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout.strip() == "False"
