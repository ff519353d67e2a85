"""Why a pipeline makes no image: no memory, a setting of the user's, or a pipeline that needs more than a prompt."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from t2iprobe.activations.generate import ImageRequest, generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.errors import ConfigError, MissingExtra, ModelError, T2IProbeError, first_line
from t2iprobe.models.failures import explain, guilty_settings
from t2iprobe.models.foreign import ForeignError, is_out_of_memory, out_of_memory
from t2iprobe.models.loading import load_model
from t2iprobe.models.model import Model
from t2iprobe.models.settings import LoadSettings

Folder = Callable[[str], Path]
Load = Callable[[str], Any]

SMALL = {"height": 32, "width": 32, "steps": 2}
FLOW = "FlowMatchEulerDiscreteScheduler"


def refusal(folder: Path, kind: type[T2IProbeError], **settings: Any) -> str:
    """The one line of an error of exactly this kind, when a model is loaded and tried."""
    with pytest.raises(kind) as caught:
        plan_capture(load_model(str(folder), LoadSettings(**settings)))
    assert type(caught.value) is kind
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (SMALL | {"scheduler": FLOW}, f"--scheduler {FLOW}"),
        (SMALL | {"steps": 2000}, "--steps 2000"),
        (SMALL | {"height": 33, "width": 33}, "--height 33 and --width 33"),
        (
            SMALL | {"height": 33, "width": 33, "pipe_arg": ("eta=0.5",)},
            "--height 33 and --width 33",
        ),
        (SMALL | {"guidance": 3.0, "pipe_arg": ("eta=abc",)}, "--pipe-arg eta=abc"),
        (SMALL | {"pipe_arg": ("clip_skip=99", "eta=0.5")}, "--pipe-arg clip_skip=99"),
        (SMALL | {"pipe_arg": ("prompt_embeds=3",)}, "--pipe-arg prompt_embeds=3"),
        (
            SMALL | {"scheduler": FLOW, "pipe_arg": ("guidance_rescale=x",)},
            f"--pipe-arg guidance_rescale=x and --scheduler {FLOW}",
        ),
    ],
)
def test_a_setting_that_does_not_fit_is_named_and_no_other(
    tiny_folder: Folder, settings: dict[str, Any], named: str
) -> None:
    text = refusal(tiny_folder("sd15"), ConfigError, **settings)
    assert text.startswith(f"StableDiffusionPipeline does not work with {named}: ")
    assert "without" in text


def test_what_the_pipeline_said_is_in_the_line(tiny_folder: Folder) -> None:
    text = refusal(tiny_folder("sd15"), ConfigError, **(SMALL | {"height": 33, "width": 33}))
    assert "have to be divisible by 8 but are 33 and 33" in text
    text = refusal(tiny_folder("sd15"), ConfigError, **SMALL, scheduler=FLOW)
    assert "has no attribute 'init_noise_sigma'" in text


def test_an_argument_that_a_pipeline_needs_is_not_blamed_for_another() -> None:
    """Where a call fails without all settings too, each is taken away alone."""
    model = Model("m", Fake(), {"layers": 1, "eta": 0}, given={"layers": "--pipe-arg layers=1"})
    model.given["eta"] = "--pipe-arg eta=0"

    def call() -> None:
        if "layers" not in model.call or "eta" in model.call:
            raise ForeignError("Fake(...)", ValueError("no"))

    assert guilty_settings(model, call) == ["--pipe-arg eta=0"]


def test_settings_that_fail_together_only_are_named_together() -> None:
    given = {"a": "--pipe-arg a=1", "b": "--pipe-arg b=1", "num_inference_steps": "--steps 9"}
    model = Model("m", Fake(), {"a": 1, "b": 1, "num_inference_steps": 9}, given=given)

    def call() -> None:
        if {"a", "b"} <= set(model.call):
            raise ForeignError("Fake(...)", ValueError("both"))

    assert guilty_settings(model, call) == ["--pipe-arg a=1", "--pipe-arg b=1"]


def test_the_model_is_left_as_it_was(tiny_folder: Folder) -> None:
    model = load_model(str(tiny_folder("sd15")), LoadSettings(**SMALL, scheduler=FLOW))
    call, scheduler = dict(model.call), model.pipe.scheduler
    with pytest.raises(ConfigError):
        plan_capture(model)
    assert model.call == call
    assert model.pipe.scheduler is scheduler
    assert type(scheduler).__name__ == FLOW


def test_without_a_setting_the_card_decides(tiny_folder: Folder, tmp_path: Path) -> None:
    import json
    import shutil

    folder = Path(shutil.copytree(tiny_folder("sd15"), tmp_path / "carded"))
    (folder / "card.json").write_text(json.dumps({"call": {"guidance_scale": 3.0, "eta": 0.1}}))
    model = load_model(str(folder), LoadSettings(guidance=1.5, steps=4))
    assert model.call == {"guidance_scale": 1.5, "eta": 0.1, "num_inference_steps": 4}
    with model.without({"guidance_scale", "num_inference_steps"}):
        assert model.call == {"guidance_scale": 3.0, "eta": 0.1}
    assert model.call["guidance_scale"] == 1.5


def test_a_negative_prompt_that_the_pipeline_does_not_take(tiny_folder: Folder) -> None:
    text = refusal(tiny_folder("lcm"), ConfigError, negative_prompt="bad")
    assert text.startswith("--negative-prompt: unknown argument of LatentConsistencyModelPipeline")
    assert text.endswith("leave --negative-prompt out")


class TestSchedulers:
    def test_one_that_cannot_take_the_settings_over(self, tiny_folder: Folder) -> None:
        text = refusal(tiny_folder("sd15"), ConfigError, scheduler="VQDiffusionScheduler")
        assert "VQDiffusionScheduler cannot take over the settings of DDIMScheduler" in text

    def test_one_whose_library_is_not_there(
        self, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        missing = type("MissingScheduler", (), {"_backends": ["torch", "torchsde"]})
        monkeypatch.setattr(diffusers, "MissingScheduler", missing, raising=False)
        text = refusal(tiny_folder("sd15"), MissingExtra, scheduler="MissingScheduler")
        assert "torchsde" in text

    def test_pipelines_inside_a_pipeline_get_it_too(self, tiny_folder: Folder) -> None:
        settings = LoadSettings(scheduler="DDPMScheduler")
        model = load_model(str(tiny_folder("kandinsky22")), settings)
        pipe = model.pipe
        assert type(pipe.decoder_pipe.scheduler).__name__ == "DDPMScheduler"
        assert pipe.decoder_pipe.scheduler is pipe.scheduler
        with model.without({"scheduler"}):
            assert type(pipe.scheduler).__name__ != "DDPMScheduler"
            assert pipe.decoder_pipe.scheduler is pipe.scheduler
        assert type(pipe.decoder_pipe.scheduler).__name__ == "DDPMScheduler"

    def test_a_pipeline_of_several(self, tiny_folder: Folder) -> None:
        text = refusal(tiny_folder("unclip"), ConfigError, scheduler="DDIMScheduler")
        assert "has no one scheduler to replace" in text
        assert "decoder_scheduler" in text


def cpu_is_full(*_: Any, **__: Any) -> None:
    torch.empty(1 << 55)


def numpy_is_full(*_: Any, **__: Any) -> None:
    np.empty(1 << 58)


def gpu_is_full(*_: Any, **__: Any) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


def wrapped(*_: Any, **__: Any) -> None:
    try:
        cpu_is_full()
    except RuntimeError as error:
        raise ValueError("decoding failed") from error


FULL = [cpu_is_full, numpy_is_full, gpu_is_full, wrapped]


class TestMemory:
    @pytest.mark.parametrize("fails", FULL)
    def test_it_is_told_from_other_failures(self, fails: Callable[[], None]) -> None:
        """The errors of torch's allocator and of numpy are real ones."""
        with pytest.raises((RuntimeError, MemoryError, ValueError)) as caught:
            fails()
        assert is_out_of_memory(caught.value)
        assert not is_out_of_memory(RuntimeError("sizes do not match"))
        assert not is_out_of_memory(None)

    @pytest.mark.parametrize("fails", FULL)
    def test_the_first_image(
        self, tiny_folder: Folder, fails: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever the settings, they are not blamed, and nothing is tried again."""
        model = load_model(str(tiny_folder("sd15")), LoadSettings(**SMALL))
        calls = []

        def call(*_: Any, **__: Any) -> None:
            calls.append(1)
            fails()

        monkeypatch.setattr(type(model.pipe), "__call__", call)
        with pytest.raises(ModelError) as caught:
            plan_capture(model)
        assert len(calls) == 1
        assert str(caught.value) == (
            f"this machine ran out of memory making one image with {model.name} in float32;"
            " try --dtype bf16 or a smaller --height and --width"
        )

    def test_a_size_that_no_machine_has_memory_for(self, tiny_folder: Folder) -> None:
        settings = SMALL | {"height": 80_000_000, "width": 80_000_000}
        text = refusal(tiny_folder("sd15"), ModelError, **settings)
        assert "ran out of memory making one image" in text
        assert "a smaller --height and --width" in text

    @pytest.mark.parametrize("fails", FULL)
    def test_a_batch(
        self, tiny_model: Load, fails: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = tiny_model("sd15")
        monkeypatch.setattr(type(model.pipe), "__call__", fails)
        requests = [ImageRequest("a", index, "a red cube") for index in range(6)]
        with pytest.raises(ModelError, match="making 6 images at once") as caught:
            list(generate(model, requests, None, 6, 0))
        assert "try --batch-size 3 or --dtype bf16 or a smaller --height" in str(caught.value)

    def test_another_failure_of_a_batch_is_not_memory(
        self, tiny_model: Load, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: Any, **__: Any) -> None:
            raise RuntimeError("sizes do not match")

        model = tiny_model("sd15")
        monkeypatch.setattr(type(model.pipe), "__call__", fails)
        with pytest.raises(
            ForeignError, match=r"StableDiffusionPipeline\(...\) failed: sizes do not match"
        ):
            list(generate(model, [ImageRequest("a", 0, "a red cube")], None, 1, 0))

    def test_loading(self, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", cpu_is_full)
        text = refusal(tiny_folder("sd15"), ModelError)
        assert "this machine ran out of memory loading" in text
        assert text.endswith("in float32; try --dtype bf16")

    def test_moving_to_a_device(self, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(diffusers.DiffusionPipeline, "to", gpu_is_full)
        assert "ran out of memory loading" in refusal(tiny_folder("sd15"), ModelError)

    @pytest.mark.parametrize(
        ("device", "dtype", "offload", "n_images", "advice"),
        [
            ("cuda:0", "bfloat16", "none", 8, "--batch-size 4 or --offload model or a smaller"),
            ("cuda:0", "float32", "model", 1, "--offload sequential or --dtype bf16 or a smaller"),
            ("cuda:0", "bfloat16", "sequential", 1, "try a smaller --height and --width"),
            ("cpu", "bfloat16", "none", 0, "use a machine with more memory"),
            ("cuda:0", "float16", "none", 0, "try --offload model"),
        ],
    )
    def test_advice_names_only_what_can_still_be_done(
        self, device: str, dtype: str, offload: str, n_images: int, advice: str
    ) -> None:
        text = str(out_of_memory("drawing", device, dtype, offload, n_images))
        assert advice in text
        assert ("--offload" in text) == ("--offload" in advice)
        assert ("--dtype" in text) == ("--dtype" in advice)
        assert ("this machine" in text) == (device == "cpu")


class Fake:
    """As much of a pipeline as an explanation looks at."""

    components: dict[str, Any] = {}  # noqa: RUF012

    def __call__(self, prompt: str, image: Any = None, num_inference_steps: int = 8) -> None:
        """Never called."""


def test_the_user_never_sees_a_reason_that_is_not_theirs() -> None:
    """Settings without which it fails too are not blamed."""
    model = Model("m", Fake(), {"height": 8}, given={"height": "--height 8"})

    def fails() -> None:
        raise ForeignError("Fake(...)", ValueError("weights are broken"))

    text = str(explain(model, ValueError("weights are broken"), fails))
    assert "--height" not in text
    assert (
        text
        == "m: Fake fails on a prompt alone: weights are broken; its call takes image: use a text-to-image checkpoint"
    )


@pytest.mark.parametrize(
    ("error", "kind", "end"),
    [
        (
            ImportError("no", name="no_such_library"),
            MissingExtra,
            "no_such_library is not installed",
        ),
        (NameError("no", name="no_such_library"), MissingExtra, "no_such_library is not installed"),
        (ImportError("cannot import a part", name="torch"), ModelError, "can be tried"),
        (
            RuntimeError("\"conv\" not implemented for 'Half'"),
            ModelError,
            "--dtype fp32 can be tried",
        ),
    ],
)
def test_a_library_is_missing_only_where_it_is_not_installed(
    error: Exception, kind: type[T2IProbeError], end: str
) -> None:
    line = explain(Model("m", Fake(), provenance={"dtype": "float16"}), error, lambda: None)
    assert type(line) is kind
    assert str(line).endswith(end)


def test_a_part_that_the_pipeline_does_without_every_day_is_not_blamed(tiny_folder: Folder) -> None:
    """Stable Diffusion 3 without T5 that fails for a reason of its own."""
    settings = SMALL | {"height": 33, "width": 33}
    text = refusal(tiny_folder("sd3_no_t5"), ConfigError, **settings)
    assert text.startswith("StableDiffusion3Pipeline does not work with --height 33 and --width 33")
    assert "text_encoder_3" not in text


def test_arguments_that_every_call_needs_are_named() -> None:
    class Needy(Fake):
        def __call__(self, prompt: str, depth: Any, size: int, eta: float = 0) -> None:
            """Never called."""

    error = TypeError("missing 1 required positional argument")
    found = explain(Model("m", Needy(), {"size": 3}), error, lambda: None)
    assert str(found).split("; ")[1] == ("its call needs depth too: pass --pipe-arg name=value")


def test_a_pipeline_that_needs_an_image(tiny_folder: Folder) -> None:
    """A class of its own, so that the signature does not give it away."""
    model = load_model(str(tiny_folder("sd15")), LoadSettings(**SMALL))

    class Depth(diffusers.StableDiffusionPipeline):
        def __call__(self, prompt: Any, image: Any = None, **more: Any) -> Any:
            return image.resize((8, 8))

    model.pipe.__class__ = Depth
    with pytest.raises(ModelError, match="its call takes image: use a text-to-image checkpoint"):
        plan_capture(Model("depth", model.pipe))


def test_the_first_line_of_an_error() -> None:
    assert first_line(ValueError("\n  one.\n two")) == "one"
    assert first_line(ValueError("")) == "ValueError"
    assert first_line(AttributeError("'list' object has no attribute 'x'")).startswith("'list'")
    assert len(first_line(ValueError("x" * 999), 80)) == 80


def test_a_class_that_cannot_be_imported_is_not_called_missing(
    tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("Failed to import diffusers.models")

    monkeypatch.setattr("t2iprobe.models.problems.library_class", lambda *_: None)
    monkeypatch.setattr(diffusers.DiffusionPipeline, "from_pretrained", fails)
    text = refusal(tiny_folder("sd15"), ModelError)
    assert "Failed to import diffusers.models" in text
    assert "has no pipeline class" not in text
