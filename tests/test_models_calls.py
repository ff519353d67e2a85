"""Pipelines that call their denoisers, or the blocks in them, in unusual orders: against what the blocks wrote down."""

from typing import Any

import pytest
import torch
from made_up import Design, JointLayer, MadeUpPipeline, Painter, Pictures, Truth, pipeline
from torch import Tensor, nn

from t2iprobe.errors import ConfigError, SiteError
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
    """Activations of two prompts in one batch, and what the blocks of each denoiser wrote down in the steps."""
    parts = {name: part for name in ("painter", "finisher") if (part := getattr(model.pipe, name))}
    for part in parts.values():
        part.log = []
    (batch,) = generate(model, REQUESTS, plan, 2, run_seed=0)
    logs = {name: [t for t in part.log if t.step is not None] for name, part in parts.items()}
    for part in parts.values():
        part.log = None
    return batch.activations, {name: [t for t in log if len(t.image)] for name, log in logs.items()}


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


class _Parts(nn.Module):
    """A block that runs others on parts of the batch, in this order or the other."""

    def __init__(self, layer: nn.Module, turned: bool) -> None:
        super().__init__()
        self.rooms, self.turned = nn.ModuleList([layer]), turned

    def forward(self, *given: Tensor) -> Any:
        parts = list(zip(*(one.split(1) for one in given), strict=True))
        order = range(len(parts))[:: -1 if self.turned else 1]
        made = {i: self.rooms[0](*parts[i]) for i in order}
        return tuple(map(torch.cat, zip(*(made[i] for i in range(len(parts))), strict=True)))


class _Level(nn.Module):
    """A block that makes a vector of the noise level."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(1, 8), nn.Linear(8, 16)

    def forward(self, level: Tensor) -> Tensor:
        return self.other(self.one(level))


class TestBlocksThatRunSeveralTimes:
    @pytest.mark.parametrize("turned", [False, True])
    @pytest.mark.parametrize("guidance", ["uncond_cond", "embedded", "calls_cond_first"])
    def test_a_batch_in_parts(self, guidance: str, turned: bool) -> None:
        model = Model("parts", pipeline(Design(guidance=guidance)))
        painter = model.pipe.painter
        painter.trunk[1] = painter.named["trunk.1"] = _Parts(painter.trunk[1], turned)
        check(model)
        told = calibrated(model).notes
        wanted = "painter: a batch comes in 2 parts to trunk.1.rooms.0, so whose rows are whose"
        assert [note.startswith(wanted) for note in told] == [True]

    @pytest.mark.parametrize("returns", ["pair", "swapped", "text_first", "text_last", "maps"])
    def test_blocks_with_shared_weights_are_read_in_their_last_pass(self, returns: str) -> None:
        model = Model("loop", pipeline(Design(returns=returns)))
        painter = model.pipe.painter
        again = {f"{name} again": layer for name, layer in painter.named.items()}
        painter.named = {**again, **painter.named}
        check(model)
        assert calibrated(model).notes == [
            "painter: 2 passes of trunk.0, trunk.1, trunk.2 in one call, of which the last is captured"
        ]

    @pytest.mark.parametrize("image_first", [False, True])
    def test_a_block_for_image_and_text_in_turn_is_not_read(self, image_first: bool) -> None:
        model = Model("shared", pipeline(Design()))
        painter = model.pipe.painter
        painter.named = {"trunk.1": painter.trunk[1], "trunk.2": painter.trunk[2]}
        painter.trunk[0] = JointLayer()
        forward = painter.forward

        def shared(picture: Tensor, words: Tensor, *rest: Any) -> Tensor:
            n = len(picture)
            flat = picture.flatten(1).unflatten(1, (16, 16))
            first, second = (flat, words) if image_first else (words, flat)
            out = {id(one): painter.trunk[0](one) for one in (first, second)}
            return forward(out[id(flat)].reshape(n, 4, 8, 8), out[id(words)], *rest)

        painter.forward = shared
        check(model, n_sites=2)
        (note,) = calibrated(model).notes
        assert note.startswith("painter: 2 passes of trunk.0 in one call, not on the same streams")

    def test_a_block_that_gives_no_stream(self) -> None:
        model = Model("vector", pipeline(Design()))
        painter = model.pipe.painter
        painter.pools = nn.ModuleList([_Level()])
        painter.level = painter.pools[0]
        check(model)
        assert calibrated(model).notes == [
            "painter: no stream could be told in what pools.0 gave; nothing is captured there"
        ]

    def test_a_layer_of_a_text_encoder(self) -> None:
        model = Model("tied", pipeline(Design()))
        first, second = model.pipe.speller.ladder
        model.pipe.speller.ladder = nn.ModuleList([first, second, first])
        plan = plan_capture(model, sites="speller.ladder.0", text_pooling=["eot"])
        assert plan.calibration.notes == [
            "speller: 2 passes of ladder.0 in one call, of which the last is captured"
        ]
        got, _ = captured(model, plan)
        last: list[Tensor] = []
        model.pipe.speller.last_norm.register_forward_pre_hook(lambda _, args: last.append(args[0]))
        for prompt, end in zip(PROMPTS, got["speller.ladder.0:text/eot"], strict=True):
            n = len(model.pipe.spelling(prompt).input_ids)
            model.pipe._encode([prompt])
            assert torch.allclose(end, last[-1][0, n - 1], atol=1e-5)
