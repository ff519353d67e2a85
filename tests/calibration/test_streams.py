"""Other tokens beside text and image, maps whose sides do not tell the channels, images that come in another order.

What is captured is compared with what the blocks wrote down themselves; what nothing tells is left out with a note.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from made_up import WIDTH, Design, MadeUpPipeline, Painter, Speller, Truth, patches
from pipelines.tokenizers import clip_tokenizer
from torch import Tensor, nn

from t2iprobe.activations.generate import GeneratedBatch, ImageRequest, generate
from t2iprobe.activations.plan import calibrated, plan_capture
from t2iprobe.calibration.observe import fingerprint
from t2iprobe.calibration.result import why
from t2iprobe.calibration.streams import channels_last
from t2iprobe.errors import SiteError
from t2iprobe.models.model import Model
from t2iprobe.places import Place

PROMPTS = ("a red circle left of a blue square", "an orange star above a black triangle")
REQUESTS = [
    ImageRequest("one", 0, PROMPTS[0], {"color1": (2, 5)}),
    ImageRequest("two", 0, PROMPTS[1], {"color1": (3, 9)}),
]
TEMPLATE = "draw a : "
RASTER = torch.arange(16)
WINDOWS = torch.arange(16).view(2, 2, 2, 2).permute(0, 2, 1, 3).flatten()
COLUMNS = torch.arange(16).view(4, 4).T.flatten()


class Row(Painter):
    """One stream of several parts.

    The letters of `parts`: t text, i image, r registers, n the noise level, l the image at half the resolution,
    s the same image once more.
    """

    def __init__(
        self, parts: str, order: Tensor = RASTER, read: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__(Design(returns="text_first", registers=3))
        self.parts, self.order, self.before = parts, order, read

    def forward(self, picture: Tensor, words: Tensor, level: Tensor, perturbed: int = 0) -> Tensor:
        tokens = self.embed(patches(picture)) + self.level(level.reshape(-1, 1))[:, None]
        text = self.read(words if self.before is None else self.before(words))
        coarse = tokens.view(-1, 2, 2, 2, 2, WIDTH).mean((2, 4)).flatten(1, 2)
        known = {
            "t": text,
            "i": tokens[:, self.order],
            "r": self.memory.expand(len(tokens), -1, -1),
            "n": self.level(level.reshape(-1, 1))[:, None],
            "l": coarse,
            "s": tokens,
        }
        stream = torch.cat([known[part] for part in self.parts], 1)
        at, places = 0, {}
        for part in self.parts:
            places[part] = slice(at, at + known[part].shape[1])
            at = places[part].stop
        for name, layer in self.named.items():
            stream = layer(stream)
            if self.log is not None:
                image = stream[:, places["i"]][:, self.order.argsort()]
                own = (image[self.rows], stream[:, places["t"]][self.rows])
                self.log.append(Truth(self.step, name, *own))
        return self.paint(stream[:, places["i"]][:, self.order.argsort()])


class Attending(nn.Module):
    """A block for the image and what stands beside it; it looks at the text."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.look = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.read = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, stream: Tensor, words: Tensor) -> Tensor:
        normed = self.norm(stream)
        stream = stream + self.look(normed, normed, normed)[0]
        return stream + self.read(self.norm(stream), words, words)[0]


class Beside(Painter):
    """An image with other tokens beside it: r registers, n the noise level, l the image at half the resolution."""

    def __init__(self, parts: str) -> None:
        super().__init__(Design(registers=3))
        self.parts = parts
        self.trunk = nn.ModuleList([Attending() for _ in range(3)])

    def forward(self, picture: Tensor, words: Tensor, level: Tensor, perturbed: int = 0) -> Tensor:
        noise = self.level(level.reshape(-1, 1))[:, None]
        tokens = self.embed(patches(picture)) + noise
        coarse = tokens.view(-1, 2, 2, 2, 2, WIDTH).mean((2, 4)).flatten(1, 2)
        registers = self.memory.expand(len(tokens), -1, -1)
        known = {"i": tokens, "n": noise, "l": coarse, "r": registers}
        stream = torch.cat([known[part] for part in self.parts], 1)
        first = sum(known[part].shape[1] for part in self.parts.split("i")[0])
        for index, block in enumerate(self.trunk):
            stream = block(stream, self.read(words))
            image = stream[:, first : first + 16]
            if self.log is not None:
                own = (image[self.rows], words[self.rows])
                self.log.append(Truth(self.step, f"trunk.{index}", *own))
        return self.paint(image)


class Square(nn.Module):
    """A block for maps of (4, 4, 4)."""

    def __init__(self, last: bool, mixes: bool) -> None:
        super().__init__()
        self.last, self.mixes = last, mixes
        self.read, self.out, self.mix = nn.Linear(WIDTH, 4), nn.Linear(4, 4), nn.Linear(64, 64)

    def forward(self, values: Tensor, words: Tensor) -> Tensor:
        values = values if self.last else values.movedim(1, -1)
        values = values + torch.tanh(self.out(values)) + self.read(words.mean(1))[:, None, None]
        if self.mixes:
            values = self.mix(values.flatten(1)).view(-1, 4, 4, 4)
        return values if self.last else values.movedim(-1, 1)


