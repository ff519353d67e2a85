"""Pipelines whose classes nobody has seen: what is captured against what their blocks wrote down themselves."""

from typing import Any

import pytest
import torch
import truths
from made_up import Design, Truth, pipeline
from torch import Tensor

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import calibrated, plan_capture
from t2iprobe.calibration.rows import same_text
from t2iprobe.checks.doctor import _alike, diagnose
from t2iprobe.errors import SiteError
from t2iprobe.models.arguments import parse_value
from t2iprobe.models.model import Model
from t2iprobe.places import Place

PROMPTS = ("a red circle left of a blue square", "an orange star above a very small black triangle")
SPANS = [{"color1": (2, 5)}, {"color1": (3, 9)}]
REQUESTS = [
    ImageRequest(f"task{i}", 0, prompt, spans)
    for i, (prompt, spans) in enumerate(zip(PROMPTS, SPANS, strict=True))
]

DESIGNS = {
    "pairs in a plain list": Design(),
    "text before image in a pair": Design(returns="swapped"),
    "feature maps, channels last": Design(returns="maps"),
    "a mapping": Design(returns="mapping"),
    "a dataclass": Design(returns="fields"),
    "one stream, text first": Design(returns="text_first"),
    "one stream, text last": Design(returns="text_last"),
    "registers before the text": Design(returns="text_first", registers=3),
    "lists in a list": Design(lists="nested"),
    "blocks with names": Design(lists="named", returns="swapped"),
    "patches cut outside": Design(packed=True, returns="text_last"),
    "conditional rows first": Design(guidance="cond_uncond"),
    "two calls, conditional first": Design(guidance="calls_cond_first", returns="text_first"),
    "two calls, unconditional first": Design(guidance="calls_uncond_first"),
    "three rows a prompt": Design(guidance="tripled", returns="swapped"),
    "no unconditional half": Design(guidance="embedded", returns="text_last"),
    "guidance off in mid-run": Design(guidance="off_midrun"),
    "guidance late in the run": Design(guidance="late"),
    "two evaluations a step": Design(evaluations="heun", guidance="cond_uncond"),
    "a midpoint in each step": Design(evaluations="midpoint"),
    "three evaluations at a level": Design(evaluations="thrice", guidance="calls_uncond_first"),
    "padded on the left": Design(padding="left"),
    "prompts as a list": Design(flattened=True, guidance="cond_uncond", returns="text_last"),
}


def captured(model: Model) -> tuple[GeneratedBatch, list[Truth]]:
    plan = plan_capture(model, sites="all", at=(0, 1, 2, 3))
    painter = model.pipe.painter
    painter.log = log = []
    (batch,) = generate(model, REQUESTS, plan, 2, run_seed=0)
    painter.log = None
    return batch, [truth for truth in log if truth.step is not None and len(truth.image)]


def word_positions(model: Model) -> list[int]:
    """Where the first colour is among the text states of each prompt, from the tokenizer alone."""
    tokenizer = model.pipe.spelling
    places = []
    for prompt, spans in zip(PROMPTS, SPANS, strict=True):
        padding = (
            {}
            if model.pipe.painter.design.flattened
            else {"padding": "max_length", "max_length": 32}
        )
        ids = tokenizer(prompt, **padding).input_ids
        start, end = spans["color1"]
        (at,) = [i for i, t in enumerate(ids) if tokenizer.decode([t]).strip() == prompt[start:end]]
        places.append(at)
    return places


@pytest.mark.parametrize("name", list(DESIGNS))
def test_values_are_those_of_the_blocks(name: str) -> None:
    model = Model(name, pipeline(DESIGNS[name]))
    batch, log = captured(model)
    found = calibrated(model).denoisers["painter"]
    assert found.n_steps == 4
    assert len(found.readings) == 3
    places = word_positions(model)
    assert {truth.step for truth in log} == {0, 1, 2, 3}
    for truth in log:
        site = f"painter.{truth.block}"
        image = batch.activations[Place.parse(f"{site}:image/mean@{truth.step}")]
        assert torch.allclose(image, truth.image.mean(1), atol=1e-5), site
        top_left = truth.image[:, [0, 1, 4, 5]].mean(1)
        grid = batch.activations[Place.parse(f"{site}:image/grid@{truth.step}")]
        assert torch.allclose(grid[:, : top_left.shape[1]], top_left, atol=1e-5), site
        text = batch.activations[Place.parse(f"{site}:text/span-color1@{truth.step}")]
        own = torch.stack([truth.text[i, at] for i, at in enumerate(places)])
        assert torch.allclose(text, own, atol=1e-5), site


