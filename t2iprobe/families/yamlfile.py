"""YAML files that people write by hand, read with the line of every key and without YAML's guesses.

Every scalar stays the text that was written: `on`, `no`, `010`, `11:44` and `1e-4` are strings,
never booleans, octal numbers, base-60 numbers or floats. Repeated keys, tabs in the indentation,
tags and bytes that are not UTF-8 are errors that name the place. Text is brought to Unicode form
NFC, so that "é" has one spelling.
"""

import codecs
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from t2iprobe.errors import ConfigError, DataError, unknown

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What PyYAML resolves plain text to; the values themselves are never converted.
_PLAIN_TAGS = frozenset(
    ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
)
_KINDS = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "text"}


@dataclass(frozen=True)
class Entry:
    """One value of a YAML file, with the place where it stands.

    Attributes:
        node: PyYAML's node; its marks hold the place.
        file: the file's path as the user gave it.
        line: line of the value's key (of the value itself in a list), from 1.
        key: dotted path of keys that leads here, "" at the top.
    """

    node: yaml.Node
    file: str
    line: int = 1
    key: str = ""

    def fail(self, problem: str) -> NoReturn:
        """Raise a DataError that names file, line and key."""
        where = f", {self.key}" if self.key else ""
        raise DataError(f"{self.file}, line {self.line}{where}: {problem}")

    def text(self, form: str = "one line of text") -> str:
        """The scalar exactly as written, outer blanks removed; never blank, always one line.

        Args:
            form: the allowed form, for the error text.
        """
        if not isinstance(self.node, yaml.ScalarNode):
            source = self.source()
            hint = "" if "\n" in source else f"; if text was meant, write {_quoted(source)}"
            self.fail(f"expected {form}, got {self._kind()}{hint}")
        value = str(self.node.value).strip()
        if not value:
            self.fail(f"expected {form}, got nothing (text that starts with # needs quotes)")
        if not value.isprintable():
            self.fail(f"expected {form}, got {value!r}: no line breaks or control characters")
        return value

    def items(self, form: str = "a list such as [a, b]") -> list["Entry"]:
        """The members of a list, which must not be empty."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"expected {form}, got {self._kind()}")
        if not self.node.value:
            self.fail(f"expected {form}, got an empty list")
        return [
            Entry(node, self.file, _line(node), f"{self.key}[{i}]")
            for i, node in enumerate(self.node.value)
        ]

    def texts(self, form: str = "a list such as [a, b]") -> list[str]:
        """A list of different texts."""
        lines: dict[str, int] = {}
        for item in self.items(form):
            value = item.text()
            if value in lines:
                item.fail(f"{value!r} is listed twice (first on line {lines[value]}); name it once")
            lines[value] = item.line
        return list(lines)

    def fields(self, form: str = "a mapping such as {a: b}") -> dict[str, "Entry"]:
        """The values of a mapping with free keys, which must not be empty; order as written."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"expected {form}, got {self._kind()}")
        if not self.node.value:
            self.fail(f"expected {form}, got an empty mapping")
        prefix = f"{self.key}." if self.key else ""
        return {
            key.value: Entry(value, self.file, _line(key), prefix + str(key.value))
            for key, value in self.node.value
        }

    def record(
        self, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> dict[str, "Entry"]:
        """The values of a mapping with fixed keys; unknown and missing keys are errors."""
        fields = self.fields(f"a mapping with the keys {', '.join(required + optional)}")
        for name, entry in fields.items():
            if name not in required + optional:
                entry.fail(unknown("key", name, required + optional))
        missing = [name for name in required if name not in fields]
        if missing:
            self.fail(f"missing {', '.join(missing)}; required: {', '.join(required)}")
        return fields

    def _kind(self) -> str:
        if isinstance(self.node, yaml.ScalarNode):
            return f"the text {self.node.value!r}" if self.node.value else "nothing"
        return _KINDS[type(self.node)]

    def source(self) -> str:
        """The value as it stands in the file."""
        start, end = self.node.start_mark, self.node.end_mark
        return str(start.buffer[start.pointer : end.pointer]).strip() if start.buffer else ""


def read_yaml(path: Path | str) -> Entry:
    """The top of a YAML file.

    Raises:
        ConfigError: the file cannot be read.
        DataError: it is not UTF-8 or not valid YAML; the text names line, column or key and what to
            write instead.
    """
    file = str(path)
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from error
    return parse_yaml(raw, file)


def parse_yaml(raw: bytes, file: str) -> Entry:
    """The top of a YAML text; `file` is the name that errors show. Raises as `read_yaml` does."""
    text = unicodedata.normalize("NFC", _decode(raw, file))
    lines = text.splitlines()
    _refuse_tabs(lines, file)
    try:
        # SafeLoader's tags are never looked at: values stay as written.
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise DataError(_syntax_error(error, lines, file)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DataError(
            f"{file}, line {line}: the character U+{ord(text[error.position]):04X} is not allowed "
            "in YAML; remove it"
        ) from error
    if node is None:
        raise DataError(f"{file}: the file is empty; expected a mapping such as 'name: my-family'")
    top = Entry(node, file)
    for entry in _walk(top, set()):
        _check_node(entry)
    return top


def _decode(raw: bytes, file: str) -> str:
    if raw.startswith(_UTF16_MARKS):
        raise DataError(
            f"{file}: the file is UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8 FILE > NEW)"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{file}, line {line}: byte 0x{raw[error.start]:02X} is not UTF-8; the file may be "
            "Windows-1252: save it as UTF-8 (iconv -f CP1252 -t UTF-8 FILE > NEW)"
        ) from error


def _refuse_tabs(lines: list[str], file: str) -> None:
    for number, line in enumerate(lines, start=1):
        indent = line[: len(line) - len(line.lstrip())]
        if line.strip() and "\t" in indent:
            column = indent.index("\t") + 1
            raise DataError(
                f"{file}, line {number}, column {column}: a tab in the indentation; use spaces"
            )


def _syntax_error(error: yaml.MarkedYAMLError, lines: list[str], file: str) -> str:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"{file}: {error.problem}"
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = f"{file}, line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    # "key: text" or "- text" whose text needs quotes, the usual reason.
    written = re.match(r"\s*((?:- +)?(?:[\w.-]+: +|- +))(\S.*)$", line)
    if written and written.group(2)[0] not in "\"'" and mark.column >= written.start(2):
        quoted = written.group(1) + _quoted(written.group(2).rstrip())
        return f"{problem}; if text was meant, write {quoted}"
    return f"{problem}; check brackets, quotes and indentation"


def _walk(entry: Entry, seen: set[int]) -> Iterator[Entry]:
    """Every entry once, aliases not followed twice."""
    if id(entry.node) in seen:
        return
    seen.add(id(entry.node))
    yield entry
    if isinstance(entry.node, yaml.MappingNode) and entry.node.value:
        children = list(entry.fields().values())
    elif isinstance(entry.node, yaml.SequenceNode) and entry.node.value:
        children = entry.items()
    else:
        children = []
    for child in children:
        yield from _walk(child, seen)


def _check_node(entry: Entry) -> None:
    """Refuse tags that were written, keys that are no text, and repeated keys."""
    node = entry.node
    if str(node.tag).removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
        entry.fail(f"the tag {node.tag} is not used here; put text that starts with ! in quotes")
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            hint = f"; if text was meant, write {_quoted(entry.source())}"
            entry.fail(f"a key is {_KINDS[type(key)]}{hint}")
        line = _line(key)
        if key.value in lines:
            raise DataError(
                f"{entry.file}, line {line}, {entry.key or 'top level'}: the key {key.value!r} "
                f"stands on line {lines[key.value]} and again on line {line}; keep one"
            )
        lines[key.value] = line


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
