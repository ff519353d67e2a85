"""`t2iprobe inspect` from configs: nothing is downloaded or allocated that is not needed, and what fails is named."""

import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import full_size
import pytest
import stub_hub
import tiny
import torch
from rich.console import Console
from torch import nn

from t2iprobe.cli import main
from t2iprobe.models.checks import light
from t2iprobe.models.checks.handed import Reached, _taps
from t2iprobe.models.checks.inspect import inspect_configs
from t2iprobe.models.settings import LoadSettings
from t2iprobe.report import inspection

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
        "from t2iprobe.models.checkpoint.hub import fetch_configs; from t2iprobe.models.settings import LoadSettings;"
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
    assert report.denoisers["unet"].blocks == 13
    assert report.encoders["text_encoder"].layers == 3
    assert "unet.down_blocks.0" in [site.name for site in report.sites]


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


@pytest.mark.parametrize("terminal", [False, True])
def test_names_are_never_cut(
    terminal: bool,
    tiny_folder: Folder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setattr(
            inspection,
            "Console",
            lambda **options: Console(width=60, force_terminal=True, no_color=True, **options),
        )
    report = inspect_configs(
        str(tiny_folder("flux")), LoadSettings(pipe_arg=tiny.pipe_args("flux"))
    )
    inspection.print_inspection(report)
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
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_a_full_size_model_fits_in_four_gigabytes(name: str, tmp_path: Path) -> None:
    part, millions, site, shape = FULL[name]
    report = json.loads(
        run_apart("-m", "t2iprobe", "inspect", str(full_size.write(name, tmp_path)), "--json")
    )
    assert report["tried"], report["notes"]
    assert report["denoisers"][part]["parameters"] / 1e6 == pytest.approx(millions, rel=0.01)
    assert report["denoisers"][part]["guidance"]
    shapes = {found["name"]: found["shape"] for found in report["sites"]}
    assert shapes[site] == shape
    assert all(shapes.values())
    # The largest child so far: this one or a smaller one.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < 4e9


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
