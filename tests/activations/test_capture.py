"""Activations of any module: what it gives by hand, nothing left behind, nothing silently missing."""

import gc
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import adaptive_avg_pool2d

from t2iprobe.activations.capture import capture
from t2iprobe.errors import ConfigError, SiteError


class Net(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[None, torch.Tensor, tuple[torch.Tensor]]:
        return None, x, (x,)


class Twins(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x + 1


def hook_count(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def test_values_are_those_of_the_module() -> None:
    net, x = Net(), torch.randn(5, 4)
    with capture(net, ["layers.0", "layers.2"], pooling=None) as recording:
        net(x)
        net(x[:2])
    first = net.layers[0](x)
    assert torch.equal(
        torch.from_numpy(recording["layers.0"]), torch.cat([first, first[:2]]).detach()
    )
    assert [c.shape for c in recording.passes("layers.2")] == [(5, 4), (2, 4)]


def test_captures_are_detached_copies() -> None:
    net = nn.Sequential(nn.Identity())
    x = torch.zeros(2, 3, requires_grad=True)
    with capture(net, ["0"], pooling=None) as recording:
        net(x)
    with torch.no_grad():
        x.fill_(7.0)
    values = torch.from_numpy(recording["0"])
    assert not values.requires_grad
    assert torch.equal(values, torch.zeros(2, 3))


def test_own_hooks_go_and_others_stay() -> None:
    net = Net()
    handle = net.layers[1].register_forward_hook(lambda *_: None)
    before = hook_count(net)
    with capture(net, ["layers.1"], pooling=None):
        assert hook_count(net) > before
        net(torch.zeros(1, 4))
    assert hook_count(net) == before
    handle.remove()


def test_hooks_go_after_an_exception_and_captures_die() -> None:
    net = Net()
    recording = capture(net, ["layers.0"], pooling=None)
    with pytest.raises(KeyError), recording:
        net(torch.zeros(3, 4))
        raise KeyError("from outside")
    assert hook_count(net) == 0
    alive = weakref.ref(recording.passes("layers.0")[0])
    del recording
    gc.collect()
    assert alive() is None


def test_two_hundred_calls_keep_no_graph() -> None:
    net = Net()
    with capture(net, ["layers.0"], pooling=lambda t: t.mean(0, keepdim=True)) as recording:
        for _ in range(200):
            net(torch.zeros(3, 4))
    assert torch.from_numpy(recording["layers.0"]).shape == (200, 4)
    assert hook_count(net) == 0


def test_opening_twice_records_once() -> None:
    net = Net()
    recording = capture(net, ["layers.0"], pooling=None)
    with recording, recording:
        net(torch.zeros(3, 4))
    assert len(recording.passes("layers.0")) == 1
    assert hook_count(net) == 0


def test_an_error_inside_a_hook_waits_for_the_call() -> None:
    net, finished = Net(), []

    def broken(tensor: torch.Tensor) -> torch.Tensor:
        raise ValueError("in the hook")

    with pytest.raises(ValueError, match="in the hook"), capture(net, ["layers.0"], pooling=broken):
        net(torch.zeros(1, 4))
        finished.append(True)
    assert finished == [True]


def test_half_precision_is_stored_as_float32() -> None:
    net = nn.Sequential(nn.Identity())
    with capture(net, ["0"]) as recording:
        net(torch.ones(4, 3, dtype=torch.bfloat16))
    assert recording["0"].dtype == np.float32
    assert recording["0"].tolist() == [[1.0] * 3] * 4


def test_several_outputs_need_a_choice() -> None:
    net, x = nn.Sequential(Pair()), torch.ones(2, 2)
    with capture(net, ["0"]) as recording:  # None and a tuple are no tensors
        net(x)
    assert np.array_equal(recording["0"], x)
    net = nn.Sequential(Twins())
    with pytest.raises(SiteError, match="0: 2 tensors in one output"), capture(net, ["0"]):
        net(x)
    with capture(net, ["0"], select=lambda out: out[1]) as recording:
        net(x)
    assert np.array_equal(recording["0"], x + 1)


def by_hand(net: nn.Module, path: str, x: torch.Tensor) -> torch.Tensor:
    """The output of a module, by a hook of the test's own."""
    outputs: list[torch.Tensor] = []
    handle = net.get_submodule(path).register_forward_hook(lambda *call: outputs.append(call[2]))
    net(x)
    handle.remove()
    return outputs[0].detach()


def test_tokens_and_maps_are_pooled_as_by_hand() -> None:
    net, tokens = Net(), torch.randn(3, 7, 4)
    with capture(net, "layers.1") as recording:
        net(tokens)
    expected = by_hand(net, "layers.1", tokens).mean(1)
    np.testing.assert_allclose(recording["layers.1"], expected, atol=1e-6)

    net, pictures = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.ReLU()), torch.randn(2, 3, 6, 9)
    maps = by_hand(net, "1", pictures)
    with capture(net, "1") as means, capture(net, "1", pooling="grid") as quarters:
        net(pictures)
    np.testing.assert_allclose(means["1"], maps.mean((2, 3)), atol=1e-6)
    expected = adaptive_avg_pool2d(maps, 2).flatten(2).transpose(1, 2).flatten(1)
    np.testing.assert_allclose(quarters["1"], expected, atol=1e-6)


def test_a_function_leaves_the_pads_out() -> None:
    net, x = Net(), torch.randn(2, 5, 4)
    with capture(net, "layers.0", pooling=lambda values: values[:, :3].mean(1)) as recording:
        net(x)
    expected = by_hand(net, "layers.0", x)[:, :3].mean(1)
    np.testing.assert_allclose(recording["layers.0"], expected, atol=1e-6)


def test_globs_name_modules_that_run() -> None:
    net = Net()
    assert list(capture(net, "layers.*")) == ["layers.0", "layers.1", "layers.2"]
    assert list(capture(net, ["layers.2", "*.[01]"])) == ["layers.2", "layers.0", "layers.1"]
    assert list(capture(net, "*")) == ["layers.0", "layers.1", "layers.2"]  # a list does not run
    with pytest.raises(SiteError, match=r"unknown site 'layer\.\*'.*layers\.0"):
        capture(net, "layer.*")


def test_what_cannot_be_pooled_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown pooling 'means': did you mean 'mean'"):
        capture(Net(), "layers.0", pooling="means")
    net = nn.Sequential(nn.Identity())
    with pytest.raises(SiteError, match="'grid' is for feature maps"), capture(net, "0", "grid"):
        net(torch.zeros(2, 3, 4))
    with (
        pytest.raises(SiteError, match=r"shape \(2, 3, 4, 5, 6\) has no pooling 'mean'"),
        capture(net, "0"),
    ):
        net(torch.zeros(2, 3, 4, 5, 6))
    with capture(net, "0", pooling=None) as recording:
        net(torch.zeros(1, 3, 4))
        net(torch.zeros(1, 2, 4))
    with pytest.raises(SiteError, match="several shapes"):
        recording["0"]
    with pytest.raises(SiteError, match="unknown site '1'"):
        recording["1"]


def test_a_silent_site_is_an_error_with_counts() -> None:
    class Skips(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[0](x)

    net = Skips()
    with (
        pytest.raises(SiteError, match=r"layers\.2: 0 captures in 3 calls of Skips"),
        capture(net, ["layers.2"], pooling=None),
    ):
        for _ in range(3):
            net(torch.zeros(1, 4))


def test_compiled_after_the_first_call_is_refused_by_name() -> None:
    net = torch.compile(Net(), backend="eager")
    x = torch.zeros(2, 4)
    net(x)
    recording = capture(net, ["layers.0"], pooling=None)
    message = r"layers\.0: 0 captures in 3 calls of Net; the module is compiled"
    with pytest.raises(SiteError, match=message), recording:
        for _ in range(3):
            net(x)


def test_compiled_before_the_first_call_is_captured() -> None:
    torch._dynamo.reset()
    net, x = Net(), torch.randn(2, 4)
    compiled = torch.compile(net, backend="eager")
    with capture(compiled, ["layers.0"], pooling=None) as recording:
        compiled(x)
    assert torch.allclose(torch.from_numpy(recording["layers.0"]), net.layers[0](x).detach())


class Splits(nn.Module):
    """Gives its inner module the batch in the parts that `cut` makes of it, in their order."""

    def __init__(self, cut: Callable[[torch.Tensor], Sequence[torch.Tensor]]) -> None:
        super().__init__()
        self.before, self.cut = nn.Linear(2, 2), cut
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Tanh())

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [self.inner(part) for part in self.cut(self.before(x))]


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x.split(4),
        lambda x: x.split(4)[::-1],
        lambda x: x.split(1)[::-1],
        lambda x: (x[6:], x[:2], x[2:6]),
    ],
    ids=["halves", "halves turned", "rows turned", "three parts"],
)
def test_a_wrapper_that_splits_the_batch_gives_all_rows_in_order(
    cut: Callable[[torch.Tensor], Sequence[torch.Tensor]],
) -> None:
    net, x = Splits(cut), torch.randn(8, 2)
    with capture(net, ["inner", "inner.0"], pooling=None) as recording:
        net(x)
        net(x + 1)
    expected = torch.cat([net.inner(net.before(rows)) for rows in (x, x + 1)]).detach()
    assert len(recording.passes("inner")) == 2
    assert torch.allclose(torch.from_numpy(recording["inner"]), expected)
    assert torch.allclose(torch.from_numpy(recording["inner.0"]), torch.atanh(expected), atol=1e-5)


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: (x[[4, 5, 6, 7]], x[[0, 1, 2, 3]]),
        lambda x: (x[:4].clone(), x[4:].clone()),
        lambda x: (x[0::2], x[1::2]),
        lambda x: (x[:4], x[:4]),
    ],
    ids=["picked", "copied", "interleaved", "twice the same"],
)
def test_parts_of_a_batch_whose_rows_are_not_known_are_refused(
    cut: Callable[[torch.Tensor], Sequence[torch.Tensor]],
) -> None:
    net = nn.Sequential(Splits(cut))
    wanted = r"0\.inner: 2 captures of \[4, 4\] rows in one call of Sequential.*; record 0 instead$"
    with pytest.raises(SiteError, match=wanted), capture(net, ["0.inner"], pooling=None):
        net(torch.randn(8, 2))


