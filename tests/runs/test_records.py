"""The schema of a run folder: what is written is read back, and the tables of any two runs are read together."""

import json
from dataclasses import fields, is_dataclass, replace
from math import isnan
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from t2iprobe.errors import DataError
from t2iprobe.runs import records
from t2iprobe.runs.records import (
    CORRELATION,
    DECODABILITY,
    PROBES,
    SCORES,
    TASKS,
    Cost,
    DecodabilityRow,
    JsonFile,
    Manifest,
    ProbeRow,
    ScoreRow,
    TaskRow,
    from_json,
    schema,
    to_json,
)

PROBE = ProbeRow(
    site="unet.mid_block", component="unet", stream="image", pooling="grid", step=0, timestep=999.0, coding="slot",
    constituent="color1", r2=0.5, r2_shuffled=-0.1, reason=None, accuracy=0.7, chance=0.2, alpha=10.0, n_images=8,
    n_tasks=4, n_folds=3, n_tasks_cut=0,
)  # fmt: skip
UNDEFINED = replace(
    PROBE, step=None, timestep=None, r2=None, r2_shuffled=None, reason="prompts are cut before color1", accuracy=None,
    chance=None, alpha=None, n_images=None, n_tasks=None, n_folds=None, n_tasks_cut=4,
)  # fmt: skip
SCORE = ScoreRow("a", 0, "right", "all as asked", {"color1": True, "shape1": True})
UNSCORED = ScoreRow("a", 1, "unscored", "NaN", {"color1": None, "shape1": None})
READ = DecodabilityRow("a", "slot", "color1", 0.5, 1.0, 2.0, 2.1, 2.0, 4)
TABLES: list[tuple[Any, list[Any], list[Any]]] = [
    (PROBES, [PROBE], [UNDEFINED]),
    (SCORES, [SCORE], [UNSCORED]),
    (DECODABILITY, [READ], [replace(READ, decodability=None)]),
]


@pytest.mark.parametrize(
    ("file", "first", "second"), TABLES, ids=lambda item: getattr(item, "name", "")
)
def test_the_tables_of_two_runs_are_read_together(
    file: Any, first: list[Any], second: list[Any], tmp_path: Path
) -> None:
    """Every column that can be null is null in one of them and has a value in the other."""
    paths = [tmp_path / run / file.name for run in ("a", "b")]
    for path, rows in zip(paths, (first, second), strict=True):
        file.write(path.parent, rows)
    tables = [parquet.read_table(path) for path in paths]
    assert tables[0].schema == tables[1].schema
    assert not any(pa.types.is_null(kind) for kind in tables[0].schema.types)
    expected = pa.concat_tables(tables).to_pylist()
    assert len(expected) == 2
    loaded = datasets.load_dataset(
        "parquet", data_files=[str(path) for path in paths], split="train", cache_dir=str(tmp_path / "cache")
    )  # fmt: skip
    assert loaded.to_list() == expected
    frame = pd.concat([pd.read_parquet(path, dtype_backend="pyarrow") for path in paths])
    assert frame.convert_dtypes(dtype_backend="pyarrow").shape == (2, len(expected[0]))
    assert [dtype.pyarrow_dtype for dtype in frame.dtypes] == tables[0].schema.types
    for path, rows in zip(paths, (first, second), strict=True):
        assert file.read(path.parent) == rows


def test_columns_and_types_are_those_of_the_record_class() -> None:
    assert schema(ScoreRow, ["task_id", "ok_color", "ok_shape"]) == pa.schema(
        [
            ("task_id", pa.string()),
            ("image_index", pa.int64()),
            ("outcome", pa.string()),
            ("reason", pa.string()),
            ("ok_color", pa.bool_()),
            ("ok_shape", pa.bool_()),
        ]
    )
    assert schema(ProbeRow).field("reason").type == pa.string()
    assert schema(ProbeRow).names[:6] == [
        "site",
        "component",
        "stream",
        "pooling",
        "step",
        "timestep",
    ]


