"""`t2iprobe inspect` from configs: nothing is downloaded or allocated that is not needed, and what fails is named."""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import stub_hub
import tiny
import torch
from pipelines import full_size
from rich.console import Console
from torch import nn

from t2iprobe.calibration.result import Reading
from t2iprobe.checks import inspect as checks_inspect
from t2iprobe.checks import shortcuts, small
from t2iprobe.checks import stand_ins as light
from t2iprobe.checks.fed_layers import Reached, _taps
from t2iprobe.checks.inspect import (
    DenoiserReport,
    EncoderReport,
    ModelReport,
    SiteReport,
    inspect_configs,
)
from t2iprobe.cli import inspect as inspect_command
from t2iprobe.cli.main import main
from t2iprobe.errors import ConfigError
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings

Folder = Callable[[str], Path]


def run_apart(*arguments: str, **environment: str) -> str:
    """What Python prints in a process of its own."""
    keep = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env=keep | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_of_a_hub_repository_no_weight_is_fetched(tiny_folder: Folder, tmp_path: Path) -> None:
    server, seen = stub_hub.serve({"sd15": tiny_folder("sd15")})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = (
        "from t2iprobe.models.hub import fetch_configs; from t2iprobe.models.settings import LoadSettings;"
        "print(fetch_configs('tiny/sd15', LoadSettings()))"
    )
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
    }
    folder = run_apart("-c", script, **settings).splitlines()[-1]
    server.shutdown()
    server.server_close()
    assert any("unet/config.json" in line for line in seen)
    assert not [line for line in seen if line.endswith((".safetensors", ".bin"))]
    assert not list(tmp_path.rglob("*.safetensors"))
    report = inspect_configs(folder, LoadSettings(pipe_arg=tiny.pipe_args("sd15")))
    assert report.tried
    assert all(site.shape for site in report.sites)


def test_a_part_that_cannot_be_built_is_named_and_the_rest_listed(
    tiny_folder: Folder, tmp_path: Path
) -> None:
    for part in ("text_encoder", "unet", "vae"):
        (tmp_path / part).mkdir()
        source = tiny_folder("sd15") / part / "config.json"
        (tmp_path / part / "config.json").write_text(source.read_text())
    index = json.loads((tiny_folder("sd15") / "model_index.json").read_text())
    index["vae"] = ["diffusers", "FutureCodec"]
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    report = inspect_configs(str(tmp_path), LoadSettings())
    assert not report.tried
    assert "vae: diffusers has no class FutureCodec" in report.notes[-1]
    assert report.missing == {"vae": "diffusers has no class FutureCodec"}
    assert report.lists_denoisers
    assert report.denoisers["unet"].blocks == 13
    assert report.encoders["text_encoder"].layers == 3
    assert "unet.down_blocks.0" in [site.name for site in report.sites]


