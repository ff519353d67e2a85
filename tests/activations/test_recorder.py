"""Captured values against a second forward of the denoiser by hand, family by family.

What each family does with its rows and streams is written down in truths.py from its source; the package finds it by
trial.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from truths import PROMPTS, REQUESTS, TRUTHS, capture, capture_all, compared

from t2iprobe.activations.generate import ImageRequest, generate
from t2iprobe.activations.plan import all_sites, calibrated, forget_calibration, plan_capture
from t2iprobe.errors import DataError, SiteError
from t2iprobe.models.foreign import ForeignError
from t2iprobe.models.hooks import find_module
from t2iprobe.places import Place

Load = Callable[[str], Any]


@pytest.mark.parametrize("family", list(TRUTHS))
def test_values_rows_and_step_are_right(tiny_model: Load, family: str) -> None:
    got, expected = compared(tiny_model(family), TRUTHS[family])
    assert torch.allclose(got, expected, atol=1e-4)
    assert not torch.allclose(got[0], got[1], atol=1e-4)


@pytest.mark.parametrize(
    "family", [name for name in TRUTHS if name not in ("sd15_safety", "sd15_heun")]
)
def test_swapping_two_prompts_swaps_the_rows(tiny_model: Load, family: str) -> None:
    model = tiny_model(family)
    there, back = capture_all(model, REQUESTS), capture_all(model, REQUESTS[::-1])
    assert list(there) == list(back)
    differing = 0
    for key, values in there.items():
        scale = values.nan_to_num().abs().max().item() + 1e-6
        assert torch.allclose(values, back[key].flip(0), atol=1e-3 * scale, equal_nan=True), key
        differing += not torch.allclose(values[0], values[1], atol=1e-3 * scale, equal_nan=True)
    assert differing > len(there) * 0.8


@pytest.mark.parametrize("family", ["sd15", "sd3", "flux_true_cfg", "zimage", "stable_cascade"])
def test_images_are_bit_identical_and_no_hook_stays(tiny_model: Load, family: str) -> None:
    model = tiny_model(family)
    plan = plan_capture(model, sites="all")
    hooks = hook_count(model)
    with_capture = list(generate(model, REQUESTS, plan, 2, 0))
    without = list(generate(model, REQUESTS, None, 2, 0))
    for one, other in zip(with_capture, without, strict=True):
        assert [i.tobytes() for i in one.images] == [i.tobytes() for i in other.images]
    assert other.activations == {}
    assert hook_count(model) == hooks


def hook_count(model: Any) -> int:
    return sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks)
        for part in model.modules.values()
        for m in part.modules()
    )


def test_no_hook_stays_after_an_exception(tiny_model: Load) -> None:
    model = tiny_model("sd15")
    plan = plan_capture(model)
    hooks = hook_count(model)
    handle = model.pipe.vae.decoder.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ForeignError, match="division by zero"):
        list(generate(model, REQUESTS, plan, 2, 0))
    handle.remove()
    assert hook_count(model) == hooks


@pytest.mark.parametrize("family", ["sd15", "sd15_heun", "sd3"])
def test_an_image_does_not_depend_on_its_batch(tiny_model: Load, family: str) -> None:
    model = tiny_model(family)
    plan = plan_capture(model)
    (together,) = generate(model, REQUESTS, plan, 2, 0)
    alone = list(generate(model, REQUESTS, plan, 1, 0))
    for index, single in enumerate(alone):
        one = torch.tensor(list(together.images[index].tobytes()), dtype=torch.int16)
        other = torch.tensor(list(single.images[0].tobytes()), dtype=torch.int16)
        assert (one - other).abs().max() <= 1  # rounding of kernels on other shapes
        for key, values in single.activations.items():
            assert torch.allclose(
                values[0], together.activations[key][index], rtol=1e-3, atol=1e-3, equal_nan=True
            )


def test_the_seed_and_the_number_of_an_image_decide_its_noise(tiny_model: Load) -> None:
    model = tiny_model("sd15")

    def image(index: int, seed: int) -> bytes:
        wanted = ImageRequest("task0", index, PROMPTS[0])
        (batch,) = generate(model, [wanted], None, 1, seed)
        return batch.images[0].tobytes()

    assert image(0, 0) == image(0, 0)
    assert len({image(0, 0), image(1, 0), image(0, 1)}) == 3


class TestSchedules:
    """Steps are entries of the schedule, however often the denoiser is called."""

    def calls(self, tiny_model: Load, family: str, steps: int) -> list[tuple[int | None, bool]]:
        model = tiny_model(family)
        old, model.call = model.call, model.call | {"num_inference_steps": steps}
        forget_calibration(model)
        try:
            found = calibrated(model).denoisers["unet"]
        finally:
            model.call = old
            forget_calibration(model)
        assert found.n_steps == steps
        return [(call.step, call.counts) for call in found.schedule]

    def test_pndm_repeats_its_second_entry(self, tiny_model: Load) -> None:
        got = self.calls(tiny_model, "sd15_pndm", 4)
        assert got == [(0, True), (1, False), (1, True), (2, True), (3, True)]

    def test_heun_calls_twice_and_the_last_counts(self, tiny_model: Load) -> None:
        got = self.calls(tiny_model, "sd15_heun", 3)
        assert got == [(0, True), (1, False), (1, True), (2, False), (2, True)]

    def test_dpm2_evaluates_between_entries(self, tiny_model: Load) -> None:
        got = self.calls(tiny_model, "sd15_dpm2", 3)
        assert [step for step, _ in got] == [0, None, 1, None, 2]


GUIDANCE = {
    "sd15": "one call a step: [unconditional, conditional]",
    "zimage": "one call a step: [conditional, unconditional]",
    "qwenimage": "2 calls a step: [conditional] then [unconditional]",
    "flux": "one call a step, no unconditional half",
    "sd15_pag": "one call a step: [unconditional, conditional, conditional, perturbed]",
}


@pytest.mark.parametrize("family", list(GUIDANCE))
def test_the_form_of_guidance_is_found(tiny_model: Load, family: str) -> None:
    (found,) = calibrated(tiny_model(family)).denoisers.values()
    assert found.guidance == GUIDANCE[family]


def test_guidance_that_is_off_leaves_one_half(tiny_model: Load) -> None:
    model = tiny_model("sd15")
    old, model.call = model.call, model.call | {"guidance_scale": 1.0}
    forget_calibration(model)
    try:
        batch = capture(model, REQUESTS)
        (found,) = calibrated(model).denoisers.values()
    finally:
        model.call = old
        forget_calibration(model)
    assert found.guidance == "one call a step, no unconditional half"
    assert all(values.shape[0] == 2 for values in batch.activations.values())


def test_guidance_that_stops_in_mid_run_is_followed(tiny_model: Load) -> None:
    """Z-Image's cfg_truncation: doubled calls first, single ones later; every call is judged by itself."""
    model = tiny_model("zimage")
    old = model.call
    model.call = old | {"num_inference_steps": 4, "cfg_truncation": 0.3}
    forget_calibration(model)
    rows: list[int] = []
    try:
        plan = plan_capture(model, sites=["transformer.layers.1:image"], at=(0, 3))
        handle = model.denoisers["transformer"].register_forward_pre_hook(
            lambda _m, args, _k: rows.append(len(args[0])), with_kwargs=True
        )
        (batch,) = generate(model, REQUESTS, plan, 2, 0)
        handle.remove()
    finally:
        model.call = old
        forget_calibration(model)
    assert set(rows) == {4, 2}
    assert {place.step for place in batch.activations} == {0, 3}


