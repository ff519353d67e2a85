"""What a model's name can be: a zoo name, a folder, or a hub id. Told without any heavy library."""

import re
from difflib import get_close_matches
from pathlib import Path

from t2iprobe.errors import ModelError
from t2iprobe.models import zoo

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
    if name and path.is_dir():
        return path
    if name and path.is_file():
        from t2iprobe.models.checkpoint.single_file import how_to_load, pipeline_around

        folder = pipeline_around(path)
        if folder is None:
            raise ModelError(how_to_load(path))
        return folder
    if _HUB_ID.fullmatch(name) and ".." not in name and "--" not in name:
        return None
    folders = [str(p) for p in path.parent.iterdir() if p.is_dir()] if path.parent.is_dir() else []
    near = get_close_matches(name, [*zoo.names(), *folders], n=3, cutoff=0.5)
    hint = f" did you mean {' or '.join(near)}?" if near else ""
    raise ModelError(
        f"unknown model {name!r}:{hint} Use a zoo name (`t2iprobe models` lists them), a folder, or a hub id such as"
        " owner/name"
    )
