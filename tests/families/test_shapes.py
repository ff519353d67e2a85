import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t2iprobe.families import shapes
from t2iprobe.families.reading import load_family


def test_the_families_have_exactly_these_values() -> None:
    pair = {c.name: c.values for c in load_family("shapes-pair").constituents}
    single = {c.name: c.values for c in load_family("shapes-single").constituents}
    assert pair["color1"] == pair["color2"] == single["color"] == tuple(shapes.PALETTE)
    assert pair["shape1"] == pair["shape2"] == single["shape"] == shapes.SHAPES
    assert pair["relation"] == shapes.RELATIONS
    assert set(single["size"]) == set(shapes.SIZES)
    assert set(single["position"]) == set(shapes.POSITIONS)


@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_covered_area_and_centroid_are_those_of_the_geometry(shape: str) -> None:
    covered = shapes.coverage(shape, 30.25, 33.5, 12.0)
    place = np.arange(64) + 0.5
    area = covered.sum()
    assert area == pytest.approx(shapes.unit_area(shape) * 12.0**2, rel=0.03)
    assert covered.sum(0) @ place / area == pytest.approx(30.25, abs=0.1)
    assert covered.sum(1) @ place / area == pytest.approx(33.5, abs=0.1)
    assert covered.min() == 0
    assert covered.max() == 1


def test_areas_of_known_polygons() -> None:
    assert shapes.unit_area("circle") == pytest.approx(math.pi)
    assert shapes.unit_area("square") == pytest.approx(1.72**2)
    assert shapes.unit_area("triangle") == pytest.approx(3 * math.sqrt(3) / 4 * 1.2**2)
    assert shapes.unit_area("cross") == pytest.approx(2 * 2.1 * 0.72 - 0.72**2)


def test_an_edge_through_a_pixel_covers_half_of_it() -> None:
    covered = shapes.coverage("square", 32.0, 32.0, 10 / 0.86 + 0.5 / 0.86)
    assert covered[32, 21] == pytest.approx(0.5)
    assert covered[32, 22] == 1
    assert covered[32, 20] == 0


def test_paint_puts_later_objects_in_front() -> None:
    objects = [
        shapes.Placed("red", "square", 32, 32, 12),
        shapes.Placed("blue", "circle", 32, 32, 5),
    ]
    picture = shapes.paint(objects)
    assert tuple(picture[32, 32]) == shapes.PALETTE["blue"]
    assert tuple(picture[32, 24]) == shapes.PALETTE["red"]
    assert tuple(picture[0, 0]) == shapes.BACKGROUND


@given(st.integers(0, 2**32), st.sampled_from(shapes.RELATIONS))
def test_pairs_stay_apart_inside_the_picture_and_in_relation(seed: int, relation: str) -> None:
    values = {"color1": "red", "shape1": "star", "relation": relation}
    values |= {"color2": "blue", "shape2": "triangle"}
    first, second = shapes.place_pair(values, np.random.default_rng(seed))
    dx, dy = second.x - first.x, second.y - first.y
    along, across = (dx, dy) if relation in ("left of", "right of") else (dy, dx)
    assert (along > 0) == (relation in ("left of", "above"))
    assert abs(along) > 2 * abs(across)
    for thing in (first, second):
        reach = 1.3 * thing.radius
        assert reach < min(thing.x, thing.y, 64 - thing.x, 64 - thing.y)
    one, two = (shapes.coverage(t.shape, t.x, t.y, t.radius) for t in (first, second))
    assert not np.any((one > 0) & (two > 0))


def test_the_same_seed_paints_the_same_picture() -> None:
    values = {"color": "pink", "shape": "ring", "size": "small", "position": "in the center"}
    one, again, other = (shapes.render(values, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert one.shape == (64, 64, 3)
    assert one.dtype == np.uint8
