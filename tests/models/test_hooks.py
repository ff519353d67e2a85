"""Hooks on any module: nothing changed, and modules found by path."""

import pytest
import torch
from torch import nn

from t2iprobe.errors import SiteError
from t2iprobe.models.hooks import HookSet, find_module


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def test_a_hook_never_changes_the_output() -> None:
    net, x = Net(), torch.randn(2, 4)
    plain = net(x)
    with HookSet() as hooks:
        hooks.after(net.layers[0], lambda *_: "something")
        hooks.before(net.layers[1], lambda *_: "something")
        assert torch.equal(net(x), plain)


class TestPaths:
    def nested(self) -> nn.Module:
        inner, outer = nn.Module(), nn.Module()
        inner.encoder = Net()
        outer.text_model = inner
        return outer

    def test_a_level_that_came_or_went_is_looked_through(self) -> None:
        old, new = self.nested(), self.nested().text_model
        for root in (old, new):
            for path in ("text_model.encoder.layers.1", "encoder.layers.1"):
                assert isinstance(find_module(root, path), nn.Linear)

    def test_an_unknown_path_names_the_nearest(self) -> None:
        with pytest.raises(SiteError, match=r"no module 'layer\.0' in Net; nearest: .*layers\.0"):
            find_module(Net(), "layer.0")

    def test_an_ambiguous_tail_is_not_guessed(self) -> None:
        root = nn.Module()
        root.a, root.b = Net(), Net()
        with pytest.raises(SiteError, match=r"a\.layers\.0, b\.layers\.0"):
            find_module(root, "layers.0")
