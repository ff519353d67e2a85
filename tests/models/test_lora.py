"""LoRA files on real pipelines: their effect is that of the adapted model itself; what does not fit is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import forget_calibration, plan_capture
from t2iprobe.cli.main import main
from t2iprobe.errors import MissingExtra, ModelError
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings

Folder = Callable[[str], Path]

REQUESTS = [
    ImageRequest("one", 0, "a red circle left of a blue square", {"color1": (2, 5)}),
    ImageRequest("two", 0, "an orange star above a black triangle", {"color1": (3, 9)}),
]
pytest.importorskip("peft")

DENOISERS = {"sd15": "unet", "sdxl": "unet", "sd3": "transformer", "flux": "transformer"}


def load(folder: Folder, family: str, lora: Path | None = None, **settings: Any) -> Any:
    given = LoadSettings(pipe_arg=tiny.pipe_args(family), lora=lora, **settings)
    return load_model(str(folder(family)), given)


def captured(model: Any) -> GeneratedBatch:
    (batch,) = generate(model, REQUESTS, plan_capture(model, sites="all"), 2, run_seed=0)
    return batch


def pixels(batch: GeneratedBatch) -> list[bytes]:
    return [image.tobytes() for image in batch.images]


def random_lora(
    module: nn.Module, names: tuple[str, ...], seed: int, rank: int = 2
) -> dict[str, Tensor]:
    """Matrices for every linear layer whose path ends in one of the names: `path.lora_A.weight` and `..lora_B..`."""
    generator = torch.Generator().manual_seed(seed)
    state: dict[str, Tensor] = {}
    for path, layer in module.named_modules():
        if isinstance(layer, nn.Linear) and path.endswith(names):
            down = torch.randn(rank, layer.in_features, generator=generator) * 0.3
            state[f"{path}.lora_A.weight"] = down
            state[f"{path}.lora_B.weight"] = (
                torch.randn(layer.out_features, rank, generator=generator) * 0.3
            )
    assert state
    return state


def add_by_hand(module: nn.Module, lora: dict[str, Tensor]) -> None:
    """The weights that a LoRA stands for: W + B A."""
    with torch.no_grad():
        for key, down in lora.items():
            if key.endswith("lora_A.weight"):
                up = lora[key.replace("lora_A", "lora_B")]
                module.get_submodule(key.removesuffix(".lora_A.weight")).weight.add_(up @ down)


def state_for(model: Any, family: str, encoders: tuple[str, ...] = ()) -> dict[str, Tensor]:
    part = DENOISERS[family]
    state = {
        f"{part}.{key}": value
        for key, value in random_lora(model.modules[part], ("to_q", "to_v"), 1).items()
    }
    for name in encoders:
        own = random_lora(model.modules[name], ("q_proj", "v_proj"), 2)
        state |= {f"{name}.{key}": value for key, value in own.items()}
    return state


def write(state: dict[str, Tensor], file: Path) -> Path:
    save_file(state, file)
    return file


@pytest.mark.parametrize(
    ("family", "encoders"),
    [
        ("sd15", ()),
        ("sd15", ("text_encoder",)),
        ("sdxl", ("text_encoder", "text_encoder_2")),
        ("sd3", ("text_encoder",)),
        ("flux", ("text_encoder",)),
    ],
)
def test_captures_are_those_of_the_adapted_weights(
    tiny_folder: Folder, tmp_path: Path, family: str, encoders: tuple[str, ...]
) -> None:
    model = load(tiny_folder, family)
    plain = captured(model)
    state = state_for(model, family, encoders)
    for name in (DENOISERS[family], *encoders):
        own = {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")}
        add_by_hand(model.modules[name], own)
    forget_calibration(model)  # it was made with the weights as they were
    expected = captured(model)
    got = captured(load(tiny_folder, family, write(state, tmp_path / "style.safetensors")))
    assert list(got.activations) == list(expected.activations) == list(plain.activations)
    for key, values in expected.activations.items():
        scale = float(values.nan_to_num().abs().max()) + 1e-6
        assert torch.allclose(values, got.activations[key], atol=1e-3 * scale, equal_nan=True), key
    moved = [k for k, v in plain.activations.items() if not torch.allclose(v, got.activations[k])]
    in_text = [key for key in moved if key.site.component.startswith("text_encoder")]
    assert len(moved) > len(plain.activations) / 3
    assert bool(in_text) == bool(encoders)
    assert pixels(got) != pixels(plain)


def test_a_file_as_the_training_scripts_write_it(tiny_folder: Folder, tmp_path: Path) -> None:
    """peft's own adapters, saved by the pipeline's own method: bit for bit the model they were saved from."""
    from peft import LoraConfig, get_peft_model_state_dict

    trained = load(tiny_folder, "flux")
    transformer = trained.pipe.transformer
    config = LoraConfig(r=2, lora_alpha=8, target_modules=["to_q", "to_k"], init_lora_weights=False)
    transformer.add_adapter(config)
    type(trained.pipe).save_lora_weights(
        tmp_path,
        transformer_lora_layers=get_peft_model_state_dict(transformer),
        transformer_lora_adapter_metadata=transformer.peft_config["default"].to_dict(),
    )
    expected = captured(trained)
    got = captured(load(tiny_folder, "flux", tmp_path))
    assert pixels(got) == pixels(expected)
    assert all(torch.equal(v, got.activations[k]) for k, v in expected.activations.items())


def test_doctor_passes_and_the_run_remembers_it(
    tiny_folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(tiny_folder, "sd15")
    file = write(state_for(model, "sd15"), tmp_path / "style.safetensors")
    call = [f"--pipe-arg={text}" for text in tiny.pipe_args("sd15")]
    assert main(["doctor", str(tiny_folder("sd15")), "--lora", str(file), *call]) == 0
    assert "FAIL" not in capsys.readouterr().out
    adapted = load(tiny_folder, "sd15", file)
    assert adapted.provenance["lora"] == str(file)
    assert adapted.provenance["weights"] != model.provenance["weights"]


def test_in_half_precision_too(tiny_folder: Folder, tmp_path: Path) -> None:
    model = load(tiny_folder, "sd15")
    file = write(state_for(model, "sd15"), tmp_path / "style.safetensors")
    adapted = load(tiny_folder, "sd15", file, dtype="bf16")
    assert {p.dtype for p in adapted.modules["unet"].parameters()} == {torch.bfloat16}
    assert captured(adapted).invalid == [None, None]


class TestRefusals:
    def refusal(self, folder: Folder, file: Path, family: str = "sd15") -> str:
        with pytest.raises(ModelError) as caught:
            load(folder, family, file)
        text = str(caught.value)
        assert "\n" not in text
        assert str(file) in text
        return text

    @pytest.fixture
    def state(self, tiny_folder: Folder) -> dict[str, Tensor]:
        return state_for(load(tiny_folder, "sd15"), "sd15", ("text_encoder",))

    def test_nothing_matches(
        self, tiny_folder: Folder, tmp_path: Path, state: dict[str, Tensor]
    ) -> None:
        """diffusers says no more than "No LoRA keys associated to UNet2DConditionModel found"."""
        other = {f"prior.{key.removeprefix('unet.')}": value for key, value in state.items()}
        file = write(other, tmp_path / "other.safetensors")
        assert "no module of it matches prior." in self.refusal(tiny_folder, file)

    def test_the_denoiser_is_of_another_family(
        self, tiny_folder: Folder, tmp_path: Path, state: dict[str, Tensor]
    ) -> None:
        """Text encoder layers that fit must not hide that all others do not."""
        file = write(state, tmp_path / "sd15.safetensors")
        for family in ("flux", "sd3"):
            assert "does not fit" in self.refusal(tiny_folder, file, family)
        flux = state_for(load(tiny_folder, "flux"), "flux", ("text_encoder",))
        file = write(flux, tmp_path / "flux.safetensors")
        assert "no module of it matches transformer." in self.refusal(tiny_folder, file)

    def test_some_layers_have_no_place(
        self, tiny_folder: Folder, tmp_path: Path, state: dict[str, Tensor]
    ) -> None:
        deeper = {key.replace("down_blocks.0", "down_blocks.7"): v for key, v in state.items()}
        file = write(deeper, tmp_path / "deeper.safetensors")
        text = self.refusal(tiny_folder, file)
        assert "layers that the model has not, such as down_blocks.7" in text

    def test_layers_of_another_width(
        self, tiny_folder: Folder, tmp_path: Path, state: dict[str, Tensor]
    ) -> None:
        wider = {k: torch.cat([v, v], 1) if "lora_A" in k else v for k, v in state.items()}
        file = write(wider, tmp_path / "wider.safetensors")
        assert "size mismatch for" in self.refusal(tiny_folder, file)

    def test_no_lora_at_all(self, tiny_folder: Folder, tmp_path: Path) -> None:
        weights = tiny_folder("sd15") / "unet" / "diffusion_pytorch_model.safetensors"
        file = Path(shutil.copy(weights, tmp_path / "unet.safetensors"))
        assert "does not fit StableDiffusionPipeline" in self.refusal(tiny_folder, file)
        assert "does not exist" in self.refusal(tiny_folder, tmp_path / "none.safetensors")
        file.write_bytes(file.read_bytes()[:1000])
        assert "cannot be read as safetensors" in self.refusal(tiny_folder, file)

    def test_a_folder_with_several(self, tiny_folder: Folder, tmp_path: Path) -> None:
        assert "name one .safetensors file of this folder: none" in self.refusal(
            tiny_folder, tmp_path
        )
        for name in ("a", "b"):
            write({"x": torch.ones(1)}, tmp_path / f"{name}.safetensors")
        text = self.refusal(tiny_folder, tmp_path)
        assert "name one .safetensors file of this folder: a.safetensors, b.safetensors" in text

    def test_a_pipeline_that_takes_none(self, tiny_folder: Folder, tmp_path: Path) -> None:
        file = write({"x.lora_A.weight": torch.ones(1)}, tmp_path / "x.safetensors")
        with pytest.raises(ModelError, match="takes no LoRA"):
            load(tiny_folder, "kandinsky22", file)


def test_without_peft_the_extra_is_named(
    tiny_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diffusers.loaders import lora_base, lora_pipeline, peft

    for module in (lora_base, lora_pipeline, peft):  # where each version of diffusers asks for it
        monkeypatch.setattr(module, "USE_PEFT_BACKEND", False, raising=False)
    file = write(state_for(load(tiny_folder, "sd15"), "sd15"), tmp_path / "style.safetensors")
    with pytest.raises(MissingExtra, match=r"pip install 't2iprobe\[lora\]'"):
        load(tiny_folder, "sd15", file)


def test_the_file_itself_is_left_as_it_is(tiny_folder: Folder, tmp_path: Path) -> None:
    state = state_for(load(tiny_folder, "sd3"), "sd3")
    file = write(state, tmp_path / "style.safetensors")
    load(tiny_folder, "sd3", file)
    assert all(torch.equal(value, state[key]) for key, value in load_file(file).items())
