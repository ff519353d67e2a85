"""One specification of a table, written as HTML, for a terminal, as CSV and Parquet rows, and as Markdown.

A table is a list of records under a list of columns. One more line in the list is one more column everywhere:

    Column("r2", lambda part: part.r2, decimal, heading="R²", bar="r2")

The tables of a run are in `summary.py`, those of a comparison in `compare.py`.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Generic, Literal, TypeVar

from rich.table import Table as RichTable
from rich.text import Text

from t2iprobe.report.formats import MISSING, Interval

Record = TypeVar("Record")


class Medium(Flag):
    """Where a column stands: on the page (HTML, Markdown), on a terminal, in files for programs (CSV, Parquet)."""

    PAGE = auto()
    TERMINAL = auto()
    FILE = auto()
    READ = PAGE | TERMINAL
    ALL = PAGE | TERMINAL | FILE


def plain(value: object) -> str:
    """A value as text; "–" when it is missing."""
    return MISSING if value is None else str(value)


@dataclass(frozen=True)
class Cell:
    """One cell for readers.

    Attributes:
        text: the value.
        interval: its ends, shown in brackets.
        note: what is shown in place of a missing interval, or of a missing value.
        number: whether it is aligned right.
        bar, share: the colour of the bar that the page draws beside it, and its length from 0 to 1.
    """

    text: str
    interval: str = ""
    note: str = ""
    number: bool = False
    bar: str = ""
    share: float | None = None

    def __str__(self) -> str:
        """The cell without a bar."""
        if self.note and self.text == MISSING:
            return self.note
        more = self.interval or self.note
        return f"{self.text} ({more})" if more else self.text


@dataclass(frozen=True)
class Column(Generic[Record]):
    """One column of a table.

    Attributes:
        name: its name in files, and its heading where `heading` is empty.
        value: what a record has there, unrounded; None when it is missing.
        format: the value as people read it. A column with a format of its own is aligned right.
        heading: the title for readers.
        interval: the 95% interval of the value; in files its ends have columns of their own.
        note: why the value or its interval is missing; empty for no reason.
        bar: the page draws the value, a share from 0 to 1, as a bar in the colour of success or of R2.
        short: the heading on a narrow terminal, which shows no intervals and no notes.
        brief: the cell on a narrow terminal.
        shown: where the column stands.
    """

    name: str
    value: Callable[[Record], Any]
    format: Callable[[Any], str] = plain
    heading: str = ""
    interval: Callable[[Record], Interval] | None = None
    note: Callable[[Record], str] | None = None
    bar: Literal["", "success", "r2"] = ""
    short: str = ""
    brief: Callable[[Record], str] | None = None
    shown: Medium = Medium.ALL

    def cell(self, record: Record) -> Cell:
        """A record's cell for readers."""
        value = self.value(record)
        ends = self.interval(record) if self.interval else None
        return Cell(
            text=self.format(value),
            interval=" to ".join(self.format(end) for end in ends) if ends else "",
            note=self.note(record) if self.note else "",
            number=self.format is not plain,
            bar=self.bar,
            share=value if self.bar else None,
        )

    @property
    def fields(self) -> list[tuple[str, Callable[[Record], Any]]]:
        """The columns of files: the value, and the ends of its interval and its note where it has such."""
        fields = [(self.name, self.value)]
        if interval := self.interval:
            fields += [
                (f"{self.name}_low", lambda record: (interval(record) or (None, None))[0]),
                (f"{self.name}_high", lambda record: (interval(record) or (None, None))[1]),
            ]
        if note := self.note:
            fields.append((f"{self.name}_note", lambda record: note(record) or None))
        return fields


@dataclass(frozen=True)
class Table(Generic[Record]):
    """Records as rows under columns; readers get the columns that some row fills.

    Attributes:
        columns, rows: what is shown.
        caption: what the columns are, above the table on the page and in Markdown.
    """

    columns: Sequence[Column[Record]]
    rows: Sequence[Record]
    caption: str = ""

    @property
    def headings(self) -> list[str]:
        """The headings of the page; a column of intervals says so."""
        return [self._heading(column) for column in self._filled(Medium.PAGE)]

    @property
    def cells(self) -> list[list[Cell]]:
        """The cells of the page, row by row."""
        columns = self._filled(Medium.PAGE)
        return [[column.cell(row) for column in columns] for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        """One flat record per row, for files: every value unrounded, None where it is missing."""
        return [{name: value(row) for name, value in self._fields()} for row in self.rows]

    def csv(self) -> str:
        """The records as comma-separated values under a header; a missing one is an empty field."""
        buffer = io.StringIO()
        header = [name for name, _ in self._fields()]
        writer = csv.DictWriter(buffer, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.records())
        return buffer.getvalue()

    def markdown(self) -> str:
        """The caption and the cells of the page as a Markdown table."""
        table = markdown(self.headings, [[str(cell) for cell in row] for row in self.cells])
        return f"{self.caption}\n\n{table}" if self.caption else table

    def terminal(self, *, narrow: bool = False, **style: Any) -> RichTable:
        """The table for a terminal.

        Args:
            narrow: short headings, no intervals and no notes, so that many numbers fit into 80 columns.
            style: arguments of `rich.table.Table`.
        """
        table = RichTable(**({"box": None, "pad_edge": False} | style))
        columns = self._filled(Medium.TERMINAL)
        for column in columns:
            heading = (
                (column.short or column.heading or column.name) if narrow else self._heading(column)
            )
            right = column.format is not plain
            table.add_column(
                Text(heading), justify="right" if right else "left", no_wrap=right and narrow, overflow="fold"
            )  # fmt: skip
        for row in self.rows:
            cells = [column.cell(row) for column in columns]
            brief = [
                column.brief(row) if column.brief else cell.text
                for column, cell in zip(columns, cells, strict=True)
            ]
            # Text, since names from a model or a family are no markup.
            table.add_row(*(Text(text) for text in (brief if narrow else map(str, cells))))
        return table

    def _fields(self) -> list[tuple[str, Callable[[Record], Any]]]:
        columns = [column for column in self.columns if Medium.FILE in column.shown]
        return [field for column in columns for field in column.fields]

    def _filled(self, medium: Medium) -> list[Column[Record]]:
        return [
            column
            for column in self.columns
            if medium in column.shown
            and (not self.rows or any(str(column.cell(row)) not in ("", MISSING) for row in self.rows))
        ]  # fmt: skip

    def _heading(self, column: Column[Record]) -> str:
        title = column.heading or column.name
        intervals = column.interval and any(column.interval(row) for row in self.rows)
        return f"{title} (95%)" if intervals else title


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; pipes and line breaks in names cannot break it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_safe(cell) for cell in line) + " |" for line in lines)


def _safe(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
