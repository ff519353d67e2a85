"""Components that are offloaded, placed, compiled, replicated, cached or quantised: the same numbers, or a refusal."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import truths
from torch import nn

from t2iprobe.capture import find_module
from t2iprobe.cli import main
from t2iprobe.errors import ConfigError, SiteError
from t2iprobe.models.checkpoint.loading import load_model
from t2iprobe.models.generation.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.models.generation.plan import CapturePlan, calibrated, plan_capture
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.sites import denoiser_blocks

Folder = Callable[[str], Path]
Load = Callable[[str], Any]

CPU = torch.device("cpu")
FAMILIES = ("sd15", "flux", "sd3")
REQUESTS = [
    ImageRequest("one", 0, "a red circle left of a blue square", {"color1": (2, 5)}),
    ImageRequest("two", 0, "an orange star above a black triangle", {"color1": (3, 9)}),
]


def fresh(folder: Folder, family: str) -> Any:
    return load_model(str(folder(family)), LoadSettings(pipe_arg=tiny.pipe_args(family)))


def replace(model: Any, component: str, part: nn.Module) -> None:
    """Put another module in a component's place, as a user does who holds the pipeline."""
    setattr(model.pipe, component, part)
    for name in ("modules", "encoders", "denoisers"):
        model.__dict__.pop(name, None)


def make(model: Any, plan: CapturePlan | None) -> GeneratedBatch:
    (batch,) = generate(model, REQUESTS, plan, 2, run_seed=0)
    return batch


def pixels(batch: GeneratedBatch) -> list[bytes]:
    return [image.tobytes() for image in batch.images]


@pytest.fixture(scope="module")
def expected(tiny_folder: Folder) -> Callable[[str], GeneratedBatch]:
    """What a plain model gives at every site."""
    known: dict[str, GeneratedBatch] = {}

    def batch(family: str) -> GeneratedBatch:
        if family not in known:
            model = fresh(tiny_folder, family)
            known[family] = make(model, plan_capture(model, sites="all"))
        return known[family]

    return batch


def assert_same(got: GeneratedBatch, expected: GeneratedBatch) -> None:
    assert list(got.activations) == list(expected.activations)
    for key, values in expected.activations.items():
        assert torch.equal(values.nan_to_num(), got.activations[key].nan_to_num()), key
    assert pixels(got) == pixels(expected)


def assert_capture_changes_nothing(model: Any) -> GeneratedBatch:
    captured = make(model, plan_capture(model, sites="all"))
    assert pixels(captured) == pixels(make(model, None))
    return captured


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
        lost = {key.split(":")[0] for key in set(whole.activations) - set(got.activations)}
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
        key = f"{site}:image/mean@0"
        plain = expected("sd15").activations[key]
        assert torch.allclose(got.activations[key], 2 * plain, rtol=1e-4, atol=1e-5)


def assert_read_as_it_is(model: Any, family: str) -> GeneratedBatch:
    """Capture changes no bit of the images, and gives what a direct forward of the same changed modules gives."""
    got = assert_capture_changes_nothing(model)
    captured, direct = truths.compared(model, truths.TRUTHS[family])
    assert torch.allclose(captured, direct, atol=1e-5)
    assert not torch.allclose(captured[0], captured[1], atol=1e-3)
    return got


def assert_text_read_as_it_is(model: Any, component: str, block: str) -> None:
    """Of one prompt, at a block of a text encoder: the mean over its words, from a direct forward."""
    encoder = model.encoders[component]
    tokens: list[torch.Tensor] = []
    outputs: list[Any] = []
    plan = plan_capture(model, sites=[f"{component}.{block}"])
    seen = encoder.register_forward_pre_hook(lambda _m, args: tokens.append(args[0].clone()))
    (batch,) = generate(model, REQUESTS[:1], plan, 1, run_seed=0)
    seen.remove()
    inner = encoder.get_submodule(block).register_forward_hook(
        lambda _m, _a, output: outputs.append(output)
    )
    with torch.no_grad():
        encoder(tokens[0])
    inner.remove()
    states = outputs[0] if isinstance(outputs[0], torch.Tensor) else outputs[0][0]
    real = len(model.tokenizer(component)(REQUESTS[0].prompt).input_ids) - 1  # without the end
    got = batch.activations[f"{component}.{block}:text/mean"][0]
    assert torch.allclose(got, states[0, :real].float().mean(0), atol=1e-5)


def wide_t5() -> Any:
    """A T5 whose layers are as wide as a block of weights that bitsandbytes packs."""
    import tiny_parts
    import tiny_tokenizers as tok
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    encoder = T5EncoderModel(
        T5Config(
            vocab_size=tok.t5_size() + 8,
            d_model=64,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            feed_forward_proj="gated-gelu",
            dropout_rate=0.0,
            is_encoder_decoder=False,
            use_cache=False,
        )
    )
    tiny_parts.wake(encoder)
    return encoder


