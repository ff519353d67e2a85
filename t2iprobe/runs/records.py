"""The schema of a run folder: one record class for each table and each JSON file, and what reads and writes it.

    summary = SUMMARY.read(folder)          # a Summary
    SCORES.write(folder, rows)              # scores.parquet from ScoreRow records

Stages write these files and nothing else reads them: report, comparison, API and tests take the records. The columns of
a table and their types follow from its record class, never from the values, so the tables of two runs can be read
together. Undefined is null, with a reason beside it.
"""

import ast
import dataclasses
import inspect
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import isnan, nan
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from t2iprobe.errors import DataError
from t2iprobe.runs.folder import atomic, read_json, write_json
from t2iprobe.scorers.base import Outcome
from t2iprobe.stats.estimate import Estimate

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Record = TypeVar("Record")

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""Every outcome of an image, best first."""

Interval = tuple[float, float] | None
"""A 95% interval, low and high; null where there is none."""


# ---- tasks.jsonl


@dataclass(frozen=True)
class Tokens:
    """What the text encoders of a pipeline made of one prompt. Keys are component names, such as text_encoder_2."""

    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Encoder -> constituent -> positions of its tokens."""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """Encoder -> constituents whose tokens were cut off; encoders that lost nothing are absent."""
    cut_at: dict[str, int] = field(default_factory=dict)
    """Encoder -> its limit in tokens; only of encoders that lost something."""


@dataclass(frozen=True)
class TaskRow:
    """One line of tasks.jsonl: a task that all images of were made."""

    id: str
    """Made from the family and the values; names the images."""
    prompt: str
    """Exactly as sent."""
    values: dict[str, str]
    """Constituent -> its value as worded."""
    scene: dict[str, str]
    """Constituent -> its value in the canonical wording of the same scene."""
    scene_id: str
    """Equal for tasks that describe one scene."""
    fold: int
    """Cross-validation fold, from 0."""
    seen: int | None
    """How often training showed the scene; null where the model has no card that says it."""
    spans: dict[str, Any] = field(default_factory=dict)
    """Constituent -> first character of its words in the prompt, and the one after the last."""
    encoders: Tokens = field(default_factory=Tokens)
    """What the text encoders made of the prompt."""


# ---- scores.parquet


@dataclass(frozen=True)
class ScoreRow:
    """One image with its verdict."""

    task_id: str
    """The task whose image it is."""
    image_index: int
    """From 0 within the task; each has a noise seed of its own."""
    outcome: str
    """One of `OUTCOMES`."""
    reason: str
    """The evidence, one short sentence; why the image could not be scored."""
    constituents: dict[str, bool | None] = field(metadata={"prefix": "ok_"})
    """One column `ok_<constituent>` each: whether it is as worded; null where it cannot be told."""


# ---- probes.parquet


@dataclass(frozen=True)
class PlaceRecord:
    """Where activations were read."""

    site: str
    """Component and module path, joined by a dot."""
    component: str
    """The component of the pipeline, such as transformer or text_encoder."""
    stream: str
    """image or text."""
    pooling: str
    """What was kept of the place, as named by `--pooling`: mean, grid, eot, span."""
    step: int | None
    """Index into the denoising schedule; null in text encoders and in the conditioning."""


@dataclass(frozen=True)
class TimedPlace(PlaceRecord):
    """Where activations were read, with the scheduler's own value of the step."""

    timestep: float | None
    """Null where there is no step."""


@dataclass(frozen=True)
class ProbeFit:
    """What a probe recovers of one constituent, whatever it was fitted on."""

    coding: str
    """slot, scene, presence or binding."""
    constituent: str
    """A target group of the coding; "all" for the whole coding."""
    r2: float | None
    """Held-out R2 over tasks: 1 is perfect, 0 the mean of the training tasks. Null with a reason."""
    r2_shuffled: float | None
    """The same with shuffled labels."""
    reason: str | None
    """Why r2 is null; null where it is not."""
    accuracy: float | None
    """Balanced share of images with the right value, 0 to 1; null of whole codings."""
    chance: float | None
    """Accuracy of always giving the most common value."""
    alpha: float | None
    """Ridge penalty, the geometric mean over folds; null of whole codings."""
    n_images: int | None
    """Images it rests on; null, as the two below, where r2 is."""
    n_tasks: int | None
    """Tasks it rests on."""
    n_folds: int | None
    """Folds it rests on."""
    n_tasks_cut: int
    """Tasks left out because a text encoder cut their prompts before the constituent."""


