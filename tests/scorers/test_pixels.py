from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from t2iprobe.errors import ConfigError
from t2iprobe.families import shapes
from t2iprobe.families.reading import load_family
from t2iprobe.families.tasks import Family, Task
from t2iprobe.scorers.pixels import PixelScorer, find_objects, judge

SCENES = 400


@pytest.fixture(scope="module", params=["shapes-pair", "shapes-single"])
def family(request: pytest.FixtureRequest) -> Family:
    return load_family(request.param)


def drawn(family: Family, count: int, seed: int) -> list[tuple[Task, Image.Image]]:
    rng = np.random.default_rng(seed)
    tasks = family.tasks()
    chosen = [tasks[i] for i in rng.integers(len(tasks), size=count)]
    return [(task, shapes.to_image(shapes.render(task.values, rng))) for task in chosen]


def test_rendered_scenes_are_right(family: Family) -> None:
    verdicts = [judge(image, task) for task, image in drawn(family, SCENES, 1)]
    right = np.mean([verdict.success for verdict in verdicts])
    assert right >= 0.995
    assert all(v.constituents == dict.fromkeys(v.constituents, True) for v in verdicts if v.success)


def test_both_wordings_of_a_scene_are_right() -> None:
    family = load_family("shapes-pair")
    assert family.scene_rule is not None
    for task, image in drawn(family, 50, 2):
        other = family.task(family.scene_rule.other(task.values))
        assert judge(image, other).outcome == "right"


def test_any_one_changed_constituent_is_rejected(family: Family) -> None:
    rng = np.random.default_rng(3)
    rejected, total = 0, 0
    for task, image in drawn(family, SCENES, 4):
        for constituent in family.constituents:
            others = [v for v in constituent.values if v != task.values[constituent.name]]
            value = others[rng.integers(len(others))]
            asked = replace(task, values=task.values | {constituent.name: value})
            rejected += judge(image, asked).outcome == "wrong"
            total += 1
    assert rejected / total >= 0.995


def test_the_changed_constituent_is_the_one_blamed() -> None:
    family = load_family("shapes-pair")
    asked = family.task(_pair("red", "circle", "left of", "blue", "square"))
    shown = {
        "color1": _pair("green", "circle", "left of", "blue", "square"),
        "shape1": _pair("red", "ring", "left of", "blue", "square"),
        "relation": _pair("red", "circle", "above", "blue", "square"),
        "color2": _pair("red", "circle", "left of", "pink", "square"),
        "shape2": _pair("red", "circle", "left of", "blue", "star"),
    }
    for name, values in shown.items():
        verdict = judge(_image(values), asked)
        assert [n for n, right in verdict.constituents.items() if not right] == [name]
        assert verdict.reason == f"{name} is {values[name]} not {asked.values[name]}"


def test_swapped_colours_are_a_failure_to_bind() -> None:
    asked = load_family("shapes-pair").task(_pair("red", "circle", "left of", "blue", "square"))
    image = _image(_pair("blue", "circle", "left of", "red", "square"))
    verdict = judge(image, asked)
    assert verdict.outcome == "wrong"
    assert verdict.constituents == {
        "color1": False, "shape1": True, "relation": True, "color2": False, "shape2": True
    }  # fmt: skip


def test_a_diagonal_shows_no_relation() -> None:
    objects = [
        shapes.Placed("red", "circle", 18, 18, 9),
        shapes.Placed("blue", "square", 45, 44, 9),
    ]
    image = shapes.to_image(shapes.paint(objects))
    family = load_family("shapes-pair")
    for relation in shapes.RELATIONS:
        asked = family.task(_pair("red", "circle", relation, "blue", "square"))
        assert judge(image, asked).constituents["relation"] is False


def _red_and_blue(*extra: shapes.Placed) -> np.ndarray:
    first = shapes.Placed("red", "circle", 17, 32, 9)
    return shapes.paint([first, shapes.Placed("blue", "square", 47, 32, 9), *extra])


