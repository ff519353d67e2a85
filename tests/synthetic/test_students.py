"""Students: initialisation, stacking, and the properties each is chosen for."""

from math import sqrt

import pytest
import torch

from synthetic.students import STUDENTS
from synthetic.students.hypernetwork import Hypernetwork
from synthetic.students.layers import Linear, Sizes, TaskLinear
from synthetic.students.mlp import MLP
from synthetic.students.transformer import Transformer, rotary_table, rotate
from t2iprobe.errors import ConfigError
from t2iprobe.registry import resolve

VECTOR = Sizes(
    z_dim=6, vocabulary=0, x_dim=5, out_dim=3, width=16, depth=2, heads=2, feedforward=24
)
TOKENS = Sizes(
    z_dim=6, vocabulary=9, x_dim=5, out_dim=3, width=16, depth=2, heads=2, feedforward=24
)


def rngs(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def inputs(members, sizes, tasks=4, samples=7):
    z = torch.rand(members, tasks, sizes.z_dim)
    if sizes.vocabulary:
        z = torch.randint(sizes.vocabulary, z.shape).float()
    return z, torch.rand(members, tasks, samples, sizes.x_dim)


@pytest.mark.parametrize("name", sorted(STUDENTS))
@pytest.mark.parametrize("sizes", [VECTOR, TOKENS], ids=["vector", "tokens"])
def test_members_compute_what_they_would_alone(name, sizes):
    cls = resolve("student", STUDENTS, name)
    both, alone = cls(sizes, rngs(1, 2)), [cls(sizes, rngs(seed)) for seed in (1, 2)]
    z, x = inputs(2, sizes)
    together = both(z, x)
    assert together.shape == (2, 4, 7, 3)
    for i in range(2):
        assert torch.allclose(together[i], alone[i](z[i : i + 1], x[i : i + 1])[0], atol=1e-5)
    assert not torch.allclose(together[0], both(z.flip(0), x.flip(0))[1], atol=1e-3)


@pytest.mark.parametrize("name", sorted(STUDENTS))
def test_every_parameter_gets_a_gradient_and_the_tape_changes_nothing(name):
    student = resolve("student", STUDENTS, name)(VECTOR, rngs(1))
    z, x = inputs(1, VECTOR)
    tape = {}
    y = student(z, x, tape)
    assert torch.equal(y, student(z, x))
    assert torch.equal(tape["output"], y)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in student.parameters())


def test_mlp_is_a_plain_network_of_torch_modules():
    student = MLP(VECTOR, rngs(3))
    layers = [student.first, *student.hidden, student.out]
    plain = torch.nn.Sequential(
        *[
            m
            for layer in layers
            for m in (torch.nn.Linear(*layer.weight.shape[1:]), torch.nn.ReLU())
        ][:-1]
    )
    for module, layer in zip(plain[::2], layers, strict=True):
        module.weight.data, module.bias.data = layer.weight[0].T, layer.bias[0, 0]
    z, x = inputs(1, VECTOR)
    tape = {}
    rows = torch.cat([z[0].unsqueeze(1).expand(-1, 7, -1), x[0]], dim=-1)
    assert torch.allclose(student(z, x, tape)[0], plain(rows), atol=1e-5)
    assert torch.allclose(tape["hidden.0/pre"][0], plain[0](rows), atol=1e-5)
    assert torch.allclose(tape["hidden.1/post"][0], plain[:4](rows), atol=1e-5)
    assert (tape["hidden.0/pre"] < 0).any()
    assert (tape["hidden.0/post"] >= 0).all()


def test_initial_weights_are_the_references():
    # Variance 1 / fan-in, cut at two standard deviations, zero bias.
    layer = Linear(400, 300, rngs(1))
    assert layer.weight.var().item() == pytest.approx(1 / 400, rel=0.02)
    assert layer.weight.abs().max() <= 2 / sqrt(400) / 0.8796 + 1e-6
    assert not layer.bias.any()
    block = Transformer(VECTOR, rngs(1)).blocks[0]
    assert block.up.weight.abs().max() <= sqrt(6 / (16 + 24))
    assert block.up.weight.var().item() == pytest.approx(2 / (16 + 24), rel=0.2)


@pytest.mark.parametrize("fan_out", [8, 40])
def test_task_linear_equals_the_map_of_the_concatenation(fan_out):
    layer = TaskLinear(6, 5, fan_out, rngs(1))
    assert layer.splits == (fan_out == 8)
    z, x = inputs(1, VECTOR)
    rows = torch.cat([z.unsqueeze(2).expand(-1, -1, 7, -1), x], dim=-1)
    assert torch.allclose(layer.of_task(z, x), rows @ layer.weight[0] + layer.bias[0, 0], atol=1e-5)


def test_transformer_is_causal_and_reads_the_task():
    student = Transformer(VECTOR, rngs(1))
    z, x = inputs(1, VECTOR)
    changed = x.clone()
    changed[:, :, 4] += 1
    before, after = student(z, x), student(z, changed)
    assert torch.allclose(before[:, :, :4], after[:, :, :4], atol=1e-6)
    assert not torch.allclose(before[:, :, 5:], after[:, :, 5:], atol=1e-4)
    assert not torch.allclose(before, student(z + 0.5, x), atol=1e-4)


def test_rotation_depends_on_distance_alone():
    table = rotary_table(8, 10, torch.device("cpu"))
    q, k = torch.rand(1, 1, 1, 1, 8), torch.rand(1, 1, 1, 1, 8)
    turned_q, turned_k = (rotate(v.expand(1, 1, 10, 1, 8), table)[0, 0, :, 0] for v in (q, k))
    products = turned_q @ turned_k.T
    for distance in range(-9, 10):
        line = products.diagonal(distance)
        assert torch.allclose(line, line[0].expand(len(line)), atol=1e-5)
    assert torch.allclose(turned_q.norm(dim=1), q.norm().expand(10), atol=1e-5)


def test_transformer_width_must_split_into_rotated_heads():
    with pytest.raises(ConfigError, match="multiple of twice"):
        Transformer(Sizes(6, 0, 5, 3, width=10, depth=1, heads=4), rngs(1))


def test_hypernetwork_keeps_the_magnitude_of_the_task():
    student = Hypernetwork(VECTOR, rngs(1))
    z, x = inputs(1, VECTOR)
    assert not torch.allclose(
        student(0.5 * z, x), student(z, x), atol=1e-2
    )  # the magnitude of z counts
    assert not student.biases.weight.any()
