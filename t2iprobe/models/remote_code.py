"""Python code that a checkpoint brings: refused unless it is trusted, and named with file and line where it fails."""

import importlib.util
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2iprobe.errors import ModelError, first_line
from t2iprobe.models.index import is_component


def check_trust(name: str, folder: Path, index: Mapping[str, Any], trusted: bool) -> None:
    """Refuse a folder with untrusted Python code: diffusers 0.36 runs that of a local folder unasked.

    Args:
        name: what the user called the checkpoint.
        folder: of the pipeline. Of a hub repository code is fetched for those who trust it only; that of the pipeline
            is then told by the index alone.
        index: its model_index.json, in which a class is a pair of a module and a name.
        trusted: whether code of the checkpoint may run.

    Raises:
        ModelError: it brings code; one line names a file.
    """
    if trusted:
        return
    for key, value in index.items():
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            continue
        of_pipeline = key == "_class_name"
        file = (folder if of_pipeline else folder / key) / f"{value[0]}.py"
        if of_pipeline or file.is_file():
            raise ModelError(
                f"{name}: it brings Python code of its own ({file.relative_to(folder)}); read it, then pass"
                " --trust-remote-code"
            )


@contextmanager
def remote_code(name: str, folder: Path) -> Iterator[None]:
    """Turn what code of a checkpoint does to the whole program into a line that names it.

    Args:
        name: what the user called the checkpoint.
        folder: that has the code.

    Raises:
        ModelError: it is no Python, or ends the program; one line names the file and the line.
    """
    try:
        yield
    except SyntaxError as error:
        at = _file_of(folder, error.filename or "") or error.filename
        raise ModelError(
            f"{name}: {at}, line {error.lineno}: no Python ({error.msg}); copy or download it again"
        ) from error
    except SystemExit as error:
        at = _place(folder, traceback.extract_tb(error.__traceback__)) or "code that it runs"
        raise ModelError(
            f"{name}: {at} ends the program (exit {error.code}); take that out, or use another checkpoint"
        ) from error


def failed_in_code(folder: Path, error: BaseException) -> str | None:
    """What code of the checkpoint raised, with its file and line; None where a library raised it."""
    at = _place(folder, traceback.extract_tb(error.__traceback__)[-1:])
    return f"{at}: {first_line(error, 300)}" if at else None


def missing_code(folder: Path, index: Mapping[str, Any]) -> str | None:
    """The first file of code that model_index.json names and the folder lacks; None where all are there.

    A class is of a library, of a module of diffusers' pipelines, or of a file beside its config.
    """
    import diffusers

    for key, value in index.items():
        if not is_component(value) or value[0] is None:
            continue
        module, of_pipeline = str(value[0]), key == "_class_name"
        library = module.partition(".")[0]
        known = hasattr(diffusers.pipelines, module) or (
            library and importlib.util.find_spec(library)
        )
        file = Path("" if of_pipeline else key, f"{module}.py")
        if (of_pipeline or not known) and not (folder / file).is_file():
            return str(file)
    return None


def _file_of(folder: Path, ran: str) -> str | None:
    """The file of a folder that a file which ran is a copy of: diffusers runs copies, in a folder of its own."""
    copy = Path(ran)
    inside = sorted(folder.rglob(copy.name)) if copy.suffix == ".py" else []
    same = [file for file in inside if copy.is_file() and file.read_bytes() == copy.read_bytes()]
    return str(same[0].relative_to(folder)) if same else None


def _place(folder: Path, frames: Sequence[traceback.FrameSummary]) -> str | None:
    """File and line of the last frame that is in code of the checkpoint."""
    for frame in reversed(frames):
        if file := _file_of(folder, frame.filename):
            return f"{file}, line {frame.lineno}"
    return None
