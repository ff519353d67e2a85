"""What libraries warn of in a normal run does not reach the user, and nothing else is held back."""

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tiny

from t2iprobe.models.log_filters import LOGGED, WARNED, hush, noted

Folder = Callable[[str], Path]

NOISY = ("kandinsky22", "qwenimage", "pixart_sigma", "chroma", "ldm", "prx", "sd15_flagged", "bria")
"""Families of which diffusers or transformers print something at each load or call."""

SCRIPT = """
import json, sys
import torch
from t2iprobe.models import loading
from t2iprobe.models.loading import load_model
from t2iprobe.checks.doctor import requests
from t2iprobe.activations.generate import generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.models.settings import LoadSettings

def use(folder, args, dtype="fp32"):
    model = load_model(folder, LoadSettings(pipe_arg=tuple(args), dtype=dtype))
    plan = plan_capture(model)
    list(generate(model, requests()[:2], plan, 2, 0))
    return plan.calibration.notes

families = json.load(sys.stdin)
notes = {}
real = loading.hush
loading.hush = lambda: None
for name in ("kandinsky22", "pixart_sigma", "qwenimage"):
    use(*families[name])
print("=== hushed", file=sys.stderr, flush=True)
loading.hush = real
for name, (folder, args) in families.items():
    notes[name] = use(folder, args)
notes["fp16"] = use(*families["sd15_flagged"], dtype="fp16")
print(json.dumps(notes))
"""


@pytest.fixture(scope="module")
def spoken(tiny_folder: Folder) -> dict[str, object]:
    """What one process prints on stderr before and after it hushes the libraries, and its notes by family."""
    families = {
        name: (
            str(tiny_folder(name)),
            [text for text in tiny.pipe_args(name) if not text.startswith("negative_prompt=")],
        )
        for name in NOISY
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(families),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    before, _, after = done.stderr.partition("=== hushed\n")
    return {"before": before, "after": after, "notes": json.loads(done.stdout.splitlines()[-1])}


def test_a_normal_run_prints_no_foreign_line(spoken: dict[str, object]) -> None:
    """The families do print when nothing is held back, so silence is the table's doing."""
    for text in ("Beautiful Soup", "callback_steps", "true_cfg_scale"):
        assert text in str(spoken["before"])
    assert spoken["after"] == ""


def test_what_a_user_can_act_on_is_a_note(spoken: dict[str, object]) -> None:
    notes = spoken["notes"]
    assert isinstance(notes, dict)
    assert any("--negative-prompt ' ' turns guidance on" in note for note in notes["qwenimage"])
    assert any("--dtype bf16 or fp32" in note for note in notes["fp16"])
    assert notes["pixart_sigma"] == []


SAID = {
    "The following part of your input was truncated because CLIP can only handle": True,
    "Token indices sequence length is longer than the specified maximum": True,
    "Potential NSFW content was detected in one or more images.": True,
    "\nSetting `clean_caption=True` requires the Beautiful Soup library but it": True,
    "Setting `clean_caption` to False...": True,
    "Pipelines loaded with `dtype=torch.float16` cannot run with `cpu` device.": True,
    "`use_return_dict` is deprecated! Use `return_dict` instead!": True,
    "true_cfg_scale is passed as 4.0, but guidance is not enabled since no negative_prompt is provided.": True,
    "Guidance scale 4.0 is ignored for step-wise distilled models.": True,
    " negative_prompt is passed but classifier-free guidance is not enabled since true_cfg_scale <= 1": True,
    "Some weights of the model checkpoint were not used": False,
    "The config attributes {'a': 1} were passed to DDIMScheduler, but are not expected": False,
    "another": False,
}
"""Lines of the libraries, and whether they are held back."""


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """Texts that a handler of the library's own prints."""
    printed: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: printed.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("diffusers")
    logger.addHandler(handler)
    try:
        yield printed
    finally:
        logger.removeHandler(handler)


def test_only_the_messages_of_the_table_are_held_back(heard: list[str]) -> None:
    child = logging.getLogger("diffusers.pipelines.some")
    hush()
    hush()
    for text in SAID:
        child.warning("%s", text)
    assert heard == [text for text, held in SAID.items() if not held]


def test_a_note_is_told_once_and_only_for_its_message() -> None:
    logger = logging.getLogger("diffusers.pipelines.some")
    with noted() as notes:
        for _ in range(3):
            logger.warning("Guidance scale 4.0 is ignored for step-wise distilled models.")
        logger.warning("Potential NSFW content was detected")
    assert notes == ["the guidance scale is ignored: this model was distilled to do without"]
    logger.warning("Guidance scale 4.0 is ignored for step-wise distilled models.")
    assert len(notes) == 1


def test_warnings_are_held_back_by_text_and_by_who_gives_them() -> None:
    old = "`callback_steps` is deprecated and will be removed in version 1.0.0. Passing it"
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        hush()
        for text, category, module in (
            (old, FutureWarning, "diffusers.pipelines.some"),
            (old, FutureWarning, "users.own"),
            (old, UserWarning, "diffusers.pipelines.some"),
            ("another", FutureWarning, "diffusers.pipelines.some"),
        ):
            warnings.warn_explicit(text, category, "file.py", 1, module)
    assert [(str(w.message)[:7], w.category) for w in shown] == [
        (old[:7], FutureWarning),
        (old[:7], UserWarning),
        ("another", FutureWarning),
    ]


def test_hushing_twice_adds_no_filter() -> None:
    with warnings.catch_warnings():
        hush()
        before = list(warnings.filters)
        hush()
        assert warnings.filters == before


def test_every_kind_has_a_reason() -> None:
    assert all(len(kind.why) > 20 for kind in (*LOGGED, *WARNED))
