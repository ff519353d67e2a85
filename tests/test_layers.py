"""Imports point one way, and the command line starts without the heavy libraries."""

import ast
import subprocess
import sys
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


@pytest.mark.parametrize(
    ("layer", "may_know"),
    [
        ("t2iprobe.errors", ()),
        ("t2iprobe.probes", ("t2iprobe.errors", "t2iprobe.seeding", "t2iprobe.probes")),
        ("t2iprobe.stats", ("t2iprobe.errors", "t2iprobe.seeding", "t2iprobe.stats")),
        ("t2iprobe.models.hooks", ("t2iprobe.errors", "t2iprobe.models.hooks")),
        (
            "t2iprobe.scorers",
            (
                "t2iprobe.errors",
                "t2iprobe.scorers.base",
                "t2iprobe.families.shapes",
                "t2iprobe.families.tasks",
                "t2iprobe.families.reading",
                "t2iprobe.scorers",
            ),
        ),
    ],
)
def test_a_layer_knows_only_what_lies_below(layer: str, may_know: tuple[str, ...]) -> None:
    for name in MODULES:
        if name == layer or name.startswith(layer + "."):
            outside = {
                module
                for module in _imports(name, everywhere=True)
                if not any(module == m or module.startswith(m + ".") for m in may_know)
                and module != "t2iprobe"
            }
            assert not outside, f"{name} imports {sorted(outside)}"


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