class Maps(Painter):
    """Feature maps with as many channels as rows and columns."""

    def __init__(self, last: bool, mixes: bool = False) -> None:
        super().__init__(Design())
        self.last = last
        self.trunk = nn.ModuleList([Square(last, mixes) for _ in range(3)])
        self.enter, self.leave = nn.Linear(16, 4), nn.Linear(4, 16)

    def forward(self, picture: Tensor, words: Tensor, level: Tensor, perturbed: int = 0) -> Tensor:
        values = (self.enter(patches(picture)) + level.reshape(-1, 1, 1)).view(-1, 4, 4, 4)
        values = values if self.last else values.movedim(-1, 1)
        for index, block in enumerate(self.trunk):
            values = block(values, words)
            channels_behind = values if self.last else values.movedim(1, -1)
            if self.log is not None:
                image = channels_behind[self.rows].flatten(1, 2)
                self.log.append(Truth(self.step, f"trunk.{index}", image, words[self.rows]))
        return self.leave(channels_behind.flatten(1, 2))


class Templated(MadeUpPipeline):
    """Prompts behind some words of the pipeline's own."""

    template = ""

    def _encode(self, prompts: list[str]) -> list[Tensor] | Tensor:
        return super()._encode([self.template + prompt for prompt in prompts])


def made(painter: Painter, template: str = "") -> Model:
    torch.manual_seed(0)
    spelling = clip_tokenizer()
    pipe = Templated(Speller(len(spelling)), spelling, painter.eval())
    pipe.speller.eval()
    pipe.template = template
    return Model("places", pipe)


def captured(model: Model) -> tuple[GeneratedBatch, list[Truth]]:
    plan = plan_capture(model, sites="all", at=(0, 3))
    model.pipe.painter.log = log = []
    (batch,) = generate(model, REQUESTS, plan, 2, run_seed=0)
    model.pipe.painter.log = None
    kept = {0: 0, 3: 1}
    return batch, [t for t in log if t.step in kept and len(t.image)]


def colours(model: Model) -> list[int]:
    """Where the first colour is among the text states of each prompt."""
    spelling, template = model.pipe.spelling, model.pipe.template
    return [
        [spelling.decode([t]).strip() for t in spelling(template + prompt).input_ids].index(
            prompt.split()[1]
        )
        for prompt in PROMPTS
    ]


def check_image(batch: GeneratedBatch, truth: Truth, grid: bool = True) -> None:
    site = f"painter.{truth.block}:image"
    mean = batch.activations[Place.parse(f"{site}/mean@{truth.step}")]
    assert torch.allclose(mean, truth.image.mean(1), atol=1e-5), site
    if not grid:
        assert Place.parse(f"{site}/grid@{truth.step}") not in batch.activations
        return
    cells = truth.image.view(len(truth.image), 2, 2, 2, 2, -1).mean((2, 4)).flatten(1)
    assert torch.allclose(
        batch.activations[Place.parse(f"{site}/grid@{truth.step}")], cells, atol=1e-5
    ), site


def check_text(batch: GeneratedBatch, truth: Truth, places: list[int]) -> None:
    got = batch.activations[Place.parse(f"painter.{truth.block}:text/span-color1@{truth.step}")]
    own = torch.stack([row[at] for row, at in zip(truth.text, places, strict=True)])
    assert torch.allclose(got, own, atol=1e-5), truth.block


ORDERS = ("rit", "itr", "irt", "tri", "rti", "tir", "lit", "til", "tli", "ilt", "nti", "tni")


@pytest.mark.parametrize("template", ["", TEMPLATE])
@pytest.mark.parametrize("parts", ORDERS)
def test_other_tokens_stand_anywhere_in_a_joint_stream(parts: str, template: str) -> None:
    model = made(Row(parts), template)
    batch, log = captured(model)
    assert {truth.block for truth in log} == {"trunk.0", "trunk.1", "trunk.2"}
    for truth in log:
        check_image(batch, truth)
        check_text(batch, truth, colours(model))
    assert calibrated(model).notes == []
    for streams in calibrated(model).denoisers["painter"].readings.values():
        image, text = (streams[stream].evidence for stream in ("image", "text"))
        assert image.picture and image.picture > 0.1 and image.text == 0
        assert text.text and text.text > 0.1 and text.picture == 0


