"""A checkpoint whose pipeline and denoiser are Python code in its own folder."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from pipelines import tokenizers

from t2iprobe.activations.generate import ImageRequest, generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.cli.main import main
from t2iprobe.families.reading import load_family
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings
from t2iprobe.places import Place

CODE = Path(__file__).parents[1] / "own_code"
TRUST = LoadSettings(trust_remote_code=True)


def module(name: str) -> ModuleType:
    """One file of the checkpoint's code."""
    spec = importlib.util.spec_from_file_location(f"own_code_{name}", CODE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from diffusers import FlowMatchEulerDiscreteScheduler
    from transformers import CLIPTextConfig, CLIPTextModel

    path = tmp_path_factory.mktemp("own") / "house-checkpoint"
    torch.manual_seed(0)
    module("net").House().save_pretrained(path / "house")
    tokenizer = tokenizers.clip_tokenizer()
    tokenizer.save_pretrained(path / "tokenizer")
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    CLIPTextModel(text).save_pretrained(path / "text_encoder")
    FlowMatchEulerDiscreteScheduler().save_pretrained(path / "scheduler")
    shutil.copy(CODE / "net.py", path / "house")
    shutil.copy(CODE / "pipeline.py", path)
    index = {
        "_class_name": ["pipeline", "HousePipeline"],
        "_diffusers_version": "0.36.0",
        "house": ["net", "House"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    }
    (path / "model_index.json").write_text(json.dumps(index))
    return path


@pytest.mark.parametrize("command", ["doctor", "inspect", "run"])
def test_code_runs_only_when_trusted(
    command: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")] if command == "run" else []
    model = ["--model", str(folder)] if command == "run" else [str(folder)]
    assert main([command, *model, *out]) == 2
    said = capsys.readouterr().err
    assert "Python code of its own" in said
    assert "--trust-remote-code" in said
    assert not (tmp_path / "run").exists()


def test_doctor_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(folder), "--trust-remote-code"]) == 0
    assert "[conditional, unconditional]" in capsys.readouterr().out


def test_sites_are_found_without_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", str(folder), "--trust-remote-code", "--json"]
    assert main(arguments) == 0
    from_configs = json.loads(capsys.readouterr().out)
    assert main([*arguments, "--trial"]) == 0
    from_weights = json.loads(capsys.readouterr().out)
    blocks = {site["name"].partition(":")[0] for site in from_weights["sites"]}
    listed = {site["name"].partition(":")[0] for site in from_configs["sites"]}
    assert blocks - listed == {"house.conditioning"}
    assert listed <= blocks
    rooms = {site["name"]: site["shape"] for site in from_weights["sites"]}
    assert rooms["house.rooms.2:image"] == [64, 16]
    assert rooms["house.rooms.2:text"] == [24, 16]


def test_values_are_those_of_the_blocks(folder: Path) -> None:
    model = load_model(str(folder), TRUST)
    family = load_family("shapes-pair")
    requests = [ImageRequest(t.id, 0, t.prompt, family.spans(t)) for t in family.tasks()[:3]]
    plan = plan_capture(model, sites="house.rooms.1:*", at=(0.0, 1.0))
    given: list[Any] = []
    room = model.module("house", "rooms.1")
    handle = room.register_forward_hook(lambda _module, _args, output: given.append(output))
    try:
        (batch,) = generate(model, requests, plan, 3, run_seed=0)
    finally:
        handle.remove()
    for step, (scene, _) in ((0, given[0]), (3, given[-1])):
        expected = scene[:3].mean(1)  # the conditional half comes first
        got = batch.activations[Place.parse(f"house.rooms.1:image/mean@{step}")]
        assert torch.allclose(got, expected, atol=1e-6)


def test_run_to_the_end(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ["--tasks", "40", "--seeds", "1", "--folds", "4", "--out", str(out)]
    assert main(["run", "--model", str(folder), "--trust-remote-code", *asked]) == 0
    manifest = json.loads((out / "run.json").read_text())
    assert manifest["model"]["pipeline_class"] == "HousePipeline"
    assert (out / "summary.json").is_file()


def test_a_call_that_hands_everything_on(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "handing"
    shutil.copytree(folder, copy)
    source = (CODE / "pipeline.py").read_text()
    source += """

class HandingPipeline(HousePipeline):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs)
"""
    (copy / "pipeline.py").write_text(source)
    index = json.loads((copy / "model_index.json").read_text())
    index["_class_name"] = ["pipeline", "HandingPipeline"]
    (copy / "model_index.json").write_text(json.dumps(index))
    given = ["--trust-remote-code", "--steps", "3"]
    assert main(["doctor", str(copy), *given]) == 0


WEIGHTS = "house/diffusion_pytorch_model.safetensors"


def half(file: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        whole = (folder / file).read_bytes()
        (folder / file).write_bytes(whole[: len(whole) // 2])

    return change


def put(file: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_text(text)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights cut": (half(WEIGHTS), f"{WEIGHTS} cannot be read as safetensors"),
    "weights empty": (put(WEIGHTS, ""), f"{WEIGHTS} cannot be read as safetensors"),
    "weights gone": (lambda f: (f / WEIGHTS).unlink(), "house/*.safetensors is missing"),
    "another width": (
        put("house/config.json", '{"width": 24}'),
        "(16, 48 in the file, 24, 48 by the config)",
    ),
    "tokenizer cut": (half("tokenizer/tokenizer.json"), "tokenizer/tokenizer.json, line "),
    "code gone": (lambda f: (f / "house/net.py").unlink(), "house/net.py, Python code of its own"),
    "pipeline gone": (
        lambda f: (f / "pipeline.py").unlink(),
        "pipeline.py, Python code of its own",
    ),
    "no Python": (put("house/net.py", "\n\ndef x(:"), "house/net.py, line 3: no Python"),
    "no Python in the pipeline": (put("pipeline.py", "x = (\n"), "pipeline.py, line 1: no Python"),
    "code that fails": (put("house/net.py", "\n1 / 0\n"), "house/net.py, line 2: division by zero"),
    "an unknown name": (put("house/net.py", "nope\n"), "house/net.py, line 1: name 'nope'"),
    "code that exits": (put("house/net.py", "exit(3)\n"), "house/net.py, line 1 ends the program"),
    "a call that exits": (
        lambda f: (f / "pipeline.py").write_text(
            (f / "pipeline.py").read_text().replace("prompts = [prompt]", "raise SystemExit(3) #")
        ),
        "ends the program when it is called (exit 3)",
    ),
}
"""What may be wrong with such a folder, and what is told of it."""


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_wrong_with_it_is_told_in_one_line(
    what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, told = DAMAGE[what]
    copy = Path(shutil.copytree(folder, tmp_path / "damaged"))
    change(copy)
    assert main(["doctor", str(copy), "--trust-remote-code"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    assert told in said[0]
    assert "pass --trust-remote-code" not in said[0]


def test_a_variant_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(folder), "--trust-remote-code", "--variant=fp16"]) == 2
    assert "no variant fp16; leave --variant out" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["no Python", "code that exits"])
def test_inspect_tells_of_code_that_cannot_run(
    what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, told = DAMAGE[what]
    copy = Path(shutil.copytree(folder, tmp_path / "damaged"))
    change(copy)
    assert main(["inspect", str(copy), "--trust-remote-code"]) == 2
    assert told in capsys.readouterr().err
