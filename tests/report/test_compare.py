"""Comparing runs: the table, the rank correlation over runs, the curves, and the folders that are refused."""

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from matplotlib.figure import Figure
from recorded import at_level, edit, recorded, with_card, without_card
from rich.console import Console
from scipy import stats

from t2iprobe.errors import ConfigError, DataError
from t2iprobe.report.compare import Comparison, compare, kind_tables, print_comparison
from t2iprobe.report.compare_figures import (
    comparison_figure,
    draw_shares,
    group_looks,
    groups_of,
    share_curves,
    spread,
    step_curves,
)
from t2iprobe.report.compare_findings import correlate_runs, sentences
from t2iprobe.report.run_points import read_point, read_points
from t2iprobe.report.tables import markdown
from t2iprobe.runs.folder import RunFolder
from t2iprobe.runs.records import MANIFEST, SUMMARY

SPECS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"steps": 300}, {"success": 0.05, "r2": 0.2}),
    ({"steps": 1200}, {"success": 0.3, "r2": 0.4}),
    ({"steps": 4000}, {"success": 0.8, "r2": 0.6}),
    (
        {"run": "few", "sampling": "uniform", "share_seen": 0.01},
        {"success": 0.1, "r2": 0.3, "varies": False},
    ),
    (
        {"run": "many", "sampling": "uniform", "share_seen": 0.7},
        {"success": 0.9, "r2": 0.7, "varies": False},
    ),
]
"""What the card of each compared model says, and what its run finds."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    folders = [recorded(base / f"run{i}") for i in range(len(SPECS))]
    for folder, (card, numbers) in zip(folders, SPECS, strict=True):
        edit(MANIFEST, folder, with_card(**card))
        edit(SUMMARY, folder, at_level(**numbers))
    return folders


@pytest.fixture(scope="module")
def compared(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(runs, tmp_path_factory.mktemp("out") / "compare")


def synthetic(folder: Path, held_out: float, decodability: float, **settings: Any) -> Path:
    """A student's folder; `settings` may say how many of 36 combinations were `seen`."""
    folder.mkdir(parents=True)
    seen = settings.pop("seen", 27)
    summary = {
        "kind": "synthetic",
        "test": {"r2": 0.9, "r2_pooled": 0.91},
        "held_out": {"r2": held_out, "r2_pooled": 0.5},
        "decodability": {
            "hidden.0/pre": {
                "test": 1.0,
                "held_out": 0.99,
                "from_input": {"test": 1.0, "held_out": 0.6},
            },
            "hidden.0/post": {
                "test": 0.9,
                "held_out": decodability,
                "from_input": {"test": 1.0, "held_out": 0.6},
            },
        },
        "composes": {"measure": "r2_pooled", "beats_additive": held_out > 0.5},
        "support": {"seen": seen, "held_out": 36 - seen},
        "settings": {
            "task": "hyperteacher",
            "student": "mlp",
            "support": "random",
            "steps": 5000,
            "width": 64,
            "seed": folder.name,
            "out": str(folder),
            "frac_ood": None,
        }
        | settings,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def students(base: Path) -> list[Path]:
    """Two seeds at each of three numbers of combinations, and another width at two of them."""
    found = []
    for seen, held_out in ((3, 0.1), (9, 0.5), (27, 0.9)):
        found += [
            synthetic(base / f"seen={seen}-s{s}", held_out + 0.1 * s, held_out, seen=seen, seed=s)
            for s in (0, 1)
        ]
    for seen in (3, 27):
        found.append(synthetic(base / f"wide={seen}", 0.7, 0.7, seen=seen, width=512, seed=0))
    return found


def test_rank_correlation_over_runs_is_scipys(compared: Comparison) -> None:
    assert [item.coding for item in compared.across] == ["scene", "slot", "presence", "binding"]
    for item in compared.across:
        x = [point.decodability[item.coding] for point in compared.points]
        y = [point.success for point in compared.points]
        assert item.estimate.value == pytest.approx(stats.spearmanr(x, y).statistic)
        assert item.estimate.n == 5


def test_different_numbers_of_tasks_are_told(
    runs: list[Path], compared: Comparison, tmp_path: Path
) -> None:
    words = "Runs differ in their number of tasks (24 to 36): R² rises with it"
    assert not any("number of tasks" in sentence for sentence in compared.sentences)
    longer = recorded(tmp_path / "longer")
    edit(SUMMARY, longer, lambda summary: replace(summary, n_tasks=36))
    found = compare([*runs, longer], tmp_path / "out")
    printer = Console(width=200, record=True, file=io.StringIO())
    print_comparison(found, printer)
    shown = [printer.export_text()]
    shown += [(tmp_path / "out" / f"compare.{kind}").read_text() for kind in ("md", "html")]
    assert all(words in text for text in shown)


def test_points_are_the_summaries(runs: list[Path]) -> None:
    for folder, (_, numbers) in zip(runs, SPECS, strict=True):
        summary = json.loads((folder / "summary.json").read_text())
        point = read_point(folder)
        assert point.success == summary["success"]["held_out"]
        assert point.success_all == summary["success"]["all"] == numbers["success"]
        assert point.held_out
        assert point.r2 == summary["decodability"]["by_coding"]["scene"]["r2"] == numbers["r2"]
        assert point.varies is numbers.get("varies", True)


def test_success_over_all_tasks_stands_in_and_is_marked(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r")
    without_card(folder)
    point = read_point(folder)
    assert not point.held_out
    assert point.success == point.success_all
    assert (point.training_run, point.training_step, point.share_seen) == (None, None, None)


def test_below_four_runs_there_is_no_correlation(runs: list[Path]) -> None:
    points = read_points(runs[:3])
    across = correlate_runs(points)
    for item in across:
        assert math.isnan(item.estimate.value)
        assert item.estimate.p is None
        assert "needs 4 runs, has 3" in item.estimate.reason
    assert "no rank correlation (needs 4 runs, has 3)" in sentences(points, across)[0]


def test_runs_without_success_do_not_count(runs: list[Path]) -> None:
    points = read_points(runs)
    points[0] = replace(points[0], success=None)
    points[1] = replace(points[1], decodability={})
    assert correlate_runs(points)[0].estimate.n == 3


def test_flat_runs_and_checkpoints_are_named(runs: list[Path]) -> None:
    points = read_points(runs)
    said = " ".join(sentences(points, correlate_runs(points)))
    assert "Inside 2 of 5 runs success hardly varies" in said
    assert "run3, run4" in said
    assert "3 runs are checkpoints of one training run (shapes-mmdit)" in said


def test_files_hold_the_numbers(compared: Comparison) -> None:
    files = {path.suffix: path for path in compared.files}
    assert set(files) == {".html", ".png", ".md", ".csv", ".parquet"}
    assert all(path.stat().st_size > 0 for path in compared.files)
    rows = list(csv.DictReader(io.StringIO(files[".csv"].read_text())))
    table = pyarrow.parquet.read_table(files[".parquet"]).to_pylist()
    assert len(rows) == len(table) == 5
    for row, stored, point in zip(rows, table, compared.points, strict=True):
        assert float(row["r2_presence"]) == stored["r2_presence"] == point.decodability["presence"]
        assert stored["success"] == point.success
        assert row["training_step"] == str(point.training_step)
    assert sum(line.startswith("| ") for line in files[".md"].read_text().splitlines()) == (
        2 + 5
    ) + (2 + 4)


def test_same_runs_give_the_same_files(
    runs: list[Path], compared: Comparison, tmp_path: Path
) -> None:
    for one, two in zip(compared.files, compare(runs, tmp_path / "b").files, strict=True):
        again = two.read_bytes().replace(bytes(two.parent), bytes(one.parent))
        assert one.read_bytes() == again, one.name


def test_curves_follow_step_and_share(runs: list[Path]) -> None:
    points = read_points([runs[2], runs[0], runs[4], runs[1], runs[3]])
    (name, along), *others = step_curves(points)
    assert (name, others) == ("shapes-mmdit", [])
    assert [point.training_step for point in along] == [300, 1200, 4000]
    curves = share_curves(points)
    assert [name for name, _ in curves] == ["uniform"], "one checkpoint alone is no curve"
    assert [point.share_seen for point in curves[0][1]] == [0.01, 0.7]


def test_names_cannot_break_the_files(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "a|b $x$ <script>")
    edit(MANIFEST, folder, with_card(run="<script>|$"))
    found = compare([folder], tmp_path / "out")
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "<script" not in page
    assert "a|b $x$ &lt;script&gt;" in page
    assert markdown(["x"], [["a|b\n<i>"]]).splitlines()[2] == "| a\\|b &lt;i> |"
    assert found.points[0].name == "a|b $x$ <script>"


def test_terminal_table_fits_eighty_columns(compared: Comparison) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_comparison(compared, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line) for line in shown.splitlines() if "compare." not in line) <= 80
    assert shown.count("flat") == 3, "two runs and the legend"


def test_synthetic_runs_are_points_too(tmp_path: Path) -> None:
    folders = [synthetic(tmp_path / f"s{i}", 0.2 * i, 0.1 + 0.2 * i) for i in range(4)]
    points = read_points(folders)
    assert [point.success for point in points] == [0.2 * i for i in range(4)]
    last = [0.1 + 0.2 * i for i in range(4)]
    assert [point.r2 for point in points] == last, "not the last hidden layer"
    assert points[0].share_seen == 0.75
    assert [point.beats_additive for point in points] == [False, False, False, True]
    across = correlate_runs(points)
    assert across[0].estimate.value == 1.0
    assert across[0].estimate.p == pytest.approx(2 / 24)
    said = sentences(points, across)
    assert any(
        "In 3 of 4 synthetic runs the input encoding itself" in sentence for sentence in said
    )


def test_a_sweep_stands_for_its_runs(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    for i in range(3):
        folder = synthetic(sweep / "runs" / f"seed={i}", 0.2 * i, 0.5)
        (folder / "run.json").write_text(json.dumps({"settings": {}, "stages": {}}))
    alone = synthetic(tmp_path / "alone", 0.9, 0.5)
    (sweep / "summary.json").write_text(json.dumps({"kind": "synthetic sweep"}))
    points = read_points([sweep, alone])
    assert [point.name for point in points] == ["seed=0", "seed=1", "seed=2", "alone"]
    assert [point.success for point in points] == pytest.approx([0.0, 0.2, 0.4, 0.9])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "summary.json").write_text(json.dumps({"kind": "synthetic sweep"}))
    with pytest.raises(DataError, match="trained no students"):
        read_points([tmp_path / "empty"])


def test_a_student_trained_twice_counts_once(tmp_path: Path) -> None:
    folders = students(tmp_path / "a")
    again = synthetic(tmp_path / "b" / "again", 0.1, 0.1, seen=3, seed=0, frac_ood=33 / 36)
    points = read_points([*folders, again])
    across = correlate_runs(points)
    assert (len(points), across[0].estimate.n) == (9, 8)
    assert any("1 run has the same settings" in sentence for sentence in sentences(points, across))


def test_students_are_grouped_by_what_sets_them_apart(tmp_path: Path) -> None:
    points = read_points(students(tmp_path))
    assert groups_of(points) == ["random"] * 6 + ["random, width 512"] * 2
    assert len(set(group_looks(points))) == 2
    curves = dict(share_curves(points))
    assert [point.share_seen for point in curves["random"]] == [3 / 36] * 2 + [0.25] * 2 + [
        0.75
    ] * 2
    assert len(curves["random, width 512"]) == 2


def test_a_curve_goes_through_the_means_in_order(tmp_path: Path) -> None:
    points = read_points(students(tmp_path)[::-1])
    axes = Figure().subplots()
    draw_shares(axes, next(curve for curve in share_curves(points) if curve[0] == "random"))
    drawn = {line.get_label(): line for line in axes.get_lines()}["held-out R²"]
    assert list(drawn.get_xdata()) == [3 / 36, 0.25, 0.75]
    assert list(drawn.get_ydata()) == pytest.approx([0.15, 0.55, 0.95])
    assert axes.get_xlabel() == "share of combinations seen in training"


@pytest.mark.parametrize("copies", [1, 4], ids=["numbered", "in groups"])
def test_the_figure_cuts_no_name_and_keeps_inside(tmp_path: Path, copies: int) -> None:
    folders = [
        synthetic(
            tmp_path / f"{'a long name ' * 4}{i}-{copy}", 0.1 * i, 0.1 * i, seed=copy, width=i
        )
        for i in range(1, 8)
        for copy in range(copies)
    ]
    points = read_points(folders)
    figure = comparison_figure(points, correlate_runs(points))
    (key,) = figure.legends
    names = [" ".join(text.get_text().split()) for text in key.get_texts()]
    if copies == 1:
        assert names == [f"{i} {point.name}" for i, point in enumerate(points, start=1)]
    else:
        assert names == [f"{group} (n = 4)" for group in dict.fromkeys(groups_of(points))]
    page = figure.bbox
    box = key.get_window_extent()
    assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0
    axes = figure.axes[0]
    for number in (text for text in axes.texts if text.get_text().isdigit()):
        spot = number.get_window_extent()
        assert axes.bbox.y1 >= spot.y1 and axes.bbox.x1 >= spot.x1


def test_each_kind_has_a_table_of_its_own(runs: list[Path], tmp_path: Path) -> None:
    points = read_points([*runs, synthetic(tmp_path / "s", 0.5, 0.6)])
    images, others = kind_tables(points)
    assert (len(images.rows), len(others.rows)) == (5, 1)
    assert [row[0].text for row in images.cells + others.cells] == list("123456")
    assert "scene" not in others.caption + "".join(others.headings)
    row = dict(zip(others.headings, map(str, others.cells[0]), strict=True))
    assert (row["held-out R²"], row["R² of seen"], row["decodability"]) == ("0.50", "0.90", "0.60")


def test_what_could_be_seen_is_told_from_what_was(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r")
    edit(MANIFEST, folder, with_card(share_seen=0.24, share_possible=0.7))
    (table,) = kind_tables(read_points([folder]))
    row = dict(zip(table.headings, map(str, table.cells[0]), strict=True))
    assert (row["possible"], row["seen"]) == ("70%", "24%")


def test_kinds_are_correlated_apart(runs: list[Path], tmp_path: Path) -> None:
    points = read_points([*runs, synthetic(tmp_path / "s", 0.5, 0.5)])
    across = correlate_runs(points)
    assert {(item.kind, item.estimate.n) for item in across} == {("images", 5), ("synthetic", 1)}
    assert any("correlated apart" in sentence for sentence in sentences(points, across))


def test_unfinished_run_names_the_stage(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "r")
    RunFolder(folder).set_stage("probe", "running")
    with pytest.raises(DataError, match="is not finished: its stage 'probe' is missing"):
        compare([folder], tmp_path / "out")
    RunFolder(folder).set_stage("score", "running")
    (folder / "scores.parquet").unlink()
    with pytest.raises(DataError, match="its stage 'score' is missing"):
        compare([folder], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unfinished_synthetic_run_names_the_stage(tmp_path: Path) -> None:
    folder = synthetic(tmp_path / "s", 0.5, 0.5)
    (folder / "summary.json").unlink()
    (folder / "run.json").write_text(
        json.dumps({"settings": {}, "stages": {"train": {"status": "running"}}})
    )
    with pytest.raises(DataError, match="its stage 'train' is missing"):
        compare([folder], tmp_path / "out")


def test_one_run_twice_is_refused(runs: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(runs[0])
    with pytest.raises(DataError, match="is given twice"):
        compare([runs[0], runs[1], link], tmp_path / "out")


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [recorded(tmp_path / part / "run") for part in "ab"]
    assert [point.name for point in read_points(folders)] == ["a/run", "b/run"]


def test_no_run_and_other_folders_are_refused(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run to compare"):
        compare([], tmp_path / "out")
    with pytest.raises(DataError, match=r"has no run\.json"):
        compare([tmp_path], tmp_path / "out")
    with pytest.raises(DataError, match="does not exist"):
        compare([tmp_path / "absent"], tmp_path / "out")
    with pytest.raises(DataError, match="is a run folder: give another --out"):
        compare(runs[:1], runs[1])
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    with pytest.raises(DataError, match="give another --out"):
        compare(runs[:1], blocked / "out")


def test_earlier_comparison_among_the_runs_is_passed_over(
    runs: list[Path], compared: Comparison
) -> None:
    assert len(read_points([*runs, compared.files[0].parent])) == len(runs)


def test_labels_are_pushed_apart() -> None:
    anchors = np.array([[0.0, 0.0]] * 4 + [[3.0, 1.0], [100.0, 100.0]])
    spots = spread(anchors, anchors + 5.0, least=10.0)
    distances = np.hypot(*(spots[:, None] - spots[None]).transpose(2, 0, 1))
    assert distances[~np.eye(6, dtype=bool)].min() >= 9.9
    assert spots[5] == pytest.approx([105.0, 105.0], abs=3.0)