def wide_dit() -> Any:
    """A transformer of Stable Diffusion 3, as wide."""
    import tiny_parts
    from diffusers import SD3Transformer2DModel

    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=32,
        patch_size=2,
        in_channels=8,
        out_channels=8,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=64,
        caption_projection_dim=64,
        pooled_projection_dim=64,
        pos_embed_max_size=64,
    )
    tiny_parts.wake(transformer)
    return transformer.eval()


def layers(part: nn.Module) -> set[str]:
    return {type(module).__name__ for module in part.modules()}


class TestQuantised:
    """Weights in eight or four bits: another model, read as it is."""

    def test_libraries_that_are_merely_installed_print_nothing(self) -> None:
        """diffusers imports both where it finds them, and both have something to say."""
        for library in ("torchao", "bitsandbytes"):
            pytest.importorskip(library)
        ended = subprocess.run(
            [sys.executable, "-m", "t2iprobe", "inspect", "shapes-mmdit"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ended.stderr == ""

    @pytest.fixture(scope="class")
    def wide(self, tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A Stable Diffusion 3 with a wider T5 and transformer."""
        folder = tmp_path_factory.mktemp("wide") / "sd3"
        shutil.copytree(tiny_folder("sd3"), folder)
        for name, part in (("text_encoder_3", wide_t5()), ("transformer", wide_dit())):
            shutil.rmtree(folder / name)
            part.save_pretrained(folder / name)
        return folder

    def load(self, folder: Path) -> Any:
        return load_model(str(folder), LoadSettings(pipe_arg=tiny.pipe_args("sd3")))

    def test_weights_stored_in_eight_bits(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch]
    ) -> None:
        model = fresh(tiny_folder, "flux")
        model.pipe.transformer.enable_layerwise_casting(
            storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.float32
        )
        got = assert_read_as_it_is(model, "flux")
        assert list(got.activations) == list(expected("flux").activations)
        assert pixels(got) != pixels(expected("flux"))

    @pytest.mark.parametrize("weights", ["int8", "int4", "float8"])
    def test_quanto(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch], weights: str
    ) -> None:
        quanto = pytest.importorskip("optimum.quanto")
        model = fresh(tiny_folder, "flux")
        for part in (model.pipe.transformer, model.pipe.text_encoder_2):
            quanto.quantize(part, weights=getattr(quanto, f"q{weights}"))
            quanto.freeze(part)
            assert "QLinear" in layers(part)
        got = assert_read_as_it_is(model, "flux")
        assert_text_read_as_it_is(model, "text_encoder_2", "encoder.block.1")
        assert list(got.activations) == list(expected("flux").activations)
        assert pixels(got) != pixels(expected("flux"))

    @pytest.mark.parametrize("weights", ["int8", "int4", "float8"])
    def test_torchao(
        self, tiny_folder: Folder, expected: Callable[[str], GeneratedBatch], weights: str
    ) -> None:
        quantization = pytest.importorskip("torchao.quantization")
        model = fresh(tiny_folder, "sd3")
        quantization.quantize_(model.pipe.transformer, torchao_config(weights))
        stored = model.pipe.transformer.transformer_blocks[0].attn.to_q.weight
        assert type(stored).__module__.startswith("torchao.")
        got = assert_read_as_it_is(model, "sd3")
        assert list(got.activations) == list(expected("sd3").activations)
        assert pixels(got) != pixels(expected("sd3"))

    @pytest.mark.parametrize(
        ("bits", "kind", "options"),
        [
            (8, "Linear8bitLt", {}),
            (4, "Linear4bit", {"bnb_4bit_quant_type": "nf4"}),
            (4, "Linear4bit", {"bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": True}),
        ],
        ids=["int8", "nf4", "fp4-double"],
    )
    def test_bitsandbytes_in_a_text_encoder(
        self, wide: Path, tmp_path: Path, bits: int, kind: str, options: dict[str, Any]
    ) -> None:
        """As transformers loads it, and from a folder whose config says so: the same numbers."""
        pytest.importorskip("bitsandbytes")
        from transformers import BitsAndBytesConfig, T5EncoderModel

        config = BitsAndBytesConfig(**{f"load_in_{bits}bit": True, **options})
        part = "text_encoder_3"
        quantised = T5EncoderModel.from_pretrained(wide, subfolder=part, quantization_config=config)
        folder = with_part(wide, tmp_path, part, quantised)
        model = self.load(wide)
        plain = make(model, None)
        replace(model, part, quantised)
        assert kind in layers(model.encoders[part])
        got = assert_read_as_it_is(model, "sd3")
        assert pixels(got) != pixels(plain)
        assert_text_read_as_it_is(model, part, "encoder.block.1")
        saved = self.load(folder)
        assert kind in layers(saved.encoders[part])
        assert saved.provenance["quantised"] == {part: "bitsandbytes"}
        assert_same(assert_capture_changes_nothing(saved), got)

    @pytest.mark.parametrize("bits", [8, 4])
    def test_bitsandbytes_in_a_transformer(self, wide: Path, bits: int) -> None:
        """diffusers loads them on GPUs only; its layers run on the CPU too."""
        bnb = pytest.importorskip("bitsandbytes")
        model = self.load(wide)
        plain = make(model, None)
        for parent in list(model.pipe.transformer.modules()):
            for name, layer in list(parent.named_children()):
                if type(layer) is nn.Linear and layer.in_features % 64 == 0:
                    size = (layer.in_features, layer.out_features, layer.bias is not None)
                    new = (
                        bnb.nn.Linear8bitLt(*size, has_fp16_weights=False)
                        if bits == 8
                        else bnb.nn.Linear4bit(*size, quant_type="nf4")
                    )
                    new.load_state_dict(layer.state_dict())
                    setattr(parent, name, new.to("cpu").eval())
        weight = model.pipe.transformer.transformer_blocks[0].attn.to_q.weight
        assert weight.dtype == (torch.int8 if bits == 8 else torch.uint8)
        got = assert_read_as_it_is(model, "sd3")
        assert pixels(got) != pixels(plain)

    @pytest.mark.parametrize(
        ("part", "method", "weights"),
        [
            ("transformer", "torchao", "int8"),
            ("transformer", "torchao", "int4"),
            ("text_encoder_3", "torchao", "int8"),
            ("transformer", "quanto", "int8"),
        ],
    )
    def test_a_folder_whose_config_says_how_it_is_quantised(
        self,
        wide: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        part: str,
        method: str,
        weights: str,
    ) -> None:
        pytest.importorskip({"torchao": "torchao", "quanto": "optimum.quanto"}[method])
        import diffusers
        import transformers

        library = transformers if part == "text_encoder_3" else diffusers
        config = (
            library.TorchAoConfig(torchao_config(weights))
            if method == "torchao"
            else diffusers.QuantoConfig(weights_dtype=weights)
        )
        kind = {"text_encoder_3": "T5EncoderModel", "transformer": "SD3Transformer2DModel"}[part]
        quantised = getattr(library, kind).from_pretrained(
            wide, subfolder=part, quantization_config=config, torch_dtype=torch.float32
        )
        folder = with_part(wide, tmp_path, part, quantised)
        model = self.load(folder)
        assert model.provenance["quantised"] == {part: method}
        got = assert_read_as_it_is(model, "sd3")
        assert pixels(got) != pixels(make(self.load(wide), None))
        capsys.readouterr()
        reports = []
        for place in (wide, folder):
            arguments = [f"--pipe-arg={text}" for text in tiny.pipe_args("sd3")]
            assert main(["inspect", str(place), "--json", *arguments]) == 0
            reports.append(json.loads(capsys.readouterr().out))
        for key in ("sites", "denoisers", "encoders"):
            assert reports[0][key] == reports[1][key]


def torchao_config(weights: str) -> Any:
    """Weights alone in eight or four bits, as torchao can do on a CPU."""
    from torchao import quantization

    return {
        "int8": quantization.Int8WeightOnlyConfig,
        "int4": lambda: quantization.IntxWeightOnlyConfig(torch.int4),
        "float8": quantization.Float8WeightOnlyConfig,
    }[weights]()


def with_part(folder: Path, tmp_path: Path, name: str, part: Any) -> Path:
    """A copy of a pipeline folder with another component in one place."""
    copy = Path(shutil.copytree(folder, tmp_path / "quantised"))
    shutil.rmtree(copy / name)
    part.save_pretrained(copy / name)
    return copy


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
    means = batch.activations["unet.mid_block:image/mean@0"]
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
    import tiny_parts

    for encoder in (tiny_parts.clip_text(), tiny_parts.clip_text(32)):
        layers = [find_module(encoder, f"{level}encoder.layers.1") for level in ("", "text_model.")]
        assert layers[0] is layers[1]
        assert type(layers[0]).__name__ == "CLIPEncoderLayer"
        with pytest.raises(SiteError, match=r"no module 'encoder\.layer\.1'.*layers\.1"):
            find_module(encoder, "encoder.layer.1")
