"""Components whose weights are in eight or four bits: another model, read as it is, or a refusal."""

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
from wrapped import (
    REQUESTS,
    Folder,
    assert_capture_changes_nothing,
    assert_same,
    fresh,
    make,
    pixels,
    plain,
    replace,
)

from t2iprobe.activations.generate import GeneratedBatch, generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.cli.main import main
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings
from t2iprobe.places import Place


@pytest.fixture(scope="module")
def expected(tiny_folder: Folder) -> Callable[[str], GeneratedBatch]:
    """What a plain model gives at every site."""
    return plain(tiny_folder)


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
    got = batch.activations[Place.parse(f"{component}.{block}:text/mean")][0]
    assert torch.allclose(got, states[0, :real].float().mean(0), atol=1e-5)


def wide_t5() -> Any:
    """A T5 whose layers are as wide as a block of weights that bitsandbytes packs."""
    from pipelines import parts
    from pipelines import tokenizers as tok
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
    parts.wake(encoder)
    return encoder


def wide_dit() -> Any:
    """A transformer of Stable Diffusion 3, as wide."""
    from diffusers import SD3Transformer2DModel
    from pipelines import parts

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
    parts.wake(transformer)
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
