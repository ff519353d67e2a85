"""Attention in which every position sees itself only, however it is written, and disturbances of arguments."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from t2iprobe.calibration.replay import Unmixed, disturbed_picture, disturbed_text


def _fused(states: Tensor, other: Tensor) -> Tensor:
    query, key = states.unflatten(-1, (4, 2)), other.unflatten(-1, (4, 2))
    grouped = key[:, :, :2]  # two heads of queries to each of keys
    heads = (query.transpose(1, 2), grouped.transpose(1, 2), grouped.transpose(1, 2))
    mixed = functional.scaled_dot_product_attention(*heads, enable_gqa=True)
    return mixed.transpose(1, 2).flatten(2)


def _written_out(states: Tensor, other: Tensor) -> Tensor:
    scores = states @ other.transpose(1, 2)
    return scores.softmax(dim=-1) @ other + torch.softmax(scores, -1) @ other


def _module(states: Tensor, other: Tensor) -> Tensor:
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    mixed: Tensor = attention(states, other, other)[0]
    return mixed


WAYS = [_fused, _written_out, _module]


@pytest.mark.parametrize("attend", WAYS)
def test_a_position_follows_itself_only(attend: Callable[[Tensor, Tensor], Tensor]) -> None:
    states = torch.randn(1, 5, 8)
    other = states.clone()
    other[0, 3] += 1
    with torch.no_grad():
        assert bool((attend(states, states) != attend(other, other)).any(-1).all())
        with Unmixed():
            moved = (attend(states, states) != attend(other, other)).any(-1)
    assert moved.tolist() == [[False, False, False, True, False]]


@pytest.mark.parametrize("attend", WAYS)
def test_nothing_comes_over_from_another_stream(attend: Callable[[Tensor, Tensor], Tensor]) -> None:
    states, text = torch.randn(1, 5, 8), torch.randn(1, 7, 8)
    with torch.no_grad(), Unmixed():
        assert torch.equal(attend(states, text), attend(states, text + 1))


def test_an_error_in_place_of_attention_is_kept_as_ours() -> None:
    unmixed = Unmixed()
    query, none = torch.zeros(1, 2, 2, 4), torch.zeros(1, 0, 2, 4)
    with pytest.raises(ZeroDivisionError) as raised, unmixed:
        functional.scaled_dot_product_attention(query, none, none)
    assert unmixed.error is raised.value


def test_the_first_words_stay() -> None:
    states = torch.randn(2, 6, 8)
    other = disturbed_text(2)(states)
    assert (other != states).any(-1).tolist() == [[False] * 2 + [True] * 4] * 2
    ids = torch.tensor([[0, 5, 5, 9]])
    assert disturbed_text(1)(ids).tolist() == [[0, 4, 4, 8]]


def test_every_quarter_of_a_picture_is_disturbed_more_than_the_one_before() -> None:
    picture = torch.randn(1, 4, 8, 8)
    change = (disturbed_picture((64, 64))(picture) - picture).abs().mean((0, 1))
    parts = [
        change[rows, columns].mean()
        for rows in (slice(4), slice(4, 8))
        for columns in (slice(4), slice(4, 8))
    ]
    assert all(4 < after / before < 16 for before, after in pairwise(parts))
    nested = disturbed_picture((64, 64))([[picture[0]], [picture[0]]])
    assert [type(row) for row in nested] == [list, list]
