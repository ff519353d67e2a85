"""The real hub client against a stub server on the loopback: what a user reads when a checkpoint cannot be had."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stub_hub

from t2iprobe.errors import ModelError
from t2iprobe.models.hub import fetch, missing_files, planned_bytes
from t2iprobe.models.settings import LoadSettings

SCRIPT = """
import io, json, os, sys, warnings
from contextlib import redirect_stderr
from pathlib import Path
warnings.filterwarnings("ignore")
from t2iprobe.cli.main import main
from t2iprobe.errors import T2IProbeError
from t2iprobe.models import hub
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings
out = {}
hub.ASK_ABOVE = float(os.environ.get("ASK_ABOVE", hub.ASK_ABOVE))
for label, name, options in json.load(sys.stdin):
    if "command" in options:
        with redirect_stderr(io.StringIO()) as said:
            code = main([options["command"], name, *options["more"]])
        out[label] = f"{code} {said.getvalue()}"
        continue
    if "single_file" in options:
        options["single_file"] = Path(options["single_file"])
    try:
        out[label] = "loaded " + load_model(name, LoadSettings(**options)).class_name
    except T2IProbeError as error:
        out[label] = f"{type(error).__name__}: {error}"
print(json.dumps(out))
"""


def ask(
    cases: list[tuple[str, str, dict[str, Any]]], **environment: str
) -> tuple[dict[str, str], str]:
    """What happens in a process with this environment, and everything it wrote."""
    keep = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("HF_", "TRANSFORMERS_")) and not key.lower().endswith("_proxy")
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(cases),
        env=keep
        | environment
        | {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


@pytest.fixture(scope="module")
def answers(
    tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """One process that asks for good and bad repositories; its cache is then used offline and damaged."""
    plain = tiny_folder("sd15")
    both = tmp_path_factory.mktemp("repositories") / "both"
    shutil.copytree(plain, both)
    for file in plain.glob("*/*.safetensors"):
        shutil.copy(file, both / file.parent.name / f"{file.stem}.fp16.safetensors")
    names = dict.fromkeys(("sd15", "shards", "configs", "asked", "fresh"), plain)
    modular = both.parent / "modular"
    modular.mkdir()
    (modular / "modular_model_index.json").write_text("{}")
    server, requests = stub_hub.serve(names | {"both": both, "modular": modular})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path_factory.mktemp("home")),
    }
    try:
        yield _ask_everything(where, plain) | {"requests": requests}
    finally:
        server.shutdown()
        server.server_close()


def by_command(name: str, *more: str) -> list[tuple[str, str, dict[str, Any]]]:
    """The cases in which the command line is asked for a repository."""
    label = " ".join((name, *more))
    return [
        (f"{command} {label}", name, {"command": command, "more": [*more]})
        for command in ("inspect", "doctor")
    ]


def _ask_everything(where: dict[str, str], plain: Path) -> dict[str, Any]:
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("good", "tiny/sd15", {}),
        ("shards", "tiny/shards", {"revision": stub_hub.COMMIT}),
        ("variant", "tiny/both", {"variant": "fp16"}),
        ("single", "tiny/configs", {"single_file": str(next((plain / "unet").glob("*.safe*")))}),
        ("modular", "tiny/modular", {}),
        ("gated", "gated/x", {}),
        ("absent", "absent/x", {}),
        ("private", "private/x", {}),
        ("revision", "tiny/sd15", {"revision": "nonsense"}),
        ("huge", "huge/sd15", {}),
    ]
    loud = {"HF_HUB_VERBOSITY": "debug", "HF_DEBUG": "1"}
    cases += by_command("gated/x") + by_command("absent/x") + by_command("tiny/modular")
    cases += by_command("tiny/sd15", "--revision=nonsense") + by_command("huge/sd15")
    first, written = ask(cases, **where, **loud, HF_TOKEN="hf_goodsecret")
    limited: list[tuple[str, str, dict[str, Any]]] = [
        ("unasked", "tiny/asked", {}),
        ("yes", "tiny/asked", {"yes": True}),
    ]
    second, more = ask(limited, **where, **loud, ASK_ABOVE="1000")
    bad, bad_written = ask(
        [("token", "tiny/sd15", {}), *by_command("tiny/fresh")], **where, **loud, HF_TOKEN="hf_bad"
    )
    snapshots = Path(where["HF_HOME"]) / "hub"
    next(snapshots.glob("models--tiny--sd15/snapshots/*/unet/*.safetensors")).unlink()
    unet = next(snapshots.glob("models--tiny--shards/snapshots/*/unet"))
    index = {"weight_map": {"a": "diffusion_pytorch_model.safetensors", "b": "two.safetensors"}}
    (unet / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    offline, _ = ask(
        [
            ("half", "tiny/sd15", {}),
            ("shard", "tiny/shards", {"revision": stub_hub.COMMIT}),
            ("offline", "other/x", {}),
            *by_command("other/x"),
            ("doctor tiny/sd15 half", "tiny/sd15", {"command": "doctor", "more": []}),
        ],
        HF_HUB_OFFLINE="1",
        HF_HOME=where["HF_HOME"],
    )
    return {**first, **second, **bad, **offline, "written": written + more + bad_written}


def test_a_repository_is_fetched_and_loaded(answers: dict[str, Any]) -> None:
    assert answers["good"] == "loaded StableDiffusionPipeline"
    assert "tiny/sd15: 1." in answers["written"]
    assert "MB to download to" in answers["written"]


def test_every_failure_has_its_own_line_and_next_step(answers: dict[str, Any]) -> None:
    expected = {
        "modular": "tiny/modular has no model_index.json, as modular pipelines",
        "gated": "gated/x is gated; ask for access at",
        "absent": "absent/x is not on the hub, or it is private; check the spelling",
        "private": "private/x is not on the hub, or it is private; check the spelling",
        "revision": "tiny/sd15 has no revision 'nonsense'",
        "huge": "free; make room or set HF_HOME",
        "token": "the hub refused the token in HF_TOKEN; log in again or unset it",
        "unasked": "pass --yes to download that much",
        "shard": "tiny/shards is only partly in the cache, unet/two.safetensors is missing",
        "half": "tiny/sd15 is only partly in the cache, unet/*.safetensors is missing; run once with the hub in reach",
        "offline": "other/x is neither a folder here nor in the local cache, and the hub cannot be asked",
    }
    for label, text in expected.items():
        assert answers[label].startswith("ModelError: "), answers[label]
        assert text in answers[label]
        assert "\n" not in answers[label]


def test_the_command_line_says_it_in_one_line_and_exits_with_2(answers: dict[str, Any]) -> None:
    """Six ways to fail with a line of their own each, whether weights are wanted or configs alone."""
    ends = {
        "gated/x": "set HF_TOKEN to one that has it",
        "absent/x": "check the spelling, or set HF_TOKEN",
        "tiny/modular": "whole diffusers pipeline",
        "tiny/sd15 --revision=nonsense": "leave --revision out or name an existing one",
        "tiny/fresh": "log in again or unset it",
        "other/x": "the hub cannot be asked; unset HF_HUB_OFFLINE",
    }
    said = {
        f"{command} {name}": end for name, end in ends.items() for command in ("inspect", "doctor")
    }
    said["doctor huge/sd15"] = "make room or set HF_HOME to another disk"
    said["doctor tiny/sd15 half"] = "run once with the hub in reach"
    for label, end in said.items():
        code, _, line = answers[label].partition(" ")
        assert code == "2", (label, answers[label])
        assert line.startswith("t2iprobe: error: ")
        assert line.endswith(f"{end}\n"), line
        assert line.count("\n") == 1, line
    assert len(set(said.values())) == 8


@pytest.mark.parametrize(
    ("local", "offline", "advice"),
    [
        (True, False, "leave --local out"),
        (False, True, "unset HF_HUB_OFFLINE"),
        (True, True, "unset HF_HUB_OFFLINE and leave --local out"),
    ],
)
def test_only_what_is_set_is_to_be_undone(
    local: bool, offline: bool, advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    if offline:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    else:
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(ModelError) as caught:
        fetch("owner/nowhere-to-be-found", LoadSettings(local=local))
    assert str(caught.value).endswith(f"; {advice}")


def test_the_token_is_never_written(answers: dict[str, Any]) -> None:
    """Neither one that works nor one that does not, not even by the hub client at its loudest."""
    assert "debug" in answers["written"].lower() or "curl" in answers["written"]
    assert "hf_bad" not in json.dumps(answers)
    assert "hf_goodsecret" not in json.dumps(answers)


def fetched(answers: dict[str, Any], name: str) -> list[str]:
    """Weight files of a repository that were downloaded."""
    start = f"GET /tiny/{name}/resolve/"
    files = [r.split("/", 5)[5] for r in answers["requests"] if r.startswith(start)]
    return sorted(file for file in files if file.endswith(".safetensors"))


def test_a_revision_a_variant_and_consent(answers: dict[str, Any]) -> None:
    for label in ("shards", "variant", "yes"):
        assert answers[label] == "loaded StableDiffusionPipeline", answers[label]
    assert fetched(answers, "both") and all(".fp16." in file for file in fetched(answers, "both"))
    asks = [r for r in answers["requests"] if "/tiny/asked/" in r]
    assert asks and answers["unasked"].startswith("ModelError: tiny/asked: ")


def test_with_a_single_file_only_the_rest_is_fetched(answers: dict[str, Any]) -> None:
    assert answers["single"] == "loaded StableDiffusionPipeline"
    assert {file.split("/")[0] for file in fetched(answers, "configs")} == {"text_encoder", "vae"}


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Data processing error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_has_its_own_line(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The two ways in which the clients for small and for large files say it."""
    import diffusers

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(diffusers.DiffusionPipeline, "download", full)
    with pytest.raises(ModelError, match="owner/name: the disk is full; make room or set HF_HOME"):
        fetch("owner/name", LoadSettings(local=True))


def test_planned_bytes_count_what_is_fetched() -> None:
    files = [
        ("model_index.json", 1),
        ("sd-v1.safetensors", 1000),
        ("unet/config.json", 2),
        ("unet/diffusion_pytorch_model.safetensors", 40),
        ("unet/diffusion_pytorch_model.bin", 50),
        ("unet/diffusion_pytorch_model.fp16.safetensors", 20),
        ("text_encoder/pytorch_model.bin", 7),
        ("tokenizer/vocab.json", 3),
    ]
    assert planned_bytes(files, None) == 1 + 2 + 40 + 7 + 3
    assert planned_bytes(files, "fp16") == 1 + 2 + 20 + 7 + 3


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(
        '{"_class_name": "X", "unet": ["diffusers", "Y"], "vae": [null, null]}'
    )
    assert missing_files(tmp_path) == ["unet/"]
    (tmp_path / "unet").mkdir()
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(
        json.dumps(index)
    )
    (tmp_path / "unet" / "one.safetensors").write_bytes(b"")
    assert missing_files(tmp_path) == ["unet/two.safetensors"]
