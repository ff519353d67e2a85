"""The package from Python: a run with its tables and figures in a few lines, in a script or a notebook.

    import t2iprobe
    run = t2iprobe.run(model="shapes-mmdit", tasks=32, seeds=1, out="runs/quick")
    run                              # what it found
    run.probes                       # a pandas table
    run.plot_decodability()          # a matplotlib figure

Settings are those of the command line, by the same names, and are checked by the same parser. What is wrong with them,
or with a run folder, is raised as a `T2IProbeError`; nothing here ends the interpreter.
"""

import io
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from t2iprobe.cli.parsing import parse
from t2iprobe.errors import ConfigError, DataError, unknown
from t2iprobe.models.settings import LoadSettings
from t2iprobe.runs import records
from t2iprobe.runs.budget import Budget
from t2iprobe.runs.config import RunConfig, flag
from t2iprobe.runs.folder import RunFolder, read_json

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from PIL.Image import Image

    from t2iprobe.models.model import Model
    from t2iprobe.report.compare import Comparison
    from t2iprobe.report.reading import RunData

Reader = TypeVar("Reader", bound=Callable[..., Any])


def run(*, quiet: bool = False, **settings: Any) -> "Run":
    """A finished run: images made and scored, activations probed, both correlated, a report written.

    Continues the run of the same folder and settings; a finished one is only opened.

    Args:
        quiet: print no progress. Otherwise it goes to standard error: bars in a terminal, a line every half minute
            elsewhere.
        settings: those of `t2iprobe run`, with underscores: `model`, `family`, `tasks`, `seeds`, `out`, `at` ...

    Raises:
        ConfigError: a setting is unknown or cannot be used, or the folder holds a run with other settings.
        DataError: the family or the folder cannot be used.
        ModelError: the model cannot be loaded or used.
        SiteError: a site cannot be found or read.

    Example:
        >>> import t2iprobe
        >>> run = t2iprobe.run(tasks=32, seeds=1, out="runs/quick", quiet=True)
        >>> run.report.name
        'report.html'
    """
    start = time.monotonic()
    arguments = _arguments(RunConfig, settings)
    config = parse(RunConfig, arguments, "run", "")
    budget = None if config.budget is None else Budget(config.budget, start)
    from t2iprobe.runs import stages

    with _printing(not quiet):
        folder = stages.run(config, budget, command=shlex.join(["t2iprobe", "run", *arguments]))
    return Run(folder.path)


def open_run(path: str | Path) -> "Run":
    """The run in a folder that `t2iprobe run` or `t2iprobe.run` wrote.

    Raises:
        DataError: it is no run folder, or one of a synthetic experiment or of another version.

    Example:
        >>> import t2iprobe
        >>> t2iprobe.open_run("runs/quick").scores.columns[:4].tolist()
        ['task_id', 'image_index', 'outcome', 'reason']
    """
    folder = RunFolder.existing(Path(path))
    if "family" not in folder.manifest["settings"]:
        raise DataError(
            f"{path} holds a synthetic run or sweep: `t2iprobe report` and `t2iprobe compare` read it"
        )
    return Run(folder.path)


COLUMNS = {
    "tasks": {
        {"id": "task_id", "values": "value_<constituent>"}.get(name, name): text
        for name, text in records.meanings(records.TaskRow).items()
        if name in ("id", "prompt", "values", "scene_id", "fold", "seen")
    },
    "scores": records.meanings(records.ScoreRow),
    "probes": records.meanings(records.ProbeRow),
    "decodability": records.meanings(records.DecodabilityRow),
}
"""Table -> column -> what it holds; null is a missing value of pandas."""


def _with_columns(table: str) -> Callable[[Reader], Reader]:
    """A property's docstring ends with the columns of its table, as the record class says them."""

    def add(reader: Reader) -> Reader:
        lines = [f"    {name}: {text}" for name, text in COLUMNS[table].items()]
        reader.__doc__ = "\n".join([reader.__doc__ or "", "", "Columns:", *lines])
        return reader

    return add


