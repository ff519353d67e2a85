"""The world of the shapes families: palette, geometry, and a renderer of scenes.

One description serves three users: the training pictures of the embedded models, the exact scorer's templates, and
tests that need a picture of known content. Pictures are 64 x 64; x grows to the right, y downwards, in pixels.

Every shape is given in a frame of its own: its centroid is the origin and its radius (farthest point, roughly) is 1,
so that the centroid of a picture's object is the shape's centre whatever the shape is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Array = NDArray[np.float32]

IMAGE_SIZE = 64
BACKGROUND = (240, 240, 238)
PALETTE: dict[str, tuple[int, int, int]] = {
    "red": (222, 28, 32),
    "orange": (250, 138, 16),
    "yellow": (246, 222, 40),
    "green": (36, 156, 60),
    "cyan": (36, 200, 216),
    "blue": (36, 68, 222),
    "purple": (132, 36, 172),
    "pink": (246, 136, 190),
    "brown": (128, 76, 36),
    "black": (22, 22, 24),
}
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
RELATIONS = ("left of", "right of", "above", "below")
SIZES = ("small", "large")
POSITIONS: dict[str, tuple[float, float]] = {
    "at the top left": (17.0, 17.0),
    "at the top right": (47.0, 17.0),
    "at the bottom left": (17.0, 47.0),
    "at the bottom right": (47.0, 47.0),
    "in the center": (32.0, 32.0),
}

PAIR_RADIUS = (8.5, 10.5)
SIZE_RADIUS = {"small": (6.5, 8.0), "large": (11.0, 12.5)}
# Half the distance between the two centres of a pair, and how far each may stray along and across the axis.
PAIR_OFFSET, PAIR_ALONG, PAIR_ACROSS = 15.0, 1.0, 2.0
POSITION_JITTER = 2.5
COLOR_JITTER = 6.0
SUPERSAMPLE = 4


@dataclass(frozen=True)
class Placed:
    """One object of a picture: what it is and where.

    Attributes:
        color: a name of PALETTE.
        shape: a name of SHAPES.
        x: centroid, pixels from the left edge.
        y: centroid, pixels from the top edge.
        radius: size in pixels, see the module's text.
    """

    color: str
    shape: str
    x: float
    y: float
    radius: float


def _polygon(points: list[tuple[float, float]]) -> NDArray[np.float64]:
    """Corners moved so that the polygon's centroid is the origin (shoelace formula)."""
    xy = np.asarray(points, dtype=np.float64)
    following = np.roll(xy, -1, axis=0)
    cross = xy[:, 0] * following[:, 1] - following[:, 0] * xy[:, 1]
    centroid: NDArray[np.float64] = ((xy + following) * cross[:, None]).sum(0) / (3 * cross.sum())
    return xy - centroid


@cache
def _corners(shape: str) -> NDArray[np.float64]:
    if shape == "square":
        s = 0.86
        return _polygon([(-s, -s), (s, -s), (s, s), (-s, s)])
    if shape == "triangle":
        angles = np.deg2rad([-90, 30, 150])
        return _polygon([(1.2 * np.cos(a), 1.2 * np.sin(a)) for a in angles])
    if shape == "star":
        angles = np.deg2rad(-90 + 36 * np.arange(10))
        radii = np.where(np.arange(10) % 2 == 0, 1.25, 0.55)
        return _polygon(
            [(r * np.cos(a), r * np.sin(a)) for r, a in zip(radii, angles, strict=True)]
        )
    w, s = 0.36, 1.05  # the cross: half the width of an arm, and its length
    return _polygon(
        [(-w, -s), (w, -s), (w, -w), (s, -w), (s, w), (w, w)]
        + [(-x, -y) for x, y in [(-w, -s), (w, -s), (w, -w), (s, -w), (s, w), (w, w)]]
    )