def test_a_label_tells_why() -> None:
    found = calibrated(made(Row("irt")))
    image, text = why(found, "painter.trunk.2")
    assert image.startswith("painter.trunk.2:image: follows the picture: moved 0 with the text, ")
    assert image.endswith(" with the picture; positions 0 to 16 of the output")
    assert text.startswith("painter.trunk.2:text: follows the text and not the picture: moved ")
    assert text.endswith(
        " with the text, 0 with the picture; positions 19 to the end of the output"
    )
    assert why(found, "painter.trunk.2:text") == [text]
    (given,) = why(found, "painter.conditioning")
    assert given.startswith("painter.conditioning:text: words is another with another prompt")
    with pytest.raises(SiteError, match=r"unknown site 'painter.trunk.3'.*painter\.trunk\.2"):
        why(found, "painter.trunk.3")


@pytest.mark.parametrize("parts", ["rit", "tir", "irt"])
def test_a_text_that_is_mixed_before(parts: str) -> None:
    """All its states follow the prompt then, those of the template too."""
    attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def mixed(words: Tensor) -> Tensor:
        return words + attention(words, words, words)[0]

    model = made(Row(parts, read=mixed), TEMPLATE)
    batch, log = captured(model)
    for truth in log:
        check_image(batch, truth)
        check_text(batch, truth, colours(model))
    assert calibrated(model).notes == []


@pytest.mark.parametrize("parts", ["ri", "ir", "li", "il", "ni", "in"])
def test_other_tokens_beside_an_image_that_looks_at_the_text(parts: str) -> None:
    model = made(Beside(parts))
    batch, log = captured(model)
    for truth in log:
        check_image(batch, truth)
    assert calibrated(model).notes == []


@pytest.mark.parametrize(
    ("parts", "order", "told"),
    [
        ("ist", RASTER, "several places among 64"),
        ("ltsi", RASTER, "several places among 68"),  # no matter that the small one stands alone
        (
            "lit",
            RASTER.flip(0),
            "no place among 52",
        ),  # what tells it from the small one is its order
    ],
)
def test_an_image_that_may_be_elsewhere_is_not_read(parts: str, order: Tensor, told: str) -> None:
    with pytest.raises(SiteError, match=f"an image of 16 or 64 or 4 tokens fits at {told}"):
        plan_capture(made(Row(parts, order)))


@pytest.mark.parametrize(
    ("family", "path", "stream", "cut"),
    [
        (
            "unidiffuser",
            "transformer.transformer_in_blocks.0",
            "text",
            (2, -64),
        ),  # two noise levels
        ("omnigen", "layers.0", "text", (0, -4)),  # the noise level between text and image
        (
            "amused",
            "down_block.attention_blocks.0",
            "image",
            (None, None),
        ),  # a pooled text is in it
    ],
)
def test_tokens_of_families_are_where_their_code_puts_them(
    tiny_model: Any, family: str, path: str, stream: Any, cut: Any
) -> None:
    (found,) = calibrated(tiny_model(family)).denoisers.values()
    assert found.readings[path][stream].cut == cut


def test_a_text_that_fits_nowhere_is_left_out() -> None:
    """Neighbours are mixed before, so that one word more follows the prompt than in the text alone."""

    def smooth(words: Tensor) -> Tensor:
        return words + words.roll(-1, 1)

    model = made(Row("irt", read=smooth), TEMPLATE)
    batch, log = captured(model)
    for truth in log:
        check_image(batch, truth)
    assert not [p for p in batch.activations if str(p).startswith("painter.trunk.0:text")]
    assert calibrated(model).notes == [
        "painter: a text of 32 tokens fits at no place among 51; it is left out"
    ]


@pytest.mark.parametrize("order", [WINDOWS, COLUMNS, RASTER.flip(0)], ids=str)
@pytest.mark.parametrize("parts", ["it", "tir"])
def test_an_image_that_does_not_come_row_by_row_has_no_grid(parts: str, order: Tensor) -> None:
    model = made(Row(parts, order))
    batch, log = captured(model)
    for truth in log:
        check_image(batch, truth, grid=False)
        check_text(batch, truth, colours(model))
    assert calibrated(model).notes == [
        "painter: image tokens do not come row by row; their grid is left out"
    ]


@pytest.mark.parametrize("last", [True, False])
def test_maps_with_as_many_channels_as_rows(last: bool) -> None:
    model = made(Maps(last))
    batch, log = captured(model)
    for truth in log:
        check_image(batch, truth)
    assert calibrated(model).notes == []


def test_maps_whose_axes_nothing_tells_are_not_read() -> None:
    with pytest.raises(SiteError, match=r"channels and sides of a map \(4, 4, 4\) cannot be told"):
        plan_capture(made(Maps(last=True, mixes=True)))


def test_channels_of_a_mixed_map_are_where_the_other_maps_have_them() -> None:
    one = fingerprint(torch.randn(1, 8, 8, 8))
    mixed = fingerprint(torch.randn(1, 8, 8, 8))
    for usual in (True, False, None):
        assert channels_last(one, mixed, 0, (8, 8), usual) is usual
    wide = fingerprint(torch.randn(1, 8, 8, 16))
    assert channels_last(wide, mixed, 0, (8, 8), usual=False) is True