@pytest.mark.parametrize(
    "design",
    [
        Design(experts=True),
        Design(experts=True, guidance="calls_uncond_first", returns="text_first"),
        Design(experts=True, guidance="embedded", returns="text_last"),
        Design(experts=True, evaluations="heun", returns="text_first", registers=3),
    ],
    ids=lambda design: f"{design.guidance}-{design.returns}-{design.evaluations}",
)
def test_a_second_denoiser_that_goes_on_with_the_picture(design: Design) -> None:
    model = Model("experts", pipeline(design))
    plan = plan_capture(model, sites="all", at=(0, 1, 2, 3))
    model.pipe.finisher.log = log = []
    (batch,) = generate(model, REQUESTS, plan, 2, run_seed=0)
    log = [truth for truth in log if truth.step is not None and len(truth.image)]
    assert {truth.step for truth in log} == {2, 3}
    places = word_positions(model)
    for truth in log:
        site, step = f"finisher.{truth.block}", truth.step
        image = batch.activations[Place.parse(f"{site}:image/mean@{step}")]
        assert torch.allclose(image, truth.image.mean(1), atol=1e-5), site
        text = batch.activations[Place.parse(f"{site}:text/span-color1@{step}")]
        own = torch.stack([truth.text[i, at] for i, at in enumerate(places)])
        assert torch.allclose(text, own, atol=1e-5), site


@pytest.mark.parametrize("returns", ["text_first", "text_last"])
def test_joint_streams_whose_bounds_nothing_tells_are_not_read(returns: str) -> None:
    wanted = r"no block gave a stream that could be told.*changes its size within a run.* trunk\.0"
    with pytest.raises(SiteError, match=wanted):
        plan_capture(Model("grows", pipeline(Design(returns=returns, grows=True))))


def test_a_pipeline_that_sorts_its_prompts_is_refused() -> None:
    with pytest.raises(SiteError, match="not in the order of its prompts"):
        calibrated(Model("sorted", pipeline(Design(longest_first=True))))


@pytest.mark.parametrize("guidance", ["uncond_cond", "calls_cond_first"])
def test_a_denoiser_that_is_called_for_one_prompt_after_the_other(guidance: str) -> None:
    model = Model("alone", pipeline(Design(alone=True, guidance=guidance)))
    found = calibrated(model)
    assert found.max_batch == 1
    plan = plan_capture(model, sites="painter.trunk.*", at=(0, 1, 2, 3))
    model.pipe.painter.log = log = []
    batches = list(generate(model, REQUESTS, plan, 2, run_seed=0))
    places = word_positions(model)
    n_compared = 0
    for index, batch in enumerate(batches):
        assert len(batch.images) == 1
        for truth in log[index * len(log) // 2 :][: len(log) // 2]:
            if len(truth.image):
                site = f"painter.{truth.block}"
                image = batch.activations[Place.parse(f"{site}:image/mean@{truth.step}")]
                assert torch.allclose(image, truth.image.mean(1), atol=1e-5), site
                text = batch.activations[Place.parse(f"{site}:text/span-color1@{truth.step}")]
                assert torch.allclose(text, truth.text[:, places[index]], atol=1e-5), site
                n_compared += 1
    assert n_compared >= len(batches)


def states(model: Model) -> list[Tensor]:
    """Every prompt's states after each layer of the text encoder, from a pass by hand."""
    outputs: list[Any] = []
    handle = model.pipe.speller.ladder[1].register_forward_hook(lambda *_: outputs.append(_[2]))
    model.pipe._encode(list(PROMPTS))
    handle.remove()
    return [row for output in outputs for row in output]


@pytest.mark.parametrize("name", ["padded on the left", "prompts as a list", "a mapping"])
def test_a_text_encoder_of_no_library_is_read(name: str) -> None:
    model = Model(name, pipeline(DESIGNS[name]))
    batch, _ = captured(model)
    got = batch.activations[Place.parse("speller.ladder.1:text/span-color1")]
    for index, (row, at) in enumerate(zip(states(model), word_positions(model), strict=True)):
        assert torch.allclose(got[index], row[at], atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        "a dataclass",
        "one stream, text last",
        "three rows a prompt",
        "prompts as a list",
        "a midpoint in each step",
    ],
)
def test_doctor_finds_nothing(name: str) -> None:
    checks = list(diagnose(Model(name, pipeline(DESIGNS[name]))))
    assert [check.sentence for check in checks if not check.ok] == []