@dataclass(frozen=True)
class ProbeRow(ProbeFit, TimedPlace):
    """One probe: where it reads, and what it recovers there. Of two bases the last one's fields lead."""


# ---- decodability.parquet


@dataclass(frozen=True)
class DecodabilityRow:
    """How well one task's parts are read at the headline site."""

    task_id: str
    """The task."""
    coding: str
    """slot, scene, presence or binding."""
    constituent: str
    """A target group of the coding; "all" for the whole coding."""
    decodability: float | None
    """1 - residual / total; null where total is 0."""
    residual: float
    """Squared error of the held-out prediction, in units of the one-hot targets, summed over the task's images."""
    total: float
    """Squared distance of the targets from the mean of the training tasks, summed likewise."""
    residual_shuffled: float
    """The same as `residual` with shuffled labels."""
    total_shuffled: float
    """The same as `total` with shuffled labels."""
    n_images: int
    """Images of the task."""


# ---- headline.json


@dataclass(frozen=True)
class ChosenSite:
    """A place chosen on one half of the folds and valued on the other; all null but `reason` where none could be."""

    site: str | None = None
    """Component and module path."""
    component: str | None = None
    """The component of the pipeline."""
    stream: str | None = None
    """image or text."""
    pooling: str | None = None
    """What was kept of the place, as named by `--pooling`: mean, grid, eot, span."""
    step: int | None = None
    """Index into the denoising schedule; null in text encoders."""
    r2: float | None = None
    """Mean R2 of the headline coding over both halves, each at the site that was chosen on the other."""
    other: PlaceRecord | None = None
    """The place that the other half of the folds chose."""
    n_candidates: int | None = None
    """Places it was chosen from."""
    reason: str | None = None
    """Why there is none."""


@dataclass(frozen=True)
class Headline:
    """headline.json: where the headline coding is read best."""

    coding: str
    """The family's headline coding."""
    denoiser: ChosenSite
    """In the image stream of the denoiser: the headline site."""
    text_encoder: ChosenSite
    """In the text encoders."""
    bag_of_words: dict[str, float | None]
    """Coding -> R2 of a probe of which words the prompt has."""


# ---- correlation.json


@dataclass(frozen=True)
class Correlation:
    """correlation.json: decodability against success over tasks, with intervals, p-values and methods."""

    unit: str
    """What is counted and resampled: task."""
    coding: str
    """The family's headline coding, on which all but `by_coding` rests."""
    overall: Estimate
    """Spearman over all tasks."""
    pearson: Estimate
    """Pearson over all tasks."""
    among_clean: Estimate
    """Spearman with success among clean images."""
    by_coding: dict[str, Estimate]
    """Coding -> Spearman of its decodability and success."""
    by_constituent: dict[str, Estimate]
    """Target group -> Spearman of its decodability and its own success."""
    auroc_per_image: Estimate
    """How well a task's decodability tells its right images from its others."""
    strata: dict[str, Estimate] | None
    """seen, held_out -> Spearman among tasks whose scene training showed, or did not; null with a reason."""
    within: Estimate | None
    """Spearman within both strata together; null with a reason."""
    sign_flip: str | None
    """A warning where pooled and within differ in sign."""
    reason: str | None = None
    """Why there are no strata."""


# ---- summary.json


@dataclass(frozen=True)
class Share:
    """A share of images."""

    value: float | None
    """0 to 1; null with a reason."""
    ci: Interval
    """95% interval, by task."""
    reason: str | None
    """Why the value is null."""


@dataclass(frozen=True)
class BetweenTasks:
    """Whether success differs between tasks by more than chance."""

    ratio: float | None
    """Variance between tasks over that of images drawn alike: 1 is chance."""
    p: float | None
    """Of the over-dispersion test."""
    sd: float | None
    """Standard deviation of the tasks' true success, without the noise of few images."""
    reliability: float | None
    """Share of the variance between tasks that is no noise, 0 to 1."""
    differs: bool
    """Whether it does, by p."""
    reason: str | None
    """Why it was not tested."""


