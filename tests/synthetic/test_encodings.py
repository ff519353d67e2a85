"""Encodings: exact inverses where there are any, hand-computed values, and how linear each is."""

import pytest
import torch

from synthetic.encodings import ENCODINGS, make_encoding
from synthetic.supports import make_support
from synthetic.teacher import HyperTeacher, draw_task_latents
from t2iprobe.errors import ConfigError

NOISE = torch.Generator()


def latents(modules=8, hot=2, count=600, weights="discrete"):
    seen = torch.from_numpy(make_support("random", modules, hot).seen)
    return draw_task_latents(seen, count, weights, torch.Generator().manual_seed(1))


def linear_r2(source, target):
    """Share of the target's variance that the best affine map of the source explains, on other rows."""
    rows = torch.cat([source, torch.ones(len(source), 1)], dim=1).double()
    half = len(rows) // 2
    weights = torch.linalg.lstsq(rows[:half], target[:half].double()).solution
    error = (rows[half:] @ weights - target[half:]).square().sum()
    return 1 - (error / (target[half:] - target[half:].mean(dim=0)).square().sum()).item()


@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - {"fewshot"}))
@pytest.mark.parametrize("seed", [1, 2, 3, 43])
@pytest.mark.parametrize("weights", ["discrete", "khot"])
def test_inverse_gives_the_latents_back(name, seed, weights):
    z = latents(weights=weights)
    encoding = make_encoding(name, 8, seed)
    encoded = encoding(z, NOISE)
    assert encoded.shape == (len(z), encoding.dim)
    assert encoded.dtype == torch.float32
    assert (encoding.inverse(encoded) - z).abs().max() < 2e-5


@pytest.mark.parametrize(
    "name", ["orthogonal", "invertible", "invertible-strong", "interval-shuffle"]
)
def test_continuous_latents_come_back_too(name):
    z = latents(weights="continuous")
    encoding = make_encoding(name, 8, 3)
    assert (encoding.inverse(encoding(z, NOISE)) - z).abs().max() < 2e-5


def test_orthogonal_keeps_lengths():
    z = latents()
    assert torch.allclose(
        make_encoding("orthogonal", 8, 1)(z, NOISE).norm(dim=1), z.norm(dim=1), atol=1e-5
    )


def test_language_by_hand():
    words = make_encoding("tokens", 3, 1)(torch.tensor([[0.5, 0.0, 1.0]]), NOISE)
    assert words.tolist() == [[1, 9, 2, 4, 3, 14]]


def test_language_of_all_discrete_weights_is_exact():
    weights = torch.tensor([[0.5, 0.6, 0.7, 0.8, 0.9, 1.0]])
    words = make_encoding("language", 6, 1)(weights, NOISE)
    assert words[0, 1::2].tolist() == [12, 13, 14, 15, 16, 17]


def test_embedded_language_has_ids_within_its_vocabulary():
    encoding = make_encoding("language-embedded", 8, 1)
    ids = encoding(latents(), NOISE)
    assert ids.min() >= 0
    assert ids.max() < encoding.vocabulary


def test_interval_shuffle_moves_intervals_alike_and_keeps_one():
    encoding = make_encoding("interval_shuffle", 4, 2)
    moved = encoding(torch.tensor([[0.53, 0.53, 1.0, 0.0]]), NOISE)[0]
    assert moved[0] == moved[1]
    assert moved[2] == 1.0
    assert (moved[0] * 10 % 1) == pytest.approx(0.3, abs=1e-4)


def test_weak_flow_is_affine_and_the_strong_one_is_not():
    for modules, hot in ((8, 2), (16, 3), (32, 2)):
        z = latents(modules, hot, 3000)
        assert (
            linear_r2(make_encoding("invertible_nn", modules, 1)(z, NOISE), z) > 0.9999
        )  # nearly affine
        assert linear_r2(make_encoding("invertible-strong", modules, 1)(z, NOISE), z) < 0.7


def test_fewshot_shows_fresh_pairs_of_the_task():
    teacher = HyperTeacher(8, 2, 4, (5,), 3, seed=1)
    encoding = make_encoding("fewshot", 8, 1, teacher)
    z = latents(count=2)
    first, second = (encoding(z, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert first.shape == (2, 50 * (4 + 3))
    assert not torch.equal(first, second)
    x, y = first[:, :200].view(2, 50, 4), first[:, 200:].view(2, 50, 3)
    assert torch.allclose(teacher(z, x), y)
    assert encoding.inverse is None


def test_seed_is_of_the_map_alone():
    z = latents()
    one, again, other = (make_encoding("orthogonal", 8, seed)(z, NOISE) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "modules", "says"),
    [
        ("identiy", 8, "did you mean 'identity'"),
        ("invertible", 7, "even number of modules, got 7: use --modules 8"),
        ("fewshot", 8, "--task hyperteacher only"),
    ],
)
def test_what_cannot_be_encoded(name, modules, says):
    with pytest.raises(ConfigError) as caught:
        make_encoding(name, modules, 1)
    assert says in str(caught.value)