def _malformed() -> dict[str, tuple[np.ndarray, str]]:
    ragged = _red_and_blue()
    ragged[30:33, 8:27] = shapes.BACKGROUND
    grey = _red_and_blue()
    grey[(grey == shapes.PALETTE["red"]).all(-1)] = (120, 120, 120)
    stained = _red_and_blue()
    stained[20:32, 5:28] = np.where(
        (stained[20:32, 5:28] == shapes.PALETTE["red"]).all(-1, keepdims=True),
        np.uint8(shapes.PALETTE["green"]),
        stained[20:32, 5:28],
    )
    dark = np.zeros((64, 64, 3), np.uint8)
    debris = _red_and_blue()
    debris[4:8, 30:34] = shapes.PALETTE["green"]
    stick = _red_and_blue()
    stick[28:36, 38:57] = shapes.PALETTE["blue"]
    stick[20:28, 36:58] = stick[36:44, 36:58] = shapes.BACKGROUND
    return {
        "one": (
            shapes.paint([shapes.Placed("red", "circle", 17, 32, 9)]),
            "1 objects instead of 2",
        ),
        "three": (
            _red_and_blue(shapes.Placed("red", "ring", 32, 12, 6)),
            "3 objects instead of 2",
        ),
        "none": (shapes.paint([]), "0 objects instead of 2"),
        "cut in two": (ragged, ""),
        "no colour of the palette": (grey, "none of the palette's"),
        "two colours": (stained, "several colours"),
        "dark": (dark, "the ground is not light"),
        "debris": (debris, "debris"),
        "no shape": (stick, "no known shape"),
    }


@pytest.mark.parametrize("case", _malformed())
def test_malformed_is_not_wrong(case: str) -> None:
    picture, reason = _malformed()[case]
    asked = load_family("shapes-pair").task(_pair("red", "circle", "left of", "blue", "square"))
    verdict = judge(shapes.to_image(picture), asked)
    assert verdict.outcome == "malformed"
    assert reason in verdict.reason
    assert set(verdict.constituents.values()) == {None}


def test_specks_are_ignored() -> None:
    picture = _red_and_blue()
    picture[4:6, 30:33] = shapes.PALETTE["green"]
    asked = load_family("shapes-pair").task(_pair("red", "circle", "left of", "blue", "square"))
    assert judge(shapes.to_image(picture), asked).outcome == "right"


@pytest.mark.parametrize("mode", ["RGBA", "P", "CMYK"])
def test_other_modes_and_sizes_are_judged_alike(mode: str) -> None:
    values = _pair("red", "circle", "left of", "blue", "square")
    asked = load_family("shapes-pair").task(values)
    image = _image(values).resize((512, 512)).convert(mode)
    assert judge(image, asked).outcome == "right"


def test_an_oblong_picture_is_unscored() -> None:
    asked = load_family("shapes-pair").tasks()[0]
    verdict = judge(Image.new("RGB", (64, 32)), asked)
    assert verdict.outcome == "unscored"
    assert verdict.success is None
    assert "64 x 32" in verdict.reason


def test_unknown_values_and_constituents_are_named() -> None:
    family = load_family("shapes-pair")
    own = replace(family, name="few-colours", constituents=family.constituents[:3])
    with pytest.raises(ConfigError, match=r"color1, shape1, relation of 'few-colours'; .*choose"):
        PixelScorer.check_family(own)
    color2 = replace(family.constituents[3], values=("red", "magenta"))
    own = replace(family, constituents=(*family.constituents[:3], color2, family.constituents[4]))
    with pytest.raises(ConfigError, match=r"unknown color2 .* 'magenta'"):
        PixelScorer.check_family(own)
    fewer = replace(color2, values=("red", "blue"))
    own = replace(
        family, name="mine", constituents=(*family.constituents[:3], fewer, family.constituents[4])
    )
    PixelScorer.check_family(own)


def test_objects_are_measured_where_they_are() -> None:
    thing = shapes.Placed("purple", "star", 20.3, 41.6, 11.2)
    (found,) = find_objects(shapes.to_image(shapes.paint([thing])))
    assert (found.color, found.shape) == ("purple", "star")
    assert found.x == pytest.approx(thing.x, abs=0.15)
    assert found.y == pytest.approx(thing.y, abs=0.15)
    assert found.radius == pytest.approx(thing.radius, rel=0.02)
    assert 0.92 < found.overlap <= 1


def _pair(color1: str, shape1: str, relation: str, color2: str, shape2: str) -> dict[str, str]:
    return {
        "color1": color1, "shape1": shape1, "relation": relation, "color2": color2, "shape2": shape2
    }  # fmt: skip


def _image(values: dict[str, str]) -> Image.Image:
    return shapes.to_image(shapes.render(values, np.random.default_rng(0)))
