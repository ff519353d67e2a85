"""Why a pipeline folder cannot be loaded, in one line: what the folder shows, else what a library says."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from t2iprobe.errors import ModelError, first_line
from t2iprobe.models.hub import missing_files
from t2iprobe.models.identity import quantisation
from t2iprobe.models.jsonfile import components, read_mapping
from t2iprobe.models.mistyped import mistyped
from t2iprobe.models.owncode import failed_in_code, missing_code
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.single_file import component_class, header

AGAIN = "copy or download the whole folder again"

_OTHER_SIZE = re.compile(
    r"(?P<key>\S+) expected shape .*?\[(?P<own>[^\]]*)\].*? got .*?\[(?P<file>[^\]]*)\]"
)
"""How diffusers says that a tensor has another size than its config tells."""

_ROW_OF_OTHER_SIZE = re.compile(r"^(?P<key>\S.*?)\s*\|\s*MISMATCH\b", re.MULTILINE)
"""The same in the report of transformers."""


def library_needed(error: ImportError | NameError) -> str:
    """What to install, as an error of a library that misses another one says it."""
    if error.name:
        return f"{error.name} is not installed; pip install {error.name}"
    return first_line(error, 300)


def why_not_loaded(
    folder: Path,
    index: Mapping[str, Any],
    settings: LoadSettings,
    error: Exception,
    heard: Sequence[str],
) -> str:
    """Why a folder cannot be loaded and what to do, in one line.

    Args:
        folder: the pipeline folder.
        index: its model_index.json.
        settings: how it was to be loaded.
        error: what diffusers or transformers raised.
        heard: what they said meanwhile.
    """
    import diffusers

    text = first_line(error, 300)
    if code := missing_code(folder, index):
        return f"{code}, Python code of its own, is missing; {AGAIN}"
    custom = "custom code" in str(error) or "trust_remote_code" in str(error)
    if custom and not settings.trust_remote_code and any(folder.rglob("*.py")):
        return "it brings Python code of its own; read it, then pass --trust-remote-code"
    if failed := failed_in_code(folder, error):
        return failed
    kind = index["_class_name"]
    if isinstance(kind, str) and not hasattr(diffusers, kind):
        return f"diffusers {diffusers.__version__} has no pipeline class {kind}{_versions(index)}; update diffusers"
    loading = _loading(index, error)
    wrong = loading and mistyped(folder / loading, component_class(index[loading]))
    if isinstance(error, AttributeError) or "has no class" in text or "has no attribute" in text:
        part = f"its {loading} ({index[loading][-1]}): " if loading else ""
        return _component(loading, index, wrong) if wrong else f"{part}{text}{_versions(index)}"
    missing = missing_files(folder)
    if missing:
        return f"{missing[0]} is missing ({len(missing)} in all); {AGAIN}"
    return (
        _damaged(folder)
        or _quantised(folder, text)
        or _other_variant(folder, settings)
        or _other_sizes(text, heard)
        or _component(loading, index, wrong or text)
    )


def _component(loading: str | None, index: Mapping[str, Any], why: str) -> str:
    if loading is None:
        return why
    return f"its {loading} ({index[loading][-1]}) cannot be loaded: {why}; {AGAIN}"


def _loading(index: Mapping[str, Any], error: BaseException) -> str | None:
    """The component that was being loaded, which diffusers does not say but its frames know."""
    loading = None
    cause: BaseException | None = error
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            name = trace.tb_frame.f_locals.get("name")
            if isinstance(name, str) and name in components(index):
                loading = name
            trace = trace.tb_next
        cause = cause.__cause__
    return loading


def _versions(index: Mapping[str, Any]) -> str:
    """Which diffusers wrote the folder and which reads it, where they differ."""
    import diffusers

    wanted, here = str(index.get("_diffusers_version", "unknown")), diffusers.__version__
    return "" if wanted == here else f"; it was written by diffusers {wanted}, installed is {here}"


def _damaged(folder: Path) -> str | None:
    """The first file of a component that is no JSON or no safetensors file although it is called so."""
    for file in sorted(folder.glob("*/*")):
        try:
            if file.suffix == ".json":
                read_mapping(file)
            elif file.suffix == ".safetensors":
                header(file)
        except ModelError as broken:
            return str(broken).removeprefix(f"{folder}/")
    return None


def _quantised(folder: Path, text: str) -> str | None:
    """That a component is quantised in a way which this machine cannot run."""
    for config in sorted(folder.glob("*/config.json")):
        method = quantisation(read_mapping(config))
        if method:
            return (
                f"its {config.parent.name} is quantised with {method}: {text[:200]}; use a machine that {method} runs"
                " on, or a checkpoint that is not quantised"
            )
    return None


def _other_variant(folder: Path, settings: LoadSettings) -> str | None:
    """That the weights are there under another variant than the one asked for."""
    plain: dict[str, bool] = {}
    variants: set[str] = set()
    for file in folder.glob("*/*.safetensors"):
        middle = [part for part in file.name.split(".")[1:-1] if "-of-" not in part]
        plain[file.parent.name] = plain.get(file.parent.name, False) or not middle
        variants.update(middle)
    instead = [f"pass --variant {name}" for name in sorted(variants)]
    if settings.variant is not None and settings.variant not in variants:
        if all(plain.values()):
            instead.append("leave --variant out")
        return f"its weights have no variant {settings.variant}; {' or '.join(instead)}"
    if settings.variant is None and not all(plain.values()) and variants:
        return f"its weights are saved as variant {' or '.join(sorted(variants))}; {' or '.join(instead)}"
    return None


def _other_sizes(text: str, heard: Sequence[str]) -> str | None:
    """That a tensor has another size than the config of its component tells."""
    key = own = None
    if found := _OTHER_SIZE.search(text):
        key, own = found["key"], f" ({found['file']} in the file, {found['own']} by the config)"
    elif rows := _ROW_OF_OTHER_SIZE.findall("\n".join(heard)):
        key, own = rows[0], ""
    if key is None:
        return None
    return f"the size of {key} is not what its config tells{own}; {AGAIN}"