def inside(shape: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether points of the shape's own frame lie in it (polygons: even-odd rule).

    Args:
        shape: a name of SHAPES.
        x: coordinates in units of the radius, any shape that broadcasts with y.
        y: as x, downwards.
    """
    if shape == "circle":
        return x * x + y * y <= 1.0
    if shape == "ring":
        square = x * x + y * y
        return (square <= 1.1) & (square >= 0.3)
    corners = _corners(shape)
    result = np.zeros(np.broadcast_shapes(x.shape, y.shape), dtype=np.bool_)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y0 == y1:
            continue
        crosses = (y0 > y) != (y1 > y)
        result ^= crosses & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return result


@cache
def unit_area(shape: str) -> float:
    """Area of the shape at radius 1, in squared radii."""
    if shape == "circle":
        return float(np.pi)
    if shape == "ring":
        return float(np.pi * 0.8)
    x, y = _corners(shape).T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def coverage(shape: str, x: float, y: float, radius: float, size: int = IMAGE_SIZE) -> Array:
    """Share of each pixel that the shape covers.

    Args:
        shape: a name of SHAPES.
        x: centroid, pixels from the left edge of the picture.
        y: centroid, pixels from its top edge.
        radius: pixels.
        size: side of the picture, pixels.

    Returns:
        (size, size) float32 in [0, 1].
    """
    grid = (np.arange(size * SUPERSAMPLE) + 0.5) / SUPERSAMPLE
    covered = np.zeros((size, size), dtype=np.float32)
    reach = 1.3 * radius + 1
    left, right = max(int(x - reach), 0), min(int(x + reach) + 1, size)
    top, bottom = max(int(y - reach), 0), min(int(y + reach) + 1, size)
    if left < right and top < bottom:
        u = (grid[left * SUPERSAMPLE : right * SUPERSAMPLE] - x)[None, :] / radius
        v = (grid[top * SUPERSAMPLE : bottom * SUPERSAMPLE] - y)[:, None] / radius
        points = inside(shape, u, v).astype(np.float32)
        blocks = points.reshape(bottom - top, SUPERSAMPLE, right - left, SUPERSAMPLE)
        covered[top:bottom, left:right] = blocks.mean(axis=(1, 3))
    return covered


def paint(objects: list[Placed], rng: np.random.Generator | None = None) -> NDArray[np.uint8]:
    """A picture of the objects, later ones in front.

    Args:
        objects: what to show.
        rng: source of small differences of colour; without it the colours are the palette's own.

    Returns:
        (64, 64, 3) uint8.
    """

    def shade(color: tuple[int, int, int]) -> Array:
        exact = np.asarray(color, dtype=np.float32)
        if rng is None:
            return exact
        return exact + rng.uniform(-COLOR_JITTER, COLOR_JITTER, 3).astype(np.float32)

    picture = np.broadcast_to(shade(BACKGROUND), (IMAGE_SIZE, IMAGE_SIZE, 3)).copy()
    for thing in objects:
        share = coverage(thing.shape, thing.x, thing.y, thing.radius)[..., None]
        picture = picture * (1 - share) + shade(PALETTE[thing.color]) * share
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def place_pair(values: Mapping[str, str], rng: np.random.Generator) -> list[Placed]:
    """The two objects of a `shapes-pair` assignment, with jitter of place and size.

    Args:
        values: color1, shape1, relation, color2, shape2.
        rng: source of the jitter.
    """
    axis = 0 if values["relation"] in ("left of", "right of") else 1
    sign = -1.0 if values["relation"] in ("left of", "above") else 1.0
    objects = []
    for index, side in (("1", sign), ("2", -sign)):
        center = np.full(2, IMAGE_SIZE / 2)
        center[axis] += side * PAIR_OFFSET + rng.uniform(-PAIR_ALONG, PAIR_ALONG)
        center[1 - axis] += rng.uniform(-PAIR_ACROSS, PAIR_ACROSS)
        color, shape = values["color" + index], values["shape" + index]
        radius = float(rng.uniform(*PAIR_RADIUS))
        objects.append(Placed(color, shape, float(center[0]), float(center[1]), radius))
    return objects


def place_single(values: Mapping[str, str], rng: np.random.Generator) -> list[Placed]:
    """The object of a `shapes-single` assignment, with jitter of place and size.

    Args:
        values: color, shape, size, position.
        rng: source of the jitter.
    """
    x, y = POSITIONS[values["position"]] + rng.uniform(-POSITION_JITTER, POSITION_JITTER, 2)
    radius = float(rng.uniform(*SIZE_RADIUS[values["size"]]))
    return [Placed(values["color"], values["shape"], float(x), float(y), radius)]


def render(values: Mapping[str, str], rng: np.random.Generator) -> NDArray[np.uint8]:
    """A picture of a `shapes-pair` or `shapes-single` assignment, with jitter of place, size and colour.

    Args:
        values: the assignment; which family it is shows in its names.
        rng: source of all jitter.

    Returns:
        (64, 64, 3) uint8.
    """
    place = place_pair if "relation" in values else place_single
    return paint(place(values, rng), rng)


def to_image(picture: NDArray[np.uint8]) -> "Image":
    """The array as a PIL image."""
    from PIL import Image

    return Image.fromarray(picture)
