"""Loading: what is found, what is refused, in one line each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import diffusers
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from t2iprobe.activations.plan import plan_capture
from t2iprobe.checks.inspect import inspect_configs
from t2iprobe.cli.main import main
from t2iprobe.errors import ConfigError, MissingExtra, ModelError, T2IProbeError
from t2iprobe.models.loading import load_model, pick_device, pick_dtype
from t2iprobe.models.settings import LoadSettings

Folder = Callable[[str], Path]


def message(name: str | Path, kind: type[T2IProbeError], **settings: object) -> str:
    with pytest.raises(kind) as caught:
        model = load_model(str(name), LoadSettings(**settings))  # type: ignore[arg-type]
        plan_capture(model)
    text = str(caught.value)
    assert "\n" not in text
    return text


def damaged(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def test_a_folder_gives_parts_calls_and_provenance(tiny_folder: Folder) -> None:
    settings = LoadSettings(
        steps=3,
        guidance=2.0,
        negative_prompt="bad",
        pipe_arg=("eta=0.5", "clip_skip=1"),
        scheduler="EulerDiscreteScheduler",
    )
    model = load_model(str(tiny_folder("sd15")), settings)
    assert model.class_name == "StableDiffusionPipeline"
    assert list(model.encoders) == ["text_encoder"]
    assert list(model.denoisers) == ["unet"]
    assert model.call == {
        "num_inference_steps": 3,
        "guidance_scale": 2.0,
        "negative_prompt": "bad",
        "eta": 0.5,
        "clip_skip": 1,
    }
    assert model.provenance["schedulers"]["scheduler"]["class"] == "EulerDiscreteScheduler"
    assert model.provenance["dtype"] == "float32"
    assert len(model.provenance["weights"]) == 32
    assert json.dumps(model.provenance)
    assert not any(part.training for part in model.modules.values())


def test_the_card_of_a_folder_gives_its_call(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "carded")
    (folder / "card.json").write_text(
        json.dumps({"call": {"num_inference_steps": 4, "guidance_scale": 3.0}})
    )
    model = load_model(str(folder), LoadSettings(guidance=1.5))
    assert model.call == {"num_inference_steps": 4, "guidance_scale": 1.5}
    assert model.card is not None


def test_bf16_is_loaded_and_stored_as_float32(tiny_folder: Folder) -> None:
    from t2iprobe.activations.generate import generate
    from t2iprobe.checks.doctor import requests

    settings = LoadSettings(dtype="bf16", pipe_arg=tiny.pipe_args("sd15"))
    model = load_model(str(tiny_folder("sd15")), settings)
    assert {p.dtype for p in model.modules["unet"].parameters()} == {torch.bfloat16}
    (batch,) = generate(model, requests(), plan_capture(model), 4, 0)
    assert {values.dtype for values in batch.activations.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("unconditional", "DDPMPipeline takes no prompt"),
        (
            "img2img",
            "StableDiffusionImg2ImgPipeline is an image-to-image pipeline and needs an image",
        ),
        ("pix2pix", "it seems to need an image"),
        ("video", "WanPipeline makes videos"),
    ],
)
def test_other_kinds_of_pipelines(tiny_folder: Folder, family: str, expected: str) -> None:
    text = message(tiny_folder(family), ModelError, pipe_arg=tiny.pipe_args(family))
    assert expected in text


def test_unknown_names(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    assert "did you mean" in message(tmp_path / "my-modle", ModelError)
    assert "unknown model './nothing'" in message("./nothing", ModelError)
    assert "unknown model 'shapes-mmdti'" in message("shapes-mmdti", ModelError)
    assert "neither a folder here nor in the local cache" in message("owner/name", ModelError)


def test_a_component_is_not_a_pipeline(tiny_folder: Folder, tmp_path: Path) -> None:
    text = message(tiny_folder("sd15") / "unet", ModelError)
    assert "no model_index.json (this looks like one component of a pipeline)" in text
    tmp_path.joinpath("empty").mkdir()
    assert "has no model_index.json;" in message(tmp_path / "empty", ModelError)


def test_broken_folders(tiny_folder: Folder, tmp_path: Path) -> None:
    source = tiny_folder("sd15")
    folder = damaged(source, tmp_path / "no-unet")
    shutil.rmtree(folder / "unet")
    assert "unet/ is missing" in message(folder, ModelError)
    folder = damaged(source, tmp_path / "no-weights")
    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    assert "unet/*.safetensors is missing" in message(folder, ModelError)
    folder = damaged(source, tmp_path / "no-json")
    (folder / "model_index.json").write_text("{")
    assert "line 1: not JSON" in message(folder, ModelError)


def without_tensors(file: Path, some: str) -> int:
    """Rewrite a weights file without the tensors whose name holds some text; returns how many were taken out."""
    weights = load_file(file)
    kept = {key: value for key, value in weights.items() if some not in key}
    save_file(kept, file, metadata={"format": "pt"})
    return len(weights) - len(kept)


@pytest.mark.parametrize(
    ("part", "file", "some"),
    [
        ("unet", "diffusion_pytorch_model", "conv_in"),
        ("vae", "diffusion_pytorch_model", "decoder.conv_out"),
        ("text_encoder", "model", "mlp.fc1.weight"),
    ],
)
def test_weights_that_lack_tensors_are_named(
    tiny_folder: Folder,
    tmp_path: Path,
    part: str,
    file: str,
    some: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "holes")
    gone = without_tensors(folder / part / f"{file}.safetensors", some)
    assert gone > 0
    capsys.readouterr()
    text = message(folder, ModelError)
    assert f"the weights of its {part} lack {gone} tensors" in text
    assert some in text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("part", ["text_encoder", "unet", "vae", "scheduler", "tokenizer"])
def test_an_index_without_a_component_is_named(
    tiny_folder: Folder, tmp_path: Path, part: str
) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "short")
    index = json.loads((folder / "model_index.json").read_text())
    del index[part]
    (folder / "model_index.json").write_text(json.dumps(index))
    expected = f"model_index.json of {folder} has no {part}, which StableDiffusionPipeline needs"
    assert expected in message(folder, ModelError)
    with pytest.raises(ModelError, match="has no " + part):
        inspect_configs(str(folder), LoadSettings())


def test_tokenizer_files_that_are_missing_are_named(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "wordless")
    for file in (folder / "tokenizer").iterdir():
        if file.name != "tokenizer_config.json":
            file.unlink()
    assert "tokenizer/ has no vocabulary (merges.txt or" in message(folder, ModelError)
    shutil.rmtree(folder / "tokenizer")
    assert "tokenizer/ is missing (merges.txt or" in message(folder, ModelError)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("StableDiffusionUpscalePipeline", "it seems to need an image"),
        ("AudioLDMPipeline", "makes sound"),
        ("StableAudioPipeline", "makes sound"),
        ("TextToVideoSDPipeline", "makes videos"),
    ],
)
def test_another_kind_is_told_before_its_parts_are_looked_at(
    tiny_folder: Folder, tmp_path: Path, kind: str, expected: str
) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "other")
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | {"_class_name": kind}))
    assert f"{kind} " in (text := message(folder, ModelError))
    assert expected in text


def test_nothing_is_printed_beside_the_one_line(
    tiny_folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "no-weights")
    (folder / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    capsys.readouterr()
    assert main(["doctor", str(folder)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_weights_that_are_cut_off_are_named(tiny_folder: Folder, tmp_path: Path) -> None:
    for part, name in (("unet", "diffusion_pytorch_model"), ("text_encoder", "model")):
        folder = damaged(tiny_folder("sd15"), tmp_path / part)
        file = folder / part / f"{name}.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
        assert f"{part}/{name}.safetensors cannot be read as safetensors" in message(
            folder, ModelError
        )


@pytest.mark.parametrize("part", ["transformer", "text_encoder_2"])
def test_a_quantised_component_that_cannot_run_here_is_named(
    tiny_folder: Folder, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bitsandbytes in a config: without the library it is asked for; with it, diffusers asks for a GPU."""
    from transformers.quantizers import quantizer_bnb_4bit

    monkeypatch.setattr(quantizer_bnb_4bit, "is_bitsandbytes_available", lambda: False)
    folder = damaged(tiny_folder("flux"), tmp_path / "quantised")
    config = folder / part / "config.json"
    quantised = {"quant_method": "bitsandbytes", "load_in_4bit": True, "_load_in_4bit": True}
    config.write_text(
        json.dumps(json.loads(config.read_text()) | {"quantization_config": quantised})
    )
    with pytest.raises((MissingExtra, ModelError)) as caught:
        load_model(str(folder))
    text = str(caught.value)
    assert "\n" not in text
    assert "bitsandbytes" in text


