"""One .safetensors file with the configuration from disk: the same model bit for bit, or one line that says why not."""

import json
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import original_layout as original
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from t2iprobe.activations.generate import ImageRequest, generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.cli.main import main
from t2iprobe.errors import ModelError
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.single_file import header, parts_in

Folder = Callable[[str], Path]
Load = Callable[[str], Any]

REQUESTS = [
    ImageRequest("one", 0, "a red circle left of a blue square"),
    ImageRequest("two", 0, "an orange star above a black triangle"),
]
WHOLE = ("sd15", "sdxl_widths", "sd3_widths")


@pytest.fixture
def narrow_flux(monkeypatch: pytest.MonkeyPatch) -> None:
    """diffusers splits FLUX's joined matrices at the width of the real one; here the same code, for the tiny width."""
    from diffusers.loaders import single_file_model as loader

    entry = loader.SINGLE_FILE_LOADABLE_CLASSES["FluxTransformer2DModel"]
    real = entry["checkpoint_mapping_fn"]
    constants = tuple(32 if value == 3072 else value for value in real.__code__.co_consts)
    code = real.__code__.replace(co_consts=constants)
    narrow = types.FunctionType(code, real.__globals__, closure=real.__closure__)
    monkeypatch.setitem(entry, "checkpoint_mapping_fn", narrow)


def without_weights(folder: Path, target: Path, parts: tuple[str, ...] = ()) -> Path:
    """A copy of a pipeline folder without the weights of some components; of none named without any."""

    def weights(at: str, names: list[str]) -> list[str]:
        own = not parts or Path(at).name in parts
        return [name for name in names if name.endswith(".safetensors") and own]

    return Path(shutil.copytree(folder, target, ignore=weights))


def from_file(folder: Path, file: Path, family: str, **settings: Any) -> Any:
    given = LoadSettings(single_file=file, pipe_arg=tiny.pipe_args(family), **settings)
    return load_model(str(folder), given)


def pictures(model: Any) -> list[bytes]:
    (batch,) = generate(model, REQUESTS, None, 2, 0)
    return [image.tobytes() for image in batch.images]


def differing(one: Any, other: Any) -> list[str]:
    """Weights of two models that are not equal bit for bit."""
    assert list(one.modules) == list(other.modules)
    wrong = []
    for name, module in one.modules.items():
        states = module.state_dict(), other.modules[name].state_dict()
        assert list(states[0]) == list(states[1])
        wrong += [f"{name}.{k}" for k, v in states[0].items() if not torch.equal(v, states[1][k])]
    return wrong


@pytest.mark.parametrize("family", WHOLE)
def test_a_whole_checkpoint_in_the_original_layout(
    tiny_folder: Folder, tiny_model: Load, tmp_path: Path, family: str
) -> None:
    source = tiny_model(family)
    file = original.write(original.whole(family, source.pipe), tmp_path / "whole.safetensors")
    assert not set(header(file)) & set(source.pipe.vae.state_dict())  # another layout indeed
    bare = without_weights(tiny_folder(family), tmp_path / "bare")
    model = from_file(bare, file, family)
    assert differing(source, model) == []
    assert pictures(model) == pictures(source)


def test_flux_with_the_rest_from_the_folder(
    tiny_folder: Folder, tiny_model: Load, tmp_path: Path, narrow_flux: None
) -> None:
    """FLUX files hold the transformer alone; encoders and codec come from the folder."""
    source = tiny_model("flux")
    file = original.write(original.whole("flux", source.pipe), tmp_path / "flux.safetensors")
    assert "double_blocks.0.img_attn.qkv.weight" in header(file)
    folder = without_weights(tiny_folder("flux"), tmp_path / "rest", ("transformer",))
    model = from_file(folder, file, "flux")
    assert differing(source, model) == []
    assert pictures(model) == pictures(source)


@pytest.mark.parametrize(
    ("family", "part"),
    [
        ("flux", "transformer"),
        ("sd3", "transformer"),
        ("pixart_sigma", "transformer"),
        ("sd15", "unet"),
    ],
)
def test_a_denoiser_in_the_layout_of_diffusers(
    tiny_folder: Folder, tiny_model: Load, tmp_path: Path, family: str, part: str
) -> None:
    source = tiny_model(family)
    trained = load_file(tiny_folder(family) / part / "diffusion_pytorch_model.safetensors")
    file = original.write({k: v * 1.25 for k, v in trained.items()}, tmp_path / "mine.safetensors")
    model = from_file(tiny_folder(family), file, family)
    wrong = differing(source, model)
    assert wrong and all(name.startswith(f"{part}.") for name in wrong)
    state = model.modules[part].state_dict()
    assert all(torch.equal(state[key], value * 1.25) for key, value in trained.items())
    assert pictures(model) != pictures(source)


