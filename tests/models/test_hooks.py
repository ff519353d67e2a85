"""Hooks on any module: nothing changed, nothing left behind, nothing silently missing."""

import gc
import weakref
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

from t2iprobe.errors import SiteError
from t2iprobe.models.hooks import HookSet, Recorder, find_module, only_tensor


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


def hook_count(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def test_values_are_those_of_the_module() -> None:
    net, x = Net(), torch.randn(5, 4)
    with Recorder(net, ["layers.0", "layers.2"]) as recorder:
        net(x)
        net(x[:2])
    first = net.layers[0](x)
    assert torch.equal(recorder.values("layers.0"), torch.cat([first, first[:2]]).detach())
    assert [c.values.shape for c in recorder.captures["layers.2"]] == [(5, 4), (2, 4)]


def test_captures_are_detached_copies() -> None:
    net = nn.Sequential(nn.Identity())
    x = torch.zeros(2, 3, requires_grad=True)
    with Recorder(net, ["0"]) as recorder:
        net(x)
    with torch.no_grad():
        x.fill_(7.0)
    values = recorder.values("0")
    assert not values.requires_grad
    assert torch.equal(values, torch.zeros(2, 3))


def test_own_hooks_go_and_others_stay() -> None:
    net = Net()
    handle = net.layers[1].register_forward_hook(lambda *_: None)
    before = hook_count(net)
    with Recorder(net, ["layers.1"]):
        assert hook_count(net) > before
        net(torch.zeros(1, 4))
    assert hook_count(net) == before
    handle.remove()


def test_hooks_go_after_an_exception_and_captures_die() -> None:
    net = Net()
    recorder = Recorder(net, ["layers.0"])
    with pytest.raises(KeyError), recorder:
        net(torch.zeros(3, 4))
        raise KeyError("from outside")
    assert hook_count(net) == 0
    alive = weakref.ref(recorder.captures["layers.0"][0].values)
    del recorder
    gc.collect()
    assert alive() is None


def test_two_hundred_calls_keep_no_graph() -> None:
    net = Net()
    with Recorder(net, ["layers.0"], reduce=lambda t: t.mean(0, keepdim=True)) as recorder:
        for _ in range(200):
            net(torch.zeros(3, 4))
    assert recorder.values("layers.0").shape == (200, 4)
    assert all(c.values.grad_fn is None for c in recorder.captures["layers.0"])
    assert hook_count(net) == 0


def test_opening_twice_records_once() -> None:
    net = Net()
    recorder = Recorder(net, ["layers.0"])
    with recorder, recorder:
        net(torch.zeros(3, 4))
    assert len(recorder.captures["layers.0"]) == 1
    assert hook_count(net) == 0


def test_an_error_inside_a_hook_waits_for_the_call() -> None:
    net, finished = Net(), []

    def broken(tensor: torch.Tensor) -> torch.Tensor:
        raise ValueError("in the hook")

    with pytest.raises(ValueError, match="in the hook"), Recorder(net, ["layers.0"], reduce=broken):
        net(torch.zeros(1, 4))
        finished.append(True)
    assert finished == [True]


def test_a_hook_never_changes_the_output() -> None:
    net, x = Net(), torch.randn(2, 4)
    plain = net(x)
    with HookSet() as hooks:
        hooks.after(net.layers[0], lambda *_: "something")
        hooks.before(net.layers[1], lambda *_: "something")
        assert torch.equal(net(x), plain)


def test_half_precision_is_stored_as_float32() -> None:
    net = nn.Sequential(nn.Identity())
    with Recorder(net, ["0"]) as recorder:
        net(torch.ones(4, 3, dtype=torch.bfloat16))
    captured = recorder.captures["0"][0]
    assert captured.dtype == "bfloat16"
    assert captured.values.numpy().dtype == "float32"
    assert captured.values.tolist() == [[1.0] * 3] * 4


def test_several_outputs_need_a_choice() -> None:
    x = torch.ones(2, 2)
    assert only_tensor((None, x)) is x
    with pytest.raises(SiteError, match="2 tensors"):
        only_tensor((x, x))
    with Recorder(nn.Sequential(Pair()), ["0"], select=lambda out: out[1]) as recorder:
        recorder._root(x)
    assert torch.equal(recorder.values("0"), x)


def test_a_silent_site_is_an_error_with_counts() -> None:
    class Skips(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers[0](x)

    net = Skips()
    with (
        pytest.raises(SiteError, match=r"layers\.2: 0 captures in 3 calls of Skips"),
        Recorder(net, ["layers.2"]),
    ):
        for _ in range(3):
            net(torch.zeros(1, 4))


def test_compiled_after_the_first_call_is_refused_by_name() -> None:
    net = torch.compile(Net(), backend="eager")
    x = torch.zeros(2, 4)
    net(x)
    recorder = Recorder(net, ["layers.0"])
    message = r"layers\.0: 0 captures in 3 calls of Net; the module is compiled"
    with pytest.raises(SiteError, match=message), recorder:
        for _ in range(3):
            net(x)


def test_compiled_before_the_first_call_is_captured() -> None:
    torch._dynamo.reset()
    net, x = Net(), torch.randn(2, 4)
    compiled = torch.compile(net, backend="eager")
    with Recorder(compiled, ["layers.0"]) as recorder:
        compiled(x)
    assert torch.allclose(recorder.values("layers.0"), net.layers[0](x).detach())


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
    with Recorder(net, ["inner", "inner.0"]) as recorder:
        net(x)
        net(x + 1)
    expected = torch.cat([net.inner(net.before(rows)) for rows in (x, x + 1)]).detach()
    assert len(recorder.captures["inner"]) == 2
    assert torch.allclose(recorder.values("inner"), expected)
    assert torch.allclose(recorder.values("inner.0"), torch.atanh(expected), atol=1e-5)


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
    with pytest.raises(SiteError, match=wanted), Recorder(net, ["0.inner"]):
        net(torch.randn(8, 2))


def test_a_module_called_twice_on_the_whole_batch_gives_two_captures() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(self.inner(x))

    net, x = Twice(), torch.randn(2, 2)
    with Recorder(net, ["inner"]) as recorder:
        net(x)
    assert [c.values.shape[0] for c in recorder.captures["inner"]] == [2, 2]
    assert torch.allclose(recorder.values("inner"), torch.cat([net.inner(x), net(x)]).detach())
    with Recorder(net, ["inner"], reduce=lambda t: t.mean(0, keepdim=True)) as recorder:
        net(x)
    assert len(recorder.captures["inner"]) == 2  # one row each is no part of a batch of two


@pytest.mark.parametrize("first", ["offload", "capture"])
def test_offload_hooks_before_or_after_ours_change_nothing(first: str) -> None:
    from accelerate import cpu_offload
    from accelerate.hooks import remove_hook_from_module

    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 4)
    expected = net.layers[1](torch.tanh(net.layers[0](x))).detach()
    if first == "offload":
        cpu_offload(net, execution_device=torch.device("cpu"))
    with Recorder(net, ["layers.1"]) as recorder:
        if first == "capture":
            cpu_offload(net, execution_device=torch.device("cpu"))
        net(x)
    assert torch.equal(recorder.values("layers.1"), expected)
    remove_hook_from_module(net, recurse=True)


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


def test_a_compiled_module_that_runs_its_hooks_only_when_it_is_compiled_anew_is_refused() -> None:
    torch._dynamo.reset()  # what other tests compiled would count
    net = torch.compile(Net(), backend="eager", dynamic=False)
    few, more = torch.zeros(2, 4), torch.zeros(6, 4)
    net(few)
    recorder = Recorder(net, ["layers.0"])
    with pytest.raises(SiteError, match=r"layers.0: [12] captures in 3 calls .*compiled"), recorder:
        for x in (few, more, few):
            net(x)
