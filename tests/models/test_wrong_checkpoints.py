"""Checkpoints that are damaged, incomplete or of another kind: one line and exit code 2, and nothing written."""

import json
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from t2iprobe.cli.main import main
from t2iprobe.models.identity import weights_hash
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings

Folder = Callable[[str], Path]
Change = Callable[[Path], object]

UNET = "unet/diffusion_pytorch_model"
ENCODER = "text_encoder/model"
COMMANDS = {
    "inspect": ["inspect"],
    "doctor": ["doctor"],
    "plan": ["plan", "--model"],
    "run": ["run", "--model"],
}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers of libraries keep the stream of the test that loaded them, which is closed by now."""
    monkeypatch.setattr(logging, "raiseExceptions", False)


def copied(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def refused(
    capfd: pytest.CaptureFixture[str], command: str, folder: Path | str, out: Path, *more: str
) -> str:
    """The one line that a command says of a checkpoint it cannot use; nothing is left where a run would be."""
    asked = [*COMMANDS[command], str(folder), *more]
    if command in ("run", "plan"):
        asked += [
            "--family=shapes-single",
            "--tasks=48",
            "--seeds=1",
            "--folds=3",
            "--out",
            str(out),
        ]
    capfd.readouterr()
    assert main(asked) == 2
    said = capfd.readouterr().err.strip().splitlines()
    assert len(said) == 1, said
    assert said[0].startswith("t2iprobe: error: ")
    assert not out.exists()
    return said[0]


def edit(file: str, **values: Any) -> Change:
    """Change entries of a JSON file; None takes one out."""

    def change(folder: Path) -> None:
        held = json.loads((folder / file).read_text()) | values
        kept = {key: value for key, value in held.items() if value is not None}
        (folder / file).write_text(json.dumps(kept))

    return change


def text(file: str, content: str | bytes) -> Change:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / file).write_bytes(data)


def gone(file: str) -> Change:
    return lambda folder: (folder / file).unlink()


def resized(file: str) -> Change:
    def change(folder: Path) -> None:
        weights = load_file(folder / file)
        weights[min(weights)] = torch.zeros(3, 3)
        save_file(weights, folder / file, metadata={"format": "pt"})

    return change


def sharded(folder: Path) -> list[Path]:
    """Split the weights of the UNet into two shards with their index."""
    whole = folder / f"{UNET}.safetensors"
    weights = load_file(whole)
    keys, half = sorted(weights), len(weights) // 2
    names = [f"diffusion_pytorch_model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    for name, part in zip(names, (keys[:half], keys[half:]), strict=True):
        inside = {key: weights[key] for key in part}
        save_file(inside, folder / "unet" / name, metadata={"format": "pt"})
    index = {key: names[position >= half] for position, key in enumerate(keys)}
    whole.unlink()
    (folder / f"{UNET}.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": index})
    )
    return [folder / "unet" / name for name in names]


def shards(then: Change) -> Change:
    def change(folder: Path) -> None:
        sharded(folder)
        then(folder)

    return change


def moved(file: str, target: str) -> Change:
    return lambda folder: (folder / file).rename(folder / target)


def pickled(file: str, content: bytes | None = None) -> Change:
    """Weights as torch.save writes them, or other bytes under that name."""

    def change(folder: Path) -> None:
        whole = folder / f"{file}.safetensors"
        name = "pytorch_model" if file == ENCODER else "diffusion_pytorch_model"
        target = whole.with_name(f"{name}.bin")
        if content is None:
            torch.save(load_file(whole), target)
        else:
            target.write_bytes(content)
        whole.unlink()

    return change


def as_folder(file: str) -> Change:
    def change(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).mkdir()

    return change


def linked_nowhere(file: str) -> Change:
    def change(folder: Path) -> None:
        (folder / file).unlink()
        (folder / file).symlink_to(folder / "nowhere")

    return change


def no_words(folder: Path) -> None:
    file = folder / "tokenizer" / "tokenizer.json"
    held = json.loads(file.read_text())
    held["model"]["vocab"] = {}
    file.write_text(json.dumps(held))


INDEX, SHARDS = "model_index.json", f"{UNET}.safetensors.index.json"
SECOND = "unet/diffusion_pytorch_model-00002-of-00002.safetensors"

EVERYWHERE: dict[str, tuple[Change, str]] = {
    "unet config cut": (text("unet/config.json", "{"), "unet/config.json, line 1: not JSON"),
    "encoder config a list": (text("text_encoder/config.json", "[]"), "a JSON list"),
    "unet config binary": (
        text("unet/config.json", b"\xff\xfe\x00"),
        "unet/config.json is not text",
    ),
    "index binary": (text(INDEX, b"\xff\xfe\x00"), f"{INDEX} is not text"),
    "index a list": (text(INDEX, "[]"), f"{INDEX} holds no settings"),
    "scheduler cut": (
        text("scheduler/scheduler_config.json", "{"),
        "_config.json, line 1: not JSON",
    ),
    "tokenizer cut": (text("tokenizer/tokenizer.json", "{"), "tokenizer/tokenizer.json, line 1"),
    "tokenizer settings cut": (
        text("tokenizer/tokenizer_config.json", "{"),
        "_config.json, line 1",
    ),
    "tokenizer without words": (no_words, "its tokenizer ("),
    "tokenizer without parts": (text("tokenizer/tokenizer.json", "{}"), "its tokenizer ("),
    "unet config gone": (gone("unet/config.json"), "unet/config.json is missing"),
    "encoder config gone": (
        gone("text_encoder/config.json"),
        "text_encoder/config.json is missing",
    ),
    "scheduler config gone": (
        gone("scheduler/scheduler_config.json"),
        "scheduler/scheduler_config.json is missing",
    ),
    "card cut": (text("card.json", "{"), "card.json"),
    "card of numbers": (text("card.json", '{"call": 3}'), "card.json"),
    "class a number": (edit(INDEX, _class_name=3), "names no pipeline class"),
    "class of a model": (edit(INDEX, _class_name="UNet2DConditionModel"), "no class of a pipeline"),
    "component a number": (edit(INDEX, unet=["diffusers", 3]), "has to be [library, class]"),
    "component a word": (edit(INDEX, unet="unet"), "unet has to be [library, class]"),
    "class of more parts": (
        edit(INDEX, _class_name="StableDiffusionXLPipeline"),
        "text_encoder_2, tokenizer_2",
    ),
    "too few training steps": (
        edit("scheduler/scheduler_config.json", num_train_timesteps=1),
        "can only handle maximal 1 timesteps",
    ),
    "index a folder": (as_folder(INDEX), f"has no {INDEX}"),
}
"""What every command tells, inspect included: it needs no weights."""

TOLD_BY_A_CALL = ("class of more parts", "too few training steps")
"""What fits together until the pipeline is called, so `inspect` tells it with --trial."""

OF_WEIGHTS: dict[str, tuple[Change, str]] = {
    "zero bytes": (text(f"{UNET}.safetensors", b""), "cannot be read as safetensors"),
    "other bytes": (text(f"{UNET}.safetensors", b"hello" * 99), "cannot be read as safetensors"),
    "a folder in their place": (as_folder(f"{UNET}.safetensors"), "unet/*.safetensors is missing"),
    "a link to nothing": (linked_nowhere(f"{UNET}.safetensors"), "unet/*.safetensors is missing"),
    "a tensor of another size": (resized(f"{UNET}.safetensors"), "the size of conv_in.bias is not"),
    "a tensor of the encoder": (resized(f"{ENCODER}.safetensors"), "is not what its config tells"),
    "a shard missing": (shards(gone(SECOND)), f"{SECOND} is missing"),
    "an empty shard": (shards(text(SECOND, b"")), "cannot be read as safetensors"),
    "shards without a list": (shards(gone(SHARDS)), f"{SHARDS} is missing"),
    "a cut list of shards": (shards(text(SHARDS, "{")), f"{SHARDS}, line 1: not JSON"),
    "a list of shards of nothing": (shards(text(SHARDS, "{}")), f"{SHARDS} lists no shards"),
    "no list but a list": (shards(text(SHARDS, "[]")), f"{SHARDS} holds no settings"),
    "junk for torch.load": (pickled(UNET, b"junk" * 99), f"{UNET}.bin is no file of tensors"),
    "one part as a variant": (
        moved(f"{UNET}.safetensors", f"{UNET}.fp16.safetensors"),
        "saved as variant fp16; pass --variant fp16",
    ),
    "a config of another width": (
        edit("unet/config.json", cross_attention_dim=64),
        "(16, 32 in the file, 16, 64 by the config)",
    ),
    "a config that is none": (
        edit("unet/config.json", block_out_channels=[7]),
        "its unet (UNet2DConditionModel) cannot be made from its files: Must provide the same number",
    ),
    "an unknown class": (edit(INDEX, unet=["diffusers", "Nope"]), "diffusers has no class Nope"),
}
"""What is told when the weights are read."""


@pytest.mark.parametrize("what", EVERYWHERE)
def test_what_is_wrong_with_a_folder_is_told_by_every_command(
    what: str, tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change, expected = EVERYWHERE[what]
    folder = copied(tiny_folder("sd15"), tmp_path / "wrong")
    change(folder)
    small = [f"--pipe-arg={text}" for text in tiny.pipe_args("sd15")]
    for command in ("inspect", "doctor", "run"):
        trial = ["--trial"] if command == "inspect" and what in TOLD_BY_A_CALL else []
        said = refused(capfd, command, folder, tmp_path / "run", *small, *trial)
        assert expected in said, command


@pytest.mark.parametrize("what", OF_WEIGHTS)
def test_what_is_wrong_with_weights_is_told(
    what: str, tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change, expected = OF_WEIGHTS[what]
    folder = copied(tiny_folder("sd15"), tmp_path / "wrong")
    change(folder)
    for command in ("doctor", "plan", "run"):
        assert expected in refused(capfd, command, folder, tmp_path / "run"), command


def test_a_pickle_of_code_does_not_run(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    folder = copied(tiny_folder("sd15"), tmp_path / "code")
    pickled(UNET, pickle.dumps(Code()))(folder)
    assert f"{UNET}.bin is no file of" in refused(capfd, "doctor", folder, tmp_path / "run")
    assert not (tmp_path / "ran").exists()


def test_old_weights_are_read_and_told_apart(tiny_folder: Folder, tmp_path: Path) -> None:
    """Folders with .bin files alone: loaded without running code, and their content is part of the weight hash."""
    source = tiny_folder("sd15")
    folder = copied(source, tmp_path / "old")
    for file in (UNET, ENCODER):
        pickled(file)(folder)
    hashes = {weights_hash(source), weights_hash(folder)}
    assert load_model(str(folder)).provenance["weights"] in hashes
    weights = load_file(source / f"{UNET}.safetensors")
    weights[min(weights)] += 1
    torch.save(weights, folder / f"{UNET}.bin")
    hashes.add(weights_hash(folder))
    assert len(hashes) == 3
    (source / "unet" / "extra.bin").write_bytes(b"never read beside safetensors")
    try:
        assert weights_hash(source) in hashes
    finally:
        (source / "unet" / "extra.bin").unlink()


def test_shards_are_loaded_as_one_file_is(tiny_folder: Folder, tmp_path: Path) -> None:
    whole = load_model(str(tiny_folder("sd15"))).modules["unet"].state_dict()
    folder = copied(tiny_folder("sd15"), tmp_path / "shards")
    sharded(folder)
    split = load_model(str(folder)).modules["unet"].state_dict()
    assert all(torch.equal(whole[key], split[key]) for key in whole)


def test_variants_are_told_by_what_is_there(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copied(tiny_folder("sd15"), tmp_path / "two")
    out = tmp_path / "run"
    told = refused(capfd, "doctor", folder, out, "--variant=fp16")
    assert told.endswith("its weights have no variant fp16; leave --variant out")
    for file in list(folder.glob("*/*.safetensors")):
        shutil.copy(file, file.with_suffix(".fp16.safetensors"))
    told = refused(capfd, "doctor", folder, out, "--variant=bf16")
    assert told.endswith("no variant bf16; pass --variant fp16 or leave --variant out")
    assert load_model(str(folder), LoadSettings(variant="fp16"))
    assert load_model(str(folder))


@pytest.mark.parametrize(
    "name", ["Ünïcödé 模型", "two words and 'quotes'", "[bold]x[/bold]", "a\nb"]
)
def test_names_of_folders_are_taken_as_they_are(
    name: str, tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copied(tiny_folder("sd15"), tmp_path / name)
    assert load_model(str(folder)).provenance["name"] == str(folder)
    (tmp_path / "link").symlink_to(folder)
    assert load_model(str(tmp_path / "link")).class_name == "StableDiffusionPipeline"
    (folder / INDEX).unlink()
    told = refused(capfd, "doctor", folder, tmp_path / "run")
    assert f"{' '.join(str(folder).splitlines())} has no {INDEX}" in told


FILES: dict[str, tuple[str, str]] = {
    "--single-file={folder}": ("inspect", "is a folder; give one .safetensors file"),
    "--single-file={folder}/nope.safetensors": ("inspect", "does not exist"),
    "--single-file={empty}": ("inspect", "cannot be read as safetensors"),
    "--single-file={index}": ("doctor", "is no .safetensors file"),
    "--single-file={vae}": ("doctor", "does not fit the unet of"),
    "--lora={folder}": ("inspect", "name one .safetensors file of this folder: none"),
    "--lora={folder}/nope": ("inspect", "does not exist"),
    "--lora={empty}": ("inspect", "cannot be read as safetensors"),
    "--lora={vae}": ("doctor", "use a LoRA made for this checkpoint"),
    "--lora={other}": ("doctor", "use a LoRA made for this checkpoint"),
    "--lora={wide}": ("doctor", "size mismatch for down_blocks"),
}
"""Files given beside a checkpoint, the least that is asked of them, and what is told."""


@pytest.mark.parametrize("option", FILES)
def test_files_that_go_with_a_checkpoint(
    option: str, tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if "lora" in option:
        pytest.importorskip("peft")
    command, expected = FILES[option]
    folder = tiny_folder("sd15")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    for name, layer, width in (
        ("other", "transformer.single_transformer_blocks.0.attn.to_q", 32),
        ("wide", "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q", 99),
    ):
        ends = {"lora_A": torch.zeros(4, width), "lora_B": torch.zeros(width, 4)}
        file = tmp_path / f"{name}.safetensors"
        save_file({f"{layer}.{end}.weight": value for end, value in ends.items()}, file)
    places = {
        "folder": folder,
        "index": folder / INDEX,
        "vae": folder / "vae" / "diffusion_pytorch_model.safetensors",
        **{name: tmp_path / f"{name}.safetensors" for name in ("empty", "other", "wide")},
    }
    for asked in dict.fromkeys((command, "doctor")):
        told = refused(capfd, asked, folder, tmp_path / "run", option.format(**places))
        assert expected in told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("https://huggingface.co/owner/name/tree/main", "did you mean owner/name?"),
        ("SHAPES-MMDIT", "did you mean shapes-mmdit"),
        ("x" * 300, "unknown model"),
        ("owner/name/", "unknown model 'owner/name/'"),
    ],
)
def test_names_that_are_none(
    name: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for command in COMMANDS:
        assert told in refused(capfd, command, name, tmp_path / "run")


def test_an_index_with_a_part_too_many_is_inspected(
    tiny_folder: Folder, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copied(tiny_folder("sd15"), tmp_path / "more")
    shutil.copytree(folder / "vae", folder / "spare")
    edit(INDEX, spare=["diffusers", "AutoencoderKL"])(folder)
    assert main(["inspect", str(folder), "--height=32", "--width=32", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert not report["missing"]
    assert report["denoisers"].keys() == {"unet"}
