"""What `t2iprobe families` prints."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import t2iprobe
from t2iprobe.cli.families import coverage, examples, print_families, show_family
from t2iprobe.families.reading import load_family

PAIR = Path(t2iprobe.__file__).parents[1] / "prompts" / "shapes-pair.yaml"


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


def test_the_list_has_every_family_with_its_counts(console):
    print_families(console)
    lines = console.file.getvalue().splitlines()
    rows = [line.split()[:4] for line in lines[1:]]
    assert ["shapes-pair", "12,960", "6,480", "scene"] in rows
    assert ["shapes-single", "600", "600", "slot"] in rows


def test_a_family_shows_examples_and_coverage(console):
    show_family("shapes-pair", console)
    text = console.file.getvalue()
    assert "template  {a color1} {shape1} {relation} {a color2} {shape2}" in text
    assert all(example in text for example in examples(load_family("shapes-pair")))
    (red,) = (line for line in text.splitlines() if line.startswith("red "))
    assert red.split() == ["red", *["216"] * 6]


def test_coverage_counts_scenes_by_hand():
    """A red circle left or above: 2 relations x 9 colors x 6 shapes; and as often right or below."""
    assert coverage(load_family("shapes-pair"), ("color", "shape"))["red", "circle"] == 2 * 2 * 54


def test_held_out_pairs_are_marked(console, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(PAIR.read_text() + "hold_out:\n  - {shape: square, color: red}\n")
    show_family(path, console)
    marked = [line for line in console.file.getvalue().splitlines() if "216*" in line]
    assert [line.split()[:3] for line in marked] == [["red", "216", "216*"]]


def test_examples_show_both_wordings():
    assert all("  =  " in line for line in examples(load_family("shapes-pair")))
    assert not any("=" in line for line in examples(load_family("shapes-single")))
