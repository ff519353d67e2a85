"""One specification of a table: what stands on the page, on a terminal, in CSV and in Markdown."""

import csv
import io
from pathlib import Path

import pytest
from jinja2 import Environment
from rich.console import Console
from rich.table import Table as RichTable

from t2iprobe.report.formats import decimal, percent
from t2iprobe.report.page import environment
from t2iprobe.report.tables import Column, Medium, Table, markdown

Row = dict[str, object]
ROWS: list[Row] = [
    {"name": "a|b <i> [red]", "share": 0.25, "ci": (0.125, 0.5), "rho": -0.5},
    {"name": "second", "share": 1.0, "ci": None, "rho": None, "why": "no variation"},
]
COLUMNS: list[Column[Row]] = [
    Column("name", lambda row: row["name"]),
    Column("share", lambda row: row["share"], percent, interval=lambda row: row["ci"], bar="success"),  # type: ignore[arg-type, return-value]
    Column("rho", lambda row: row["rho"], decimal, heading="ρ", note=lambda row: str(row.get("why", ""))),
    Column("path", lambda row: Path("x"), shown=Medium.FILE),
    Column("never", lambda row: None, decimal, heading="filled by no row"),
]  # fmt: skip
TABLE = Table(COLUMNS, ROWS, "what it is")


def printed(table: RichTable, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def page() -> str:
    templates: Environment = environment()
    template = templates.from_string("{% import 'macros.html.j2' as m %}{{ m.table(table) }}")
    return template.render(table=TABLE)


def test_files_hold_every_value_unrounded_and_empty_where_it_is_missing() -> None:
    first, second = csv.DictReader(io.StringIO(TABLE.csv()))
    assert first == {
        "name": "a|b <i> [red]", "share": "0.25", "share_low": "0.125", "share_high": "0.5", "rho": "-0.5",
        "rho_note": "", "path": "x", "never": "",
    }  # fmt: skip
    assert (second["share_low"], second["rho"], second["rho_note"]) == ("", "", "no variation")
    assert TABLE.records()[1]["share_low"] is None


def test_markdown_has_the_columns_for_readers_that_some_row_fills() -> None:
    assert TABLE.markdown().splitlines() == [
        "what it is",
        "",
        "| name | share (95%) | ρ |",
        "| --- | --- | --- |",
        "| a\\|b &lt;i> [red] | 25% (12% to 50%) | −0.50 |",
        "| second | 100% | no variation |",
    ]
    assert markdown(["x"], [["a|b\n<i>"]]).splitlines()[2] == "| a\\|b &lt;i> |"


def test_the_page_escapes_names_and_draws_bars(page: str) -> None:
    assert "<caption>what it is</caption>" in page
    assert page.count('<th scope="col">') == 3
    assert '<th scope="row">a|b &lt;i&gt; [red]</th>' in page
    assert '<span class="meter success"><span>25%</span>' in page
    assert 'style="width:25.0%"' in page
    assert "<small>12% to 50%</small>" in page
    assert '<td class="note">no variation</td>' in page


def test_a_terminal_shows_the_same_cells_and_takes_no_markup() -> None:
    lines = printed(TABLE.terminal()).splitlines()
    assert lines[0].split() == ["name", "share", "(95%)", "ρ"]
    assert "a|b <i> [red]" in lines[1]
    assert lines[1].split()[-5:] == ["25%", "(12%", "to", "50%)", "−0.50"]
    assert lines[2].endswith("no variation")


def test_a_narrow_terminal_has_short_headings_and_no_intervals() -> None:
    brief: Column[Row] = Column(
        "long name", lambda row: row["share"], percent, short="s", interval=lambda row: (0.0, 1.0)
    )
    mark: Column[Row] = Column("rho", lambda row: row["rho"], decimal, brief=lambda row: "*")
    lines = printed(Table([brief, mark], ROWS).terminal(narrow=True)).splitlines()
    assert [line.split() for line in lines] == [["s", "rho"], ["25%", "*"], ["100%", "*"]]


def test_one_more_column_stands_everywhere() -> None:
    more: Column[Row] = Column("n", lambda row: len(str(row["name"])), str, heading="letters")
    table = Table([*COLUMNS, more], ROWS)
    assert table.markdown().splitlines()[0].endswith("| letters |")
    assert table.csv().splitlines()[0].endswith(",n")
    assert "letters" in printed(table.terminal())
    assert table.headings[-1] == "letters"
    assert [row[-1].text for row in table.cells] == ["13", "6"]


def test_a_table_without_rows_has_its_headings() -> None:
    empty = Table(COLUMNS, [])
    assert empty.csv() == "name,share,share_low,share_high,rho,rho_note,path,never\n"
    assert empty.headings == ["name", "share", "ρ", "filled by no row"]
