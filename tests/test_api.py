"""The public names: pinned, light to import, each with an example that runs; a run's tables are those of its files."""

import dataclasses
import doctest
import inspect
import io
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from pyarrow import parquet

import t2iprobe
from t2iprobe.cli.main import main
from t2iprobe.errors import ConfigError, DataError
from t2iprobe.runs.config import RunConfig

PUBLIC = [
    "Family",
    "Run",
    "Scorer",
    "T2IProbeError",
    "Verdict",
    "calibrate",
    "capture",
    "compare",
    "load_family",
    "load_model",
    "open_run",
    "run",
]
QUICK = {"model": "shapes-mmdit", "tasks": 32, "seeds": 1}
"""As in the README and the examples of the docstrings, so that all of them share one run."""
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished run `runs/quick`, as the examples expect it."""
    folder = tmp_path_factory.mktemp("workplace")
    t2iprobe.run(**QUICK, out=folder / "runs/quick", quiet=True)
    return folder


@pytest.fixture(scope="module")
def gallery(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scripts of the gallery leave their runs; the one of `shapes-mmdit` is there already."""
    folder = tmp_path_factory.mktemp("gallery")
    shutil.copytree(workplace / "runs/quick", folder / "runs/gallery/shapes-mmdit")
    return folder


@pytest.fixture
def quick(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> t2iprobe.Run:
    monkeypatch.chdir(workplace)
    return t2iprobe.open_run("runs/quick")


def test_public_names_are_pinned_and_all_there() -> None:
    assert sorted(PUBLIC) == t2iprobe.__all__
    assert all(getattr(t2iprobe, name) is not None for name in PUBLIC)
    assert set(PUBLIC) <= set(dir(t2iprobe))
    with pytest.raises(AttributeError, match="did you mean 'open_run'"):
        t2iprobe.open_runs  # noqa: B018


def test_import_is_light() -> None:
    script = (
        "import sys, t2iprobe\n"
        "heavy = {'torch', 'diffusers', 'pandas', 'numpy', 'matplotlib', 'datasets', 'tyro', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert shown.stdout.strip() == "[]", shown.stderr


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name: str, quick: t2iprobe.Run) -> None:
    examples = doctest.DocTestFinder(recurse=False).find(getattr(t2iprobe, name), name, globs={})
    assert sum(len(test.examples) for test in examples) > 0, f"{name} has no example"
    for test in examples:
        said = io.StringIO()
        result = doctest.DocTestRunner().run(test, out=said.write)
        assert not result.failed, said.getvalue()


def test_the_readme_lines_run(quick: t2iprobe.Run) -> None:
    section = (ROOT / "README.md").read_text().split("## From Python")[1].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    assert len(lines) == 5
    names: dict[str, object] = {}
    shown = [
        eval(line, names) if index > 1 else exec(line, names) for index, line in enumerate(lines)
    ]
    assert names["run"] == quick
    assert shown[2] == quick
    assert (
        shown[3].loc["presence", "all"]
        == quick.probes.query("coding == 'presence' and constituent == 'all'").r2.max()
    )
    assert shown[4].axes


@pytest.mark.parametrize(
    ("script", "figures"),
    [
        ("plot_where_parts_are_read", ["sites-by-steps"]),
        ("plot_two_models", ["two-models", "one-model"]),
        ("plot_own_network", ["own-network"]),
    ],
)
def test_the_gallery_runs(
    script: str, figures: list[str], gallery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(gallery)
    monkeypatch.setenv("T2IPROBE_GALLERY", "small")
    runpy.run_path(str(ROOT / "scripts/gallery" / f"{script}.py"), run_name="__main__")
    for name in figures:
        with Image.open(gallery / "runs/gallery/figures" / f"{name}.png") as picture:
            assert picture.convert("L").getextrema() != (255, 255)


def test_tables_are_those_of_the_files(quick: t2iprobe.Run) -> None:
    for name in ("scores", "probes", "decodability"):
        rows = parquet.read_table(quick.path / f"{name}.parquet").to_pylist()
        table = getattr(quick, name)
        shown = table.astype(object).where(table.notna(), None).to_dict("records")
        assert shown == rows, name
    lines = [json.loads(line) for line in (quick.path / "tasks.jsonl").read_text().splitlines()]
    assert quick.tasks.task_id.tolist() == [line["id"] for line in lines]
    assert quick.tasks.prompt.tolist() == [line["prompt"] for line in lines]
    assert quick.tasks.value_shape1.tolist() == [line["values"]["shape1"] for line in lines]
    assert quick.tasks.fold.tolist() == [line["fold"] for line in lines]


def test_every_column_says_what_it_holds(quick: t2iprobe.Run) -> None:
    for table in ("tasks", "scores", "probes", "decodability"):
        text = getattr(t2iprobe.Run, table).__doc__
        columns = {
            re.sub("^(value|ok)_.*", r"\1_<constituent>", name) for name in getattr(quick, table)
        }
        said = dict(re.findall(r"^    (\S+): (.+)$", text, re.MULTILINE))
        assert said.keys() == columns
    assert "1 is perfect" in t2iprobe.Run.probes.__doc__


def test_missing_numbers_are_of_one_kind_in_every_run(quick: t2iprobe.Run) -> None:
    assert quick.probes.step.dtype == "Int64" and quick.probes.step.isna().any()
    assert quick.probes.r2.dtype == "float64"
    assert quick.scores.ok_color1.dtype == "boolean"


def test_tables_give_the_numbers_of_the_summary(quick: t2iprobe.Run) -> None:
    right = (quick.scores.outcome == "right").groupby(quick.scores.task_id).mean()
    assert right.mean() == pytest.approx(quick.summary["success"]["all"])
    read = quick.decodability.query("coding == 'scene' and constituent == 'all'").set_index(
        "task_id"
    )
    both = pd.concat([right, read.decodability], axis=1)
    rho = both.corr("spearman").iloc[0, 1]
    assert rho == pytest.approx(quick.correlation["overall"]["value"], nan_ok=True)


def test_images_open(quick: t2iprobe.Run) -> None:
    (task, index), path = next(quick.images.items())
    with Image.open(path) as picture:
        assert quick.image(task, index).tobytes() == picture.tobytes()
    assert len(quick.images) == len(quick.scores)
    with pytest.raises(DataError, match="does not exist"):
        quick.image("nothing")


def test_figures_show_the_tables(quick: t2iprobe.Run) -> None:
    figure = quick.plot_decodability("presence")
    panels = {axes.get_title(loc="left") or axes.get_title(): axes for axes in figure.axes}
    rows = quick.probes.query(
        "stream == 'image' and coding == 'presence' and constituent == 'shape'"
    )
    rows = rows[rows.pooling == quick.summary["decodability"]["headline"]["pooling"]]
    drawn = panels["shape"].collections[0].get_array()
    assert sorted(drawn.compressed()) == pytest.approx(sorted(rows.r2.dropna()))
    tasks = sum(len(dots.get_offsets()) for dots in quick.plot_success().axes[0].collections)
    assert tasks == len(quick.tasks)
    for shown in (figure, quick.plot_correlation()):
        with Image.open(io.BytesIO(shown._repr_png_())) as picture:
            assert picture.width > 300
    with pytest.raises(ConfigError, match="did you mean 'scene'"):
        quick.plot_decodability("scen")


def test_a_notebook_shows_the_summary(quick: t2iprobe.Run) -> None:
    shown = quick._repr_html_()
    assert "decodability R²" in shown and "shapes-mmdit on shapes-pair" in shown
    assert quick.report.is_file()


def test_a_quiet_run_says_nothing_and_a_finished_one_is_opened(
    quick: t2iprobe.Run, capfd: pytest.CaptureFixture[str]
) -> None:
    before = quick.report.stat().st_mtime_ns
    assert t2iprobe.run(**QUICK, out="runs/quick", quiet=True) == quick
    assert capfd.readouterr() == ("", "")
    t2iprobe.run(**QUICK, out="runs/quick")
    assert "nothing to do" in capfd.readouterr().err
    assert quick.report.stat().st_mtime_ns == before


def test_run_json_names_the_command_that_does_the_same(
    quick: t2iprobe.Run, capfd: pytest.CaptureFixture[str]
) -> None:
    command = json.loads((quick.path / "run.json").read_text())["command"]
    assert main(shlex.split(command)[1:]) == 0
    assert "nothing to do" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"taks": 3}, "did you mean 'tasks'"),
        ({"tasks": "many"}, "whole number"),
        ({"tasks": 0}, "must be 1 or more"),
        ({"dtype": "bf61"}, "invalid choice"),
        ({"model": "shapes-mdit"}, "shapes-mmdit"),
        ({"family": "shapes-pear"}, "shapes-pair"),
        ({"sites": ["nowhere.*"], **QUICK}, "nowhere"),
    ],
)
def test_mistakes_are_errors_of_the_package(
    settings: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(t2iprobe.T2IProbeError, match=said):
        t2iprobe.run(**settings, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_settings_are_those_of_the_command_line() -> None:
    from t2iprobe import api

    arguments = api._arguments(
        RunConfig,
        {
            "at": (0, 0.5),
            "sites": ["unet.*", "text_encoder.*"],
            "pipe_arg": ["eta=0.5", "clip_skip=1"],
            "negative_prompt": "-- blurred",
            "yes": True,
            "vae_tiling": False,
            "steps": None,
        },
    )
    config = api.parse(RunConfig, arguments, "run", "")
    assert config == RunConfig(
        at="0,0.5",
        sites=("unet.*", "text_encoder.*"),
        pipe_arg=("eta=0.5", "clip_skip=1"),
        negative_prompt="-- blurred",
        yes=True,
    )


def test_help_shows_every_setting_with_its_default() -> None:
    parameters = inspect.signature(t2iprobe.run).parameters
    assert list(parameters) == ["quiet", *(item.name for item in dataclasses.fields(RunConfig))]
    assert parameters["seeds"].default == RunConfig().seeds
    assert "steps" in inspect.signature(t2iprobe.load_model).parameters


def test_other_folders_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="run folder"):
        t2iprobe.open_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema_version": 1, "settings": {}, "stages": {}}')
    with pytest.raises(DataError, match="synthetic"):
        t2iprobe.open_run(tmp_path)
