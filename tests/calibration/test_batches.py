"""Prompts of one batch against the same prompts alone, where an encoder gets them in other ways than padded rows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.errors import SiteError
from t2iprobe.models.model import Model

Tiny = Callable[[str], Model]


def made(model: Model, prompts: list[str], size: int, **how: Any) -> list[GeneratedBatch]:
    """The images of prompts whose last word is a constituent."""
    requests = [
        ImageRequest(f"task{i}", 0, prompt, {"shape": (prompt.rindex(" ") + 1, len(prompt))})
        for i, prompt in enumerate(prompts)
    ]
    return list(generate(model, requests, plan_capture(model, **how), size, run_seed=0))


@pytest.mark.parametrize("family", ["ernie", "bria"])
@pytest.mark.parametrize(
    "prompts",
    [
        [f"a small picture of a red {shape}" for shape in ("ball", "star", "triangle")],
        [f"a photo of a red {shape}" for shape in ("car", "carpet", "star", "starfish")],
        [f"a photo of a red {shape}" for shape in ("carpet", "car", "carpet", "car")],
    ],
)
def test_prompts_that_begin_alike_are_not_taken_for_each_other(
    tiny_model: Tiny, family: str, prompts: list[str]
) -> None:
    """These encoders are given the prompts one by one, without pads."""
    model = tiny_model(family)
    (together,) = made(model, prompts, len(prompts), sites="all", at=(0,))
    assert together.truncated == [{}] * len(prompts)
    for index, alone in enumerate(made(model, prompts, 1, sites="all", at=(0,))):
        assert alone.token_spans[0] == together.token_spans[index]
        for key, values in alone.activations.items():
            assert torch.allclose(
                together.activations[key][index], values[0], atol=1e-3, rtol=1e-3, equal_nan=True
            ), (prompts[index], key)


def test_pads_on_the_left_that_are_taken_out_again_leave_one_prompt_a_batch(
    tiny_model: Tiny,
) -> None:
    from t2iprobe.activations.plan import calibrated

    kept = tiny_model("qwenimage")
    model = Model("left", kept.pipe)
    tokenizer = model.pipe.tokenizer
    side, tokenizer.padding_side = tokenizer.padding_side, "left"
    try:
        found = calibrated(model)
        assert found.max_batch == 1
        assert (
            "transformer.conditioning differs between a batch and its prompts alone; batch size is 1"
            in found.notes
        )
    finally:
        tokenizer.padding_side = side


def test_an_encoder_that_runs_for_some_prompts_only_is_refused(tiny_model: Tiny) -> None:
    """HunyuanImage puts what its second encoder makes of quoted words before the text."""
    model = tiny_model("hunyuanimage")
    quoted = ['a sign that says "red circle" above a blue square']
    with pytest.raises(SiteError, match=r"text_encoder_2 runs for these prompts .* --sites"):
        made(model, quoted, 1, sites="all", at=(0,))
    (batch,) = made(model, quoted, 1, sites=["text_encoder*", "*:image"], at=(0,))
    assert not [
        p
        for p in batch.activations
        if p.site.component == "transformer" and p.site.stream == "text"
    ]