def edited(folder: Path, target: Path, **entries: Any) -> Path:
    """A copy of a folder whose model_index.json has other entries."""
    shutil.copytree(folder, target)
    index = json.loads((target / "model_index.json").read_text())
    (target / "model_index.json").write_text(json.dumps(index | entries))
    return target


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (["diffusers", "FutureUNet"], "diffusers has no class FutureUNet"),
        (["house_parts", "House"], "no library called house_parts is installed"),
        (["diffusers", "FluxTransformer2DModel"], "FluxTransformer2DModel cannot be built from"),
    ],
)
def test_where_a_denoiser_cannot_be_listed_the_exit_code_says_so(
    entry: list[str],
    reason: str,
    tiny_folder: Folder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = edited(tiny_folder("sd15"), tmp_path / "new", unet=entry)
    assert main(["inspect", str(folder)]) == 1
    out = capsys.readouterr().out
    (row,) = (line for line in out.splitlines() if line.startswith("unet "))
    assert row.split()[:4] == ["unet", *["unknown"] * 3]
    assert f"cannot be built: {reason}" in row
    assert "streams, shapes, guidance and bytes: unknown" in out
    assert re.search(r"text_encoder\S*layers\.0:text +CLIPEncoderLayer +unknown", out)
    assert main(["inspect", str(folder), "--json"]) == 1
    assert reason in json.loads(capsys.readouterr().out)["missing"]["unet"]


@pytest.mark.parametrize(
    ("entries", "file", "there"),
    [
        ({"_class_name": ["house", "HousePipeline"]}, "house.py", True),
        ({"_class_name": ["house", "HousePipeline"]}, "house.py", False),  # fetched if trusted
        ({"unet": ["house_parts", "House"]}, "unet/house_parts.py", True),
    ],
)
def test_code_of_a_checkpoint_is_named_and_not_run(
    entries: dict[str, Any],
    file: str,
    there: bool,
    tiny_folder: Folder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = edited(tiny_folder("sd15"), tmp_path / "own", **entries)
    if there:
        (folder / file).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert main(["inspect", str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"code of its own ({file}); read it, then pass --trust-remote-code" in said
    assert not (tmp_path / "ran").exists()


def test_what_fails_with_shortcuts_is_tried_without_and_then_told(
    tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials: list[Any] = []
    inspect_model = checks_inspect.inspect_model

    def fail(model: Any, *arguments: Any) -> Any:
        trials.append(model)
        if len(trials) in broken:
            raise ConfigError(f"trial {len(trials)}")
        return inspect_model(model, *arguments)

    monkeypatch.setattr(checks_inspect, "inspect_model", fail)
    settings = LoadSettings(pipe_arg=tiny.pipe_args("sd15"))
    broken = {1}
    assert inspect_configs(str(tiny_folder("sd15")), settings).tried
    assert len(trials) == 2
    broken = {3, 4}
    with pytest.raises(ConfigError, match="trial 4"):
        inspect_configs(str(tiny_folder("sd15")), settings)


def test_a_stand_in_is_linear_in_every_input_and_takes_no_memory() -> None:
    module: Any = light.light(
        lambda: nn.Sequential(nn.Linear(4096, 1 << 15), nn.Conv2d(512, 512, 3)), 0
    )
    linear, convolution = module[0], module[1]
    assert linear.weight.shape == (1 << 15, 4096)
    assert linear.weight.untyped_storage().nbytes() < 4 * (8 * (1 << 15) + 4096)
    x, y = torch.randn(2, 3, 4096)
    bias = linear(torch.zeros(4096))
    both = linear(x + 2 * y) - bias
    torch.testing.assert_close(
        both, linear(x) - bias + 2 * (linear(y) - bias), atol=1e-4, rtol=1e-3
    )
    x.requires_grad_(True)
    assert torch.autograd.grad(linear(x).square().sum(), x)[0].ne(0).all()
    picture = torch.randn(1, 512, 6, 7)
    want = nn.functional.conv2d(picture, torch.ones(512, 512, 3, 3)).shape
    assert convolution(picture).shape == want
    assert float(linear(x).std().detach()) == pytest.approx(1, abs=0.5)


class Unset(nn.Module):
    """Weights in every way that leaves them to the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = torch.nn.utils.skip_init(nn.Linear, 8, 8)
        self.scale = nn.Parameter(torch.empty(8))
        self.table = nn.Parameter(torch.empty_like(torch.ones(8, 8)))
        self.gate = nn.Parameter(torch.ones(1).new_empty((8, 8)))
        self.huge = nn.Parameter(torch.ones(1).new_empty((1 << 10, 1 << 10)))


def test_weights_that_a_class_leaves_to_the_checkpoint_are_not_what_was_in_memory() -> None:
    waste = [torch.full((8, 8), 1e30) for _ in range(64)]
    del waste
    module: Any = light.light(Unset, 0)
    assert module.scale.eq(1).all()
    assert module.skipped.bias.eq(0).all()
    for weight in (module.skipped.weight, module.table, module.gate, module.huge):
        assert float(weight.detach().abs().max()) < 10
        assert float(weight.detach().std()) > 0
    assert module.huge.untyped_storage().nbytes() < 1 << 16


@pytest.mark.parametrize("terminal", [False, True])
def test_names_are_never_cut(
    terminal: bool,
    tiny_folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setattr(
            inspect_command,
            "Console",
            lambda **options: Console(width=60, force_terminal=True, no_color=True, **options),
        )
    report = inspect_configs(
        str(tiny_folder("flux")), LoadSettings(pipe_arg=tiny.pipe_args("flux"))
    )
    inspect_command.print_inspection(report)
    out = capsys.readouterr().out
    assert "\u2026" not in out
    if not terminal:
        assert all(site.name in out and site.class_name in out for site in report.sites)


FULL = {  # weights of the denoiser in millions, its blocks, and shapes that the papers and repositories tell
    "sd15": ("unet", 860, "unet.mid_block:image", [1280, 8, 8]),
    "sdxl": ("unet", 2567, "unet.mid_block:image", [1280, 32, 32]),
    "sd3": ("transformer", 2028, "transformer.transformer_blocks.12:image", [4096, 1536]),
    "flux": ("transformer", 11901, "transformer.single_transformer_blocks.37:image", [4096, 3072]),
    "pixart_sigma": ("transformer", 611, "transformer.transformer_blocks.27:image", [4096, 1152]),
    "qwenimage": ("transformer", 20430, "transformer.transformer_blocks.59:image", [4096, 3072]),
    "zimage": ("transformer", 6155, "transformer.layers.29:image", [4096, 3840]),
}


def check_full_size(name: str, report: dict[str, Any]) -> None:
    part, millions, site, shape = FULL[name]
    assert report["tried"], report["notes"]
    assert report["denoisers"][part]["parameters"] / 1e6 == pytest.approx(millions, rel=0.01)
    assert report["denoisers"][part]["guidance"]
    shapes = {found["name"]: found["shape"] for found in report["sites"]}
    assert shapes[site] == shape
    assert all(shapes.values())


@pytest.fixture
def told_small(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each inspection, whether it was told from a small picture."""
    told: list[bool] = []

    def calibrate(*arguments: Any) -> Any:
        found = small.calibrate_small(*arguments)
        told.append(found is not None)
        return found

    monkeypatch.setattr(checks_inspect, "calibrate_small", calibrate)
    return told


@pytest.mark.parametrize("name", ["sdxl", "qwenimage"])
def test_a_full_size_model(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], told_small: list[bool]
) -> None:
    assert main(["inspect", str(full_size.write(name, tmp_path)), "--json"]) == 0
    check_full_size(name, json.loads(capsys.readouterr().out))
    assert told_small == [True]


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_a_full_size_model_takes_seconds_and_little_memory(name: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = ("-m", "t2iprobe", "inspect", str(full_size.write(name, tmp_path)), "--json")
    report = json.loads(run_apart(*arguments, OMP_NUM_THREADS="1"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    check_full_size(name, report)
    took = sum(getattr(after, kind) - getattr(before, kind) for kind in ("ru_utime", "ru_stime"))
    assert took < 40  # processor seconds: a third of them for loading the libraries
    # The largest child so far: this one or a smaller one.
    assert after.ru_maxrss * 1024 < 3e9


GROWN = ("sd15", "sd3", "flux", "qwenimage", "zimage", "sana")
"""Feature maps, streams in pairs, joined either way, texts of different lengths, image tokens that may need padding."""


@pytest.mark.parametrize("family", [*GROWN, "omnigen"])
def test_a_small_picture_tells_what_a_large_one_does(
    family: str, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch, told_small: list[bool]
) -> None:
    call = tiny.FAMILIES[family].call | {"height": 192, "width": 192}
    settings = LoadSettings(pipe_arg=tuple(f"{key}={value}" for key, value in call.items()))
    monkeypatch.setattr(small, "SMALL", (64, 128))
    grown = inspect_configs(str(tiny_folder(family)), settings)
    assert told_small == [family in GROWN]  # OmniGen looks at the values of its masks
    monkeypatch.setattr(checks_inspect, "calibrate_small", lambda *_: None)
    assert grown == inspect_configs(str(tiny_folder(family)), settings)


def reading(cut: tuple[int | None, int | None], n: int) -> Reading:
    return Reading("", 0, cut, (n, 7))


def test_positions_move_with_the_picture() -> None:
    """Eight image tokens at the small size, 32 at the own one; five of text, three registers in front of all."""
    shapes = [(2, 16, 7), (2, 40, 7)]
    behind = {"image": reading((3, 11), 8), "text": reading((-5, None), 5)}
    before = {"text": reading((3, 8), 5), "image": reading((-8, None), 8)}
    for streams, image, text in ((behind, (3, 35), (35, 40)), (before, (8, 40), (3, 8))):
        grown: Any = {name: small._grown(name, streams, shapes, {32, 8}) for name in streams}
        assert (grown["image"].cut, grown["image"].shape) == (image, (32, 7))
        assert (grown["text"].cut, grown["text"].shape) == (text, (5, 7))
    with pytest.raises(small._Unlike, match="number of image tokens"):
        small._grown("image", behind, shapes, {36})
    with pytest.raises(small._Unlike, match="text that grows"):
        small._grown("text", {"text": reading((0, 5), 5)}, [(2, 5, 7), (2, 9, 7)], {32})
    with pytest.raises(small._Unlike, match="rows or width"):
        small._grown("image", behind, [(2, 16, 7), (2, 40, 9)], {32})


def test_biases_of_distances_are_those_of_an_embedding() -> None:
    table, distances = nn.Embedding(32, 6), torch.randint(0, 32, (300, 310))
    ids = torch.randint(0, 32, (2, 9))
    with torch.no_grad(), shortcuts.LightAttention():
        quick, few = table(distances), table(ids)
    with torch.no_grad():
        assert torch.equal(quick, table(distances))
        assert torch.equal(few, table(ids))
    assert quick.permute(2, 0, 1).is_contiguous()
    assert few.is_contiguous()


@pytest.mark.parametrize("family", ["sd15", "sd3", "flux", "zimage", "kandinsky22"])
def test_json_holds_all_that_is_printed(
    family: str, tiny_folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["inspect", str(tiny_folder(family)), "--images", "96"]
    arguments += [f"--pipe-arg={text}" for text in tiny.pipe_args(family)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {field.name for field in fields(ModelReport)}
    encoders = {name: EncoderReport(**part) for name, part in told.pop("encoders").items()}
    denoisers = {name: DenoiserReport(**part) for name, part in told.pop("denoisers").items()}
    sites = [SiteReport(**site) for site in told.pop("sites")]
    inspect_command.print_inspection(
        ModelReport(**told, encoders=encoders, denoisers=denoisers, sites=sites)
    )
    assert capsys.readouterr().out == printed
    assert told["class_name"] in printed
    for name, encoder in encoders.items():
        (line,) = (line for line in printed.splitlines() if line.startswith(f"{name} "))
        if encoder.limit is not None:
            assert f"at most {encoder.limit} tokens" in line
        assert encoder.fed is None or all(path in line for path in encoder.fed)
    assert all(
        part.guidance and part.guidance in printed for part in denoisers.values() if part.steps
    )
    for site in sites:
        assert site.shape
        assert site.name.endswith(f":{site.stream}")
        assert f"{site.name} " in printed
        assert " x ".join(map(str, site.shape)) in printed
    assert told["planned_images"] == 96
    assert told["planned_bytes"] == 96 * told["bytes_per_image"] > 0


# What the sources of the pipelines say: hidden_states[-2] is the output of the last layer but one, last_hidden_state
# that of the final norm; three encoders are joined by channel and in sequence, one is projected, one is asked for its
# pooled vector alone, and FLUX.2 and HiDream take several layers.
FED = {
    "sd15": {"text_encoder": ["final_layer_norm"]},
    "sdxl": {
        "text_encoder": ["encoder.layers.1"],
        "text_encoder_2": ["text_model.encoder.layers.2"],
    },
    "sd3": {
        "text_encoder": ["text_model.encoder.layers.1"],
        "text_encoder_2": ["text_model.encoder.layers.1"],
        "text_encoder_3": ["encoder.final_layer_norm"],
    },
    "flux": {"text_encoder": [], "text_encoder_2": ["encoder.final_layer_norm"]},
    "flux2": {
        "text_encoder": [
            "model.language_model.layers.0",
            "model.language_model.layers.1",
            "model.language_model.norm",
        ]
    },
    "hidream": {
        "text_encoder": [],
        "text_encoder_2": [],
        "text_encoder_3": ["encoder.final_layer_norm"],
        "text_encoder_4": ["model.layers.0", "model.layers.1", "model.norm"],
    },
    "hunyuandit": {
        "text_encoder": ["encoder.layer.1"],
        "text_encoder_2": ["encoder.final_layer_norm"],
    },
    "unclip": {"text_encoder": ["text_model.final_layer_norm"]},
    "kolors": {"text_encoder": ["encoder.layers.1"]},  # its weights are made by skip_init
}


def without_level(fed: dict[str, list[str] | None]) -> dict[str, list[str] | None]:
    """The same layers in both layouts of CLIP: transformers dropped the level `text_model` from one class."""
    return {
        name: paths and [path.removeprefix("text_model.") for path in paths]
        for name, paths in fed.items()
    }


@pytest.mark.parametrize("family", FED)
def test_the_layers_that_a_denoiser_is_fed(family: str, tiny_folder: Folder) -> None:
    report = inspect_configs(
        str(tiny_folder(family)), LoadSettings(pipe_arg=tiny.pipe_args(family))
    )
    found = {name: encoder.fed for name, encoder in report.encoders.items()}
    assert without_level(found) == without_level(FED[family])


def test_encoders_joined_by_channel_in_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "shapes-mmdit"]) == 0
    out = capsys.readouterr().out
    line = "at most 16 tokens; denoiser is fed text_model.encoder.layers.0"
    assert out.count(line) == 2
    assert "one call a step: [unconditional, conditional]" in out


def test_layers_that_are_handed_on_are_found_among_many() -> None:
    for tapped in ([], [0], [39], [3, 4, 20, 39], list(range(40))):
        asked: list[int] = []

        def reached(index: int, tapped: list[int] = tapped, asked: list[int] = asked) -> Reached:
            asked.append(index)
            return frozenset(("states", "channels", at) for at in tapped if at >= index)

        assert _taps(40, cache(reached)) == tapped
        assert len(set(asked)) <= 2 + 6 * max(1, len(tapped))


@pytest.mark.parametrize("family", ["paradigms", "unidiffuser"])
def test_configs_tell_of_batches_and_weights_what_the_loaded_model_does(
    family: str, tiny_folder: Folder
) -> None:
    """Steps that are solved side by side in one call, and a word table that loading parts from its output layer."""
    settings = LoadSettings(pipe_arg=tiny.pipe_args(family))
    found = inspect_configs(str(tiny_folder(family)), settings)
    loaded = checks_inspect.inspect_model(load_model(str(tiny_folder(family)), settings))
    assert found.max_batch is loaded.max_batch is None
    assert found.encoders == loaded.encoders
    assert found.denoisers == loaded.denoisers
    assert found.sites == loaded.sites
