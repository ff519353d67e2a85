"""What calibration tells from tensors alone: which axis holds tokens, what is weights, what a long text may move."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from t2iprobe.calibration.batches import may_move
from t2iprobe.calibration.grid import image_counts, text_count
from t2iprobe.calibration.observe import Call, fingerprint, rows_of, turn_states
from t2iprobe.calibration.result import Reading
from t2iprobe.calibration.rows import guidance_words
from t2iprobe.models.model import Model


def test_layers_first_or_last_are_one_text() -> None:
    """Both as the watcher of a run cuts them and as calibration turns what it kept."""
    states = torch.randn(2, 30, 4, 16)  # rows, tokens, layers, width
    other = states.transpose(1, 2)
    call = Call(0.0, {"text": [fingerprint(row) for row in other]})
    turn_states([call], "text")
    for row, turned, kept in zip(states, rows_of(other), call.arguments["text"], strict=True):
        assert torch.equal(row, turned)
        assert kept.shape == row.shape
        assert torch.equal(kept.sample, row[..., : kept.sample.shape[-1]])
    assert all(torch.equal(a, b) for a, b in zip(states, rows_of(states), strict=True))


def test_a_text_and_an_image_in_one_length_each() -> None:
    """Zeros stand where the other one is."""
    image, text = torch.zeros(1, 26, 8), torch.zeros(1, 26, 8)
    image[:, 10:], text[:, :10] = torch.randn(1, 16, 8), torch.randn(1, 10, 8)
    arguments = {
        name: [fingerprint(row) for row in rows] for name, rows in (("x", image), ("c", text))
    }
    call = Call(1.0, arguments)
    assert image_counts(call, "c", (32, 32)) == ((16,), {16: (4, 4)})
    assert text_count(call, "c", 0) == 10


def test_an_image_in_patches_cut_outside() -> None:
    call = Call(1.0, {"x": [fingerprint(torch.randn(64, 4, 1, 2, 2))], "c": []})
    assert image_counts(call, "c", (32, 32)) == ((64,), {64: (8, 8)})


@pytest.mark.parametrize(
    ("cut", "lengths", "expected"),
    [
        ((-64, None), (25, 24), True),
        ((-64, None), (77, 77), False),  # texts of one length
        ((0, 64), (25, 24), False),  # the image comes first
        (None, (25, 24), False),  # a feature map
    ],
)
def test_what_a_long_text_may_move(
    cut: tuple[int | None, int | None] | None, lengths: tuple[int, int], expected: bool
) -> None:
    assert may_move({"layers.0": {"image": Reading("", 0, cut)}}, lengths) is expected


@pytest.mark.parametrize(
    ("layouts", "later", "expected"),
    [
        ([[True]], False, "one call a step, no unconditional half"),
        (
            [[True]],
            True,
            "one call a step, no unconditional half at first; guidance comes later in the run",
        ),
        ([[False, True]], True, "one call a step: [unconditional, conditional]"),
        ([[True], [False]], True, "2 calls a step: [conditional] then [unconditional]"),
    ],
)
def test_guidance_in_words(layouts: list[list[bool]], later: bool, expected: str) -> None:
    assert guidance_words(layouts, comes_later=later) == expected


class _Words(list[str]):
    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self[i] for i in ids]


def test_the_tokenizer_is_the_one_of_that_size() -> None:
    """Where its name does not tell."""
    writer = nn.Module()
    writer.words = nn.Embedding(1000, 4)
    small, large = _Words(["a"] * 256), _Words(["a"] * 998)
    parts = {
        "tokenizer": small,
        "processor": SimpleNamespace(tokenizer=large),
        "writer_of_words": writer,
    }
    model = Model("made up", SimpleNamespace(components=parts))
    assert model.tokenizer("writer_of_words") is large