def test_the_file_is_captured_soundly_and_remembered(
    tiny_folder: Folder, tiny_model: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny_model("sd15")
    file = original.write(original.whole("sd15", source.pipe), tmp_path / "sd.safetensors")
    bare = without_weights(tiny_folder("sd15"), tmp_path / "bare")
    call = [f"--pipe-arg={text}" for text in tiny.pipe_args("sd15")]
    assert main(["doctor", str(bare), "--single-file", str(file), *call]) == 0
    assert "FAIL" not in capsys.readouterr().out
    model = from_file(bare, file, "sd15")
    (got,) = generate(model, REQUESTS, plan_capture(model, sites="all"), 2, 0)
    (expected,) = generate(source, REQUESTS, plan_capture(source, sites="all"), 2, 0)
    assert list(got.activations) == list(expected.activations)
    for key, values in expected.activations.items():
        assert torch.equal(values.nan_to_num(), got.activations[key].nan_to_num()), key
    assert model.provenance["single_file"] == str(file)
    other = original.write(original.unet(source.pipe.unet), tmp_path / "other.safetensors")
    assert from_file(tiny_folder("sd15"), other, "sd15").provenance["weights"] not in (
        model.provenance["weights"],
        source.provenance["weights"],
    )


def test_the_number_format_is_that_asked_for(
    tiny_folder: Folder, tiny_model: Load, tmp_path: Path
) -> None:
    pipe = tiny_model("sd15").pipe
    file = original.write(original.whole("sd15", pipe), tmp_path / "sd.safetensors")
    bare = without_weights(tiny_folder("sd15"), tmp_path / "bare")
    model = from_file(bare, file, "sd15", dtype="bf16")
    kinds = {weight.dtype for part in model.modules.values() for weight in part.parameters()}
    assert kinds == {torch.bfloat16}


class TestAFileAsTheModel:
    def test_inside_a_pipeline_folder_it_needs_nothing_more(
        self, tiny_folder: Folder, tiny_model: Load, tmp_path: Path
    ) -> None:
        source = tiny_model("sd15")
        folder = without_weights(tiny_folder("sd15"), tmp_path / "repository")
        file = original.write(original.whole("sd15", source.pipe), folder / "sd-v1.safetensors")
        model = load_model(str(file), LoadSettings(pipe_arg=tiny.pipe_args("sd15")))
        assert differing(source, model) == []

    def test_alone_it_says_what_is_needed(self, tmp_path: Path) -> None:
        file = original.write({"some.weight": torch.ones(2)}, tmp_path / "alone.safetensors")
        with pytest.raises(ModelError, match=r"holds weights and no configuration.*--single-file"):
            load_model(str(file))

    @pytest.mark.parametrize(
        ("key", "repository"),
        [
            (
                "conditioner.embedders.1.model.transformer.resblocks.9.mlp.c_proj.bias",
                "stabilityai/stable-diffusion-xl-base-1.0",
            ),
            ("double_blocks.0.img_attn.norm.key_norm.scale", "black-forest-labs/FLUX.1-schnell"),
        ],
    )
    def test_a_known_layout_names_its_repository(
        self, tmp_path: Path, key: str, repository: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = original.write({key: torch.ones(2)}, tmp_path / "alone.safetensors")
        assert main(["doctor", str(file)]) == 2
        text = capsys.readouterr().err
        assert f"looks like {repository}: it holds weights" in text
        assert f"--model {repository}" in text


class TestRefusals:
    def refusal(self, folder: Path, file: Path, family: str = "sd15") -> str:
        with pytest.raises(ModelError) as caught:
            from_file(folder, file, family)
        text = str(caught.value)
        assert "\n" not in text
        assert str(file) in text
        return text

    def test_files_that_cannot_be_read(self, tiny_folder: Folder, tmp_path: Path) -> None:
        folder = tiny_folder("sd15")
        assert "does not exist" in self.refusal(folder, tmp_path / "none.safetensors")
        pickled = tmp_path / "old.ckpt"
        pickled.write_bytes(b"\x80\x02}q\x00.")
        assert "no .safetensors file" in self.refusal(folder, pickled)
        text = tmp_path / "page.safetensors"
        text.write_text("<html>404: Not Found</html>" * 10)
        assert "cannot be read as safetensors" in self.refusal(folder, text)
        text.write_bytes(b"")
        assert "cannot be read as safetensors" in self.refusal(folder, text)
        save_file({}, text)
        assert "holds no weights" in self.refusal(folder, text)

    @pytest.mark.parametrize("share", [0.999, 0.5, 0.001])
    def test_a_file_that_is_cut_off(
        self, tiny_folder: Folder, tmp_path: Path, share: float
    ) -> None:
        whole = tiny_folder("sd15") / "unet" / "diffusion_pytorch_model.safetensors"
        data = whole.read_bytes()
        file = tmp_path / "half.safetensors"
        file.write_bytes(data[: int(len(data) * share)])
        assert "cannot be read as safetensors" in self.refusal(tiny_folder("sd15"), file)

    def test_a_file_of_another_family(
        self, tiny_folder: Folder, tiny_model: Load, tmp_path: Path
    ) -> None:
        xl = original.whole("sdxl_widths", tiny_model("sdxl_widths").pipe)
        file = original.write(xl, tmp_path / "xl.safetensors")
        for family in ("sd15", "sd3", "flux"):
            text = self.refusal(tiny_folder(family), file, family)
            assert f"does not fit the {'unet' if family == 'sd15' else 'transformer'} of" in text

    def test_a_file_with_more_or_fewer_blocks(
        self, tiny_folder: Folder, tiny_model: Load, tmp_path: Path
    ) -> None:
        """diffusers would leave the surplus out with a warning, and weights that lack without a value."""
        state = original.whole("sd3_widths", tiny_model("sd3_widths").pipe)
        file = original.write(state, tmp_path / "sd3.safetensors")
        for layers, expected in ((2, "holds weights beyond it"), (4, "are not in the file")):
            folder = without_weights(tiny_folder("sd3_widths"), tmp_path / f"of-{layers}")
            config = folder / "transformer" / "config.json"
            config.write_text(json.dumps(json.loads(config.read_text()) | {"num_layers": layers}))
            text = self.refusal(folder, file, "sd3_widths")
            assert expected in text or "norm1_context" in text  # the last block of SD3 is another

    def test_quantised_weights_with_scales_beside_them(
        self, tiny_folder: Folder, tiny_model: Load, tmp_path: Path
    ) -> None:
        state = original.flux(tiny_model("flux").pipe.transformer)
        state["double_blocks.0.img_attn.qkv.scale_weight"] = torch.tensor(0.5)
        file = original.write(state, tmp_path / "fp8.safetensors")
        assert "quantised weights with scales" in self.refusal(tiny_folder("flux"), file, "flux")

    def test_parts_that_neither_has(
        self, tiny_folder: Folder, tiny_model: Load, tmp_path: Path
    ) -> None:
        file = original.write(
            original.unet(tiny_model("sd15").pipe.unet), tmp_path / "unet.safetensors"
        )
        bare = without_weights(tiny_folder("sd15"), tmp_path / "bare")
        assert "has weights of text_encoder, vae" in self.refusal(bare, file)

    def test_a_safety_checker_that_neither_has_is_left_out(
        self, tiny_folder: Folder, tiny_model: Load, tmp_path: Path
    ) -> None:
        pipe = tiny_model("sd15_safety").pipe
        file = original.write(original.whole("sd15", pipe), tmp_path / "sd.safetensors")
        bare = without_weights(tiny_folder("sd15_safety"), tmp_path / "bare")
        assert from_file(bare, file, "sd15_safety").pipe.safety_checker is None

    def test_pipelines_without_a_denoiser_to_put_it_in(
        self, tiny_folder: Folder, tmp_path: Path
    ) -> None:
        folder = without_weights(tiny_folder("sd15"), tmp_path / "strange")
        index = json.loads((folder / "model_index.json").read_text()) | {
            "unet": ["my_code", "MyNet"]
        }
        (folder / "model_index.json").write_text(json.dumps(index))
        file = original.write({"some.weight": torch.ones(2)}, tmp_path / "some.safetensors")
        with pytest.raises(ModelError, match="cannot be loaded from a single file"):
            from_file(folder, file, "sd15")


def test_what_a_file_holds(tiny_folder: Folder, tiny_model: Load, tmp_path: Path) -> None:
    index = json.loads((tiny_folder("sd3_widths") / "model_index.json").read_text())
    state = original.whole("sd3_widths", tiny_model("sd3_widths").pipe)
    without_t5 = {key: value for key, value in state.items() if "t5xxl" not in key}
    whole = original.write(state, tmp_path / "whole.safetensors")
    some = original.write(without_t5, tmp_path / "some.safetensors")
    encoders = {"text_encoder", "text_encoder_2"}
    assert set(parts_in(whole, index)) == {"transformer", "vae", "text_encoder_3", *encoders}
    assert set(parts_in(some, index)) == {"transformer", "vae", *encoders}
