"""The built wheel carries what the package needs: it must run in an empty folder, far from the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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
        "from t2iprobe.families import family_names; from t2iprobe.models import zoo; "
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
    assert out.stdout.split("]")[0] == "['shapes-pair', 'shapes-single'"
    assert out.stdout.strip().endswith("True")