def test_one_other_word_makes_another_text() -> None:
    """Also beside a first token a thousand times as long, as large language models have it."""
    torch.manual_seed(0)
    text = torch.randn(20, 8)
    text[0] *= 1000
    text[15:] = 0  # pads
    rounded = text * (1 + 0.02 * torch.randn(20, 8))
    other = text.clone()
    other[5] = torch.randn(8)
    assert same_text(text, rounded)
    assert not same_text(text, other)
    assert same_text(text, torch.cat([rounded, torch.ones(4, 8)]))  # pads behind
    assert same_text(text, torch.cat([torch.ones(4, 8), rounded]))  # pads before
    assert not same_text(text, torch.cat([other, torch.ones(4, 8)]))


class TestWhatCannotBeRead:
    def test_a_painter_without_blocks(self) -> None:
        made = pipeline(Design())
        painter = made.painter
        made.painter.trunk = torch.nn.ModuleList()
        assert painter.named  # its layers are kept out of sight
        with pytest.raises(SiteError, match=r"painter \(Painter\): no block gave a stream"):
            plan_capture(Model("bare", made))

    def test_a_painter_that_is_not_given_the_prompt(self) -> None:
        made = pipeline(Design())
        made._encode = lambda prompts: torch.zeros(len(prompts), 32, 16)
        with pytest.raises(SiteError, match="no denoiser input changes with the prompt"):
            plan_capture(Model("deaf", made))

    def test_rows_taken_for_the_prompts_that_are_not(self) -> None:
        """What doctor is for: the same rows for every prompt are no conditional ones."""
        model = Model("wrong", pipeline(Design(guidance="uncond_cond")))
        found = calibrated(model).denoisers["painter"]
        (batch,) = generate(model, REQUESTS, plan_capture(model, sites="all"), 2, 0)
        uncond = model.pipe._encode([""])[0]
        assert torch.allclose(found.unconditional[0], uncond[:, :8], atol=1e-5)
        batch.activations = {key: rows[:1].expand(2, -1) for key, rows in batch.activations.items()}
        assert "painter.trunk.0:text" in _alike([batch])


QUICK = (
    "sd35",
    "sd3_pag",
    "flux2",
    "flux2_klein",
    "lumina",
    "omnigen",
    "qwenimage21",
    "bria_fibo",
    "ernie",
    "krea2",
    "kandinsky3",
    "amused",
    "paradigms",
    "unidiffuser",
    "ideogram4",
    "bria_fibo2",
    "zimage_omni",
    "prx_pixel",
    "joyimage",
    "joyimage_plus",
)
"""Of the families the code was not made on, those whose rows, streams or text states are like no other's."""


@pytest.mark.parametrize(
    "family",
    [f if f in QUICK else pytest.param(f, marks=pytest.mark.slow) for f in truths.UNSEEN],
)
def test_values_of_other_families(tiny_model: Any, family: str) -> None:
    """As in test_recorder, and swapping two prompts swaps every row of every site."""
    model = tiny_model(family)
    got, expected = truths.compared(model, truths.UNSEEN[family])
    assert torch.allclose(got, expected, atol=1e-4)
    assert not torch.allclose(got[0], got[1], atol=1e-4)
    there = truths.capture_all(model, truths.REQUESTS)
    back = truths.capture_all(model, truths.REQUESTS[::-1])
    for key, rows in there.items():
        scale = rows.nan_to_num().abs().max().item() + 1e-6
        assert torch.allclose(rows, back[key].flip(0), atol=1e-3 * scale, equal_nan=True), key


def test_lists_are_read_from_the_command_line() -> None:
    assert parse_value("[1, 2, 3]") == [1, 2, 3]
    assert parse_value('{"a": 0.5}') == {"a": 0.5}
    assert parse_value("[not json") == "[not json"
