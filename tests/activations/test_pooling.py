"""Pooling against sums by hand and torch's own adaptive pooling."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn.functional import adaptive_avg_pool2d

from t2iprobe.activations import pooling
from t2iprobe.activations.plan import resolve_steps
from t2iprobe.activations.pooled_values import pool_map, pool_tokens
from t2iprobe.activations.pooling import (
    DEFAULT_POOLING,
    TextPooling,
    image_rows,
    image_weights,
    split_poolings,
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
    weights = torch.from_numpy(image_weights(["mean", "grid"], height * width, shape))
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
    weights = torch.from_numpy(image_weights(["mean"], 100_000, None))
    assert pool_tokens(values, weights).item() == pytest.approx(10.0, rel=1e-3)


def test_text_poolings_take_real_tokens_only() -> None:
    spans = {"color": (2, 5), "shape": (6, 12), "gone": (6, 20)}
    names = text_names(["mean", "eot", "span"], list(spans))
    both = text_weights(names, 6, [[(PROMPT, 0, 0)], []], [spans, spans])
    assert np.isnan(both[1]).all()
    weights = both[0]
    third = 1 / 3
    assert weights[0].tolist() == pytest.approx([0, third, third, third, 0, 0])
    assert weights[1].tolist() == [0, 0, 0, 0, 1, 0]
    assert weights[2].tolist() == [0, 0, 1, 0, 0, 0]
    assert weights[3].tolist() == [0, 0, 0, 1, 0, 0]
    assert np.isnan(weights[4]).all()


def test_shifted_and_dropped_tokens() -> None:
    weights = text_weights(["mean"], 4, [[(PROMPT, -2, 2), (PROMPT, 0, 3)]], [{}])
    assert np.flatnonzero(weights[0, 0]).tolist() == [0, 1, 3]


def test_a_constituent_of_which_a_part_is_not_handed_on_is_cut() -> None:
    spans = {"both": (2, 12), "color": (2, 5)}
    names = text_names(["mean", "span"], list(spans))
    (weights,) = text_weights(names, 3, [[(PROMPT, 0, 0)]], [spans])
    assert weights[0].tolist() == [0, 0.5, 0.5]
    assert np.isnan(weights[1]).all()
    assert weights[2].tolist() == [0, 0, 1]


def test_images_that_share_a_prompt_share_its_weights_in_any_order() -> None:
    names = ["mean", "span-color", "span-shape"]
    color, shape = {"color": (2, 5)}, {"shape": (6, 12)}
    whole, shifted = [(PROMPT, 0, 0)], [(PROMPT, 1, 0)]
    asked = [(whole, color), (shifted, shape), (whole, color), (whole, shape), (shifted, shape)]
    weights = text_weights(names, 6, [parts for parts, _ in asked], [spans for _, spans in asked])
    for index, (parts, spans) in enumerate(asked):
        alone = text_weights(names, 6, [parts], [spans])
        assert np.array_equal(weights[index], alone[0], equal_nan=True)
    assert not np.array_equal(weights[0], weights[3], equal_nan=True)


@pytest.mark.parametrize(
    ("names", "image", "text"),
    [
        (DEFAULT_POOLING, ("mean", "grid"), ("mean", "eot", "span")),
        (["grid", "eot"], ("grid",), ("eot",)),
        (["image:mean, text:span"], ("mean",), ("span",)),
        (["eot,mean", "mean"], ("mean",), ("eot", "mean")),
    ],
)
def test_names_are_for_the_streams_that_have_them(
    names: Sequence[str], image: tuple[str, ...], text: tuple[str, ...]
) -> None:
    assert split_poolings(names) == (image, text)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["means"], r"unknown pooling 'means': did you mean 'mean'\?"),
        (["mean", "image:eot"], r"unknown pooling 'image:eot'.* Known: .*mean"),
        (["picture:mean"], r"unknown pooling 'picture:mean'.* Known: .*mean"),
        (["grid"], r"--pooling names none for text streams: add .*eot"),
        (["eot", "span"], r"--pooling names none for image streams: add .*grid"),
        ([], r"--pooling names none for image streams"),
    ],
)
def test_poolings_that_cannot_be_used(names: Sequence[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        split_poolings(names)


def test_a_pooling_of_ones_own_needs_an_entry_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word, and the first word of each constituent: a function and a line in the table each."""
    first = TextPooling("the first word", lambda prompt, _: prompt.positions[:1])
    head = TextPooling(
        "the first token of each constituent",
        lambda prompt, characters: (prompt.span(characters) or ())[:1] if characters else (),
        per_constituent=True,
    )
    table = {**pooling.TEXT_POOLINGS, "first": first, "head": head}
    monkeypatch.setattr(pooling, "TEXT_POOLINGS", table)
    assert "first (the first word)" in pooling.pooling_help()
    _, names = split_poolings(["mean", "head", "first"])
    spelled = text_names(names, ["both"])
    assert spelled == ["mean", "head-both", "first"]
    (weights,) = text_weights(spelled, 5, [[(PROMPT, 0, 0)]], [{"both": (2, 12)}])
    assert weights[1].tolist() == [0, 0, 1, 0, 0]
    assert weights[2].tolist() == [0, 1, 0, 0, 0]


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
