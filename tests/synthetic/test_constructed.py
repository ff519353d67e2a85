"""The written-down network: its guarantee, the 1 / pieces^2 law, and its size."""

from math import log

import pytest
import torch

from synthetic.students.constructed import construct
from synthetic.teacher import HyperTeacher
from t2iprobe.errors import ConfigError


def cases(modules, hot, inputs, count=120):
    """Tasks and inputs in float64, with corners of the domain among them."""
    rng = torch.Generator().manual_seed(0)
    z = torch.zeros(count, modules, dtype=torch.float64)
    for row in z:
        row[torch.randperm(modules, generator=rng)[:hot]] = torch.rand(
            hot, generator=rng, dtype=torch.float64
        )
    x = torch.rand(count, 32, inputs, generator=rng, dtype=torch.float64) * 2 - 1
    z[: count // 4] = z[: count // 4].ceil()
    x[: count // 3] = x[: count // 3].sign()
    return z, x


@pytest.mark.parametrize("hidden", [(8,), (4, 3)])
@pytest.mark.parametrize("epsilon", [1.0, 0.2])
def test_error_is_within_epsilon(hidden, epsilon):
    teacher = HyperTeacher(6, 2, 4, hidden, 3, seed=1)
    z, x = cases(6, 2, 4)
    built = construct(teacher, epsilon=epsilon)
    worst = (built(z, x) - teacher(z, x)).abs().max().item()
    assert worst <= built.error <= epsilon
    assert worst > 0


def test_error_falls_with_the_square_of_the_pieces():
    teacher = HyperTeacher(8, 2, 4, (8,), 3, seed=2)
    z, x = cases(8, 2, 4)
    pieces = [8, 16, 32, 64]
    found, bounds = [], []
    for count in pieces:
        built = construct(teacher, pieces=count)
        bounds.append(built.error)
        found.append((built(z, x) - teacher(z, x)).abs().max().item())
    for errors in (found, bounds):
        slope = log(errors[-1] / errors[0]) / log(pieces[-1] / pieces[0])
        assert slope == pytest.approx(-2, abs=0.2)


def test_neurons_grow_with_the_root_of_the_inverse_error_and_one_per_module():
    def neurons(modules, epsilon):
        return construct(HyperTeacher(modules, 2, 3, (4,), 2, seed=1), epsilon=epsilon).neurons

    coarse, fine = neurons(8, 0.1), neurons(8, 0.001)
    assert fine / coarse == pytest.approx(10, rel=0.2)
    sizes = {
        m: construct(HyperTeacher(m, 2, 3, (4,), 2, seed=1), pieces=16).neurons
        for m in (8, 16, 32, 60)
    }
    # the squares: 4 units, rank 3 each, 2 squares a pair, 16 pieces; then M carried weights in both layers, and 4 units
    assert sizes == {m: 4 * 3 * 2 * 16 + 2 * m + 4 for m in sizes}


def test_it_is_an_ordinary_relu_network():
    built = construct(HyperTeacher(4, 2, 3, (4,), 2, seed=1), pieces=4)
    assert {type(m).__name__ for m in built.network} == {"Linear", "ReLU"}
    hidden = [m.out_features for m in built.network if isinstance(m, torch.nn.Linear)][:-1]
    assert sum(hidden) == built.neurons


def test_requests_that_make_no_sense():
    teacher = HyperTeacher(4, 2, 3, (4,), 2)
    for arguments in ({}, {"epsilon": 0.1, "pieces": 4}, {"epsilon": 0.0}, {"pieces": 1}):
        with pytest.raises(ConfigError):
            construct(teacher, **arguments)
