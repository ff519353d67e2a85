"""Imports point one way, and the command line starts without the heavy libraries."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("t2iprobe", "synthetic")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def _imports(name: str, everywhere: bool) -> set[str]:
    """Our own modules that a module imports, at its top level only or anywhere in it."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if everywhere else _top_level(tree)
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            # Asking a package for one of its modules depends on the module, not on the package.
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inside}
    return {module for module in found if module in MODULES and module != name}


def _top_level(tree: ast.Module) -> list[ast.AST]:
    """Statements that run at import; a block under `if TYPE_CHECKING` does not."""
    return [node for node in tree.body if not isinstance(node, ast.If)]


def test_there_is_no_import_cycle() -> None:
    graph = {name: _imports(name, everywhere=True) for name in MODULES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, "import cycle: " + " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        for other in graph[name]:
            visit(other, (*path, name))
        done.add(name)

    for name in MODULES:
        visit(name, ())


MAY_KNOW = {
    "errors": "",
    "seeding": "",
    "places": "errors",
    "families": "errors seeding",
    "models": "errors places",
    "probes": "errors seeding",
    "stats": "errors seeding",
    "scorers": "errors families",
    "registry": "errors probes scorers",
    "calibration": "errors places models",
    "activations": "errors seeding places models calibration",
    "checks": "errors places models calibration activations",
    "runs": "errors seeding places registry families models calibration activations checks probes stats scorers",
    "report": "errors places families probes stats runs",
    "api": "errors places registry families models calibration activations checks probes stats scorers runs report cli",
    "cli": "errors places registry families models calibration activations checks probes stats scorers runs report",
    "__main__": "cli",
}
"""Room -> rooms that its modules may import, from the bottom to the top."""

ABOVE = {
    "t2iprobe.runs.report": "the last stage writes what the room of reports makes of the others",
}
"""Modules that import a room above their own, and why."""


def room_of(module: str) -> str:
    """The room of a module of the package; "" for the package itself, from which anybody may ask the version."""
    return module.split(".")[1] if "." in module else ""


def test_rooms_know_only_rooms_below() -> None:
    names = [name for name in MODULES if name.startswith("t2iprobe.")]
    assert {room_of(name) for name in names} == set(MAY_KNOW)
    for name in names:
        known = {room_of(module) for module in _imports(name, everywhere=True)}
        above = known - {"", room_of(name), *MAY_KNOW[room_of(name)].split()}
        assert bool(above) == (name in ABOVE), f"{name} imports of {sorted(above)}"


def test_what_rooms_may_know_has_no_circle() -> None:
    graph = {room: set(known.split()) for room, known in MAY_KNOW.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MAY_KNOW)


def test_hooks_fit_any_module() -> None:
    assert _imports("t2iprobe.models.hooks", everywhere=True) <= {"t2iprobe.errors"}


def test_the_package_knows_the_experiments_from_the_command_line_alone() -> None:
    for name in MODULES:
        if name.startswith("t2iprobe."):
            imported = _imports(name, everywhere=True)
            assert not {module for module in imported if module.startswith("synthetic")}, name


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["run", "--help"], ["compare", "--help"], ["families"], ["synthetic", "--help"]],
)
def test_help_needs_no_heavy_library(arguments: list[str]) -> None:
    heavy = ("torch", "diffusers", "transformers", "sklearn", "datasets", "scipy", "matplotlib")
    script = (
        "import sys\nfrom t2iprobe.cli.main import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        f"print('HEAVY', [m for m in {heavy!r} if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert out.stdout.splitlines()[-1] == "HEAVY []"