@dataclass(frozen=True)
class SuccessSummary:
    """How often images are right."""

    all: float | None
    """Share of scored images that are right, 0 to 1; null with a reason."""
    ci: Interval
    """Its 95% interval, by task."""
    reason: str | None
    """Why `all` is null."""
    of_clean: Share
    """Right among images with clean objects."""
    outcomes: dict[str, int]
    """Outcome -> images."""
    coverage: float
    """Share of images that could be scored."""
    seen: float | None
    """Success of tasks whose scene training showed; null where the model has no card."""
    held_out: float | None
    """Success of the others."""
    seen_reason: str | None
    """Why one of the two is null."""
    by_constituent: dict[str, float | None]
    """Slot -> share of images that have it as worded."""
    between_task: BetweenTasks
    """Whether success differs between tasks."""
    seen_ci: Interval = None
    """95% interval of `seen`."""
    held_out_ci: Interval = None
    """95% interval of `held_out`."""


@dataclass(frozen=True)
class SiteR2:
    """R2 at a place."""

    site: str | None
    """Component and module path."""
    pooling: str | None
    """What was kept of the place, as named by `--pooling`: mean, grid, eot, span."""
    step: int | None
    """Index into the denoising schedule; null in text encoders."""
    r2: float | None
    """Held-out R2 of the headline coding."""


@dataclass(frozen=True)
class HeadlineR2(SiteR2):
    """R2 of the headline coding at the headline site."""

    ci: Interval
    """95% interval, by task."""
    reason: str | None
    """Why r2 is null."""
    other: PlaceRecord | None
    """The place that the other half of the folds chose."""
    n_candidates: int | None
    """Places the headline site was chosen from."""


@dataclass(frozen=True)
class CodingR2:
    """R2 of one coding at the headline site."""

    r2: float | None
    """Held-out; null with a reason."""
    ci: Interval
    """95% interval, by task."""
    reason: str | None
    """Why r2 is null."""


@dataclass(frozen=True)
class Controls:
    """R2 of the headline coding where nothing should be read."""

    shuffled_labels: float | None
    """At the headline site, with shuffled labels."""
    bag_of_words: float | None
    """From which words the prompt has."""


@dataclass(frozen=True)
class EncoderR2:
    """R2 of the headline coding at the best place of the text encoders."""

    site: str | None
    """Component and module path; null with a reason."""
    pooling: str | None
    """mean, eot or span."""
    r2: float | None
    """Valued on the half of the folds that did not choose the place."""
    reason: str | None
    """Why there is none."""


@dataclass(frozen=True)
class DecodabilitySummary:
    """What is read where."""

    coding: str
    """The family's headline coding."""
    headline: HeadlineR2
    """The whole coding at the headline site."""
    by_constituent: dict[str, float | None]
    """Target group -> R2 at the headline site."""
    by_coding: dict[str, CodingR2]
    """Coding -> R2 at the headline site."""
    controls: Controls
    """What nothing should give."""
    text_encoder: EncoderR2
    """The best place of the text encoders."""
    best_by_component: dict[str, SiteR2]
    """component:stream -> its highest R2: a map, no headline, since the best of many looks better than it is."""


@dataclass(frozen=True)
class Link:
    """A rank correlation of decodability and success over tasks."""

    spearman: float | None
    """-1 to 1; null with a reason."""
    ci: Interval
    """95% interval, by task."""
    p: float | None
    """Two-sided, by permutation."""
    n: int
    """Tasks."""
    reason: str | None
    """Why a number is null."""


@dataclass(frozen=True)
class LinkSummary(Link):
    """Decodability against success over all tasks, and in parts."""

    p_floor: float | None
    """The smallest p the test could give."""
    unit: str
    """What is counted and resampled: task."""
    by_constituent: dict[str, Link]
    """Target group -> its decodability and its own success."""
    by_coding: dict[str, Link]
    """Coding -> its decodability and success."""
    pearson: float | None
    """Pearson over all tasks."""
    auroc: float | None
    """How well a task's decodability tells its right images from its others: .5 is chance."""
    among_clean: Link
    """With success among clean images."""
    within: Link | None
    """Within seen and held-out scenes together; null where nothing says which they are."""
    strata: dict[str, Link] | None
    """Among each alone."""
    detectable: float | None
    """The correlation that this many tasks find in four of five cases."""
    note: str | None
    """What a reader should know before taking the number for a finding."""


@dataclass(frozen=True)
class FrequencyBin:
    """Tasks whose scenes training showed about equally often."""

    seen_low: int
    """Least times."""
    seen_high: int
    """Most times."""
    n_tasks: int
    """Tasks."""
    success: float | None
    """Share of their scored images that are right."""
    ci: Interval
    """Its 95% interval, by task."""
    decodability: float | None
    """Mean over tasks, headline coding and site."""


