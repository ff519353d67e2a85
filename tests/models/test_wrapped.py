"""Components that are offloaded, placed, compiled, replicated or cached: the same numbers, or a refusal."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import nn
from wrapped import (
    CPU,
    FAMILIES,
    Folder,
    assert_capture_changes_nothing,
    assert_same,
    fresh,
    make,
    pixels,
    plain,
    replace,
)

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import calibrated, plan_capture
from t2iprobe.errors import ConfigError, SiteError
from t2iprobe.models.hooks import find_module
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.sites import denoiser_blocks
from t2iprobe.places import Place


@pytest.fixture(scope="module")
def expected(tiny_folder: Folder) -> Callable[[str], GeneratedBatch]:
    """What a plain model gives at every site."""
    return plain(tiny_folder)


class TestOffload:
    def put(self, how: str, model: Any, tmp_path: Path) -> None:
        from accelerate import disk_offload
        from accelerate.hooks import attach_align_device_hook
        from diffusers.hooks import apply_group_offloading

        if how == "model":
            model.pipe.enable_model_cpu_offload(device="cpu")
            return
        for name, part in model.modules.items():
            if how == "align":
                attach_align_device_hook(part, execution_device=CPU)
            elif how == "disk":
                disk_offload(part, str(tmp_path / name), execution_device=CPU)
            else:
                kind = {"leaf": "leaf_level", "block": "block_level"}[how]
                blocks = 1 if how == "block" else None
                try:
                    apply_group_offloading(
                        part, CPU, CPU, offload_type=kind, num_blocks_per_group=blocks
                    )
                except RuntimeError as error:
                    if "Cannot access accelerator" not in str(error):
                        raise
                    pytest.skip(f"torch {torch.__version__} offloads groups from a GPU only")

    @pytest.mark.parametrize(
        ("family", "how"),
        [
            ("sd15", "model"),
            ("sd15", "align"),
            ("sd15", "leaf"),
            ("flux", "disk"),  # its text encoder loses the tie between two embeddings
            ("flux", "block"),
            *(
                pytest.param(family, how, marks=pytest.mark.slow)
                for family, how in [
                    ("sd15", "disk"),
                    ("sd3", "disk"),
                    ("sd3", "leaf"),
                    ("flux", "model"),
                ]
            ),
        ],
    )
    def test_hooks_placed_before_ours(
        self,
        tiny_folder: Folder,
        expected: Callable[[str], GeneratedBatch],
        tmp_path: Path,
        family: str,
        how: str,
    ) -> None:
        model = fresh(tiny_folder, family)
        self.put(how, model, tmp_path)
        assert_same(make(model, plan_capture(model, sites="all")), expected(family))

    @pytest.mark.parametrize("how", ["model", "disk", "leaf"])
    def test_hooks_placed_after_the_plan(
        self,
        tiny_folder: Folder,
        expected: Callable[[str], GeneratedBatch],
        tmp_path: Path,
        how: str,
    ) -> None:
        model = fresh(tiny_folder, "sd15")
        plan = plan_capture(model, sites="all")
        self.put(how, model, tmp_path)
        assert_same(make(model, plan), expected("sd15"))

    @pytest.mark.parametrize("device_map", ["cpu", "balanced"])
    def test_a_pipeline_placed_by_device_map(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch], device_map: str
    ) -> None:
        from diffusers import DiffusionPipeline

        model = fresh(tiny_folder, "sd15")
        folder = str(tiny_folder("sd15"))
        model.pipe = DiffusionPipeline.from_pretrained(
            folder, device_map=device_map, local_files_only=True, safety_checker=None
        )
        for name in ("modules", "encoders", "denoisers"):
            model.__dict__.pop(name, None)
        assert_same(make(model, plan_capture(model, sites="all")), expected("sd15"))

    @pytest.mark.parametrize("offload", ["model", "sequential"])
    def test_on_the_cpu_there_is_nothing_to_offload_from(
        self, tiny_folder: Folder, offload: Any
    ) -> None:
        with pytest.raises(ConfigError, match=f"--offload {offload} keeps idle parts off a GPU"):
            load_model(str(tiny_folder("sd15")), LoadSettings(offload=offload, device="cpu"))


class TestCompiled:
    @pytest.fixture(autouse=True)
    def clean(self) -> None:
        torch._dynamo.reset()

    @pytest.mark.parametrize("first", [pytest.param("capture", marks=pytest.mark.slow), "call"])
    def test_compiled_blocks_give_the_same_numbers(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch], first: str
    ) -> None:
        """Hooks that come after a compiled block's first call, and before it."""
        model = fresh(tiny_folder, "flux")
        blocks = model.pipe.transformer.transformer_blocks
        for index, block in enumerate(blocks):
            blocks[index] = torch.compile(block, backend="eager")
        if first == "call":
            make(model, None)
        assert_same(make(model, plan_capture(model, sites="all")), expected("flux"))

    @pytest.mark.slow
    def test_blocks_compiled_in_place_give_the_same_numbers(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch]
    ) -> None:
        model = fresh(tiny_folder, "sd15")
        model.pipe.unet.compile_repeated_blocks(backend="eager")
        make(model, None)
        assert_same(make(model, plan_capture(model, sites="all")), expected("sd15"))

    @pytest.mark.slow
    def test_with_the_real_compiler_capture_changes_nothing(self, tiny_folder: Folder) -> None:
        model = fresh(tiny_folder, "flux")
        for block in model.pipe.transformer.transformer_blocks:
            block.compile()
        assert_capture_changes_nothing(model)

    @pytest.mark.parametrize(
        "in_place",
        [False, pytest.param(True, marks=pytest.mark.slow)],
        ids=["wrapped", "in-place"],
    )
    def test_blocks_inside_a_compiled_one_are_no_sites(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch], in_place: bool
    ) -> None:
        model = fresh(tiny_folder, "sd15")
        unet = model.pipe.unet
        if in_place:
            unet.mid_block.compile(backend="eager")
        else:
            unet.mid_block = torch.compile(unet.mid_block, backend="eager")
        make(model, None)
        got = make(model, plan_capture(model, sites="all"))
        whole = expected("sd15")
        lost = {place.site.module for place in set(whole.activations) - set(got.activations)}
        assert lost == {
            "unet.mid_block.attentions.0",
            "unet.mid_block.attentions.0.transformer_blocks.0",
        }
        for key, values in got.activations.items():
            assert torch.equal(values.nan_to_num(), whole.activations[key].nan_to_num()), key
        assert pixels(got) == pixels(whole)
        notes = " ".join(calibrated(model).notes)
        assert "blocks inside unet.mid_block are compiled and cannot be read" in notes

    @pytest.mark.parametrize("how", ["wrapped", "in place", "forward"])
    def test_a_component_compiled_as_a_whole_is_refused_by_name(
        self, tiny_folder: Folder, how: str
    ) -> None:
        model = fresh(tiny_folder, "sd3")
        transformer = model.pipe.transformer
        if how == "wrapped":
            replace(model, "transformer", torch.compile(transformer, backend="eager"))
        elif how == "in place":
            transformer.compile(backend="eager")
        else:
            transformer.forward = torch.compile(transformer.forward, backend="eager")
        with pytest.raises(SiteError, match=r"transformer is compiled as a whole.*_orig_mod"):
            plan_capture(model)


