"""What a pipeline folder lacks although its libraries load it: components, tokenizer files, tensors, our trust."""

import ast
import inspect
import re
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from t2iprobe.errors import ModelError
from t2iprobe.models.advice import AGAIN
from t2iprobe.models.jsonfile import components, is_component, no_component, read_mapping
from t2iprobe.models.single_file import module_classes

_NOT_A_VOCABULARY = frozenset(
    {
        "README.md",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "config.json",
        "generation_config.json",
        "special_tokens_map.json",
        "tokenizer_config.json",
    }
)
"""Files of a tokenizer folder from which no tokenizer can be made."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FRESH_IN_DIFFUSERS = re.compile(
    r"checkpoint at (?P<at>.+) and are newly initialized: (?P<keys>\[.*\])"
)
_REPORT_OF_TRANSFORMERS = re.compile(r"LOAD REPORT from: (?P<at>.+)")
_ROW_OF_MISSING = re.compile(r"^(\S.*?)\s*\|\s*MISSING\b", re.MULTILINE)


def check_index(
    name: str, kind: type | None, index: Mapping[str, Any], given: Collection[str]
) -> None:
    """Refuse a model_index.json that lacks a component its class needs, or has something else in its place.

    Args:
        name: what the user called the checkpoint.
        kind: class of the pipeline; None (code of its own) is not checked.
        index: the model_index.json.
        given: components that come from elsewhere.

    Raises:
        ModelError: one is lacking, or is no pair of a library and a class.
    """
    if kind is None:
        return
    optional = getattr(kind, "_optional_components", ())
    needed = [
        parameter.name
        for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]  # type: ignore[misc]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and parameter.name not in optional
    ]
    lacking = [
        part for part in needed if isinstance(index.get(part), str | None) and part not in given
    ]
    if lacking:
        raise ModelError(
            f"model_index.json of {name} has no {' and no '.join(lacking)}, which {kind.__name__} needs; {AGAIN}"
        )
    for part in (*needed, *optional):
        if part in index and part not in given and not is_component(index[part]):
            raise ModelError(no_component(f"model_index.json of {name}", part, index[part]))


def check_configs(
    name: str, folder: Path, index: Mapping[str, Any], given: Collection[str]
) -> None:
    """Refuse a folder with a component whose config is missing or damaged, before a library guesses at it.

    Raises:
        ModelError: one is; the message names the file.
    """
    modules = module_classes(index)
    for part, value in components(index).items():
        place = folder / part
        if part in given or not place.is_dir():
            continue
        files = {file.name: file for file in place.iterdir() if file.is_file()}
        needed = "config.json" if part in modules else None
        if str(value[1]).endswith("Scheduler"):
            needed = "scheduler_config.json"
        if needed is not None and needed not in files:
            raise ModelError(f"{name}: {part}/{needed} is missing; {AGAIN}")
        for file_name, file in sorted(files.items()):
            if file_name.endswith("config.json"):
                read_mapping(file)


def check_tokenizers(
    name: str, folder: Path, index: Mapping[str, Any], given: Collection[str]
) -> None:
    """Refuse a folder without the files of a tokenizer: transformers makes an empty one without a word.

    Raises:
        ModelError: one has no folder, or nothing in it but settings.
    """
    import transformers

    for part, value in components(index).items():
        if part in given:
            continue
        kind = getattr(transformers, str(value[1]), None)
        wanted = list(getattr(kind, "vocab_files_names", None) or {})
        if "Tokenizer" not in str(value[1]) or not wanted:
            continue
        place = folder / part
        held = {file.name for file in place.iterdir()} if place.is_dir() else set()
        if held <= _NOT_A_VOCABULARY:
            files = sorted(kind.vocab_files_names.values())  # type: ignore[union-attr]
            what = f"{part}/ has no vocabulary" if place.is_dir() else f"{part}/ is missing"
            raise ModelError(f"{name}: {what} ({' or '.join(files)}); {AGAIN}")


def check_code(name: str, folder: Path, index: Mapping[str, Any]) -> None:
    """Refuse a folder that brings Python code: diffusers 0.36 runs that of a local folder unasked.

    Args:
        name: what the user called the checkpoint.
        folder: of the pipeline.
        index: its model_index.json, in which a class is a pair of a module and a name.

    Raises:
        ModelError: a module that the index names is a file of the folder.
    """
    for key, value in index.items():
        if isinstance(value, list) and value and isinstance(value[0], str):
            file = (folder if key == "_class_name" else folder / key) / f"{value[0]}.py"
            if file.is_file():
                raise ModelError(
                    f"{name}: it brings Python code of its own ({file.relative_to(folder)}); read it, then pass"
                    " --trust-remote-code"
                )


def check_weights(name: str, pipe: Any, heard: list[str]) -> None:
    """Refuse a pipeline with tensors that its files lack: left without values, or drawn at random.

    Args:
        name: what the user called the checkpoint.
        pipe: the pipeline as it was loaded.
        heard: what the libraries said meanwhile.

    Raises:
        ModelError: there are such tensors; one line names the component, how many, and the first of them.
    """
    drawn = _drawn_at_random(heard)
    for part, module in getattr(pipe, "components", {}).items():
        if not isinstance(module, nn.Module):
            continue
        tensors = chain(module.named_parameters(), module.named_buffers())
        empty = [key for key, tensor in tensors if _is_empty(tensor)]
        unused = _output_layer(module)
        lacking = empty or [
            key for key in drawn.get(part, []) if unused is None or not key.startswith(unused)
        ]
        # Weights that accelerate has put on disk are on the meta device too, and not lacking.
        if lacking and getattr(module, "hf_device_map", None) is None:
            raise ModelError(
                f"{name}: the weights of its {part} lack {_count(lacking)} tensors of {type(module).__name__}, such as"
                f" {', '.join(lacking[:3])}; {AGAIN}"
            )


def _is_empty(tensor: Tensor) -> bool:
    """Whether a tensor has no values. A quantised one may say so of itself while the tensors inside it have theirs."""
    if is_traceable_wrapper_subclass(tensor):
        return any(_is_empty(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return bool(tensor.is_meta)


def _drawn_at_random(heard: list[str]) -> dict[str, list[str]]:
    """Component -> tensors that were not in its files, as the warnings of the two libraries tell."""
    found: dict[str, list[str]] = {}
    for line in heard:
        text = _COLOURS.sub("", line)
        if fresh := _FRESH_IN_DIFFUSERS.search(text):
            found[Path(fresh["at"]).name] = sorted(ast.literal_eval(fresh["keys"]))
        elif report := _REPORT_OF_TRANSFORMERS.search(text):
            found[Path(report["at"].strip()).name] = _ROW_OF_MISSING.findall(text)
    return found


def _output_layer(module: nn.Module) -> str | None:
    """Path of the layer that turns states into words: no pipeline uses it, and some checkpoints leave it out."""
    getter = getattr(module, "get_output_embeddings", None)
    layer = getter() if getter is not None else None
    return next((path for path, m in module.named_modules() if m is layer), None)


def _count(keys: list[str]) -> int:
    """How many tensors are meant: transformers writes `layers.{0, 1}.weight` and `layers.{0...11}.weight`."""
    total = 0
    for key in keys:
        number = 1
        for inside in re.findall(r"\{([^}]*)\}", key):
            first, dots, last = inside.partition("...")
            number *= int(last) - int(first) + 1 if dots else inside.count(",") + 1
        total += number
    return total
