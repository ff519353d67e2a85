"""What a model's name can be: a zoo name, a folder, or a hub id. Told without any heavy library."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

from t2iprobe.errors import ModelError
from t2iprobe.models import zoo

_ADDRESS = re.compile(r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<id>[^/?#]+/[^/?#]+)")

# An owner and a name of letters, digits, '-', '_' and '.'; the hub allows no more.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)


def local_folder(name: str) -> Path | None:
    """The folder of a zoo model, of a local pipeline, or around a weight file; None for a hub id.

    Raises:
        ModelError: the name is none of the three; near zoo models and folders are named.
    """
    if name in zoo.names():
        return zoo.path(name)
    path = Path(name).expanduser()
    if name and _is(path.is_dir):
        return path
    if name and _is(path.is_file):
        from t2iprobe.models.single_file import how_to_load, pipeline_around

        folder = pipeline_around(path)
        if folder is None:
            raise ModelError(how_to_load(path))
        return folder
    if _HUB_ID.fullmatch(name) and ".." not in name and "--" not in name:
        return None
    near = _near(name, path)
    hint = f" did you mean {' or '.join(near)}?" if near else ""
    raise ModelError(
        f"unknown model {name!r}:{hint} Use a zoo name (`t2iprobe models` lists them), a folder, or a hub id such as"
        " owner/name"
    )


def _is(question: Callable[[], bool]) -> bool:
    """The answer of a path about itself; no for one that no file system takes, such as a very long one."""
    try:
        return question()
    except OSError:
        return False


def _near(name: str, path: Path) -> list[str]:
    """What may have been meant: the hub id in an address, else zoo models and folders with a name like it."""
    address = _ADDRESS.match(name)
    if address:
        return [address["id"]]
    beside = path.parent.iterdir() if _is(path.parent.is_dir) else ()
    known = {n.lower(): n for n in (*zoo.names(), *(str(p) for p in beside if p.is_dir()))}
    return [known[n] for n in get_close_matches(name.lower(), known, n=3, cutoff=0.5)]