def test_a_module_called_twice_on_the_whole_batch_gives_two_captures() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x))

    net, x = Twice(), torch.randn(2, 2)
    with capture(net, ["inner"], pooling=None) as recording:
        net(x)
    assert [c.shape[0] for c in recording.passes("inner")] == [2, 2]
    assert torch.allclose(
        torch.from_numpy(recording["inner"]), torch.cat([net.inner(x), net(x)]).detach()
    )
    with capture(net, ["inner"], pooling=lambda t: t.mean(0, keepdim=True)) as recording:
        net(x)
    assert len(recording.passes("inner")) == 2  # one row each is no part of a batch of two


@pytest.mark.parametrize("first", ["offload", "capture"])
def test_offload_hooks_before_or_after_ours_change_nothing(first: str) -> None:
    from accelerate import cpu_offload
    from accelerate.hooks import remove_hook_from_module

    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 4)
    expected = net.layers[1](torch.tanh(net.layers[0](x))).detach()
    if first == "offload":
        cpu_offload(net, execution_device=torch.device("cpu"))
    with capture(net, ["layers.1"], pooling=None) as recording:
        if first == "capture":
            cpu_offload(net, execution_device=torch.device("cpu"))
        net(x)
    assert torch.equal(torch.from_numpy(recording["layers.1"]), expected)
    remove_hook_from_module(net, recurse=True)


def test_a_compiled_module_that_runs_its_hooks_only_when_it_is_compiled_anew_is_refused() -> None:
    torch._dynamo.reset()  # what other tests compiled would count
    net = torch.compile(Net(), backend="eager", dynamic=False)
    few, more = torch.zeros(2, 4), torch.zeros(6, 4)
    net(few)
    recording = capture(net, ["layers.0"], pooling=None)
    with (
        pytest.raises(SiteError, match=r"layers.0: [12] captures in 3 calls .*compiled"),
        recording,
    ):
        for x in (few, more, few):
            net(x)
