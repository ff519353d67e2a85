"""Families: the built-in ones, users' files, prompts, spans, scenes and the errors of a broken file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import t2iprobe
from t2iprobe.errors import ConfigError, DataError
from t2iprobe.families.reading import family_names, load_family

GRID = """\
name: grid
description: a grid
template: "{a color} {thing}"
values:
  color: [orange, red]
  thing: [orange, unicycle, umbrella]
constituents:
  color: color
  thing: thing
headline: slot
"""
PAIR = Path(t2iprobe.__file__).parents[1] / "prompts" / "shapes-pair.yaml"


@pytest.fixture
def family_of(tmp_path):
    """Load a family from YAML text."""

    def load(text):
        path = tmp_path / "mine.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_family(path)

    return load


@pytest.fixture(scope="module")
def pair():
    return load_family("shapes-pair")


def prompts(family):
    return [task.prompt for task in family.tasks()]


def test_the_built_in_families_have_the_promised_sizes(pair):
    assert {"shapes-pair", "shapes-single"} <= set(family_names())
    assert (pair.n_tasks, pair.n_scenes) == (12_960, 6_480)
    assert len(pair.tasks()) == 12_960
    assert len(pair.scenes()) == 6_480
    assert pair.headline == "scene"
    single = load_family("shapes-single")
    assert (single.n_tasks, single.n_scenes) == (600, 600)


@pytest.mark.parametrize("name", ["shapes-pair", "shapes-single"])
def test_every_built_in_prompt_and_id_is_its_own_and_every_span_is_the_value(name):
    family = load_family(name)
    tasks = family.tasks()
    assert family.name == name
    assert len({task.prompt for task in tasks}) == len({task.id for task in tasks}) == len(tasks)
    for task in tasks:
        assert re.fullmatch(r"[0-9a-f]{12}", task.id)
        assert list(task.values) == list(task.scene) == list(family.names)
        for constituent, (start, end) in family.spans(task).items():
            assert task.prompt[start:end] == task.values[constituent]


def test_pair_prompts_have_the_right_articles(pair):
    values = {"color1": "red", "shape1": "circle", "relation": "left of"}
    task = pair.task(values | {"color2": "blue", "shape2": "square"})
    assert task.prompt == "a red circle left of a blue square"
    values = {"color1": "orange", "shape1": "star", "relation": "above"}
    task = pair.task(values | {"color2": "black", "shape2": "ring"})
    assert task.prompt == "an orange star above a black ring"
    assert "a small red circle at the top left" in prompts(load_family("shapes-single"))


def test_each_scene_has_two_wordings_and_one_canonical_assignment(pair):
    turned = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
    wordings = {}
    for task in pair.tasks():
        wordings.setdefault(task.scene_id, []).append(task)
    for first, second in wordings.values():
        assert first.scene == second.scene
        assert first.scene["relation"] in ("left of", "above")
        assert [first.is_canonical, second.is_canonical].count(True) == 1
        assert second.values["relation"] == turned[first.values["relation"]]
        assert (second.values["color1"], second.values["shape1"]) == (
            first.values["color2"],
            first.values["shape2"],
        )


def test_scenes_are_canonical_tasks_in_product_order(pair):
    canonical = [task for task in pair.tasks() if task.is_canonical]
    assert pair.scenes() == [task.values for task in canonical]
    assert [pair.scene_index[task.id] for task in canonical] == list(range(6_480))


def test_colors_differ_and_an_invalid_assignment_is_refused(pair):
    assert all(task.values["color1"] != task.values["color2"] for task in pair.tasks())
    values = dict(pair.tasks()[0].values)
    for wrong in (values | {"color2": values["color1"]}, {"color1": "red"}, values | {"x": "y"}):
        with pytest.raises(DataError, match="has no task"):
            pair.task(wrong)


def test_ids_are_stable_across_processes_and_versions(pair):
    # Written down once: stored runs and model cards refer to these.
    assert pair.tasks()[0].prompt == "a red circle left of an orange circle"
    assert pair.tasks()[0].id == "c0877b4f3b18"
    assert pair.tasks()[-1].id == "43fb51c5a106"


def test_making_all_tasks_is_fast():
    code = (
        "import time; from dataclasses import replace; from t2iprobe.families.reading import load_family\n"
        "family = load_family('shapes-pair')\n"
        "def seconds():\n"
        "    fresh, start = replace(family), time.process_time()\n"
        "    return len(fresh.tasks()) and time.process_time() - start\n"
        "print(min(seconds() for _ in range(3)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # About 0.1 s on a free core; the limit leaves room for a busy machine.
    assert float(done.stdout) < 0.4


def test_families_load_without_heavy_libraries():
    code = (
        "import sys; from t2iprobe.families.reading import load_family; load_family('shapes-pair').n_tasks;"
        "print([m for m in ('torch', 'numpy', 'diffusers', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_families_are_found_inside_an_installed_package(tmp_path):
    package = tmp_path / "t2iprobe"
    source = Path(t2iprobe.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("zoo", "__pycache__"))
    shutil.copytree(PAIR.parent, package / "prompts")
    code = "from t2iprobe.families.reading import *; print(__import__('t2iprobe').__file__, family_names())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert str(tmp_path) in done.stdout
    assert "shapes-pair" in done.stdout


def test_a_users_copy_of_a_built_in_family_is_the_same_family(tmp_path, pair):
    path = tmp_path / "copy.yaml"
    shutil.copy(PAIR, path)
    assert load_family(str(path)).fingerprint == pair.fingerprint


def test_unknown_names_and_files():
    with pytest.raises(ConfigError, match=r"'shape-pair': did you mean 'shapes-pair'.*\.yaml file"):
        load_family("shape-pair")
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file"):
        load_family("./none.yaml")


# Words


def test_articles_follow_the_sound_of_the_slot(family_of):
    assert prompts(family_of(GRID)) == [
        "an orange orange",
        "an orange unicycle",
        "an orange umbrella",
        "a red orange",
        "a red unicycle",
        "a red umbrella",
    ]
    bare = GRID.replace("{a color} {thing}", "{A thing} in {color}")
    assert prompts(family_of(bare))[1:3] == ["A unicycle in orange", "An umbrella in orange"]


def test_counts_give_plurals_and_spans_follow_them(family_of):
    text = """\