@dataclass(frozen=True)
class Run:
    """One run, read from its folder: tables as pandas, figures as matplotlib.

    A table is read when it is first asked for. Asking for what a stage has not written yet raises `DataError`.

    Attributes:
        path: the run folder.

    Example:
        >>> import t2iprobe
        >>> run = t2iprobe.open_run("runs/quick")
        >>> run.probes.groupby("coding").r2.max().round(1).index.tolist()
        ['binding', 'presence', 'scene', 'slot']
    """

    path: Path

    @cached_property
    @_with_columns("tasks")
    def tasks(self) -> "pd.DataFrame":
        """One row a task, in the order of the run."""
        import pandas as pd

        rows: list[dict[str, Any]] = [
            {"task_id": task.id, "prompt": task.prompt}
            | {f"value_{name}": value for name, value in task.values.items()}
            | {"scene_id": task.scene_id, "fold": task.fold, "seen": task.seen}
            for task in records.TASKS.read(self.path)
        ]
        return pd.DataFrame(rows).astype({"seen": "Int64"})

    @cached_property
    @_with_columns("scores")
    def scores(self) -> "pd.DataFrame":
        """One row an image."""
        return records.SCORES.frame(self.path)

    @cached_property
    @_with_columns("probes")
    def probes(self) -> "pd.DataFrame":
        """One row a probe: a place in the model, a coding and a constituent of it, "all" for the whole coding."""
        return records.PROBES.frame(self.path)

    @cached_property
    @_with_columns("decodability")
    def decodability(self) -> "pd.DataFrame":
        """One row a task, coding and constituent, at the headline site, which the family's headline coding chose."""
        return records.DECODABILITY.frame(self.path)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The numbers on one screen: success, decodability, correlation, cost. Undefined is None, with a `reason`."""
        return self._object("summary.json")

    @cached_property
    def correlation(self) -> dict[str, Any]:
        """Spearman, Pearson and AUROC between decodability and success over tasks: pooled, within strata, by part."""
        return self._object("correlation.json")

    @cached_property
    def headline(self) -> dict[str, Any]:
        """The headline sites, as one half of the folds chose them and the other half valued them (`r2`)."""
        return self._object("headline.json")

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting of the run, as stored in run.json."""
        return dict(RunFolder(self.path).manifest["settings"])

    @property
    def report(self) -> Path:
        """Where report.html lies: one file, for a browser."""
        return self.path / "report.html"

    @property
    def images(self) -> "pd.Series[Any]":
        """The path of every image, by `task_id` and `image_index`; `image` opens one."""
        import pandas as pd

        places = list(zip(self.scores["task_id"], self.scores["image_index"], strict=True))
        index = pd.MultiIndex.from_tuples(places, names=["task_id", "image_index"])
        return pd.Series([self._image_path(*place) for place in places], index=index, name="image")

    def image(self, task_id: str, image_index: int = 0) -> "Image":
        """The picture of a task.

        Raises:
            DataError: there is none.
        """
        from PIL import Image

        path = self._image_path(task_id, image_index)
        if not path.is_file():
            raise DataError(f"{path} does not exist: `.images` lists the pictures of this run")
        with Image.open(path) as picture:
            picture.load()
            return picture

    def plot_decodability(self, coding: str | None = None) -> "Figure":
        """R2 by site and denoising step in the image stream, one heat map a constituent.

        Args:
            coding: slot, scene, presence or binding; the family's headline coding when not given.

        Raises:
            ConfigError: this coding was not probed.
        """
        from t2iprobe.report import figures, layers

        data, at = self._data, layers.headline(self._data)
        coding = coding or at.coding
        if coding not in layers.codings(data, at.coding):
            raise ConfigError(unknown("coding", coding, layers.codings(data, at.coding)))
        parts = layers.constituents(data, coding)
        grids = [grid for part in parts if (grid := layers.heat_grid(data, coding, part, at))]
        if not grids:
            raise DataError(f"{self.path} has no probes of the {coding} coding in the image stream")
        title = f"{coding} coding, {at.pooling} pooling, n = {len(data.tasks)} tasks"
        return _displayed(figures.heat_sheet(grids, title))

    def plot_success(self) -> "Figure":
        """Decodability against success, one point a task.

        Raises:
            DataError: no task has both.
        """
        from t2iprobe.report import figures, layers

        points = self._data.task_points(layers.headline(self._data).coding)
        figure = figures.scatter_figure(points)
        if figure is None:
            raise DataError(f"{self.path}: no task has both a decodability and a success")
        return _displayed(figure)

    def plot_correlation(self) -> "Figure":
        """Spearman between decodability and success with its intervals: over all tasks, by stratum and constituent."""
        from t2iprobe.report import figures, page
        from t2iprobe.runs.records import CORRELATION

        estimates = page.correlations(CORRELATION.read(self.path))
        return _displayed(figures.forest_figure(estimates))

    def _repr_html_(self) -> str:
        """The summary that `t2iprobe run` prints, for a notebook."""
        from rich.console import Console

        from t2iprobe.report.summary import print_summary
        from t2iprobe.runs.records import CORRELATION, SUMMARY

        console = Console(file=io.StringIO(), record=True, width=88, force_jupyter=False)
        print_summary(SUMMARY.read(self.path), CORRELATION.read(self.path), console)
        return console.export_html(
            inline_styles=True,
            code_format='<pre style="font-family:monospace;line-height:1.25">{code}</pre>',
        )

    @cached_property
    def _data(self) -> "RunData":
        from t2iprobe.report.reading import read_run

        return read_run(self.path)

    def _image_path(self, task_id: str, image_index: int) -> Path:
        return RunFolder(self.path).image(task_id, image_index)

    def _object(self, name: str) -> dict[str, Any]:
        return dict(read_json(self.path / name))


