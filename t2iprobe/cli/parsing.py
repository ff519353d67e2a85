"""From command-line arguments to a settings dataclass, with `--config FILE` underneath.

Precedence: command line, then the configuration file, then the defaults of the dataclass.
"""

import re
import unicodedata
from contextlib import redirect_stderr
from dataclasses import fields
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar, get_args

import tyro
import yaml

from t2iprobe.errors import ConfigError
from t2iprobe.families.yamlfile import Entry, read_yaml
from t2iprobe.models.names import local_folder
from t2iprobe.runs.config import OneModel, RunConfig, flag

Settings = TypeVar("Settings")

_NO_NUMBER = re.compile(
    r"Error parsing (?P<option>--\S+): "
    r"(no type matching \S+\|(?P<kind>INT|FLOAT) could be instantiated from \[(?P<text>.*)\]"
    r"|invalid literal for int\(\) with base 10: (?P<count>.*)"
    r"|could not convert string to float: (?P<number>.*))"
)
"""How tyro says that a word is no number, where one is needed or may be left out."""


def parse(cls: type[Settings], arguments: list[str], command: str, description: str) -> Settings:
    """The settings that the arguments ask for.

    A configuration file is turned into arguments that stand before the given ones, so one parser checks both and the
    command line wins.

    Raises:
        ConfigError: the configuration file cannot be read, a value is not allowed, or the arguments cannot be parsed.
        ModelError: the settings name a model, and there is none of that name.
        DataError: the configuration file is no YAML mapping of known settings; the message names the line.
        SystemExit: 0 after `--help`.
    """
    _refuse_control_characters(arguments)
    file = _config_file(arguments)
    before = [] if file is None else _arguments_of(cls, file, arguments)
    _refuse_empty_paths(cls, [*before, *arguments])
    program = f"t2iprobe {command}"
    said = StringIO()
    try:
        with redirect_stderr(said):
            settings = tyro.cli(
                cls, args=[*before, *arguments], prog=program, description=description
            )
    except SystemExit as end:
        if not end.code:
            raise
        raise ConfigError(f"{_one_line(said.getvalue())}; see `{program} --help`") from None
    _check_model(settings)
    return settings


def _check_model(settings: object) -> None:
    """Refuse a model whose name is mistyped, before the heavy libraries are loaded.

    Raises:
        ModelError: it is no zoo model, no folder and no hub id.
    """
    finished = isinstance(settings, RunConfig) and (settings.folder / "run.json").exists()
    if isinstance(settings, OneModel | RunConfig) and not finished:  # which needs its model no more
        local_folder(settings.model)


def model_first(arguments: list[str]) -> list[str]:
    """Arguments with the model by name: `plan MODEL` is `plan --model MODEL`, as `inspect` and `doctor` take it."""
    first = arguments[:1]
    return ["--model", *arguments] if first and not first[0].startswith("-") else arguments


def _one_line(box: str) -> str:
    """What tyro says of a mistake in a box of several lines: the message, and the options that may have been meant.

    The box is drawn with lines, or with hyphens where the terminal has no such letters; its first line is a title.
    """
    sections: list[list[str]] = [[]]
    for line in box.splitlines()[1:]:
        text = line.strip("│ ")
        if set(text) <= set("╰╯─-"):
            sections.append([])
        else:
            sections[-1].append(text)
    message, *rest = [section for section in sections if section]
    meant = [
        text.split()[0]
        for section in rest
        if section[0].startswith(("Perhaps you meant", "Arguments similar to"))
        for text in section[1:]
        if text.startswith("--")
    ]
    sentence = " ".join(message).rstrip(".")
    if found := _NO_NUMBER.fullmatch(sentence):
        got = found["text"] or found["count"] or found["number"]
        whole = found["kind"] == "INT" or found["count"]
        return f"{found['option']} {got}: must be a {'whole ' if whole else ''}number"
    return f"{sentence} (did you mean {' or '.join(meant)}?)" if meant else sentence


def _refuse_empty_paths(cls: type, arguments: list[str]) -> None:
    """An empty path would silently be the current folder, as from an unset variable of the shell.

    Raises:
        ConfigError: a path has no name.
    """
    for name in [f.name for f in fields(cls) if f.type in (Path, Path | None)]:
        for argument, following in zip_longest(arguments, arguments[1:]):
            option, equals, value = argument.partition("=")
            if flag(option) == f"--{flag(name)}" and (value if equals else following) == "":
                raise ConfigError(f"--{flag(name)} is empty; name a path, or leave the option out")


def _refuse_control_characters(arguments: list[str]) -> None:
    """No path, name or prompt has them; in a configuration file they are refused with their line.

    Raises:
        ConfigError: a control character that is no line break or tab, or a byte that is no text.
    """
    for argument in arguments:
        odd = next(
            (c for c in argument if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"),
            None,
        )
        if odd is not None:
            raise ConfigError(f"{argument!r} has the control character U+{ord(odd):04X}; remove it")


def _config_file(arguments: list[str]) -> Path | None:
    for index, argument in enumerate(arguments):
        if argument.startswith("--config="):
            return Path(argument.removeprefix("--config="))
        if argument == "--config" and index + 1 < len(arguments):
            return Path(arguments[index + 1])
    return None


def _arguments_of(cls: type, file: Path, given: list[str]) -> list[str]:
    settings = {f.name: f.type for f in fields(cls) if f.name != "config"}
    out: list[str] = []
    for name, entry in read_yaml(file).record((), tuple(settings)).items():
        if settings[name] in (bool, "bool"):
            out.append(_switch(name, entry))
        elif tyro.conf.UseAppendAction in get_args(settings[name]):
            if f"--{flag(name)}" not in {flag(argument.partition("=")[0]) for argument in given}:
                out += [f"--{flag(name)}={text}" for text in _texts(entry)]
        elif isinstance(entry.node, yaml.SequenceNode):
            out += [f"--{flag(name)}", *_texts(entry)]
        else:
            out += [f"--{flag(name)}", entry.text("one value")]
    return out


def _texts(entry: Entry) -> list[str]:
    """The members of a list; a setting such as `hidden: [16, 16]` may name one twice."""
    return [item.text() for item in entry.items()]


def _switch(name: str, entry: Entry) -> str:
    value = entry.text("true or false")
    if value not in ("true", "false"):
        entry.fail(f"expected true or false, got {value!r}")
    return f"--{flag(name)}" if value == "true" else f"--no-{flag(name)}"