def test_only_a_variant_is_there(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "variant")
    for file in folder.glob("*/*.safetensors"):
        file.rename(file.with_suffix(".fp16.safetensors"))
    assert "saved as variant fp16; pass --variant fp16" in message(folder, ModelError)
    assert (
        load_model(str(folder), LoadSettings(variant="fp16")).class_name
        == "StableDiffusionPipeline"
    )


def test_classes_of_the_future_and_custom_code(tiny_folder: Folder, tmp_path: Path) -> None:
    folder = damaged(tiny_folder("sd15"), tmp_path / "future")
    index = json.loads((folder / "model_index.json").read_text())
    changed = index | {"_class_name": "FuturePipeline", "_diffusers_version": "9.9.9"}
    (folder / "model_index.json").write_text(json.dumps(changed))
    text = message(folder, ModelError)
    assert "FuturePipeline" in text
    assert "it was written by diffusers 9.9.9, installed is" in text
    changed = index | {"_class_name": "FuturePipeline"}
    assert index["_diffusers_version"] == diffusers.__version__
    (folder / "model_index.json").write_text(json.dumps(changed))
    text = message(folder, ModelError)
    assert "FuturePipeline" in text
    assert "written by" not in text
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w')\nfrom diffusers import UNet2DConditionModel, StableDiffusionPipeline\n"
    for place, key, base in (
        (folder, "_class_name", "StableDiffusionPipeline"),
        (folder / "unet", "unet", "UNet2DConditionModel"),
    ):
        changed = index | {key: ["my_code", "Mine"]}
        (folder / "model_index.json").write_text(json.dumps(changed))
        (place / "my_code.py").write_text(f"{code}class Mine({base}):\n    pass\n")
        assert "pass --trust-remote-code" in message(folder, ModelError)
        assert not ran.exists()
        load_model(str(folder), LoadSettings(trust_remote_code=True))
        assert ran.exists()
        ran.unlink()