@dataclass(frozen=True)
class Frequency:
    """Success and decodability against how often training showed a scene."""

    bins: list[FrequencyBin] | None
    """Held-out scenes, then quarters of the others; null with a reason."""
    success: Estimate | None
    """Spearman of times seen and success."""
    decodability: Estimate | None
    """Spearman of times seen and decodability."""
    reason: str | None
    """Why there are no bins."""


@dataclass(frozen=True)
class Cost:
    """What a run took, over every time it was started."""

    wall_s: float
    """Seconds of all stages, imports and loading included."""
    by_stage: dict[str, float]
    """Stage -> seconds."""
    images_per_s: float | None
    """Images made per second of making them; null where none were."""
    images_made: int
    """Images made, also those made twice."""
    peak_rss_mb: float | None
    """Largest resident memory, in 10^6 bytes."""
    activation_bytes: int
    """Bytes of the shards on disk."""


@dataclass(frozen=True)
class Summary:
    """summary.json: the numbers of a run that fit on one screen. All but `cost` follows from the settings alone."""

    schema_version: int
    """Version of this schema."""
    model: str
    """As given: a zoo name, a path or a hub id."""
    family: str
    """Name of the task family."""
    n_tasks: int
    """Tasks whose images were all made."""
    n_images: int
    """Images made."""
    n_unscored: int
    """Images that could not be scored."""
    success: SuccessSummary
    """How often images are right."""
    decodability: DecodabilitySummary
    """What is read where."""
    correlation: LinkSummary
    """Whether one goes with the other."""
    frequency: Frequency
    """Both against how often training showed a scene."""
    text_lost: dict[str, dict[str, int]] | None
    """Text encoder -> constituent -> tasks whose prompt is cut before it; null for none."""
    text_limit: dict[str, int | None] | None
    """Text encoder -> its limit in tokens, of those that cut; null for none."""
    tasks_asked: int
    """Tasks that the settings ask for."""
    stopped: str | None
    """budget, where it ended the run before all tasks were made."""
    cost: Cost
    """What the run took."""


# ---- run.json


@dataclass(frozen=True)
class StageState:
    """What run.json says of one stage."""

    status: str | None = None
    """running, done, stopped (by the budget, after whole tasks) or out of date."""
    seconds: float | None = None
    """What it took, over all starts."""
    peak_rss_mb: float | None = None
    """Largest resident memory, in 10^6 bytes."""
    files: dict[str, str] = field(default_factory=dict)
    """File -> hash of what the stage left."""
    reason: str | None = None
    """Of generation: what stopped it."""
    making_s: float | None = None
    """Of generation: seconds of making images alone."""
    images_made: int | None = None
    """Of generation: images made, also those made twice."""
    batches: int | None = None
    """Of generation: shards on disk."""


@dataclass(frozen=True)
class Capture:
    """What was read in the model."""

    sites: list[str] = field(default_factory=list)
    """The modules, in the order in which the model runs them."""


@dataclass(frozen=True)
class Manifest:
    """run.json: settings, model, versions, and how far the run is. `RunFolder` writes it piece by piece."""

    schema_version: int
    """Version of this schema."""
    settings: dict[str, Any]
    """Every setting the results depend on, by its name on the command line with underscores."""
    command: str = "t2iprobe run"
    """The command line that makes the run."""
    created: str = ""
    """When it was begun, UTC."""
    versions: dict[str, str | None] = field(default_factory=dict)
    """Package -> version; null of one that is not installed."""
    git_commit: str | None = None
    """Commit of t2iprobe; null of an installed package."""
    model: dict[str, Any] | None = None
    """What was loaded: name, pipeline class, card, revision, hash of the weights, dtype, device, schedulers."""
    stages: dict[str, StageState] = field(default_factory=dict)
    """Stage -> its state; stages that have not begun are absent."""
    counts: dict[str, int] = field(default_factory=dict)
    """tasks, tasks_done, images_asked, images_done, unscored."""
    family_fingerprint: str | None = None
    """Changes when the family is edited."""
    capture: Capture | None = None
    """What was read in the model; null before generation."""
    fold_overlap: int | None = None
    """Scenes with tasks in more than one fold; 0 for every run."""


# ---- files