def test_a_table_of_the_first_schema_is_read(tmp_path: Path) -> None:
    """Its `reason` has no type where every probe is defined."""
    table = pa.Table.from_pylist([vars(PROBE)])
    assert pa.types.is_null(table.schema.field("reason").type)
    parquet.write_table(table, tmp_path / PROBES.name)
    assert PROBES.read(tmp_path) == [PROBE]


def test_broken_tables_are_named_with_what_makes_them_again(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"probes\.parquet does not exist"):
        PROBES.read(tmp_path)
    (tmp_path / PROBES.name).write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"is damaged .*`t2iprobe probe .*` makes it again"):
        PROBES.read(tmp_path)
    parquet.write_table(pa.table({"site": ["a"]}), tmp_path / PROBES.name)
    with pytest.raises(
        DataError, match=r"lacks the column\(s\) component, stream, .* makes it again"
    ):
        PROBES.read(tmp_path)
    row = {name: [value] for name, value in vars(PROBE).items()} | {"r2": ["high"]}
    parquet.write_table(pa.table(row), tmp_path / PROBES.name)
    with pytest.raises(DataError, match="is damaged"):
        PROBES.read(tmp_path)


def test_lines_are_read_back_and_a_broken_one_is_named(tmp_path: Path) -> None:
    tasks = [TaskRow("a", "ein Kreis\u2028", {"c": "red"}, {"c": "red"}, "s", 0, None)]
    TASKS.write(tmp_path, tasks)
    assert TASKS.read(tmp_path) == tasks
    (tmp_path / TASKS.name).write_text(json.dumps(to_json(tasks[0])) + '\n{"id": "b"}\n')
    with pytest.raises(DataError, match=r"line 2 has no 'prompt'"):
        TASKS.read(tmp_path)


def test_undefined_numbers_are_null_and_come_back(tmp_path: Path) -> None:
    from t2iprobe.stats.estimate import undefined

    nothing = undefined("one task", 1, "task", "Spearman")
    written = to_json(nothing)
    assert (written["value"], written["ci"], written["reason"]) == (None, None, "one task")
    file = JsonFile("e.json", type(nothing), "correlate")
    file.write(tmp_path, nothing)
    again = file.read(tmp_path)
    assert isnan(again.value)
    assert replace(again, value=0.0) == replace(nothing, value=0.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"wall_s": "long"}, r'f: wall_s is "long"'),
        ({"images_made": 1.5}, "f: images_made is 1.5"),
        ({"images_made": True}, "f: images_made is true"),
        ({"by_stage": []}, r"f: by_stage is \[\]"),
        ({"by_stage": {"probe": "x"}}, "f: by_stage: probe"),
    ],
)
def test_a_value_of_another_type_is_named(change: dict[str, Any], words: str) -> None:
    cost = to_json(Cost(1.5, {"probe": 1.5}, None, 4, None, 10))
    assert from_json(Cost, cost | {"wall_s": 2, "of a later version": 1}, "f").wall_s == 2.0
    with pytest.raises(DataError, match=words):
        from_json(Cost, cost | change, "f")
    with pytest.raises(DataError, match="f has no 'wall_s'"):
        from_json(Cost, {}, "f")


def test_every_field_says_what_it_is() -> None:
    """In a docstring below it: unit, range, when it is null."""
    import ast

    tree = ast.parse(Path(records.__file__).read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, node in classes.items():
        record = getattr(records, name)
        if not is_dataclass(record) or name.endswith("File"):
            continue
        said = {
            statement.target.id
            for statement, after in zip(node.body, node.body[1:], strict=False)
            if isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
        }
        inherited = {item.name for base in record.__mro__[1:-1] for item in fields(base)}
        assert {item.name for item in fields(record)} - inherited == said - inherited, name
    assert is_dataclass(Manifest) and CORRELATION.record is records.Correlation
