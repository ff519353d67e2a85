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
from pipelines import full_size
from rich.console import Console
from torch import nn

from t2iprobe.checks import inspect as checks_inspect
from t2iprobe.checks.fed_layers import Reached, _taps
from t2iprobe.checks.inspect import (
    DenoiserReport,
    EncoderReport,
    ModelReport,
    PartReport,
    SiteReport,
    inspect_configs,
    inspect_model,
    text_layers,
)
from t2iprobe.cli import inspect as inspect_command
from t2iprobe.cli.main import main
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
    assert report.lists_denoisers
    assert not report.missing


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
    assert report.missing == {"vae": "diffusers has no class FutureCodec that can be imported"}
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
    assert re.search(r"text_encoder\S*layers\.0:text +CLIPEncoderLayer +\d+", out)
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


FULL = {  # weights of the denoiser in millions, a block and its width as the papers and repositories tell
    "sd15": ("unet", 860, "unet.mid_block", 1280),
    "sdxl": ("unet", 2567, "unet.mid_block", 1280),
    "sd3": ("transformer", 2028, "transformer.transformer_blocks.12", 1536),
    "flux": ("transformer", 11901, "transformer.single_transformer_blocks.37", 3072),
    "pixart_sigma": ("transformer", 611, "transformer.transformer_blocks.27", 1152),
    "qwenimage": ("transformer", 20430, "transformer.transformer_blocks.59", 3072),
    "zimage": ("transformer", 6155, "transformer.layers.29", 3840),
}
LIMITS = {  # most tokens of a prompt, by encoder
    "sd15": [77],
    "sdxl": [77, 77],
    "sd3": [77, 77, 256],
    "flux": [77, 512],
    "pixart_sigma": [300],
    "qwenimage": [512],
    "zimage": [512],
}


def check_full_size(name: str, report: dict[str, Any]) -> None:
    part, millions, site, width = FULL[name]
    assert not report["tried"]
    assert not report["missing"]
    assert report["denoisers"][part]["parameters"] / 1e6 == pytest.approx(millions, rel=0.01)
    assert {entry["name"]: entry["width"] for entry in report["sites"]}[site] == width
    assert [encoder["limit"] for encoder in report["encoders"].values()] == LIMITS[name]


@pytest.mark.parametrize("name", ["sdxl", "qwenimage"])
def test_a_full_size_model(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(full_size.write(name, tmp_path)), "--json"]) == 0
    check_full_size(name, json.loads(capsys.readouterr().out))


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


@pytest.mark.parametrize("family", ["sd15", "sd3", "flux", "zimage", "kandinsky22"])
def test_json_holds_all_that_is_printed(
    family: str, tiny_folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["inspect", str(tiny_folder(family)), "--trial", "--images", "96"]
    arguments += [f"--pipe-arg={text}" for text in tiny.pipe_args(family)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {field.name for field in fields(ModelReport)}
    encoders = {name: EncoderReport(**part) for name, part in told.pop("encoders").items()}
    denoisers = {name: DenoiserReport(**part) for name, part in told.pop("denoisers").items()}
    others = {name: PartReport(**part) for name, part in told.pop("others").items()}
    sites = [SiteReport(**site) for site in told.pop("sites")]
    inspect_command.print_inspection(
        ModelReport(**told, encoders=encoders, denoisers=denoisers, others=others, sites=sites)
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
    model = load_model(str(tiny_folder(family)), LoadSettings(pipe_arg=tiny.pipe_args(family)))
    found = {name: encoder.fed for name, encoder in inspect_model(model).encoders.items()}
    assert without_level(found) == without_level(FED[family])


def test_encoders_joined_by_channel_in_the_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "shapes-mmdit", "--trial"]) == 0
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
def test_configs_tell_of_weights_what_the_loaded_model_does(
    family: str, tiny_folder: Folder
) -> None:
    """Steps that are solved side by side in one call, and a word table that loading parts from its output layer."""
    settings = LoadSettings(pipe_arg=tiny.pipe_args(family))
    report = inspect_configs(str(tiny_folder(family)), settings)
    loaded = inspect_model(load_model(str(tiny_folder(family)), settings))
    assert loaded.max_batch is None
    assert report.parameters == loaded.parameters
    for parts in ("encoders", "denoisers", "others"):
        counts, expected = (
            {name: part.parameters for name, part in getattr(source, parts).items()}
            for source in (report, loaded)
        )
        assert counts == expected


def test_a_vision_tower_beside_the_text_model_has_no_sites() -> None:
    """The longer list of layers is the tower's, the word table lies beside the other."""
    tower = nn.ModuleList(nn.TransformerEncoderLayer(8, 2) for _ in range(5))
    layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2) for _ in range(3))
    text = nn.ModuleDict({"embed_tokens": nn.Embedding(10, 8), "layers": layers})
    module = nn.ModuleDict({"visual": nn.ModuleDict({"blocks": tower}), "language": text})
    assert text_layers(module) == [f"language.layers.{n}" for n in range(3)]


def test_an_error_of_ours_shows_itself(
    tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def width(_: nn.Module) -> int:
        return undefined_name  # type: ignore[name-defined]  # noqa: F821

    monkeypatch.setattr(checks_inspect, "width", width)
    with pytest.raises(NameError, match="undefined_name"):
        main(["inspect", str(tiny_folder("sd15"))])
