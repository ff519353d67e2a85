"""Fixtures shared by the tests: tiny random pipelines, built once, offline."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import stated_shapes

stated_shapes.check()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a tiny pipeline by family name."""
    import tiny

    tiny.load_builders()
    root = tmp_path_factory.mktemp("tiny")

    def folder(name: str) -> Path:
        try:
            return tiny.save(name, root)
        except (ImportError, AttributeError, RuntimeError) as error:
            reason = tiny.lacking(error)
            if reason is None:
                raise
            pytest.skip(f"{name}: {reason}")

    return folder


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Callable[[str], Path]) -> Callable[[str], Any]:
    """A loaded tiny pipeline by family name, kept for the session; tests leave it as they found it."""
    import tiny

    from t2iprobe.models.loading import load_model
    from t2iprobe.models.settings import LoadSettings

    loaded: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in loaded:
            settings = LoadSettings(pipe_arg=tiny.pipe_args(name))
            loaded[name] = load_model(str(tiny_folder(name)), settings)
        return loaded[name]

    return load