class TestText:
    def test_spans_and_means_of_clip_are_those_of_its_layers(self, tiny_model: Load) -> None:
        model = tiny_model("sd15")
        batch = capture(model, REQUESTS, sites="all")
        tokens = model.pipe.tokenizer(
            list(PROMPTS), padding="max_length", max_length=77, return_tensors="pt"
        )
        layer = find_module(model.pipe.text_encoder, "encoder.layers.1")
        outputs: list[Any] = []
        handle = layer.register_forward_hook(lambda _m, _a, output: outputs.append(output))
        with torch.no_grad():
            model.pipe.text_encoder(tokens.input_ids)
        handle.remove()
        hidden = outputs[0] if isinstance(outputs[0], Tensor) else outputs[0][0]
        lengths = (tokens.input_ids == model.pipe.tokenizer.eos_token_id).int().argmax(1)
        (mean,) = (
            p for p in map(str, batch.activations) if p.endswith("encoder.layers.1:text/mean")
        )
        site = mean.removesuffix("/mean")
        for row, n in enumerate(lengths.tolist()):
            got = {
                name: batch.activations[Place.parse(f"{site}/{name}")][row]
                for name in ("mean", "eot", "span-color1")
            }
            assert torch.allclose(got["mean"], hidden[row, 1:n].mean(0), atol=1e-5)
            assert torch.allclose(got["eot"], hidden[row, n], atol=1e-5)
            assert torch.allclose(got["span-color1"], hidden[row, 2], atol=1e-5)

    def test_conditioning_is_what_the_denoiser_gets(self, tiny_model: Load) -> None:
        """In SD3 the text states are CLIP's two encoders side by side, then T5's tokens behind."""
        model = tiny_model("sd3")
        given: list[Tensor] = []
        plan = plan_capture(model, sites=["transformer.conditioning"])
        handle = model.denoisers["transformer"].register_forward_pre_hook(
            lambda _m, _a, kwargs: given.append(kwargs["encoder_hidden_states"].clone()),
            with_kwargs=True,
        )
        (batch,) = generate(model, REQUESTS[:1], plan, 1, 0)
        handle.remove()
        states = given[0][1]
        got = batch.activations[Place.parse("transformer.conditioning:text/span-color1")][0]
        assert torch.allclose(got, (states[2] + states[77 + 1]) / 2, atol=1e-5)

    @pytest.mark.parametrize(
        ("family", "encoder"),
        [
            ("sana", "text_encoder"),
            ("qwenimage", "text_encoder"),
            ("zimage", "text_encoder"),
            ("flux", "text_encoder_2"),
        ],
    )
    def test_constituents_are_found_behind_templates(
        self, tiny_model: Load, family: str, encoder: str
    ) -> None:
        model = tiny_model(family)
        batches = list(generate(model, REQUESTS, plan_capture(model), 2, 0))
        spans = [found for batch in batches for found in batch.token_spans]
        for index, word in enumerate(("red", "orange")):
            (at,) = spans[index][encoder]["color1"] or (None,)
            assert at is not None
            assert word in PROMPTS[index]
        for batch in batches:
            assert not any(values.isnan().any() for values in batch.activations.values())

    def test_a_cut_prompt_is_reported_per_encoder(self, tiny_model: Load) -> None:
        model = tiny_model("sd3")
        prompt = "very " * 80 + "red cube"
        spans = {"color1": (prompt.index("red"), prompt.index("red") + 3), "first": (0, 4)}
        batch = capture(model, [ImageRequest("long", 0, prompt, spans)])
        assert batch.truncated == [{"text_encoder": ["color1"], "text_encoder_2": ["color1"]}]
        lost = [str(place) for place, values in batch.activations.items() if values.isnan().any()]
        assert lost
        assert all(
            key.startswith(("text_encoder.", "text_encoder_2.")) and "span-color1" in key
            for key in lost
        )

    @pytest.mark.parametrize("prompt", ["", "   "])
    def test_blank_prompts_are_refused_with_their_number(
        self, tiny_model: Load, prompt: str
    ) -> None:
        with pytest.raises(DataError, match=r"request 1 .*blank"):
            list(
                generate(
                    tiny_model("sd15"), [REQUESTS[0], ImageRequest("x", 0, prompt)], None, 2, 0
                )
            )

    def test_text_behind_registers(self, tiny_model: Load) -> None:
        """AuraFlow puts eight registers before its text."""
        model = tiny_model("auraflow")
        given: list[Tensor] = []
        plan = plan_capture(model, sites=["transformer.joint_transformer_blocks.0:text"], at=(0,))
        block = model.denoisers["transformer"].get_submodule("joint_transformer_blocks.0")
        handle = block.register_forward_hook(lambda _m, _a, output: given.append(output[0].clone()))
        (batch,) = generate(model, REQUESTS[:1], plan, 1, 0)
        handle.remove()
        got = batch.activations[
            Place.parse("transformer.joint_transformer_blocks.0:text/span-color1@0")
        ][0]
        assert torch.allclose(got, given[0][1, 8 + 1], atol=1e-5)

    def test_prompts_padded_on_the_left(self, tiny_model: Load) -> None:
        """CogView4 pads to a multiple of 16 on the left; no word may be lost, whatever the length."""
        model = tiny_model("cogview4")
        prompt = "a very very very small red circle left of a blue square"
        spans = {"first": (2, 6), "last": (prompt.index("square"), len(prompt))}
        batch = capture(
            model, [ImageRequest("x", 0, prompt, spans)], sites=["transformer.conditioning"]
        )
        assert not any(values.isnan().any() for values in batch.activations.values())


