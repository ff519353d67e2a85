"""The examples in docstrings give what they say; the commands of the README are commands."""

import doctest
import io
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import tyro

import t2iprobe
from t2iprobe.cli.main import main

ROOT = Path(__file__).parent.parent
WITH_EXAMPLES = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("t2iprobe", "synthetic")
    for file in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_of_docstrings(name: str) -> None:
    """All but those of the public names, which test_api.py runs in order."""
    public = {f"{name}.{word}" for word in t2iprobe.__all__}
    for test in doctest.DocTestFinder().find(import_module(name), name):
        if test.name not in public:
            said = io.StringIO()
            assert not doctest.DocTestRunner().run(test, out=said.write).failed, said.getvalue()


def commands_of(page: Path) -> list[list[str]]:
    """The words of each t2iprobe command in the indented blocks of a page, without comments."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:4] == "    "]
    written = [shlex.split(line, comments=True) for line in lines if " t2iprobe " in f" {line}"]
    commands = []
    for words in written:
        if "t2iprobe" in words[:2]:  # `do t2iprobe ...` in a loop of the shell, too
            end = next((at for at, word in enumerate(words) if word.endswith(";")), len(words) - 1)
            words = [word.rstrip(";") for word in words[: end + 1]]
            commands.append(words[words.index("t2iprobe") + 1 :])
    return commands


class Parsed(Exception):  # noqa: N818
    """The settings of a command could be read."""


@pytest.mark.parametrize("command", commands_of(ROOT / "README.md"), ids=" ".join)
def test_commands_of_the_readme_are_read(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its own parser, up to where its work begins; what is cheap is done."""
    if command[0] == "families":
        assert main(command) == 0
        return
    read = tyro.cli

    def stop(*arguments: Any, **settings: Any) -> None:
        read(*arguments, **settings)
        raise Parsed

    monkeypatch.chdir(tmp_path)
    Path("run.yaml").write_text("tasks: 64\n")
    monkeypatch.setattr(tyro, "cli", stop)
    with pytest.raises(Parsed):
        main(command)


def test_the_readme_has_commands_of_every_kind() -> None:
    names = {command[0] for command in commands_of(ROOT / "README.md")}
    assert names >= {"run", "inspect", "doctor", "plan", "families", "compare", "synthetic"}
