"""The parts of `scripts/train_zoo.py`, on inputs small enough for seconds."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from zoo_training import data, evaluate, mmdit, text, tokenizer, train, unet, vae
from zoo_training.loop import Schedule, Trainer
from zoo_training.recipes import RECIPES

from t2iprobe.families.reading import load_family
from t2iprobe.scorers.base import Verdict


def test_every_word_of_the_families_is_one_token() -> None:
    words = tokenizer.build()
    for name in ("shapes-pair", "shapes-single"):
        for task in load_family(name).tasks()[::97]:
            ids = words(task.prompt).input_ids
            assert len(ids) == len(task.prompt.split()) + 2 <= tokenizer.MAX_LENGTH
            assert words.decode(ids, skip_special_tokens=True) == task.prompt


def test_training_encodes_text_as_the_pipeline_does() -> None:
    words = tokenizer.build()
    codec = vae.build(0)
    model = mmdit.MMDiT(words, codec, 0).eval()
    prompts = ["a red circle left of a blue square", ""]
    with torch.no_grad():
        hidden, pooled = model.encode(text.token_ids(words, prompts))
        expected = model.pipeline(codec, words).encode_prompt(
            prompts, None, None, do_classifier_free_guidance=False, max_sequence_length=0
        )
    torch.testing.assert_close(hidden, expected[0])
    torch.testing.assert_close(pooled, expected[2])


@pytest.mark.parametrize("build", [mmdit.MMDiT, unet.UNet])
def test_a_perfect_guess_costs_nothing_and_every_weight_learns(build: type[nn.Module]) -> None:
    words = tokenizer.build()
    codec = vae.build(0)
    codec.register_to_config(shift_factor=0.1, scaling_factor=1.1)
    model = build(words, codec, 0)
    ids = text.token_ids(words, ["a red circle left of a blue square"] * 2)
    latents = torch.randn(2, 4, 16, 16)
    first = model.loss(latents, ids, torch.Generator().manual_seed(0))
    again = model.loss(latents, ids, torch.Generator().manual_seed(0))
    assert first.item() == again.item() > 0.1
    for _ in range(2):  # gates start at zero, so some weights learn from the second step on
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        model.loss(latents, ids, torch.Generator().manual_seed(0)).backward()
        optimizer.step()
    idle = [n for n, p in model.named_parameters() if p.grad is None]
    assert all("pos_embed" in name for name in idle)


def test_held_out_scenes_have_no_chance_in_any_large_model() -> None:
    away = data.held_out(0)
    assert away.mean() == pytest.approx(0.3, abs=1e-3)
    for weights in (data.uniform(0), data.long_tail(0), data.disconnected(0)):
        assert weights.sum() == pytest.approx(1)
        assert not weights[away].any()
    assert (data.long_tail(0)[~away] > 0).all()


def test_fewer_scenes_are_a_subset_and_show_every_value_in_every_place() -> None:
    scenes = data.corpus().scenes
    previous = data.uniform(0) > 0
    for count in (600, 80, 30):
        chosen = data.few(0, count) > 0
        assert chosen.sum() == count
        assert not (chosen & ~previous).any()
        previous = chosen
    shown = {item for i in np.flatnonzero(previous) for item in scenes[i].items()}
    assert shown == {item for scene in scenes for item in scene.items()}


def test_disconnected_groups_never_meet() -> None:
    scenes = data.corpus().scenes
    meetings: dict[str, set[str]] = {}
    for i in np.flatnonzero(data.disconnected(0)):
        values = {scenes[i][name] for name in ("color1", "shape1", "color2", "shape2")}
        for value in values:
            meetings.setdefault(value, set()).update(values)
    assert len(meetings) == 16
    groups = {frozenset(_reachable(meetings, value)) for value in meetings}
    assert sorted(map(len, groups)) == [8, 8]


def _reachable(meetings: dict[str, set[str]], start: str) -> set[str]:
    found, todo = {start}, [start]
    while todo:
        new = meetings[todo.pop()] - found
        found |= new
        todo += new
    return found


def test_a_batch_depends_on_its_number_alone_and_words_each_scene_both_ways() -> None:
    words = tokenizer.build()
    weights = data.few(0, 30)
    row = np.full(len(weights), -1)
    row[weights > 0] = np.arange(30)
    pool = data.Pool(torch.randn(30, 3, 4, 16, 16).half(), row)
    batches = train.Batches(pool, weights, words, 0, 64)
    latents, ids = batches.batch(5)
    again, ids_again = train.Batches(pool, weights, words, 0, 64).batch(5)
    assert torch.equal(latents, again)
    assert torch.equal(ids, ids_again)
    prompts: dict[int, set[str]] = {}
    for step in range(20):
        draw = batches.draw(step)
        _, ids = batches.batch(step)
        for scene, line, empty in zip(draw.scenes, ids, draw.empty, strict=True):
            assert weights[scene] > 0
            prompt = words.decode(line, skip_special_tokens=True)
            assert (prompt == "") == empty
            prompts.setdefault(int(scene), set()).add(prompt)
    for scene, seen in prompts.items():
        worded = {task.prompt for task in data.corpus().wordings[scene]}
        assert seen - {""} <= worded
        assert len(worded) == 2


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 2)])

    def loss(self, step: int) -> torch.Tensor:
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
        return (self.blocks[1](self.blocks[0](x).tanh()) - x[:, :2]).square().mean()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_an_interrupted_training_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    schedule = Schedule(steps=60, learning_rate=0.1, warmup=3)
    whole = Trainer(Line(), schedule, tmp_path / "whole.safetensors")
    whole.run(whole.module.loss, lambda step: None)

    broken = Trainer(Line(), schedule, tmp_path / "broken.safetensors")

    def stop(step: int) -> None:
        if step == 11:
            broken.save()
        if step == 14:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken.run(broken.module.loss, stop)
    resumed = Trainer(Line(), schedule, tmp_path / "broken.safetensors")
    assert resumed.step == 11
    resumed.run(resumed.module.loss, lambda step: None)
    torch.testing.assert_close(resumed.parameters, whole.parameters, rtol=0, atol=0)
    torch.testing.assert_close(resumed.average, whole.average, rtol=0, atol=0)
    with torch.no_grad():
        assert float(whole.module.loss(99)) < float(Line().loss(99)) / 2


def test_figures_count_and_compare_with_the_binomial() -> None:
    def verdicts(counts: list[int]) -> list[Verdict]:
        rows = [["right"] * k + ["wrong"] * (4 - k) for k in counts]
        return [Verdict(outcome, "", {}) for row in rows for outcome in row]

    apart = evaluate.figures(verdicts([4, 4, 0, 0]))
    assert (apart.success, apart.wrong, apart.malformed) == (0.5, 8, 0)
    assert apart.dispersion == pytest.approx(16 / 3)  # 4 (2 - 4)^2 / (4 * .5 * .5) / 3
    assert apart.dispersion_p == pytest.approx(0.00113, abs=1e-5)  # chi-square 16 with 3 degrees
    alike = evaluate.figures(verdicts([2, 2, 2, 2]))
    assert alike.dispersion == 0
    assert evaluate.figures(verdicts([4, 4])).dispersion is None


def test_recipes_name_every_model_once() -> None:
    folders = [folder for recipe in RECIPES for folder in recipe.folders]
    assert len(folders) == len(set(folders))
    assert {"shapes-mmdit", "shapes-mmdit-uniform", "shapes-unet"} <= set(folders)
