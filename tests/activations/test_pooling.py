"""Pooling against sums by hand and torch's own adaptive pooling."""

import pytest
import torch
from torch.nn.functional import adaptive_avg_pool2d

from t2iprobe.activations.plan import resolve_steps
from t2iprobe.activations.pooling import (
    check_poolings,
    image_rows,
    image_weights,
    pool_map,
    pool_tokens,
    text_names,
    text_weights,
)
from t2iprobe.calibration.tokens import PromptTokens
from t2iprobe.errors import ConfigError

PROMPT = PromptTokens((1, 2, 3), ((0, 1), (2, 5), (6, 12)), 4, False)


@pytest.mark.parametrize("shape", [(4, 4), (4, 6), (5, 3), (7, 8), (1, 4)])
def test_grid_is_adaptive_average_pooling(shape: tuple[int, int]) -> None:
    height, width = shape
    maps = torch.randn(2, 3, height, width)
    weights = image_weights(["mean", "grid"], height * width, shape)
    pooled = pool_map(maps, weights)
    assert torch.allclose(pooled[:, 0], maps.mean((2, 3)), atol=1e-6)
    expected = adaptive_avg_pool2d(maps, 2).flatten(2).transpose(1, 2)
    assert torch.allclose(pooled[:, 1:], expected, atol=1e-6)
    tokens = maps.flatten(2).transpose(1, 2)
    assert torch.allclose(pool_tokens(tokens, weights), pooled, atol=1e-6)


def test_rows_follow_the_order_asked_for() -> None:
    assert image_rows(["grid", "mean"], True) == {"grid": slice(0, 4), "mean": slice(4, 5)}
    assert image_rows(["grid", "mean"], False) == {"mean": slice(0, 1)}
    assert image_weights(["grid", "mean"], 7, None).shape == (1, 7)


def test_float16_does_not_overflow() -> None:
    values = torch.full((1, 100_000, 1), 10.0, dtype=torch.float16)
    assert pool_tokens(values, image_weights(["mean"], 100_000, None)).item() == pytest.approx(
        10.0, rel=1e-3
    )


def test_text_poolings_take_real_tokens_only() -> None:
    spans = {"color": (2, 5), "shape": (6, 12), "gone": (6, 20)}
    names = text_names(["mean", "eot", "span"], list(spans))
    both = text_weights(names, 6, [[(PROMPT, 0, 0)], []], [spans, spans])
    assert both[1].isnan().all()
    weights = both[0]
    third = 1 / 3
    assert weights[0].tolist() == pytest.approx([0, third, third, third, 0, 0])
    assert weights[1].tolist() == [0, 0, 0, 0, 1, 0]
    assert weights[2].tolist() == [0, 0, 1, 0, 0, 0]
    assert weights[3].tolist() == [0, 0, 0, 1, 0, 0]
    assert weights[4].isnan().all()


def test_shifted_and_dropped_tokens() -> None:
    weights = text_weights(["mean"], 4, [[(PROMPT, -2, 2), (PROMPT, 0, 3)]], [{}])
    assert weights[0, 0].nonzero().flatten().tolist() == [0, 1, 3]


def test_a_constituent_of_which_a_part_is_not_handed_on_is_cut() -> None:
    spans = {"both": (2, 12), "color": (2, 5)}
    names = text_names(["mean", "span"], list(spans))
    (weights,) = text_weights(names, 3, [[(PROMPT, 0, 0)]], [spans])
    assert weights[0].tolist() == [0, 0.5, 0.5]
    assert weights[1].isnan().all()
    assert weights[2].tolist() == [0, 0, 1]


def test_images_that_share_a_prompt_share_its_weights_in_any_order() -> None:
    names = ["mean", "span-color", "span-shape"]
    color, shape = {"color": (2, 5)}, {"shape": (6, 12)}
    whole, shifted = [(PROMPT, 0, 0)], [(PROMPT, 1, 0)]
    asked = [(whole, color), (shifted, shape), (whole, color), (whole, shape), (shifted, shape)]
    weights = text_weights(names, 6, [parts for parts, _ in asked], [spans for _, spans in asked])
    for index, (parts, spans) in enumerate(asked):
        alone = text_weights(names, 6, [parts], [spans])
        assert torch.equal(weights[index].nan_to_num(-1), alone[0].nan_to_num(-1))
    assert not torch.equal(weights[0].nan_to_num(-1), weights[3].nan_to_num(-1))


def test_unknown_poolings() -> None:
    with pytest.raises(ConfigError, match=r"unknown image pooling 'means': did you mean 'mean'"):
        check_poolings(["means"], ["mean"])


@pytest.mark.parametrize(
    ("at", "n", "steps"),
    [
        ((0, 0.25, 0.5, 0.75, 1), 12, (0, 3, 6, 8, 11)),
        ((0, 0.25, 0.5, 0.75, 1), 2, (0, 1)),
        ((0, 3, 11), 12, (0, 3, 11)),
        ((1,), 12, (11,)),
        ((0.0, 1.0, 2.0), 12, (0, 1, 2)),
        ((0.5,), 1, (0,)),
    ],
)
def test_steps(at: tuple[float, ...], n: int, steps: tuple[int, ...]) -> None:
    assert resolve_steps(at, n) == steps


@pytest.mark.parametrize("at", [(1.5,), (-0.1,), (0.5, 3), (12,), (-1, 3), ()])
def test_steps_that_do_not_exist(at: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="--at"):
        resolve_steps(at, 12)
