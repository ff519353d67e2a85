"""Every function that states the shape of an array has it checked whenever a test calls it."""

import ast
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import TypeCheckError
from stated_shapes import CHECKED, PACKAGES

ROOT = Path(__file__).parent.parent


def arrays_without_a_shape(file: Path) -> list[str]:
    """Functions of a module with an argument or value that is an array of no stated shape."""
    bare = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            annotations = [node.returns, *(argument.annotation for argument in arguments)]
            written = [ast.unparse(annotation) for annotation in annotations if annotation]
            if {"np.ndarray", "Tensor", "torch.Tensor"} & set(written):
                bare.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}")
    return bare


def test_all_stated_shapes_are_checked() -> None:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            if b"jaxtyping" in file.read_bytes():
                name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
                import_module(name)
                assert any(function.startswith(f"{name}.") for function in CHECKED), name


@pytest.mark.parametrize("room", ["t2iprobe/probes", "t2iprobe/stats", "t2iprobe/families"])
def test_rooms_of_arrays_state_every_shape(room: str) -> None:
    assert not [
        line for file in (ROOT / room).rglob("*.py") for line in arrays_without_a_shape(file)
    ]


def test_an_array_of_another_shape_is_refused() -> None:
    from t2iprobe.probes.decodability import r2

    with pytest.raises(TypeCheckError, match="target"):
        r2(np.ones(3), np.ones((3, 1)))
    with pytest.raises(TypeCheckError, match="prediction"):
        r2(np.ones((3, 1)), np.ones((2, 1)))