name: counts
description: counted things
template: "{count} {thing for count} in {a color} box"
values:
  count: [one, three]
  thing: [bench, sheep, knife, mouse, skis, toothbrush, roof]
  color: [red, orange]
constituents: {count: count, thing: thing, color: color}
headline: slot
plurals: {roof: rooves}
"""
    family = family_of(text)
    things = [family.spans(task)["thing"] for task in family.tasks()]
    worded = [t.prompt[a:b] for t, (a, b) in zip(family.tasks(), things, strict=True)][::2]
    singular = ["bench", "sheep", "knife", "mouse", "skis", "toothbrush", "roof"]
    plural = ["benches", "sheep", "knives", "mice", "skis", "toothbrushes", "rooves"]
    assert worded == singular + plural
    assert family.tasks()[-1].prompt == "three rooves in an orange box"


def test_a_word_that_is_both_color_and_thing_has_the_span_of_its_slot(family_of):
    text = GRID.replace("{a color} {thing}", "{a color} {thing} and a brown sheep")
    family = family_of(text)
    task = family.task({"color": "orange", "thing": "orange"})
    assert task.prompt == "an orange orange and a brown sheep"
    assert family.spans(task) == {"color": (3, 9), "thing": (10, 16)}
    task = family.task({"color": "red", "thing": "orange"})
    assert [task.prompt[a:b] for a, b in family.spans(task).values()] == ["red", "orange"]


def test_yaml_words_stay_words(family_of):
    text = GRID.replace("[orange, red]", "[on, no, 010, 11:44, 1e-4]").replace(
        "{a color}", "{color}"
    )
    colors = family_of(text).constituents[0].values
    assert colors == ("on", "no", "010", "11:44", "1e-4")


def test_names_come_from_ids_whatever_the_prompt(family_of):
    """Prompts of 258 bytes, with slashes, quotes, colons, commas and emoji all have names of their own."""
    words = [
        "\u6f22" * 86,
        "red/blue",
        'a \\"red\\": cube',
        "cube, ball",
        "cube ball",
        "\U0001f9ca",
    ]
    listed = ", ".join(f'"{word}"' for word in words)
    tasks = family_of(GRID.replace("[orange, unicycle, umbrella]", f"[{listed}]")).tasks()
    assert len({task.id for task in tasks}) == len(tasks) == 12
    assert all(re.fullmatch("[0-9a-f]{12}", task.id) for task in tasks)
    assert any(task.prompt == 'a red a "red": cube' for task in tasks)


def test_both_unicode_forms_give_one_id(family_of):
    ids = [
        family_of(GRID.replace("umbrella", word)).tasks()[2].id
        for word in ("r\u00e9sum\u00e9", "re\u0301sume\u0301")
    ]
    assert ids[0] == ids[1]


def test_the_fingerprint_sees_a_changed_wording_that_ids_do_not(family_of):
    first, second = family_of(GRID), family_of(GRID.replace("{a color}", "a {color}"))
    assert [task.id for task in first.tasks()] == [task.id for task in second.tasks()]
    assert first.fingerprint != second.fingerprint


# Scenes and held-out combinations


def test_where_no_wording_is_canonical_the_earlier_one_is(family_of):
    text = """\
