"""Made-up pipelines that call their parts in other ways, and what is captured there against what they wrote down."""

import torch
from made_up import Design, MadeUpPipeline, Truth, pipeline
from torch import Tensor

from t2iprobe.activations.generate import ImageRequest, generate
from t2iprobe.activations.plan import CapturePlan, plan_capture
from t2iprobe.models.model import Model

PROMPTS = ("a red circle left of a blue square", "an orange star above a black triangle")
REQUESTS = [ImageRequest(f"task{i}", 0, prompt, {}) for i, prompt in enumerate(PROMPTS)]


def made(kind: type[MadeUpPipeline], design: Design) -> Model:
    """A model of a pipeline that calls its parts in another way."""
    pipe = pipeline(design)
    pipe.__class__ = kind
    return Model(kind.__name__, pipe)


def captured(model: Model, plan: CapturePlan) -> tuple[dict[str, Tensor], dict[str, list[Truth]]]:
    """Activations of two prompts in one batch, and what the blocks of each denoiser wrote down in the steps."""
    parts = {name: part for name in ("painter", "finisher") if (part := getattr(model.pipe, name))}
    for part in parts.values():
        part.log = []
    (batch,) = generate(model, REQUESTS, plan, 2, run_seed=0)
    logs = {name: [t for t in part.log if t.step is not None] for name, part in parts.items()}
    for part in parts.values():
        part.log = None
    activations = {str(place): values for place, values in batch.activations.items()}
    return activations, {name: [t for t in log if len(t.image)] for name, log in logs.items()}


def check(model: Model, n_sites: int = 3) -> None:
    """Every block of every denoiser is captured in its own steps, with the values that it wrote down."""
    plan = plan_capture(model, sites="all", at=(0, 1, 2, 3))
    got, logs = captured(model, plan)
    ends = [len(model.pipe.spelling(prompt).input_ids) - 1 for prompt in PROMPTS]
    for name, log in logs.items():
        assert len(plan.calibration.denoisers[name].readings) == n_sites
        assert plan.steps[name] == tuple(sorted({truth.step for truth in log}))
        last = {(t.block, t.step): t for t in log if not t.block.endswith("again")}
        for (block, step), truth in last.items():
            image = got[f"{name}.{block}:image/mean@{step}"]
            assert torch.allclose(image, truth.image.mean(1), atol=1e-5), (name, block, step)
            text = got[f"{name}.{block}:text/eot@{step}"]
            own = torch.stack([truth.text[i, at] for i, at in enumerate(ends)])
            assert torch.allclose(text, own, atol=1e-5), (name, block, step)
    assert {step for name in logs for step in plan.steps[name]} == {0, 1, 2, 3}
