"""The same checks on other machines: on a GPU with `pytest -m gpu`, with the model hub with `pytest -m hub`."""

import random

import pytest
import torch

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import plan_capture
from t2iprobe.checks.doctor import diagnose
from t2iprobe.families.reading import load_family
from t2iprobe.models.loading import load_model
from t2iprobe.models.settings import LoadSettings


def captured(settings: LoadSettings) -> GeneratedBatch:
    """One batch of the default model."""
    model = load_model("shapes-mmdit", settings)
    family = load_family("shapes-pair")
    tasks = random.Random(0).sample(family.tasks(), 4)
    requests = [ImageRequest(t.id, 0, t.prompt, family.spans(t)) for t in tasks]
    (batch,) = generate(model, requests, plan_capture(model), 4, run_seed=0)
    return batch


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("shapes-mmdit", "cpu"),
        pytest.param("shapes-mmdit", "cuda", marks=pytest.mark.gpu),
        pytest.param("shapes-unet", "cuda", marks=pytest.mark.gpu),
        pytest.param(
            "hf-internal-testing/tiny-stable-diffusion-pipe", "cpu", marks=pytest.mark.hub
        ),
    ],
)
def test_doctor_passes_in_the_default_numbers_of_a_device(name: str, device: str) -> None:
    """Half precision on a GPU that has it."""
    checks = list(diagnose(load_model(name, LoadSettings(device=device))))
    assert len(checks) >= 6
    assert [check.sentence for check in checks if not check.ok] == []


@pytest.mark.parametrize(
    ("device", "offload"),
    [
        ("cpu", "none"),
        *(
            pytest.param("cuda", kind, marks=pytest.mark.gpu)
            for kind in ("none", "model", "sequential")
        ),
    ],
)
def test_activations_do_not_depend_on_the_device(device: str, offload: str) -> None:
    """The noise of an image is drawn on the CPU, so float32 differs by rounding alone: on one CPU by its threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        reference = captured(LoadSettings(device="cpu", dtype="fp32"))
    finally:
        torch.set_num_threads(threads)
    batch = captured(LoadSettings(device=device, dtype="fp32", offload=offload))
    assert list(batch.activations) == list(reference.activations)
    for key, values in reference.activations.items():
        scale = values.nan_to_num().abs().max()
        apart = (batch.activations[key] - values).nan_to_num().abs().max()
        assert apart <= 1e-2 * scale, key
        assert torch.equal(batch.activations[key].isnan(), values.isnan()), key
