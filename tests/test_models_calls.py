"""Pipelines that call their denoisers, or the blocks in them, in unusual orders: against what the blocks wrote down."""

from typing import Any

import pytest
import torch
from made_up import Design, MadeUpPipeline, Truth, pipeline
from torch import Tensor

from t2iprobe.errors import ConfigError
from t2iprobe.models.generation.generate import ImageRequest, generate
from t2iprobe.models.generation.plan import CapturePlan, calibrated, plan_capture
from t2iprobe.models.model import Model

PROMPTS = ("a red circle left of a blue square", "an orange star above a black triangle")
REQUESTS = [ImageRequest(f"task{i}", 0, prompt, {}) for i, prompt in enumerate(PROMPTS)]


def made(kind: type[MadeUpPipeline], design: Design) -> Model:
    """A model of a pipeline that calls its parts in another way."""
    pipe = pipeline(design)
    pipe.__class__ = kind
    return Model(kind.__name__, pipe)


def captured(model: Model, plan: CapturePlan) -> tuple[dict[str, Tensor], dict[str, list[Truth]]]:
    """Activations of two prompts, and what the blocks of each denoiser wrote down in the steps."""
    parts = {name: part for name in ("painter", "finisher") if (part := getattr(model.pipe, name))}
    size = plan.calibration.max_batch or 2
    values: dict[str, list[Tensor]] = {}
    logs: dict[str, list[Truth]] = {name: [] for name in parts}
    for start in range(0, 2, size):
        for part in parts.values():
            part.log = []
        (batch,) = generate(model, REQUESTS[start : start + size], plan, size, run_seed=0)
        for key, rows in batch.activations.items():
            values.setdefault(key, []).append(rows)
        for name, part in parts.items():
            logs[name] += [t for t in part.log if t.step is not None and len(t.image)]
            part.log = None
    return {key: torch.cat(rows) for key, rows in values.items()}, logs


def check(model: Model, n_sites: int = 3, steps: tuple[int, ...] = (0, 1, 2, 3)) -> None:
    """Every block of every denoiser is captured in its own steps, with the values that it wrote down."""
    plan = plan_capture(model, sites="all", at=steps if max(steps) > 1 else (0.0, 1.0))
    got, logs = captured(model, plan)
    for name, log in logs.items():
        assert len(plan.calibration.denoisers[name].readings) == n_sites
        assert plan.steps[name] == tuple(sorted({truth.step for truth in log}))
        last = {(t.block, t.step): t for t in log}  # of several passes the last
        for (block, step), truth in last.items():
            mean = got[f"{name}.{block}:image/mean@{step}"]
            assert torch.allclose(mean, truth.image.mean(1), atol=1e-5), (name, block, step)
            text = got[f"{name}.{block}:text/eot@{step}"]
            assert torch.isfinite(text).all()
    assert sorted(step for name in logs for step in plan.steps[name]) == list(steps)


class TestSeveralDenoisers:
    @pytest.mark.parametrize("evaluations", ["one", "heun", "midpoint", "thrice"])
    @pytest.mark.parametrize("guidance", ["uncond_cond", "calls_uncond_first", "late"])
    def test_each_has_its_part_of_the_steps(self, evaluations: str, guidance: str) -> None:
        model = Model(
            "relay", pipeline(Design("plain", "pair", guidance, evaluations, experts=True))
        )
        check(model)
        notes = calibrated(model).notes
        assert "painter runs in steps 0 to 1 of 0 to 3, another one in the rest" in notes
        assert "finisher runs in steps 2 to 3 of 0 to 3, another one in the rest" in notes

    @pytest.mark.parametrize("returns", ["text_first", "text_last"])
    @pytest.mark.parametrize("registers", [0, 3])
    def test_joint_streams(self, returns: str, registers: int) -> None:
        design = Design(returns=returns, registers=registers, experts=True)
        check(Model("relay", pipeline(design)))

    def test_steps_that_only_one_has(self) -> None:
        model = Model("relay", pipeline(Design(experts=True)))
        plan = plan_capture(model, sites="all", at=(0.0,))
        assert plan.steps == {"painter": (0,), "finisher": ()}
        sites = {str(site) for site in plan.sites}
        assert "painter.trunk.0:image" in sites
        assert "finisher.conditioning:text" in sites
        assert "finisher.trunk.0:image" not in sites
        got, _ = captured(model, plan)
        assert not any(key.startswith("finisher.trunk") for key in got)
        with pytest.raises(ConfigError, match=r"no step in which finisher\.trunk\.0.*2 to 3 of"):
            plan_capture(model, sites="finisher.trunk.*", at=(0.0,))


class _Again(MadeUpPipeline):
    """Every step is taken by two denoisers, the second guided by the first."""

    def _move(self, step: int, *given: Any) -> Tensor:
        n = given[-1]
        design, self.painter.design = self.painter.design, Design(experts=True)
        super()._move(n - 1, *given)
        self.painter.design = design
        return super()._move(step, *given)


class _WarmUp(MadeUpPipeline):
    """The text is put through once before the first step, at a noise level that ends the run or none has."""

    before = 0.0

    def _move(self, step: int, x: Tensor, *rest: Any) -> Tensor:
        if step == 0:
            asked, empty, n = rest[-3:]
            self._guided(None, torch.zeros_like(x), torch.tensor(self.before), asked, empty, 0 / n)
        return super()._move(step, x, *rest)


class _WarmUpAtFirstLevel(_WarmUp):
    before = 1.0


class _WarmUpAtLastLevel(_WarmUp):
    before = 0.25


class _EncodesInTheLoop(MadeUpPipeline):
    def _move(self, step: int, x: Tensor, here: Tensor, there: Tensor, *rest: Any) -> Tensor:
        return super()._move(step, x, here, there, self._encode(self.now), rest[-2], rest[-1])

    def _encode(self, prompts: list[str]) -> Any:
        if any(prompts):
            self.now = prompts
        return super()._encode(prompts)


@pytest.mark.parametrize(
    "kind", [_WarmUp, _WarmUpAtFirstLevel, _WarmUpAtLastLevel, _EncodesInTheLoop]
)
@pytest.mark.parametrize("guidance", ["uncond_cond", "calls_cond_first"])
def test_calls_that_are_no_steps(kind: type[MadeUpPipeline], guidance: str) -> None:
    model = made(kind, Design(guidance=guidance))
    check(model)
    assert calibrated(model).notes == []
