"""The real hub client against a stub server on the loopback: what a user reads when a checkpoint cannot be had."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stub_hub

from t2iprobe.models.hub import missing_files, planned_bytes

SCRIPT = """
import json, os, sys, warnings
warnings.filterwarnings("ignore")
from t2iprobe.errors import T2IProbeError
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings
out = {}
for label, name, options in json.load(sys.stdin):
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
def hub(tiny_folder: Callable[[str], Path]) -> Iterator[str]:
    server, _ = stub_hub.serve({"sd15": tiny_folder("sd15")})
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def answers(hub: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One process that asks for good and bad repositories; its cache is then used offline and damaged."""
    home = tmp_path_factory.mktemp("home")
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("good", "tiny/sd15", {}),
        ("gated", "gated/x", {}),
        ("absent", "absent/x", {}),
        ("private", "private/x", {}),
        ("revision", "tiny/sd15", {"revision": "nonsense"}),
        ("huge", "huge/sd15", {}),
    ]
    first, written = ask(cases, HF_ENDPOINT=hub, HF_HOME=str(home))
    bad, bad_written = ask(
        [("token", "tiny/sd15", {})], HF_ENDPOINT=hub, HF_HOME=str(home), HF_TOKEN="hf_bad"
    )
    snapshot = next((home / "hub").glob("models--tiny--sd15/snapshots/*"))
    weights = next((snapshot / "unet").glob("*.safetensors"))
    weights.unlink()
    offline, _ = ask(
        [("half", "tiny/sd15", {}), ("offline", "other/x", {})],
        HF_HUB_OFFLINE="1",
        HF_HOME=str(home),
    )
    return {**first, **bad, **offline, "written": written + bad_written}


def test_a_repository_is_fetched_and_loaded(answers: dict[str, Any]) -> None:
    assert answers["good"] == "loaded StableDiffusionPipeline"
    assert "tiny/sd15: 1." in answers["written"]
    assert "MB to download to" in answers["written"]


def test_every_failure_has_its_own_line_and_next_step(answers: dict[str, Any]) -> None:
    expected = {
        "gated": "gated/x is gated; ask for access at",
        "absent": "absent/x is not on the hub, or it is private; check the spelling",
        "private": "private/x is not on the hub, or it is private; check the spelling",
        "revision": "tiny/sd15 has no revision 'nonsense'",
        "huge": "free; make room or set HF_HOME",
        "token": "the hub refused the token in HF_TOKEN; log in again or unset it",
        "half": "tiny/sd15 is only partly in the cache, unet/*.safetensors is missing; run once with the hub in reach",
        "offline": "other/x is neither a folder here nor in the local cache, and the hub cannot be asked",
    }
    for label, text in expected.items():
        assert answers[label].startswith("ModelError: "), answers[label]
        assert text in answers[label]
        assert "\n" not in answers[label]


def test_the_token_is_never_written(answers: dict[str, Any]) -> None:
    assert "hf_bad" not in json.dumps(answers)


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
