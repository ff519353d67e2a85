"""What a result has to carry so that it can be traced: versions and the commit."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "t2iprobe",
    "torch",
    "diffusers",
    "transformers",
    "accelerate",
    "tokenizers",
    "safetensors",
    "numpy",
    "scipy",
    "scikit-learn",
    "datasets",
    "pillow",
    "ftfy",
)


def versions() -> dict[str, str | None]:
    """The version of Python and of every package that can change a number; None for one that is not installed."""
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_commit() -> str | None:
    """The commit of the checkout this package runs from; None for an installed package."""
    source = Path(__file__).parent.parent
    try:
        found = subprocess.run(
            ["git", "-C", str(source), "log", "-1", "--format=%H", "--", str(source)],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