class TestReplicas:
    @pytest.mark.parametrize("component", ["transformer", "text_encoder"])
    def test_a_replicated_component(self, tiny_folder: Folder, component: str) -> None:
        model = fresh(tiny_folder, "flux")
        replace(model, component, nn.DataParallel(getattr(model.pipe, component)))
        expected = rf"{component} is wrapped in DataParallel.*use pipe\.{component}\.module"
        with pytest.raises(SiteError, match=expected):
            plan_capture(model)

    def test_a_replicated_block(self, tiny_folder: Folder) -> None:
        model = fresh(tiny_folder, "flux")
        blocks = model.pipe.transformer.transformer_blocks
        blocks[1] = nn.DataParallel(blocks[1])
        with pytest.raises(
            SiteError, match=r"transformer\.transformer_blocks\.1 is wrapped in Data"
        ):
            plan_capture(model)

    def test_a_distributed_component(self, tiny_folder: Folder, tmp_path: Path) -> None:
        from torch import distributed

        store = f"file://{tmp_path / 'store'}"
        distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        try:
            model = fresh(tiny_folder, "flux")
            wrapped = nn.parallel.DistributedDataParallel(model.pipe.transformer)
            replace(model, "transformer", wrapped)
            with pytest.raises(
                SiteError, match="transformer is wrapped in DistributedDataParallel"
            ):
                plan_capture(model)
        finally:
            distributed.destroy_process_group()


