"""The report of a run: what it says, that it says no more, and that foreign text stays text."""

import base64
import copy
import io
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from fake_run import write_fake_run
from PIL import Image
from rich.console import Console
from scipy import stats

from t2iprobe import report
from t2iprobe.errors import DataError
from t2iprobe.report import figures, formats, gallery, layers
from t2iprobe.report.finding import find
from t2iprobe.report.reading import TaskPoint, read_run
from t2iprobe.report.summary import print_summary
from t2iprobe.runs.records import CORRELATION, SUMMARY, Summary, from_json
from t2iprobe.stats import Estimate

HOSTILE = '<script>alert("x")</script> & a $red$ {{ 7 * 7 }} "circle"'


class Page(HTMLParser):
    """Tags and text of a page; void elements are not tracked as open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_fake_run(
        tmp_path_factory.mktemp("run") / "fake", n_tasks=10, n_images=4, prompt=HOSTILE, level=0.3
    )
    report.build(folder)
    return folder


@pytest.fixture(scope="module")
def text(built: Path) -> str:
    return (built / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def summary_of(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return data


def test_hostile_prompt_stays_text(page: Page, text: str) -> None:
    assert not page.all("script")
    assert HOSTILE in page.texts, "the prompt is not among the worst or best tasks, or was changed"
    assert any(HOSTILE in (image["alt"] or "") for image in page.all("img"))
    assert "<script" not in text


def test_page_needs_nothing_from_outside(page: Page, text: str) -> None:
    sources = [
        attrs[name]
        for _, attrs in page.tags
        for name in ("src", "srcset", "data", "poster")
        if attrs.get(name)
    ]
    assert sources and all(source.startswith("data:image/") for source in sources)
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "object", "embed"}
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    outside = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_ids_are_unique_and_references_resolve(page: Page, text: str) -> None:
    ids = Counter(attrs["id"] for _, attrs in page.tags if attrs.get("id"))
    assert [name for name, n in ids.items() if n > 1] == []
    used = re.findall(r"url\(#([^)]+)\)", text) + re.findall(r'href="#([^"]+)"', text)
    assert used
    assert set(used) <= set(ids)


def test_pictures_and_tables_are_labelled(page: Page) -> None:
    for attrs in page.all("img"):
        assert attrs.get("alt")
    pictures = [attrs for _, attrs in page.tags if attrs.get("role") == "img"]
    assert len(pictures) >= 10
    assert all(attrs.get("aria-label") for attrs in pictures)
    assert len(page.all("table")) == len(page.all("caption"))


def test_files_linked_exist(built: Path, page: Page) -> None:
    links = [
        attrs["href"] or "" for attrs in page.all("a") if not (attrs["href"] or "").startswith("#")
    ]
    assert "probes.parquet" in links
    assert [link for link in links if not (built / link).exists()] == []
    assert (built / "figures" / "heat-scene.png").stat().st_size > 10_000


def test_same_data_give_the_same_bytes(built: Path, text: str, tmp_path: Path) -> None:
    copy = shutil.copytree(built, tmp_path / built.name)
    again = report.build(copy).read_text(encoding="utf-8")
    assert again.replace(str(copy), str(built)) == text
    for figure in (built / "figures").iterdir():
        assert figure.read_bytes() == (copy / "figures" / figure.name).read_bytes()


def test_the_headline_is_named(built: Path, page: Page) -> None:
    headline = SUMMARY.read(built).decodability.headline
    words = f"The headline is {headline.site} at step {headline.step}, chosen on one half"
    assert any(words in part for part in page.texts)


def test_outcomes_are_counted_apart(built: Path, page: Page) -> None:
    rows = pyarrow.parquet.read_table(built / "scores.parquet").to_pylist()
    counts = Counter(row["outcome"] for row in rows)
    assert counts["malformed"] > 0
    labels = [attrs.get("aria-label") or "" for _, attrs in page.tags]
    expected = ", ".join(
        f"{name} {counts[name]}" for name in ("right", "wrong", "malformed", "unscored")
    )
    assert expected in labels


def test_heat_grid_holds_the_table(built: Path) -> None:
    run = read_run(built)
    at = layers.headline(run)
    grid = layers.heat_grid(run, "scene", "shape2", at)
    assert grid is not None
    rows = {
        (row["site"], row["step"]): row["r2"]
        for row in pyarrow.parquet.read_table(built / "probes.parquet").to_pylist()
        if (row["coding"], row["constituent"], row["pooling"], row["stream"])
        == ("scene", "shape2", "grid", "image")
    }
    assert len(rows) == len(grid.sites) * len(grid.steps)
    for i, site in enumerate(grid.sites):
        for j, step in enumerate(grid.steps):
            assert grid.values[i][j] == rows[site, step]
    assert grid.values[0][0] is None, "the undefined probe has become a number"
    assert grid.marked == (2, 0)
    figure = figures.heat_panel(grid)
    hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
    assert [patch.get_xy() for patch in hatched] == [(0, 0)]


def test_heat_maps_share_one_scale() -> None:
    low = layers.HeatGrid("scene", "a", ("t.0",), (0,), {}, ((0.2,),), None, None)
    high = layers.HeatGrid("scene", "b", ("t.0",), (0,), {}, ((0.9,),), None, None)
    limits = [figures.heat_panel(grid).axes[0].collections[0].get_clim() for grid in (low, high)]
    assert limits == [(0.0, 1.0), (0.0, 1.0)]


def test_values_in_cells_are_readable() -> None:
    def luminance(color: Any) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
        return float(np.dot((0.2126, 0.7152, 0.0722), parts))

    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    for value in np.linspace(0, 1, 41):
        grid = layers.HeatGrid("scene", "a", ("t.0",), (0,), {}, ((float(value),),), None, None)
        ink = luminance(to_rgb(figures.heat_panel(grid).axes[0].texts[0].get_color()))
        paper = luminance(colormaps["viridis"](value))
        assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5


def test_text_on_paper_has_contrast(text: str) -> None:
    def luminance(color: str) -> float:
        digits = color.lstrip("#")
        digits = "".join(2 * d for d in digits) if len(digits) == 3 else digits
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    themes = re.findall(r":root \{ (color-scheme.*?)\}", text, flags=re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        colors = dict(re.findall(r"--([a-z]+): (#[0-9a-f]+)", theme))
        for ink, least in (
            ("ink", 7.0),
            ("muted", 4.5),
            ("accent", 4.5),
            ("blue", 3.0),
            ("orange", 3.0),
            ("pink", 3.0),
        ):
            for paper in ("page", "card"):
                pair = sorted((luminance(colors[ink]), luminance(colors[paper])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= least, (ink, paper, colors["ink"])


@pytest.fixture(scope="module")
def clear(built: Path) -> dict[str, Any]:
    """A summary with a clear positive correlation."""
    summary = summary_of(built)
    summary["n_unscored"] = 0
    summary["success"] |= {
        "all": 0.6,
        "ci": [0.5, 0.7],
        "outcomes": {"right": 6, "wrong": 4},
        "coverage": 1.0,
    }
    summary["success"]["between_task"] |= {"p": 0.001, "sd": 0.2}
    summary["decodability"]["headline"] |= {"site": "t.2", "step": 0, "r2": 0.5}
    summary["correlation"] |= {"spearman": 0.4, "ci": [0.2, 0.6], "n": 90, "detectable": None}
    return summary


def changed(summary: dict[str, Any], **changes: Any) -> Summary:
    """The record of a summary with other values at some paths, e.g. success__all."""
    summary = copy.deepcopy(summary)
    for path, value in changes.items():
        part: Any = summary
        *way, last = path.split("__")
        for key in way:
            part = part[key]
        part[last] = value
    record: Summary = from_json(Summary, summary, "summary.json")
    return record


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        (
            {},
            "together",
            "drawn right more often (Spearman 0.40, 95% interval 0.20 to 0.60, over 90 tasks)",
        ),
        ({"correlation__ci": [-0.1, 0.6]}, "unclear", "contains 0"),
        ({"correlation__ci": [0.0, 0.6]}, "unclear", "contains 0"),
        ({"correlation__spearman": -0.4, "correlation__ci": [-0.6, -0.2]}, "against", "less often"),
        ({"success__between_task__p": 0.3}, "nothing to explain", "hardly varies"),
        ({"success__all": 1.0}, "nothing to explain", "Every scored image is right"),
        ({"success__all": 0.0}, "nothing to explain", "Every scored image is wrong"),
        (
            {"success__all": 0.0, "success__outcomes": {"right": 0, "wrong": 0, "malformed": 48}},
            "nothing to explain",
            "No image is right (48 of 48 malformed)",
        ),
        (
            {
                "success__all": 0.0,
                "success__outcomes": {"right": 0, "wrong": 6, "malformed": 40, "unscored": 2},
            },
            "nothing to explain",
            "No scored image is right (40 of 46 malformed)",
        ),
        ({"success__all": None, "success__reason": "judge broken"}, "undefined", "judge broken"),
        (
            {"correlation__spearman": None, "correlation__reason": "one task"},
            "undefined",
            "one task",
        ),
        ({"correlation__ci": None}, "unclear", "nothing certain"),
        (
            {"correlation__ci": [-0.1, 0.6], "correlation__detectable": 0.29},
            "unclear",
            "below 0.29",
        ),
    ],
)
def test_finding_says_no_more_than_the_numbers(
    clear: dict[str, Any], changes: dict[str, Any], verdict: str, words: str
) -> None:
    found = find(changed(clear, **changes))
    assert found.verdict == verdict
    assert words in found.sentence


def test_finding_prefers_the_groups_when_the_sign_flips(built: Path, clear: dict[str, Any]) -> None:
    one = Estimate(1.0, None, None, 20, "task", "Spearman")
    correlation = replace(
        CORRELATION.read(built),
        sign_flip="pooled and within differ",
        strata={"seen": one, "held_out": one},
    )
    found = find(changed(clear, correlation__spearman=-0.543), correlation)
    assert found.verdict == "sign flip"
    assert "seen 1.00, held-out 1.00" in found.sentence
    assert "−0.54" in found.sentence


def test_finding_notes_what_weakens_it(clear: dict[str, Any]) -> None:
    outcomes = {"right": 10, "wrong": 3, "malformed": 20, "unscored": 2}
    notes = " ".join(
        find(
            changed(
                clear,
                success__outcomes=outcomes,
                success__coverage=33 / 35,
                n_unscored=2,
                decodability__controls__shuffled_labels=0.55,
            )
        ).notes
    )
    assert "Most failures (20 of 23) are malformed" in notes
    assert "2 images could not be scored" in notes
    assert "coverage 94%" in notes
    assert "no better than with shuffled labels (0.55)" in notes


def test_a_run_without_anything_defined_is_still_a_page(tmp_path: Path) -> None:
    folder = write_fake_run(
        tmp_path / "r", n_tasks=6, n_images=1, unscored=99, card=False, model="<b>bold</b>"
    )
    summary = summary_of(folder)
    read = summary["decodability"]
    read["headline"] |= dict.fromkeys(("site", "step", "pooling", "r2", "ci"))
    read["headline"]["reason"] = "too few tasks"
    read |= {"by_constituent": {}, "by_coding": {}}
    summary["success"] |= {"all": None, "ci": None, "reason": "no image could be scored"}
    summary["correlation"] |= {"spearman": None, "ci": None, "reason": "no task has a success"}
    summary["correlation"]["by_constituent"] = {}
    (folder / "summary.json").write_text(json.dumps(summary))
    shutil.rmtree(folder / "images")
    page = Page(report.build(folder).read_text())
    said = " ".join(page.texts)
    assert "Success is not known (no image could be scored)" in said
    assert "too few tasks" in said
    assert "<b>bold</b>" in said
    assert "Not shown: no model card" in said
    assert "nan" not in said.lower().split()


def test_missing_image_is_said(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "r", n_tasks=3, n_images=1, unscored=0)
    (folder / "images" / "000000000000-0.png").unlink()
    (folder / "images" / "000000000001-0.png").write_bytes(b"\x89PNG cut")
    run = read_run(folder)
    shown = [gallery.exhibit(run, point).shots[0].uri for point in run.task_points("scene")]
    assert [uri is None for uri in shown] == [True, True, False]


def test_gallery_takes_the_worst_and_best_once() -> None:
    rows = [
        TaskPoint("a", 0.5, 1.0, None),
        TaskPoint("b", 0.9, 1.0, None),
        TaskPoint("c", 0.2, 0.0, None),
        TaskPoint("d", 0.1, 0.0, None),
        TaskPoint("e", 0.1, None, None),
        TaskPoint("f", None, 0.5, None),
    ]
    worst, best = gallery.choose(rows, n_tasks=2)
    assert [row.task_id for row in worst] == ["d", "c"]
    assert [row.task_id for row in best] == ["b", "a"]
    worst, best = gallery.choose(rows)
    assert [row.task_id for row in worst] == ["d", "c", "f"]
    assert [row.task_id for row in best] == ["b", "a"]
    assert gallery.choose(rows[:2]) == ([], [rows[1], rows[0]]), (
        "a task without a failure is among the worst"
    )
    assert gallery.choose(rows[2:3]) == ([rows[2]], []), (
        "a task without a success is among the best"
    )


@pytest.mark.parametrize(
    ("size", "kind", "shown"), [((64, 64), "png", (64, 64)), ((1024, 512), "jpeg", (256, 128))]
)
def test_large_images_are_made_small(
    tmp_path: Path, size: tuple[int, int], kind: str, shown: tuple[int, int]
) -> None:
    Image.new("RGB", size, "red").save(tmp_path / "i.png")
    uri = gallery.data_uri(tmp_path / "i.png")
    assert uri is not None
    head, body = uri.split(",")
    assert head == f"data:image/{kind};base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as image:
        assert image.size == shown


def test_task_points_leave_unscored_images_out(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "r", n_tasks=4, n_images=3, unscored=4)
    rows = pyarrow.parquet.read_table(folder / "scores.parquet").to_pylist()
    for point in read_run(folder).task_points("scene"):
        hits = [
            r["outcome"] == "right"
            for r in rows
            if r["task_id"] == point.task_id and r["outcome"] != "unscored"
        ]
        assert point.success == (np.mean(hits) if hits else None)


def test_mean_interval_is_near_the_t_interval() -> None:
    sample = np.random.default_rng(1).normal(0.5, 0.2, 200)
    low, high = figures.mean_interval(sample)  # type: ignore[misc]
    expected = stats.t.interval(0.95, len(sample) - 1, sample.mean(), stats.sem(sample))
    assert (low, high) == pytest.approx(expected, abs=0.004)
    assert figures.mean_interval(sample[:3]) is None
    assert figures.mean_interval(np.ones(9)) is None


def test_sites_stand_in_the_order_of_computation() -> None:
    table = sorted(
        ["u.down_blocks.0", "u.mid_block", "u.up_blocks.1", "t.single_transformer_blocks.0"]
        + [f"t.transformer_blocks.{i}" for i in (10, 2, 0)]
    )
    assert layers.by_depth(table) == (
        "t.transformer_blocks.0",
        "t.transformer_blocks.2",
        "t.transformer_blocks.10",
        "t.single_transformer_blocks.0",
        "u.down_blocks.0",
        "u.mid_block",
        "u.up_blocks.1",
    )


def test_a_recorded_running_order_is_kept(tmp_path: Path) -> None:
    """Against the order of names and numbers, in the rows of a heat map and along the axis of the streams."""
    folder = write_fake_run(tmp_path / "run", n_tasks=6)
    blocks = [f"transformer.transformer_blocks.{i}" for i in (3, 0, 2, 1)]
    manifest = json.loads((folder / "run.json").read_text())
    given = ["transformer.conditioning", *blocks, "transformer.never_probed"]
    (folder / "run.json").write_text(json.dumps(manifest | {"capture": {"sites": given}}))
    run = read_run(folder)
    at = layers.headline(run)
    grid = layers.heat_grid(run, "scene", "all", at)
    image = layers.image_line(run, at)
    assert grid is not None and image is not None
    assert list(grid.sites) == blocks
    assert grid.marked == (2, 0)
    table = {r.site: r.r2 for r in run.probes if (r.coding, r.constituent, r.stream, r.pooling, r.step)
             == ("scene", "all", "image", "grid", at.step)}  # fmt: skip
    assert [row[grid.steps.index(0)] for row in grid.values] == [table[site] for site in blocks]
    text = next(line for line in layers.text_lines(run, at) if line.name == "text stream")
    assert list(text.sites) == blocks[1:], "the last block by name has no text stream"
    figure = figures.layers_figure(
        [image, text], {"a": 0.1, "b": None}, figures.DENOISER_AXIS, run.running_order
    )
    assert [list(line.get_xdata()) for line in figure.axes[0].lines[:2]] == [
        [0, 1, 2, 3],
        [1, 2, 3],
    ]
    assert layers.by_depth(["t.1", "t.0"], ["t.1"]) == ("t.0", "t.1"), "part of an order is none"


def test_streams_share_positions_and_conditioning_is_apart(built: Path) -> None:
    run = read_run(built)
    at = layers.headline(run)
    text = {(line.name, line.pooling): line for line in layers.text_lines(run, at)}
    assert set(text) == {
        ("text_encoder", "mean"),
        ("text_encoder", "eot"),
        ("text stream", "mean"),
        ("conditioning", "mean"),
    }
    assert len(text["text stream", "mean"].sites) == 3, "the last block has no text stream"
    image = layers.image_line(run, at)
    assert image is not None
    figure = figures.layers_figure(
        [image, text["text stream", "mean"]], {"a": 0.1, "b": None}, figures.DENOISER_AXIS
    )
    assert [list(line.get_xdata()) for line in figure.axes[0].lines[:2]] == [
        [0, 1, 2, 3],
        [0, 1, 2],
    ]
    figure = figures.layers_figure(
        [text["text_encoder", "mean"], text["conditioning", "mean"]],
        {"a": 0.1, "b": None},
        figures.ENCODER_AXIS,
    )
    assert [list(line.get_xdata()) for line in figure.axes[0].lines[:2]] == [[0, 1, 2], [3]]


def test_short_names_stay_distinct() -> None:
    sites = [f"transformer.transformer_blocks.{i}" for i in range(30)]
    assert layers.short_sites(sites)[3] == "transformer_blocks.3"
    assert len(set(layers.short_sites(sites))) == 30
    assert layers.short_sites(["a.x", "b.x"]) == ["a.x", "b.x"]
    assert (
        max(len(name) for name in layers.short_sites([f"unet.{'deep.' * 9}{i}" for i in (0, 1)]))
        <= 26
    )
    deep = [
        f"unet.{side}_blocks.{i}.attentions.{j}.transformer_blocks.0"
        for side in ("down", "up")
        for i in (0, 1)
        for j in (0, 1)
    ]
    assert len(set(layers.short_sites(deep))) == 8
    under = ["unet.up_blocks.0.attentions.0", deep[4]]
    assert layers.short_sites(under)[1] == "….transformer_blocks.0"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formats.decimal(-0.004), "0.00"),
        (formats.decimal(-0.346), "−0.35"),
        (formats.decimal(float("nan")), "–"),
        (formats.decimal(None), "–"),
        (formats.percent(0.9949), "99.5%"),
        (formats.percent(0.583), "58%"),
        (formats.percent(1.0), "100%"),
        (formats.p_value(0.0), "p < 0.0001"),
        (formats.p_value(0.0001, 0.0001), "p ≤ 0.0001"),
        (formats.p_value(0.034), "p = 0.034"),
        (formats.p_value(None), "p not defined"),
        (formats.interval(None), ""),
        (formats.interval((-0.1, 0.25)), "−0.10 to 0.25"),
        (formats.duration(59.7), "1 min 0 s"),
        (formats.duration(7500), "2 h 5 min"),
        (formats.size(1_410_000_000), "1.4 GB"),
        (formats.size(12), "12 B"),
        (formats.model_name("/a/b/my-model/"), "my-model"),
        (formats.model_name("stabilityai/sd"), "stabilityai/sd"),
        (formats.seen_range(0, 0), "never"),
        (formats.seen_range(1, 5), "1 to 5"),
        (formats.seen_range(21, None), "21 or more"),
    ],
)
def test_numbers_as_people_read_them(shown: str, expected: str) -> None:
    assert shown == expected


def test_absent_table_names_its_stage(tmp_path: Path) -> None:
    folder = write_fake_run(tmp_path / "r", n_tasks=3, n_images=1)
    (folder / "probes.parquet").unlink()
    with pytest.raises(
        DataError, match=r"has no probes.parquet: its stage 'probe' has not finished"
    ):
        report.build(folder)


@pytest.mark.parametrize("make", ["nothing", "file", "empty"])
def test_other_folders_are_no_runs(tmp_path: Path, make: str) -> None:
    path = tmp_path / "x"
    if make == "file":
        path.write_text("")
    elif make == "empty":
        path.mkdir()
    with pytest.raises(DataError, match=r"does not exist|is a file, not a run|is not a run folder"):
        report.build(path)


def test_terminal_summary_fits_and_says_it(built: Path) -> None:
    summary = replace(SUMMARY.read(built), model="[bold]not markup[/bold]")
    console = Console(file=io.StringIO(), width=80)
    print_summary(summary, CORRELATION.read(built), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[bold]not markup[/bold]" in shown
    assert max(map(len, shown.splitlines())) <= 80
    for name in ("color1", "relation", "malformed", "shuffled labels", "bag of words"):
        assert name in shown
    assert formats.decimal(summary.decodability.headline.r2) in shown
