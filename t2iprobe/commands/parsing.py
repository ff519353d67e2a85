"""From command-line arguments to a settings dataclass, with `--config FILE` underneath.

Precedence: command line, then the configuration file, then the defaults of the dataclass.
"""

from dataclasses import fields
from pathlib import Path
from typing import TypeVar, get_args

import tyro
import yaml

from t2iprobe.config import flag
from t2iprobe.errors import ConfigError
from t2iprobe.yamlfile import Entry, read_yaml

Settings = TypeVar("Settings")


def parse(cls: type[Settings], arguments: list[str], command: str, description: str) -> Settings:
    """The settings that the arguments ask for.

    A configuration file is turned into arguments that stand before the given ones, so one parser checks both and the
    command line wins.

    Raises:
        ConfigError: the configuration file cannot be read, or a value is not allowed.
        DataError: the configuration file is no YAML mapping of known settings; the message names the line.
        SystemExit: 0 after `--help`, 2 after arguments that cannot be parsed (tyro prints what is wrong).
    """
    file = _config_file(arguments)
    before = [] if file is None else _arguments_of(cls, file, arguments)
    _refuse_empty_paths(cls, [*before, *arguments])
    return tyro.cli(
        cls, args=[*before, *arguments], prog=f"t2iprobe {command}", description=description
    )


def _refuse_empty_paths(cls: type, arguments: list[str]) -> None:
    """An empty path would silently be the current folder, as from an unset variable of the shell.

    Raises:
        ConfigError: a path has no name.
    """
    for name in [f.name for f in fields(cls) if f.type in (Path, Path | None)]:
        for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
            option, equals, value = argument.partition("=")
            if flag(option) == f"--{flag(name)}" and (value if equals else following) == "":
                raise ConfigError(f"--{flag(name)} is empty; name a path, or leave the option out")


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
                out += [f"--{flag(name)}={text}" for text in entry.texts()]
        elif isinstance(entry.node, yaml.SequenceNode):
            out += [f"--{flag(name)}", *entry.texts()]
        else:
            out += [f"--{flag(name)}", entry.text("one value")]
    return out


def _switch(name: str, entry: Entry) -> str:
    value = entry.text("true or false")
    if value not in ("true", "false"):
        entry.fail(f"expected true or false, got {value!r}")
    return f"--{flag(name)}" if value == "true" else f"--no-{flag(name)}"