def load_model(name: str, **settings: Any) -> "Model":
    """A checkpoint with its pipeline, ready to be called.

    Args:
        name: a zoo name, a local diffusers folder, a hub id, or a .safetensors file inside such a folder.
        settings: how it is loaded and called, as in `t2iprobe run`: `device`, `dtype`, `steps`, `lora` ...

    Raises:
        ConfigError: a setting is unknown or does not fit.
        ModelError: it cannot be found or loaded, or is no text-to-image pipeline.
        MissingExtra: it needs a library that is not installed.

    Example:
        >>> import t2iprobe
        >>> t2iprobe.load_model("shapes-unet", steps=3).class_name
        'StableDiffusionPipeline'
    """
    chosen = parse(LoadSettings, _arguments(LoadSettings, settings), "run", "")
    from t2iprobe.models import loading

    return loading.load_model(name, chosen)


def compare(
    runs: Sequence[Run | str | Path], out: str | Path = Path("runs/compare")
) -> "Comparison":
    """Decodability against success across finished runs, with a table and a figure in `out`.

    Args:
        runs: runs or their folders, of images or synthetic.
        out: where compare.html, .md, .csv, .parquet and .png go.

    Raises:
        ConfigError: no run is given.
        DataError: a folder is not a finished run, or is given twice; or `out` is itself a run.

    Example:
        >>> import t2iprobe
        >>> t2iprobe.compare(["runs/quick"], out="runs/compare").points[0].name
        'quick'
    """
    from t2iprobe.report import compare as comparing

    folders = [item.path if isinstance(item, Run) else Path(item) for item in runs]
    return comparing.compare(folders, Path(out))


def _arguments(cls: type, settings: Mapping[str, Any]) -> list[str]:
    """Settings as the command line takes them, so that one parser checks both; None leaves a setting as it is.

    Raises:
        ConfigError: there is no such setting.
    """
    known = [item.name for item in fields(cls)]
    arguments = []
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(unknown("setting", name, known))
        option = f"--{flag(name)}"
        if value is None:
            continue
        if isinstance(value, bool):
            arguments.append(option if value else f"--no-{flag(name)}")
        elif name == "at" and not isinstance(value, str):
            arguments.append(f"{option}={','.join(map(str, _several(value)))}")
        elif name == "pipe_arg":
            arguments += [f"{option}={text}" for text in _several(value)]
        elif isinstance(value, (list, tuple)):
            arguments += [option, *map(str, value)]
        else:
            arguments.append(f"{option}={value}")
    return arguments


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _keywords(cls: type, *first: Parameter) -> Signature:
    """The signature that help() and completion show: every setting by name, with its default."""

    def default(item: Field[Any]) -> Any:
        return Parameter.empty if item.default is MISSING else item.default

    types = get_type_hints(cls)  # without what tyro is told of a setting
    keywords = [
        Parameter(
            item.name, Parameter.KEYWORD_ONLY, default=default(item), annotation=types[item.name]
        )
        for item in fields(cls)
    ]
    return Signature([*first, *keywords])


run.__signature__ = _keywords(  # type: ignore[attr-defined]
    RunConfig, Parameter("quiet", Parameter.KEYWORD_ONLY, default=False, annotation=bool)
).replace(return_annotation=Run)
load_model.__signature__ = _keywords(  # type: ignore[attr-defined]
    LoadSettings, Parameter("name", Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
)


@contextmanager
def _printing(wanted: bool) -> Iterator[None]:
    """Progress goes to standard error while the block runs, or nowhere."""
    from t2iprobe.runs.progress import console

    before, console.quiet = console.quiet, not wanted
    try:
        yield
    finally:
        console.quiet = before


def _displayed(figure: "Figure") -> "Figure":
    """The figure, with a picture of its own: notebooks show figures made without pyplot as a line of text."""

    def png() -> bytes:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110, facecolor="white")
        return buffer.getvalue()

    figure._repr_png_ = png  # type: ignore[attr-defined]
    return figure