@dataclass(frozen=True)
class JsonFile(Generic[Record]):
    """A JSON file of a run folder.

    Attributes:
        name: the file.
        record: its class.
        stage: what writes it.
    """

    name: str
    record: type[Record]
    stage: str

    def read(self, folder: Path) -> Record:
        """The record in a run folder.

        Raises:
            DataError: the file is absent, damaged, or of another schema.
        """
        path = folder / self.name
        record: Record = from_json(self.record, read_json(path), str(path))
        return record

    def write(self, folder: Path, record: Record) -> None:
        """Write the record, whole or not at all."""
        write_json(folder / self.name, to_json(record))


@dataclass(frozen=True)
class LinesFile(Generic[Record]):
    """A file of a run folder with one JSON object a line."""

    name: str
    record: type[Record]
    stage: str

    def read(self, folder: Path) -> list[Record]:
        """The records in a run folder, in their order.

        Raises:
            DataError: the file is absent, or a line is damaged or of another schema.
        """
        path = folder / self.name
        if not path.exists():
            raise DataError(f"{path} does not exist: run `t2iprobe run` with this folder first")
        records: list[Record] = []
        lines = (
            path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        )  # prompts have other breaks
        for number, line in enumerate(lines, start=1):
            where = f"{path}, line {number}"
            try:
                value = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{where} is not valid JSON ({error.msg}): run it again") from None
            records.append(from_json(self.record, value, where))
        return records

    def write(self, folder: Path, records: Iterable[Record]) -> None:
        """Write the records, all or nothing."""
        lines = (json.dumps(to_json(record), ensure_ascii=False) + "\n" for record in records)
        with atomic(folder / self.name) as temporary, temporary.open("w", encoding="utf-8") as file:
            file.writelines(lines)


@dataclass(frozen=True)
class TableFile(Generic[Record]):
    """A parquet table of a run folder; its columns are the fields of its record class."""

    name: str
    record: type[Record]
    stage: str

    def read(self, folder: Path) -> list[Record]:
        """The records in a run folder, in their order.

        Raises:
            DataError: the table is absent or damaged, or lacks a column.
        """
        return [_record(self.record, row) for row in self._table(folder).to_pylist()]

    def frame(self, folder: Path) -> "pd.DataFrame":
        """The table of a run folder for pandas: whole numbers and truth values that may be missing, measures with NaN.

        Raises:
            DataError: as `read`.
        """
        import pandas as pd
        import pyarrow as pa

        types = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
        return self._table(folder).to_pandas(types_mapper=types.get)

    def _table(self, folder: Path) -> "pa.Table":
        import pyarrow as pa
        from pyarrow import parquet

        path = folder / self.name
        if not path.exists():
            raise DataError(f"{path} does not exist: the stage that writes it has not run yet")
        try:
            table = parquet.read_table(path)
            names = table.column_names
            wanted = schema(self.record, names)
            lacking = [name for name in wanted.names if name not in names]
            if lacking:
                raise DataError(
                    f"{path} lacks the column(s) {', '.join(lacking)}: "
                    f"`t2iprobe {self.stage} {folder}` makes it again"
                )
            return table.select(wanted.names).cast(wanted)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{path} is damaged ({str(error).splitlines()[0][:80]}): "
                f"`t2iprobe {self.stage} {folder}` makes it again"
            ) from None

    def write(self, folder: Path, records: Sequence[Record]) -> None:
        """Write the records, all or nothing."""
        import pyarrow as pa
        from pyarrow import parquet

        rows = [_row(record) for record in records]
        columns = dict.fromkeys(name for row in rows for name in row)
        table = pa.Table.from_pylist(rows, schema=schema(self.record, list(columns)))
        with atomic(folder / self.name) as temporary:
            parquet.write_table(table, temporary)


TASKS = LinesFile("tasks.jsonl", TaskRow, "generate")
SCORES = TableFile("scores.parquet", ScoreRow, "score")
PROBES = TableFile("probes.parquet", ProbeRow, "probe")
HEADLINE = JsonFile("headline.json", Headline, "probe")
DECODABILITY = TableFile("decodability.parquet", DecodabilityRow, "probe")
CORRELATION = JsonFile("correlation.json", Correlation, "correlate")
SUMMARY = JsonFile("summary.json", Summary, "correlate")
MANIFEST = JsonFile("run.json", Manifest, "generate")

RESULTS = (TASKS, SCORES, PROBES, HEADLINE, DECODABILITY, CORRELATION, SUMMARY)
"""What the stages leave, in their order."""


