"""Array shapes that the packages state are checked by beartype while the tests run.

jaxtyping's own import hook checks every annotation of every function, which doubles the time of the tests and refuses
stand-ins; this one checks the functions that state a shape.
"""

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

PACKAGES = ("t2iprobe", "synthetic")
CHECKED: set[str] = set()
"""Dotted names of the functions that are checked."""


def parts(annotation: Any) -> Iterator[Any]:
    """An annotation and what stands inside its brackets."""
    yield annotation
    for part in get_args(annotation):
        yield from parts(part)


def shaped(annotation: Any) -> bool:
    """Whether an annotation states a shape, like Float[Tensor, "n d"] or a tuple of such."""
    return any(
        isinstance(part, type) and issubclass(part, AbstractArray) for part in parts(annotation)
    )


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arguments and value are held against the shapes it states, if it states any."""
    if not any(shaped(annotation) for annotation in function.__annotations__.values()):
        return function
    CHECKED.add(f"{function.__module__}.{function.__qualname__}")
    return jaxtyped(function, typechecker=beartype)


def checked_fields(record: type) -> type:
    """A dataclass whose fields are held against the shapes they state when one is made."""
    shapes = {
        name: hint for name, hint in vars(record).get("__annotations__", {}).items() if shaped(hint)
    }
    if is_dataclass(record) and shapes:
        CHECKED.add(f"{record.__module__}.{record.__qualname__}.__init__")
        record.__init__.__annotations__ = shapes
        record.__init__ = jaxtyped(record.__init__, typechecker=beartype)
    return record


class Checks(ast.NodeTransformer):
    """Puts `checked` around the functions of a module and the methods of its classes, `checked_fields` around these."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list.append(self._decorator("checked", node))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list.insert(0, self._decorator("checked_fields", node))
        return self.generic_visit(node)

    def _decorator(self, name: str, place: ast.AST) -> ast.expr:
        expression = ast.parse(f"__import__({__name__!r}).{name}", mode="eval").body
        return ast.copy_location(expression, place)


class Loader(SourceFileLoader):
    """Compiles a module with its shapes checked, without a cache."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = Checks().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    """Finds the modules of the packages."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Loader(name, spec.loader.path)
        return spec


def check() -> None:
    """Check the shapes of all modules that are imported from here on."""
    sys.meta_path.insert(0, Finder())