class TestCaches:
    def configs(self) -> dict[str, Any]:
        import diffusers

        at = {"spatial_attention_block_skip_range": 2, "current_timestep_callback": lambda: 500}
        return {
            "first_block": diffusers.FirstBlockCacheConfig(threshold=0.1),
            "broadcast": diffusers.PyramidAttentionBroadcastConfig(**at),
            "faster": diffusers.FasterCacheConfig(**at),
        }

    @pytest.mark.parametrize("kind", ["first_block", "broadcast", "faster"])
    def test_a_cache_is_refused_until_it_is_off(self, tiny_folder: Folder, kind: str) -> None:
        model = fresh(tiny_folder, "flux")
        model.pipe.transformer.enable_cache(self.configs()[kind])
        with pytest.raises(SiteError, match=r"transformer uses a cache.*disable_cache"):
            plan_capture(model)
        model.pipe.transformer.disable_cache()
        plan_capture(model, sites=["transformer.conditioning"])

    def test_a_cache_put_in_by_hand_is_found_by_its_hooks(self, tiny_folder: Folder) -> None:
        from diffusers import hooks

        model = fresh(tiny_folder, "flux")
        hooks.apply_first_block_cache(model.pipe.transformer, self.configs()["first_block"])
        with pytest.raises(SiteError, match=r"transformer\.transformer_blocks\.0 has the hook fbc"):
            plan_capture(model)


class TestChangedForwards:
    """What changes the numbers themselves is read as it is: capture adds nothing to it."""

    def test_fused_projections(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch]
    ) -> None:
        model = fresh(tiny_folder, "sd15")
        model.pipe.fuse_qkv_projections()
        got = assert_capture_changes_nothing(model)
        whole = expected("sd15")
        assert list(got.activations) == list(whole.activations)
        for key, values in whole.activations.items():
            assert torch.allclose(values, got.activations[key], atol=1e-4, equal_nan=True), key

    def test_free_u(self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch]) -> None:
        model = fresh(tiny_folder, "sd15")
        model.pipe.enable_freeu(s1=0.9, s2=0.2, b1=1.2, b2=1.4)
        got = assert_capture_changes_nothing(model)
        assert list(got.activations) == list(expected("sd15").activations)
        assert pixels(got) != pixels(expected("sd15"))

    @pytest.mark.parametrize("family", FAMILIES)
    def test_blocks_whose_forward_was_replaced(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch], family: str
    ) -> None:
        """By one that names no arguments, as some speed-ups do."""
        model = fresh(tiny_folder, family)
        for denoiser in model.denoisers.values():
            for block in denoiser_blocks(denoiser).values():
                old = block.forward
                block.forward = lambda *args, old=old, **kwargs: old(*args, **kwargs)
        assert_same(make(model, plan_capture(model, sites="all")), expected(family))

    def test_what_a_new_forward_gives_is_what_is_read(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch]
    ) -> None:
        model = fresh(tiny_folder, "sd15")
        site = "unet.down_blocks.0.attentions.0.transformer_blocks.0"
        block = model.module("unet", site.removeprefix("unet."))
        old = block.forward
        block.forward = lambda *args, **kwargs: old(*args, **kwargs) * 2
        got = make(model, plan_capture(model, sites=[site]))
        key = Place.parse(f"{site}:image/mean@0")
        plain = expected("sd15").activations[key]
        assert torch.allclose(got.activations[key], 2 * plain, rtol=1e-4, atol=1e-5)