name: beside
description: two colors side by side
template: "{a color1} ball next to {a color2} ball"
values: {color: [red, green, blue]}
constituents: {color1: color, color2: color}
headline: scene
scene: {swap: {color1: color2}}
"""
    family = family_of(text)
    assert (family.n_tasks, family.n_scenes) == (9, 6)
    task = family.task({"color1": "blue", "color2": "green"})
    assert task.scene == {"color1": "green", "color2": "blue"}
    same = family.task({"color1": "red", "color2": "red"})
    assert same.scene == same.values


def test_held_out_combinations_are_found_in_every_position(family_of):
    text = PAIR.read_text() + "hold_out:\n  - {shape: square, color: red}\n"
    family = family_of(text)
    held = [task for task in family.tasks() if family.is_held_out(task)]
    # red square named first: 4 relations x 9 colors x 6 shapes, and as often named second
    assert len(held) == 2 * 4 * 9 * 6
    assert all("red square" in task.prompt for task in held)
    assert sum("red square" in task.prompt for task in family.tasks()) == len(held)


# Broken files: old text, new text, what the message must contain.
BROKEN = [
    ("name: grid", "name: My Grid", "line 1, name: got 'My Grid'"),
    ("headline: slot", "headlin: slot", "unknown key 'headlin': did you mean 'headline'"),
    ("headline: slot\n", "", "missing headline"),
    ("headline: slot", "headline: scene", "line 10, headline: unknown coding 'scene'"),
    ("{thing}", "{thin}", "unknown constituent 'thin': did you mean 'thing'"),
    (" {thing}", "", "line 3, template: {thing} stands in it 0 times"),
    ("{thing}", "{thing} {color}", "{color} stands in it 2 times"),
    ("{a color}", "{the color}", "the field {the color} is none of {slot}"),
    ("{a color}", "{a color", "line 3, template:"),
    ('"{a color} {thing}"', "{a color} {thing}", 'write template: "{a color} {thing}"'),
    ('"{a color} {thing}"', "a sign: {color} {thing}", 'write template: "a sign: {color} {thing}"'),
    ('"{a color} {thing}"', '"  "', "line 3, template: expected text in quotes"),
    ("[orange, red]", "[orange]", "line 5, values.color: a kind needs two values or more"),
    ("[orange, red]", "orange", "values.color: expected a list of values such as [red, blue]"),
    ("[orange, red]", "[orange, red: x]", "values.color[1]: expected one line of text, got a map"),
    ("[orange, red]", "[red, red]", "'red' is listed twice"),
    ("  color: color", "  color: colour", "line 8, constituents.color: unknown kind 'colour'"),
    (
        "  color: [orange, red]",
        "  color: [orange, red]\n  size: [big, small]",
        "of the kind 'size'",
    ),
    ("  thing: thing", "  all: thing", "got 'all'"),
    ("headline", "constraints:\n  - same: [color, thing]\nheadline", "unknown key 'same'"),
    ("headline", "constraints:\n  - different: [color, thing]\nheadline", "not of one kind"),
    ("headline", "constraints:\n  - different: [color]\nheadline", "two different constituents"),
    ("headline", "scene: {}\nheadline", "line 10, scene: expected a mapping"),
    ("headline", "scene: {canonical: {color: [red]}}\nheadline", "expected swap, turn or both"),
    ("headline", "scene: {swap: {color: thing}}\nheadline", "of different kinds"),
    ("headline", "scene: {turn: {color: {red: blue}}}\nheadline", "unknown value of color 'blue'"),
    ("headline", "scene: {turn: {size: {a: b}}}\nheadline", "unknown constituent 'size'"),
    ("headline", "binding: [[color, shape]]\nheadline", "unknown constituent 'shape'"),
    ("headline", "hold_out: [{color: red, thing: orange}]\nheadline", "no group under binding"),
]


@pytest.mark.parametrize(("old", "new", "expected"), BROKEN)
def test_a_broken_file_names_file_line_key_and_form(family_of, old, new, expected):
    assert old in GRID
    with pytest.raises(DataError) as caught:
        family_of(GRID.replace(old, new, 1))
    message = str(caught.value)
    assert expected in message
    assert re.search(r"mine\.yaml, line \d+", message)
    assert "\n" not in message


def test_prompts_that_come_out_equal_are_refused(family_of):
    text = GRID.replace("[orange, red]", "[red, red sea]").replace(
        "[orange, unicycle, umbrella]", "[sea lion, lion]"
    )
    with pytest.raises(
        DataError, match=r"line 3, template: .*give the same prompt 'a red sea lion'"
    ):
        family_of(text)


def test_a_value_with_two_partners_is_refused(family_of):
    text = PAIR.read_text().replace("above: below}", "above: right of}")
    with pytest.raises(DataError, match=r"turn.relation.above: .*has another partner"):
        family_of(text)


def test_a_scene_rule_that_breaks_a_constraint_is_refused(family_of):
    text = (
        PAIR.read_text()
        .replace(
            "relation: {left of: right of, above: below}",
            "relation: {left of: right of, above: below}\n    color2: {red: blue}",
        )
        .replace("swap: {color1: color2, shape1: shape2}", "swap: {shape1: shape2}")
    )
    with pytest.raises(DataError, match=r"scene: .*breaks a constraint"):
        family_of(text)