def test_settings_that_do_not_fit(tiny_folder: Folder) -> None:
    folder = tiny_folder("sd15")
    assert "unknown argument of StableDiffusionPipeline 'stepz'" in message(
        folder, ConfigError, pipe_arg=("stepz=3",)
    )
    assert "did you mean 'guidance_scale'" in message(
        folder, ConfigError, pipe_arg=("guidance_scal=3",)
    )
    assert "write name=value" in message(folder, ConfigError, pipe_arg=("eta",))
    assert "'=1' has no name" in message(folder, ConfigError, pipe_arg=("=1",))
    assert "did you mean DDIMScheduler" in message(folder, ConfigError, scheduler="ddim")
    assert "given twice" in message(folder, ConfigError, pipe_arg=("eta=0", "eta=1"))
    assert "given twice" in message(folder, ConfigError, pipe_arg=("height=32",), height=64)
    for name in ("prompt", "generator", "output_type", "num_images_per_prompt"):
        assert "set by t2iprobe itself" in message(folder, ConfigError, pipe_arg=(f"{name}=2",))
    assert "unknown scheduler 'EulerScheduler'" in message(
        folder, ConfigError, scheduler="EulerScheduler"
    )
    assert "'cuda:7' is not on this machine" in message(folder, ConfigError, device="cuda:7")
    assert "unknown device 'gpu'" in message(folder, ConfigError, device="gpu")
    assert "LoRA" in message(folder, ModelError, lora=Path("missing.safetensors"))


class TestDevicesAndFormats:
    def machine(
        self, patch: pytest.MonkeyPatch, gpus: int, mps: bool = False, bf16: bool = True
    ) -> None:
        import torch._dynamo  # the compiler looks at the real functions when it is loaded

        patch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        patch.setattr(torch.cuda, "device_count", lambda: gpus)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
        patch.setattr(torch.backends.mps, "is_available", lambda: mps)

    @pytest.mark.parametrize(
        ("gpus", "mps", "bf16", "device", "dtype"),
        [
            (0, False, False, "cpu", torch.float32),
            (1, False, True, "cuda", torch.bfloat16),
            (1, False, False, "cuda", torch.float16),
            (0, True, False, "mps", torch.float16),
        ],
    )
    def test_auto(
        self,
        monkeypatch: pytest.MonkeyPatch,
        gpus: int,
        mps: bool,
        bf16: bool,
        device: str,
        dtype: torch.dtype,
    ) -> None:
        self.machine(monkeypatch, gpus, mps, bf16)
        assert pick_device("auto") == torch.device(device)
        assert pick_dtype("auto", pick_device("auto")) == dtype

    def test_those_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine(monkeypatch, gpus=2)
        assert pick_device("cuda:1") == torch.device("cuda:1")
        assert pick_device("cpu") == torch.device("cpu")
        assert pick_dtype("bf16", torch.device("cpu")) == torch.bfloat16
        assert pick_dtype("fp16", torch.device("cuda")) == torch.float16
        with pytest.raises(ConfigError, match="unknown dtype 'fp8'"):
            pick_dtype("fp8", torch.device("cpu"))

    @pytest.mark.parametrize("device", ["cuda", "cuda:1", "mps"])
    def test_one_that_is_not_there(
        self, monkeypatch: pytest.MonkeyPatch, device: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.machine(monkeypatch, gpus=1 if device == "cuda:1" else 0)
        assert main(["doctor", "shapes-mmdit", "--device", device]) == 2
        text = capsys.readouterr().err
        assert f"device '{device}' is not on this machine; use auto or cpu" in text
        assert len(text.strip().splitlines()) == 1
