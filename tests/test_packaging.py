"""The built wheel carries what the package needs, and what is installed beside it is what it asks for."""

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, packages_distributions
from pathlib import Path

import pytest

from t2iprobe.cli import installed

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_families_and_the_zoo_travel_inside(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for family in (ROOT / "prompts").glob("*.yaml"):
        assert f"t2iprobe/prompts/{family.name}" in names
    for file in (ROOT / "t2iprobe" / "models" / "zoo").rglob("*.*"):
        if file.is_file() and "__pycache__" not in file.parts:
            assert file.relative_to(ROOT).as_posix() in names
    for template in (ROOT / "t2iprobe" / "report" / "templates").iterdir():
        assert template.relative_to(ROOT).as_posix() in names
    assert "synthetic/__init__.py" in names


def test_an_unpacked_wheel_finds_them(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    script = (
        "from t2iprobe.families.reading import family_names; from t2iprobe.models import zoo; "
        "print(family_names(), 'shapes-mmdit' in zoo.names())"
    )
    out = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "'shapes-pair', 'shapes-single'" in out.stdout.split("]")[0]
    assert out.stdout.strip().endswith("True")


def test_every_library_that_is_imported_is_asked_for() -> None:
    """Not left to what another library happens to bring."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    imported: set[str] = set()
    for package in ("t2iprobe", "synthetic"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                    imported.add(node.module.partition(".")[0])
    owners = packages_distributions()
    foreign = imported - sys.stdlib_module_names - {"t2iprobe", "synthetic"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    missing = {
        name
        for name in foreign
        if not asked & {canonicalize_name(owner) for owner in owners.get(name, [name])}
    }
    assert {"torch", "numpy", "yaml", "PIL"} <= foreign
    assert not missing


@pytest.mark.parametrize(
    ("asked", "has", "fits"),
    [
        ("torch>=2.6", "2.6.0", True),
        ("torch>=2.6", "2.6.0+cu124", True),
        ("torch>=2.6", "2.10.0.dev20251101+cpu", True),
        ("torch>=2.6", "2.6.0a0+ecf3bae40a.nv25.1", True),  # how NVIDIA numbers its own builds
        ("torch>=2.6", "2.5.1", False),
        ("torch>=2.6", "2.5.1+cu124", False),
        ("torch>=2.6", "1.13", False),
        ("torch>=2.10", "2.9.1", False),  # as numbers, not as text
        ("torch>=2.6", None, False),
        ("torch>=2.6; extra == 'dev'", "2.5.1", True),
        ("torch>=2.6; extra == 'lora'", "2.5.1", False),
        ("torch>=2.6; extra == 'lora'", None, True),
        ("torch>=2.6; python_version < '3'", None, True),
        ("torch", "0.1", True),
    ],
)
def test_what_is_installed_is_held_against_its_bound(
    asked: str, has: str | None, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if has is None:
            raise PackageNotFoundError(name)
        return has

    monkeypatch.setattr(installed, "version", version)
    unfit = installed.misfits([asked])
    bound = asked.partition(";")[0].removeprefix("torch")
    assert unfit == ([] if fits else [("torch", has or "is not installed", bound)])


ASKED = [
    "torch>=2.6",
    "diffusers>=0.36",
    "tyro>=1.0",
    "peft>=0.18; extra == 'lora'",
    "pytest>=8.3; extra == 'dev'",
]


def run_beside(others: dict[str, str], folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Exit code and stderr of a command of a package that asks for ASKED, where other versions seem installed."""
    for name, number in {"t2iprobe": "0.1.0", **others}.items():
        info = folder / f"{name}-{number}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {number}"]
        lines += [f"Requires-Dist: {line}" for line in ASKED if name == "t2iprobe"]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(
        [sys.executable, "-m", "t2iprobe", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (ended.returncode and ended.stdout)
    return ended.returncode, ended.stderr.splitlines()


def test_libraries_that_were_put_back_end_in_one_line(tmp_path: Path) -> None:
    code, lines = run_beside({"diffusers": "0.20.2", "tyro": "0.9.1"}, tmp_path, "families")
    assert code == 2
    assert lines == [
        "t2iprobe: error: installed libraries do not fit: diffusers 0.20.2, needed is >=0.36;"
        " tyro 0.9.1, needed is >=1.0; pip install 'diffusers>=0.36' 'tyro>=1.0'"
    ]


def test_an_older_peft_is_named_though_no_lora_is_asked_for(tmp_path: Path) -> None:
    """diffusers imports it wherever it is installed, and fails on one that does not know its transformers."""
    code, (line,) = run_beside({"peft": "0.10"}, tmp_path, "families")
    assert code == 2 and "peft 0.10, needed is >=0.18" in line


def test_older_tools_of_developers_and_newer_libraries_are_let_be(tmp_path: Path) -> None:
    others = {"pytest": "1.0", "ruff": "0.1", "diffusers": "99.0", "torch": "99.0.dev1"}
    assert run_beside(others, tmp_path, "families") == (0, [])


def test_help_is_given_whatever_is_installed(tmp_path: Path) -> None:
    assert run_beside({"diffusers": "0.20.2"}, tmp_path, "--help") == (0, [])
