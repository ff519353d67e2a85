"""Blocks that run several times in one call, on all of a batch or on parts of it: what is captured, and told."""

from typing import Any

import pytest
import torch
from called import PROMPTS, captured, check
from made_up import Design, JointLayer, pipeline
from torch import Tensor, nn

from t2iprobe.activations.plan import calibrated, plan_capture
from t2iprobe.models.model import Model


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
        plan = plan_capture(model, sites="speller.ladder.0", pooling=["grid", "eot"])
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