def test_a_family_that_moves_the_image_in_a_batch_makes_one_at_a_time(tiny_model: Load) -> None:
    """Lumina 2 puts each prompt's text, in its own length, before the image."""
    model = tiny_model("lumina2")
    found = calibrated(model)
    assert found.max_batch == 1
    assert "batch size is 1" in " ".join(found.notes)
    batches = list(generate(model, REQUESTS, plan_capture(model), 2, 0))
    assert [len(batch.images) for batch in batches] == [1, 1]


class TestInvalid:
    def test_nan_of_the_codec(self, tiny_model: Load) -> None:
        (batch,) = generate(tiny_model("sd15_nan"), REQUESTS, None, 2, 0)
        assert batch.invalid == ["NaN in decode"] * 2

    def test_the_safety_checker(self, tiny_model: Load) -> None:
        (batch,) = generate(tiny_model("sd15_flagged"), REQUESTS, None, 2, 0)
        assert batch.invalid == ["safety checker"] * 2
        (batch,) = generate(tiny_model("sd15_safety"), REQUESTS, None, 2, 0)
        assert batch.invalid == [None] * 2


def test_every_block_and_layer_is_a_site(tiny_model: Load) -> None:
    names = {str(site) for site in all_sites(calibrated(tiny_model("sd3")))}
    assert names >= {
        "text_encoder.text_model.embeddings.token_embedding:text",
        "text_encoder.text_model.encoder.layers.0:text",
        "text_encoder.text_model.final_layer_norm:text",
        "text_encoder_3.encoder.embed_tokens:text",
        "text_encoder_3.encoder.block.1:text",
        "text_encoder_3.encoder.final_layer_norm:text",
        "transformer.conditioning:text",
        "transformer.transformer_blocks.0:image",
        "transformer.transformer_blocks.0:text",
        "transformer.transformer_blocks.2:image",
    }
    assert "transformer.transformer_blocks.2:text" not in names  # SD3's last block gives no text
    unet = {str(site) for site in all_sites(calibrated(tiny_model("sd15")))}
    assert unet >= {
        "unet.down_blocks.0:image",
        "unet.down_blocks.0.attentions.0:image",
        "unet.mid_block:image",
        "unet.mid_block.attentions.0:image",
        "unet.up_blocks.1.attentions.1:image",
    }


def test_globs_and_their_mistakes(tiny_model: Load) -> None:
    model = tiny_model("flux")
    plan = plan_capture(model, sites=["transformer.single*:image"])
    assert [str(site) for site in plan.sites] == [
        "transformer.single_transformer_blocks.0:image",
        "transformer.single_transformer_blocks.1:image",
    ]
    with pytest.raises(SiteError, match=r"unknown site 'transformer\.block\.0:image'"):
        plan_capture(model, sites=["transformer.block.0:image"])