# ---- tables: columns from record classes


def schema(record: type, names: Sequence[str] = ()) -> "pa.Schema":
    """The columns of a table of records, with their types.

    Args:
        record: the class of the records.
        names: the columns that a table has: a field that is a column for each constituent takes its columns from here.
    """
    import pyarrow as pa

    columns: list[tuple[str, pa.DataType]] = []
    for name, (kind, prefix) in _columns(record).items():
        values = kind if prefix is None else get_args(kind)[1]
        arrow = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
        of = arrow[_without_none(values)]
        several = [] if prefix is None else [n for n in names if n.startswith(prefix)]
        columns += [(name, of)] if prefix is None else [(column, of) for column in several]
    return pa.schema(columns)


def meanings(record: type) -> dict[str, str]:
    """Column -> what it holds and in which unit: the docstrings of the record's fields.

    Example:
        >>> meanings(DecodabilityRow)["decodability"]
        '1 - residual / total; null where total is 0.'
    """
    texts: dict[str, str] = {}
    for cls in reversed(record.__mro__[:-1]):
        definition = ast.parse(inspect.getsource(cls)).body[0]
        assert isinstance(definition, ast.ClassDef)
        for statement, following in pairwise(definition.body):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    texts[name] = text
    return {
        name if prefix is None else f"{prefix}<constituent>": texts[name]
        for name, (_, prefix) in _columns(record).items()
    }


@cache
def _columns(record: Any) -> dict[str, tuple[Any, str | None]]:
    """Field -> its type, and the prefix of its columns where it is a column for each of its keys."""
    kinds = _kinds(record)
    return {
        item.name: (kinds[item.name], item.metadata.get("prefix"))
        for item in dataclasses.fields(record)
    }


def _row(record: Any) -> dict[str, Any]:
    """A record as a row of a table."""
    row: dict[str, Any] = {}
    kind: Any = type(record)
    for name, (_, prefix) in _columns(kind).items():
        value = getattr(record, name)
        row |= {name: value} if prefix is None else {prefix + key: v for key, v in value.items()}
    return row


def _record(record: type[Record], row: Mapping[str, Any]) -> Record:
    """The record of a row of a table."""
    values: dict[str, Any] = {}
    kind: Any = record
    for name, (_, prefix) in _columns(kind).items():
        values[name] = (
            row[name]
            if prefix is None
            else {key.removeprefix(prefix): v for key, v in row.items() if key.startswith(prefix)}
        )
    return record(**values)


# ---- JSON: values from and to record classes


def to_json(value: Any) -> Any:
    """A record as JSON values; NaN is null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {item.name: to_json(getattr(value, item.name)) for item in fields}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and isnan(value) else value


def from_json(kind: Any, value: Any, where: str) -> Any:
    """A value of some type from JSON values: null is NaN where a number is meant, and unknown keys are passed over.

    Args:
        kind: a record class, or the type of a field.
        value: what the file holds.
        where: the file and the keys on the way, for the message.

    Raises:
        DataError: the value is of another type.
    """
    if kind is Any:
        return value
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return from_json(_without_none(kind), value, where)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, where)
    if origin is dict and isinstance(value, dict):
        return {key: from_json(parts[1], item, f"{where}: {key}") for key, item in value.items()}
    if origin is list and isinstance(value, list):
        return [from_json(parts[0], item, where) for item in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(parts):
        return tuple(from_json(part, item, where) for part, item in zip(parts, value, strict=True))
    if kind is float and value is None:
        return nan
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or value is not True):
        return value
    raise DataError(f"{where} is {_brief(value)}, which this t2iprobe does not read: run it again")


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DataError(f"{where} is {_brief(value)}, not an object: run it again")
    kinds = _kinds(kind)
    values = {}
    for item in dataclasses.fields(kind):
        if item.name in value:
            inside = f"{where}: {item.name}" if ": " not in where else f"{where}.{item.name}"
            values[item.name] = from_json(kinds[item.name], value[item.name], inside)
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise DataError(f"{where} has no {item.name!r}: run it again")
    return kind(**values)


@cache
def _kinds(record: Any) -> dict[str, Any]:
    return get_type_hints(record)


def _without_none(kind: Any) -> Any:
    """The type of a value that is not null."""
    (other,) = [part for part in get_args(kind) if part is not types.NoneType] or [kind]
    return other


def _brief(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
