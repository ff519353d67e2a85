"""The hyperteacher against hand-computed and float64 values."""

from math import sqrt

import pytest
import torch

from synthetic.supports import make_support
from synthetic.teacher import HyperTeacher, draw_task_latents, truncated_normal
from t2iprobe.errors import ConfigError


def test_by_hand():
    teacher = HyperTeacher(2, 2, 2, (1,), 1, seed=1)
    teacher.weights = [torch.tensor([[[1.0], [2.0]], [[3.0], [-1.0]]])]
    teacher.biases = [torch.tensor([[0.5], [0.25]])]
    teacher.readout = torch.tensor([[2.0]])
    z = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    x = torch.tensor([[[0.2, 0.4], [-1.0, 0.0]]], dtype=torch.float64)
    # 0.5 (0.2 + 0.8 + 0.5) + 1.0 (0.6 - 0.4 + 0.25) = 1.2 ; 0.5 (-1 + 0.5) + (-3 + 0.25) < 0
    assert teacher(z, x).flatten().tolist() == pytest.approx([2 * 1.2 / sqrt(2), 0.0])


@pytest.mark.parametrize("hidden", [(7,), (7, 5)])
def test_against_a_loop_in_float64(hidden):
    teacher = HyperTeacher(4, 3, 3, hidden, 2, seed=2)
    z, x = torch.rand(5, 4, dtype=torch.float64), torch.rand(5, 6, 3, dtype=torch.float64)
    found = teacher(z, x)
    for b in range(5):
        for t in range(6):
            h = x[b, t]
            for weight, bias in zip(teacher.weights, teacher.biases, strict=True):
                total = sum(z[b, m] * (h @ weight[m].double() + bias[m].double()) for m in range(4))
                h = torch.clamp(total / sqrt(3), min=0)
            assert torch.allclose(found[b, t], h @ teacher.readout.double(), atol=1e-12)


def test_weights_have_the_stated_variance_and_biases_the_stated_range():
    teacher = HyperTeacher(64, 3, 16, (32, 16), 16, seed=3)
    assert teacher.weights[0].var().item() == pytest.approx(sqrt(3) / 16, rel=0.03)
    assert teacher.weights[1].var().item() == pytest.approx(sqrt(3) / 32, rel=0.03)
    assert teacher.biases[0].min() >= 0
    assert 0.45 < teacher.biases[0].max() <= 0.5
    assert (
        truncated_normal((20000,), 2.0, torch.Generator().manual_seed(1)).abs().max()
        < 2 * 2.0 / 0.8796
    )
    assert not HyperTeacher(4, 2, use_bias=False).biases[0].any()


def test_weights_and_biases_do_not_share_a_stream():
    teacher = HyperTeacher(16, 3, 16, (16,), 16, seed=1)
    first = teacher.weights[0].flatten()[: teacher.biases[0].numel()]
    ranks = [v.argsort().argsort().double() for v in (first, teacher.biases[0].flatten())]
    assert abs(torch.corrcoef(torch.stack(ranks))[0, 1]) < 0.3  # separate streams


def test_within_task_variance_by_hotness_is_near_the_references():
    found = {1: [], 2: [], 3: []}
    for seed in range(12):
        rng = torch.Generator().manual_seed(seed)
        teacher = HyperTeacher(16, 3, seed=seed)
        z = draw_task_latents(
            torch.from_numpy(make_support("random", 16, 3).seen), 800, "discrete", rng
        )
        _, y = teacher.draw_pairs(z, 16, rng)
        variance, hot = y.var(dim=1, unbiased=False).mean(dim=1), (z > 0).sum(dim=1)
        for k, values in found.items():
            values.append(variance[hot == k].mean())
    means = {k: torch.stack(values).mean().item() for k, values in found.items()}
    # One teacher there, twelve here.
    assert means == pytest.approx({1: 0.093, 2: 0.187, 3: 0.304}, rel=0.25)


def test_single_modules_add_up_exactly_for_one_module_and_not_for_more():
    teacher = HyperTeacher(5, 2, seed=1)
    x = torch.rand(3, 4, 16, dtype=torch.float64) * 2 - 1
    singles = teacher.single_modules(x)
    one = torch.tensor([[0.0, 0.7, 0.0, 0.0, 0.0]], dtype=torch.float64).expand(3, -1)
    assert torch.allclose(teacher(one, x), 0.7 * singles[1])  # f(c l) = c f(l)
    two = one + torch.eye(5, dtype=torch.float64)[3]
    assert not torch.allclose(teacher(two, x), 0.7 * singles[1] + singles[3], atol=1e-3)


def test_task_latents_stay_on_their_combinations():
    rows = torch.tensor([[True, True, False], [False, False, True]])
    rng = torch.Generator().manual_seed(0)
    discrete = draw_task_latents(rows, 500, "discrete", rng)
    assert set(discrete.unique().tolist()) == set(
        torch.tensor([0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]).tolist()
    )
    continuous = draw_task_latents(rows, 500, "continuous", rng)
    active = continuous[continuous > 0]
    assert active.min() >= 0.5
    assert active.max() < 1
    assert set(draw_task_latents(rows, 50, "khot", rng).unique().tolist()) == {0.0, 1.0}
    for drawn in (discrete, continuous):
        patterns = {tuple(row) for row in (drawn > 0).tolist()}
        assert patterns == {(True, True, False), (False, False, True)}


def test_bad_sizes():
    with pytest.raises(ConfigError, match="at least 1"):
        HyperTeacher(4, 2, hidden_dims=())
    with pytest.raises(ConfigError, match="above 0"):
        HyperTeacher(4, 2, scale=0.0)
