"""A place in a model has one spelling, which says everything about it."""

import pytest

from t2iprobe.errors import DataError
from t2iprobe.places import Place, Site

BLOCK = Site("transformer", "transformer_blocks.2", "image")
LAYER = Site("text_encoder", "encoder.layers.1", "text")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place(BLOCK, "grid", 3), "transformer.transformer_blocks.2:image/grid@3"),
        (Place(LAYER, "span-color1"), "text_encoder.encoder.layers.1:text/span-color1"),
        (Place(LAYER, "span-a-b c", 0), "text_encoder.encoder.layers.1:text/span-a-b c@0"),
        (Place(Site("unet", "conditioning", "text"), "mean"), "unet.conditioning:text/mean"),
    ],
)
def test_a_place_is_spelled_and_read_back(place: Place, text: str) -> None:
    assert str(place) == text
    assert Place.parse(text) == place
    assert Site.parse(str(place.site)) == place.site


def test_a_place_knows_its_parts() -> None:
    block = Place(BLOCK, "grid", 3)
    assert block.columns() == {
        "site": "transformer.transformer_blocks.2",
        "component": "transformer",
        "stream": "image",
        "pooling": "grid",
        "step": 3,
    }
    assert (block.constituent, block.in_text_encoder) == (None, False)
    span = Place(LAYER, "span-color1")
    assert (span.constituent, span.pooling_kind, span.in_text_encoder) == ("color1", "span", True)
    received = Place(Site("transformer", "conditioning", "text"), "mean")
    assert received.site.is_conditioning
    assert not received.in_text_encoder


@pytest.mark.parametrize(
    "text",
    ["transformer", "transformer:image/mean", "a.b:sound/mean", "a.b:image", "a.b:image/mean@one"],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"is no (place|site)"):
        Place.parse(text)


def test_places_are_sorted_by_module_stream_pooling_and_step() -> None:
    places = [
        Place(LAYER, "mean"),
        Place(BLOCK, "grid", 2),
        Place(BLOCK, "grid", 10),
        Place(BLOCK, "mean", 0),
    ]
    turned = places[::-1]
    assert sorted(turned, key=lambda place: place.order) == places
