"""The exact judge of the shapes families: it finds the objects of a picture and measures each.

An object is a connected region that differs from the ground. Its colour is the median of its eroded
region, because the anti-aliased edge has other colours; its shape is the template that overlaps best
with the share of each pixel it covers. A picture without the right number of clean objects is
*malformed*: it says nothing about composition. Clean objects with another value than asked are *wrong*.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from t2iprobe.errors import ConfigError, unknown
from t2iprobe.families import shapes
from t2iprobe.families.tasks import Family, Task
from t2iprobe.scorers.base import Scorer, Verdict

if TYPE_CHECKING:
    from PIL.Image import Image

Array = NDArray[np.float32]

# RGB distance from the ground: half the distance of the palette's faintest colour.
FOREGROUND = 60.0
# Pixels: a region below the first is ignored, from the second on it is an object, between lies debris.
SPECK, SMALLEST = 8, 45
# RGB distance: less than half of what separates the palette's two nearest colours.
COLOR_TOLERANCE = 42.0
PURITY = 0.75  # share of the eroded region that has to be near its median colour
OVERLAP = 0.70  # soft intersection over union with the best template; rendered shapes have 0.92
DOMINANCE = 1.3  # distance along the axis of a relation over the distance across it
SIZE_BOUNDARY = 9.5  # radius in pixels between small and large
POSITION_TOLERANCE = 9.0  # pixels from a position's anchor
PATCH = 42  # side of a template in pixels, enough for a radius of 15


@dataclass(frozen=True)
class SeenObject:
    """One clean object of a picture.

    Attributes:
        color: nearest name of the palette.
        shape: name of the best template.
        x: centroid, pixels from the left edge.
        y: centroid, pixels from the top edge.
        radius: size in pixels, see `t2iprobe.families.shapes`.
        overlap: soft intersection over union with the template, in [0, 1].
    """

    color: str
    shape: str
    x: float
    y: float
    radius: float
    overlap: float


class Malformed(Exception):  # noqa: N818 - not an error: it carries the finding out of the search
    """Why a picture does not show clean objects."""


class PixelScorer(Scorer):
    """Scores pictures of `shapes-pair`, `shapes-single` and families with the same constituents and fewer values."""

    @classmethod
    def check_family(cls, family: Family) -> None:
        """Refuse a family that cannot be judged.

        Raises:
            ConfigError: it has other constituents, or values that the scorer does not know.
        """
        constituents = [constituent.name for constituent in family.constituents]
        if frozenset(constituents) not in _LOOKS:
            known = "; ".join(", ".join(sorted(names)) for names in _LOOKS)
            raise ConfigError(
                f"the pixels scorer cannot judge the constituents {', '.join(constituents)} of {family.name!r};"
                f" it knows {known}: choose another scorer"
            )
        for constituent in family.constituents:
            allowed = _KNOWN[constituent.name.rstrip("12")]
            for value in constituent.values:
                if value not in allowed:
                    what = f"{constituent.name} for the pixels scorer"
                    raise ConfigError(unknown(what, value, allowed))

    def score(self, images: "Sequence[Image]", tasks: Sequence[Task]) -> list[Verdict]:
        """The verdict on each picture; see `judge`."""
        return [judge(image, task) for image, task in zip(images, tasks, strict=True)]


def judge(image: "Image", task: Task) -> Verdict:
    """The verdict on one picture, with every constituent.

    Two objects of a picture have no order: they are matched with the two of the task in the way that
    makes most constituents right.

    Args:
        image: any mode and any square size; it is reduced to 64 x 64.
        task: a task of a family that `PixelScorer.check_family` lets through.
    """
    look = _LOOKS[frozenset(task.values)]
    if image.width != image.height:
        reason = f"the picture is {image.width} x {image.height}; only square ones are judged"
        return Verdict.unscored(task, reason)
    try:
        objects = find_objects(image)
        count = 2 if look is _look_at_pair else 1
        if len(objects) != count:
            raise Malformed(f"{len(objects)} objects instead of {count}")
    except Malformed as malformed:
        return Verdict("malformed", str(malformed), dict.fromkeys(task.values))
    seen = look(objects, task.values)
    right = {name: seen[name] == value for name, value in task.values.items()}
    if all(right.values()):
        return Verdict("right", "all as asked", {**right})
    wrong = [name for name in right if not right[name]]
    reason = ", ".join(f"{name} is {seen[name]} not {task.values[name]}" for name in wrong)
    return Verdict("wrong", reason, {**right})


def find_objects(image: "Image") -> list[SeenObject]:
    """The clean objects of a picture, from left to right and top to bottom in scanning order.

    Raises:
        Malformed: something in the picture is no clean object.
    """
    picture = _reduce(image)
    border = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    ground = np.median(border, axis=0)
    if np.linalg.norm(ground - shapes.BACKGROUND) > FOREGROUND:
        raise Malformed("the ground is not light")
    differs = np.sqrt(((picture - ground) ** 2).sum(-1)) > FOREGROUND
    labels, _ = ndimage.label(differs, structure=np.ones((3, 3)))
    areas = np.bincount(labels.ravel())[1:]
    if np.any((areas >= SPECK) & (areas < SMALLEST)):
        raise Malformed("debris beside the objects")
    objects: list[SeenObject] = []
    for index, (rows, columns) in enumerate(ndimage.find_objects(labels)):
        if areas[index] >= SMALLEST:
            objects.append(_measure(picture, ground, labels == index + 1, (rows, columns)))
    return objects


def _reduce(image: "Image") -> Array:
    """(64, 64, 3) float32, 0 to 255."""
    size = (shapes.IMAGE_SIZE, shapes.IMAGE_SIZE)
    rgb = image.convert("RGB")
    if rgb.size != size:
        rgb = rgb.resize(size, resample=4)  # PIL's BOX: every source pixel counts once
    return np.asarray(rgb, dtype=np.float32)


def _measure(
    picture: Array, ground: Array, region: NDArray[np.bool_], box: tuple[slice, slice]
) -> SeenObject:
    """Colour, shape, place and size of one region.

    Args:
        picture: (64, 64, 3).
        ground: (3,) colour of the ground.
        region: (64, 64) where the object is.
        box: the region's bounding box.

    Raises:
        Malformed: no colour of the palette, several colours, or no shape.
    """
    rows, columns = (slice(max(s.start - 2, 0), s.stop + 2) for s in box)
    pixels, inside = picture[rows, columns], region[rows, columns]
    core = ndimage.binary_erosion(inside)
    if core.sum() < 4:
        raise Malformed("an object is too thin")
    shade = np.median(pixels[core], axis=0)
    color = _nearest_color(shade)
    near = np.linalg.norm(pixels[core] - shade, axis=1) < FOREGROUND
    if near.mean() < PURITY:
        raise Malformed(f"an object has several colours, most of it {color}")
    # Along the edge the ground mixes with the object's colour: the place on the line between the two
    # is the share covered.
    line = shade - ground
    mixture = np.clip((pixels - ground) @ line / (line @ line), 0, 1)
    share = np.where(ndimage.binary_dilation(inside), mixture, 0).astype(np.float32)
    area = float(share.sum())
    y = float((share.sum(1) @ np.arange(share.shape[0])) / area) + rows.start + 0.5
    x = float((share.sum(0) @ np.arange(share.shape[1])) / area) + columns.start + 0.5
    shape, overlap = _best_shape(share, x - columns.start, y - rows.start, area)
    if overlap < OVERLAP:
        raise Malformed(f"a {color} object has no known shape (overlap {overlap:.2f}, {shape})")
    return SeenObject(color, shape, x, y, float(np.sqrt(area / shapes.unit_area(shape))), overlap)


def _nearest_color(shade: Array) -> str:
    names = list(shapes.PALETTE)
    distances = np.linalg.norm(np.array([shapes.PALETTE[n] for n in names]) - shade, axis=1)
    best = int(distances.argmin())
    if distances[best] > COLOR_TOLERANCE:
        raise Malformed(f"an object's colour is none of the palette's, nearest {names[best]}")
    return names[best]


def _best_shape(share: Array, x: float, y: float, area: float) -> tuple[str, float]:
    """The template of the same area and centroid that overlaps best, and its soft intersection over union.

    sum(min(a, b)) / sum(max(a, b)) over pixels, a and b being shares covered.
    """
    whole_x, whole_y = round(x), round(y)
    padded = np.zeros((PATCH, PATCH), dtype=np.float32)
    top, left = PATCH // 2 - whole_y, PATCH // 2 - whole_x
    height, width = share.shape
    if min(top, left) < 0 or top + height > PATCH or left + width > PATCH:
        return "larger than any object", 0.0
    padded[top : top + height, left : left + width] = share
    best, overlap = "", 0.0
    for shape in shapes.SHAPES:
        radius = np.sqrt(area / shapes.unit_area(shape))
        template = _template(
            shape, round((x - whole_x) * 4), round((y - whole_y) * 4), round(radius * 4)
        )
        common = float(np.minimum(padded, template).sum())
        joint = common / (area + float(template.sum()) - common)
        if joint > overlap:
            best, overlap = shape, joint
    return best, overlap


@lru_cache(maxsize=4096)
def _template(shape: str, quarter_x: int, quarter_y: int, quarter_radius: int) -> Array:
    """A shape near the middle of a patch; place and radius in quarters of a pixel; read only."""
    middle = PATCH // 2
    template = shapes.coverage(
        shape, middle + quarter_x / 4, middle + quarter_y / 4, quarter_radius / 4, PATCH
    )
    template.flags.writeable = False
    return template


def _look_at_pair(objects: list[SeenObject], values: Mapping[str, str]) -> dict[str, str]:
    """What is seen for each constituent, objects matched so that most constituents are right."""
    options = []
    for first, second in (objects, objects[::-1]):
        seen = {"color1": first.color, "shape1": first.shape, "relation": _relation(first, second)}
        options.append(seen | {"color2": second.color, "shape2": second.shape})
    return max(options, key=lambda seen: sum(seen[name] == values[name] for name in values))


def _relation(first: SeenObject, second: SeenObject) -> str:
    dx, dy = second.x - first.x, second.y - first.y
    if abs(dx) > DOMINANCE * abs(dy):
        return "left of" if dx > 0 else "right of"
    if abs(dy) > DOMINANCE * abs(dx):
        return "above" if dy > 0 else "below"
    return "diagonal"


def _look_at_single(objects: list[SeenObject], values: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG001
    (thing,) = objects
    anchors = {n: np.hypot(thing.x - x, thing.y - y) for n, (x, y) in shapes.POSITIONS.items()}
    nearest = min(anchors, key=lambda name: float(anchors[name]))
    position = nearest if anchors[nearest] <= POSITION_TOLERANCE else "elsewhere"
    size = "small" if thing.radius < SIZE_BOUNDARY else "large"
    return {"color": thing.color, "shape": thing.shape, "size": size, "position": position}


Look = Callable[[list[SeenObject], Mapping[str, str]], dict[str, str]]
_LOOKS: dict[frozenset[str], Look] = {
    frozenset(("color1", "shape1", "relation", "color2", "shape2")): _look_at_pair,
    frozenset(("color", "shape", "size", "position")): _look_at_single,
}
_KNOWN: dict[str, Collection[str]] = {
    "color": shapes.PALETTE,
    "shape": shapes.SHAPES,
    "relation": shapes.RELATIONS,
    "size": shapes.SIZES,
    "position": shapes.POSITIONS,
}