def test_of_a_doubled_batch_the_conditional_half_is_kept(tiny_folder: Folder) -> None:
    """A block that gives the number of its row: of four prompts under guidance rows 4 to 7, as is written down."""
    settings = LoadSettings(pipe_arg=tiny.pipe_args("sd15"), guidance=7.5)
    model = load_model(str(tiny_folder("sd15")), settings)
    plan = plan_capture(model, sites=["unet.mid_block:image"])
    block = model.pipe.unet.mid_block
    old = block.forward

    def numbered(*args: Any, **kwargs: Any) -> torch.Tensor:
        output = old(*args, **kwargs)
        rows = torch.arange(output.shape[0], dtype=output.dtype)
        return rows[:, None, None, None].expand_as(output).contiguous()

    block.forward = numbered
    prompts = ("a red cube", "a blue ball", "a green cone", "a black ring")
    requests = [ImageRequest(f"t{i}", 0, prompt) for i, prompt in enumerate(prompts)]
    (batch,) = generate(model, requests, plan, 4, run_seed=0)
    means = batch.activations[Place.parse("unet.mid_block:image/mean@0")]
    assert means.shape[0] == 4
    assert means[:, 0].tolist() == [4, 5, 6, 7]
    guidance = calibrated(model).denoisers["unet"].guidance
    assert guidance == "one call a step: [unconditional, conditional]"


@pytest.mark.parametrize("scheduler", ["DDIMScheduler", "EulerAncestralDiscreteScheduler"])
@pytest.mark.parametrize("offload", [False, True])
def test_an_image_has_its_own_noise_whatever_its_batch_and_offload(
    tiny_folder: Folder, scheduler: str, offload: bool
) -> None:
    """Starting latents are equal bit for bit; images up to the rounding of kernels on other shapes."""
    settings = LoadSettings(pipe_arg=tiny.pipe_args("sd15"), scheduler=scheduler, guidance=1.0)
    requests = [ImageRequest("task", seed, "a red cube") for seed in range(4)]

    def run(size: int, offloaded: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model = load_model(str(tiny_folder("sd15")), settings)
        if offloaded:
            model.pipe.enable_model_cpu_offload(device="cpu")
        started: list[torch.Tensor] = []
        prepare = model.pipe.prepare_latents
        model.pipe.prepare_latents = lambda *args: started.append(prepare(*args)) or started[-1]
        images = [
            torch.tensor(list(image.tobytes()), dtype=torch.int16)
            for batch in generate(model, requests, None, size, run_seed=0)
            for image in batch.images
        ]
        return torch.cat(started), images

    latents, images = run(4, False)
    other_latents, other_images = run(1, offload)
    assert torch.equal(latents, other_latents)
    assert len({tuple(image.tolist()) for image in images}) == 4
    for one, other in zip(images, other_images, strict=True):
        assert (one - other).abs().max() <= 1


def test_the_same_layer_is_found_in_both_layouts_of_clip() -> None:
    """transformers dropped the level `text_model` from one class and kept it in the other."""
    from pipelines import parts

    for encoder in (parts.clip_text(), parts.clip_text(32)):
        layers = [find_module(encoder, f"{level}encoder.layers.1") for level in ("", "text_model.")]
        assert layers[0] is layers[1]
        assert type(layers[0]).__name__ == "CLIPEncoderLayer"
        with pytest.raises(SiteError, match=r"no module 'encoder\.layer\.1'.*layers\.1"):
            find_module(encoder, "encoder.layer.1")
