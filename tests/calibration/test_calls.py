"""Pipelines that call their denoisers in unusual orders: against what the blocks wrote down."""

from typing import Any

import numpy as np
import pytest
import torch
from called import PROMPTS, captured, check, made
from made_up import Design, MadeUpPipeline, Painter, Pictures, pipeline
from torch import Tensor

from t2iprobe.activations.generate import ImageRequest, generate
from t2iprobe.activations.plan import calibrated, plan_capture
from t2iprobe.errors import ConfigError, SiteError
from t2iprobe.models.model import Model


class _Beside(MadeUpPipeline):
    """Both denoisers are called in every step, one to guide the other."""

    def _guided(self, *given: Any) -> Tensor:
        one, other = (super(_Beside, self)._guided(*given[:-1], done) for done in (0.0, 0.9))
        return one + (one - other)


class _Told(Painter):
    """A second stage that starts from noise and is told of the picture before it in an embedding."""

    hint: Tensor

    def forward(self, picture: Any, words: Any, noise_level: Tensor, perturbed: int = 0) -> Tensor:
        hint = self.hint.repeat(len(picture) // len(self.hint), 1, 1, 1)
        return super().forward(picture + hint, words, noise_level, perturbed)


class _Stages(MadeUpPipeline):
    def _move(self, step: int, x: Tensor, *rest: Any) -> Tensor:
        if 2 * step == rest[-1]:
            self.finisher.hint, x = x, torch.ones_like(x)
        return super()._move(step, x, *rest)


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

    @pytest.mark.parametrize("evaluations", ["one", "heun"])
    def test_both_in_every_step(self, evaluations: str) -> None:
        model = made(_Beside, Design(evaluations=evaluations, experts=True))
        check(model)
        assert plan_capture(model, at=(0.0, 1.0)).steps == {"painter": (0, 3), "finisher": (0, 3)}
        assert calibrated(model).notes == []

    @pytest.mark.parametrize("returns", ["pair", "text_first", "text_last"])
    def test_the_second_starts_anew_with_the_picture_of_the_first_beside_the_text(
        self, returns: str
    ) -> None:
        model = made(_Stages, Design(returns=returns, experts=True))
        model.pipe.finisher.__class__ = _Told
        check(model)

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
    told = [note.partition(";")[0] for note in calibrated(model).notes]
    again = "painter: it is called for 2 pictures at one noise level"
    assert told == ([again] if kind is _WarmUpAtFirstLevel else [])


class _Unnamed(Painter):
    """A denoiser whose noise level has a name that says nothing."""

    def forward(self, picture: Any, words: Any, much: Tensor, perturbed: int = 0) -> Tensor:
        return super().forward(picture, words, much, perturbed)


@pytest.mark.parametrize("evaluations", ["one", "heun", "midpoint"])
@pytest.mark.parametrize("guidance", ["uncond_cond", "calls_uncond_first"])
def test_steps_are_counted_where_no_argument_is_a_noise_level(
    evaluations: str, guidance: str
) -> None:
    model = Model("unnamed", pipeline(Design(evaluations=evaluations, guidance=guidance)))
    model.pipe.painter.__class__ = _Unnamed
    check(model)
    assert plan_capture(model).timesteps["painter"][0] == 0


class _Restarts(MadeUpPipeline):
    """Two steps are taken again, from where they began."""

    def _move(self, step: int, x: Tensor, *rest: Any) -> Tensor:
        if step == 1:
            levels = torch.linspace(1, 0, rest[-1] + 1)
            for again in (1, 2):
                super()._move(again, x + 1, levels[again], levels[again + 1], *rest[2:])
        return super()._move(step, x, *rest)


def test_noise_levels_that_are_visited_twice() -> None:
    """The last visit makes the image."""
    model = made(_Restarts, Design(guidance="cond_uncond"))
    check(model)
    assert len(calibrated(model).denoisers["painter"].schedule) == 6


class _Tiles(MadeUpPipeline):
    """The picture is drawn in four parts."""

    def _move(self, step: int, x: Tensor, *rest: Any) -> Tensor:
        move = super()._move
        halves = [[move(step, x, *rest) for x in half.chunk(2, -1)] for half in x.chunk(2, -2)]
        return torch.cat([torch.cat(half, -1) for half in halves], -2)


class _Skips(MadeUpPipeline):
    """Every other step does without the denoiser."""

    def _move(self, step: int, x: Tensor, *rest: Any) -> Tensor:
        return x if step % 2 else super()._move(step, x, *rest)


class _LongerForLonger(MadeUpPipeline):
    """The number of steps follows the prompt."""

    def __call__(self, prompt: Any, num_steps: int = 4, **rest: Any) -> Pictures:
        first = prompt if isinstance(prompt, str) else prompt[0]
        return super().__call__(prompt, num_steps + len(first.split()) % 2, **rest)


class _BestOfTwo(MadeUpPipeline):
    """Two pictures of every prompt are drawn, and the second is kept."""

    def _move(self, step: int, x: Tensor, *rest: Any) -> Tensor:
        asked, empty = (states.repeat(2, 1, 1) for states in rest[-3:-1])
        both = torch.cat([x.flip(-1), x])
        return super()._move(step, both, *rest[:-3], asked, empty, rest[-1])[len(x) :]


class _BestBesideEachOther(MadeUpPipeline):
    def _move(self, step: int, x: Tensor, *rest: Any) -> Tensor:
        asked, empty = (states.repeat_interleave(2, 0) for states in rest[-3:-1])
        both = torch.stack([x.flip(-1), x], 1).flatten(0, 1)
        return super()._move(step, both, *rest[:-3], asked, empty, rest[-1])[1::2]


class _MoreForLong(MadeUpPipeline):
    def __call__(self, prompt: Any, num_steps: int = 4, **rest: Any) -> Pictures:
        own = prompt[0] == PROMPTS[0] and prompt[1:] == list(PROMPTS[1:])
        return super().__call__(prompt, num_steps + own, **rest)


class TestWhatIsTold:
    def test_several_pictures_of_a_prompt(self) -> None:
        assert calibrated(made(_BestOfTwo, Design())).notes == [
            "painter: 2 pictures of a prompt are drawn at once, of which the first is captured"
        ]
        with pytest.raises(SiteError, match="not in the order of its prompts"):
            calibrated(made(_BestBesideEachOther, Design()))

    def test_a_picture_that_is_drawn_in_parts(self) -> None:
        (note,) = calibrated(made(_Tiles, Design())).notes
        assert note.startswith("painter: it is called for 4 pictures at one noise level")

    def test_steps_without_a_call(self) -> None:
        found = calibrated(made(_Skips, Design()))
        (note,) = found.notes
        assert note.startswith("painter: it is called at 2 noise levels, 4 steps were asked for")
        levels = [call.timestep for call in found.denoisers["painter"].schedule]
        assert levels == [1.0, 0.5]

    def test_a_number_of_calls_that_follows_the_prompt(self) -> None:
        with pytest.raises(SiteError, match=r"painter is called \d times for one prompt and \d"):
            plan_capture(made(_LongerForLonger, Design()))

    def test_more_calls_for_a_long_prompt_than_in_the_trial(self) -> None:
        model = made(_MoreForLong, Design())
        with pytest.raises(SiteError, match=r"call 2 is at noise level 0\.8, in the rehearsal"):
            captured(model, plan_capture(model))


class _InParts(MadeUpPipeline):
    """At most two prompts go through the whole loop together."""

    def __call__(self, prompt: Any, **rest: Any) -> Pictures:
        prompts = [prompt] if isinstance(prompt, str) else prompt
        drawn = rest.pop("generator")
        drawn = drawn if isinstance(drawn, list) else [drawn]
        parts = [
            super(_InParts, self).__call__(prompts[i : i + 2], generator=drawn[i : i + 2], **rest)
            for i in range(0, len(prompts), 2)
        ]
        return Pictures(np.concatenate([part.images for part in parts]))


def test_a_batch_that_is_taken_in_parts_is_refused_with_the_size_that_works() -> None:
    model = made(_InParts, Design())
    plan = plan_capture(model, sites="all")
    requests = [ImageRequest(f"task{i}", 0, PROMPTS[i % 2], {}) for i in range(4)]
    assert len(list(generate(model, requests, plan, 2, run_seed=0))) == 2
    with pytest.raises(SiteError, match=r"takes a batch in parts, give --batch-size 2"):
        list(generate(model, requests, plan, 4, run_seed=0))


class _Opposed(MadeUpPipeline):
    """What guides away from the prompt is made of the prompt."""

    asked: list[str]

    def _encode(self, prompts: list[str]) -> list[Tensor] | Tensor:
        if any(prompts):
            self.asked = prompts
        return super()._encode(
            [p or f"blurry {own}" for p, own in zip(prompts, self.asked, strict=True)]
        )


@pytest.mark.parametrize("kind", [MadeUpPipeline, _Opposed])
def test_two_texts_of_one_prompt_are_told(kind: type[MadeUpPipeline]) -> None:
    notes = calibrated(made(kind, Design(guidance="uncond_cond"))).notes
    told = "painter: 2 rows of a call follow the prompt, each with a text of its own"
    assert [note.startswith(told) for note in notes] == [True] * (kind is _Opposed)
