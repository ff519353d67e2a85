"""What is wrong with a pipeline folder: checked before it is loaded, or once loading has failed, in its own files."""

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from t2iprobe.errors import MissingExtra, ModelError, T2IProbeError, first_line
from t2iprobe.models.classes import component_class, library_class, module_classes
from t2iprobe.models.foreign import ForeignError, foreign, missing_library
from t2iprobe.models.hub import missing_files
from t2iprobe.models.identity import quantisation
from t2iprobe.models.index import components, is_component, no_component, read_mapping
from t2iprobe.models.log_filters import overheard
from t2iprobe.models.remote_code import failed_in_code, missing_code
from t2iprobe.models.settings import LoadSettings
from t2iprobe.models.single_file import header

AGAIN = "copy or download the whole folder again"

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


def check_index(
    name: str, pipeline: type | None, index: Mapping[str, Any], given: Collection[str]
) -> None:
    """Refuse a model_index.json that lacks a component its class needs, or has something else in its place.

    Args:
        name: what the user called the checkpoint.
        pipeline: its class; None (code of its own) is not checked.
        index: the model_index.json.
        given: components that come from elsewhere.

    Raises:
        ModelError: one is lacking, or is no pair of a library and a class.
    """
    if pipeline is None:
        return
    optional = getattr(pipeline, "_optional_components", ())
    needed = [
        parameter.name
        for parameter in list(inspect.signature(pipeline.__init__).parameters.values())[1:]  # type: ignore[misc]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and parameter.name not in optional
    ]
    lacking = [
        part for part in needed if isinstance(index.get(part), str | None) and part not in given
    ]
    if lacking:
        raise ModelError(
            f"model_index.json of {name} has no {' and no '.join(lacking)}, which {pipeline.__name__} needs; {AGAIN}"
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
    for part, (_, kind_name) in components(index).items():
        if part in given or "Tokenizer" not in str(kind_name):
            continue
        kind = library_class("transformers", kind_name)
        files = sorted((getattr(kind, "vocab_files_names", None) or {}).values())
        place = folder / part
        held = {file.name for file in place.iterdir()} if place.is_dir() else set()
        if files and held <= _NOT_A_VOCABULARY:
            what = f"{part}/ has no vocabulary" if place.is_dir() else f"{part}/ is missing"
            raise ModelError(f"{name}: {what} ({' or '.join(files)}); {AGAIN}")


def check_weights(name: str, folder: Path, pipe: Any, logged: Sequence[str]) -> None:
    """Refuse a pipeline with tensors that its files lack: left without values, or drawn at random.

    Args:
        name: what the user called the checkpoint.
        folder: that it was loaded from.
        pipe: the pipeline as it was loaded.
        logged: what the libraries said meanwhile; the files are read again only where they say that weights are new.

    Raises:
        ModelError: there are such tensors; one line names the component, how many, and the first of them.
    """
    drawn = any("newly initialized" in line or "MISSING" in line for line in logged)
    for part, module in getattr(pipe, "components", {}).items():
        # Weights that accelerate has put on disk are on the meta device too, and not lacking.
        if not isinstance(module, nn.Module) or getattr(module, "hf_device_map", None) is not None:
            continue
        tensors = chain(module.named_parameters(), module.named_buffers())
        lacking = [key for key, tensor in tensors if _is_empty(tensor)]
        if not lacking and drawn:
            lacking = _not_in_files(folder / part, module)
        if lacking:
            raise ModelError(
                f"{name}: the weights of its {part} lack {len(lacking)} tensors of {type(module).__name__}, such as"
                f" {', '.join(lacking[:3])}; {AGAIN}"
            )


def _is_empty(tensor: Tensor) -> bool:
    """Whether a tensor has no values. A quantised one may say so of itself while the tensors inside it have theirs."""
    if is_traceable_wrapper_subclass(tensor):
        return any(_is_empty(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return bool(tensor.is_meta)


def _not_in_files(place: Path, module: nn.Module) -> list[str]:
    """Weights of a module that no file of its folder has, under any of the names that tied weights go by.

    The output layer, which turns states into words, is left out: no pipeline uses it, some checkpoints do without.
    """
    held = Tensors(place)
    getter = getattr(module, "get_output_embeddings", None)
    unused = None if getter is None else getattr(getter(), "weight", None)
    names: dict[int, list[str]] = {}
    for key, weight in module.named_parameters(remove_duplicate=False):
        if weight is not unused:
            names.setdefault(id(weight), []).append(key)
    if not held.shapes:
        return []
    return [keys[0] for keys in names.values() if not any(held.names(key) for key in keys)]


class Tensors:
    """Names and shapes of the tensors in the weight files of a component.

    Raises:
        ModelError: a file is damaged.
    """

    def __init__(self, place: Path) -> None:
        files = sorted(place.glob("*.safetensors")) or sorted(place.glob("*.bin"))
        self.shapes = {key: shape for file in files for key, shape in _shapes(file).items()}
        self._tails: dict[str, list[str]] = {}
        for key in self.shapes:
            for tail in _tails(key):
                self._tails.setdefault(tail, []).append(key)

    def names(self, key: str) -> list[str]:
        """What the files may call a module's tensor: levels that a library adds to or drops from a name may differ.

        transformers 5 calls a layer `encoder.layers.0` that the files of CLIP have as `text_model.encoder.layers.0`.
        """
        if key in self.shapes:
            return [key]
        return self._tails.get(key, []) or [tail for tail in _tails(key) if tail in self.shapes]


def _tails(key: str) -> list[str]:
    """A dotted name, and what is left of it when levels are taken off its front; two levels at least."""
    levels = key.split(".")
    return [".".join(levels[first:]) for first in range(max(len(levels) - 1, 1))]


def _shapes(file: Path) -> dict[str, torch.Size]:
    """Names and shapes of the tensors in a weight file; no code in it runs.

    Raises:
        ModelError: it is damaged.
    """
    if file.suffix == ".safetensors":
        return header(file)
    try:
        with foreign(f"torch.load of {file.name}"):
            held = torch.load(file, map_location="meta", weights_only=True)
    except ForeignError as failure:
        raise ModelError(
            f"{file} is no file of tensors alone, as torch.save writes them; {AGAIN}"
        ) from failure
    return {key: tensor.shape for key, tensor in held.items() if isinstance(tensor, Tensor)}


def explain_loading(
    name: str, folder: Path, index: Mapping[str, Any], settings: LoadSettings, error: Exception
) -> T2IProbeError:
    """One line on why a folder could not be loaded: what its files show, else the error's own first line.

    Args:
        name: what the user called the checkpoint.
        folder: the pipeline folder.
        index: its model_index.json.
        settings: how it was to be loaded.
        error: what diffusers or transformers raised.
    """
    failed = failed_in_code(folder, error)
    library = None if failed else missing_library(error)
    if library:
        return MissingExtra(
            f"{name} needs {library}, which is not installed; pip install {library}"
        )
    with overheard():
        reason = failed or next(_reasons(folder, index, settings, error))
    return ModelError(f"{name}: {reason}")


def _reasons(
    folder: Path, index: Mapping[str, Any], settings: LoadSettings, error: Exception
) -> Iterator[str]:
    """What is wrong with a folder, the surest first; at the end what the library said."""
    import diffusers

    if code := missing_code(folder, index):
        yield f"{code}, Python code of its own, is missing; {AGAIN}"
    trusted = settings.trust_remote_code or "trust_remote_code" not in str(error)
    if not trusted and any(folder.rglob("*.py")):
        yield "it brings Python code of its own; read it, then pass --trust-remote-code"
    pipeline = index["_class_name"]
    declared = pipeline in dir(diffusers)  # it may fail to be imported all the same
    if isinstance(pipeline, str) and not declared and library_class("diffusers", pipeline) is None:
        yield (
            f"diffusers {diffusers.__version__} has no pipeline class {pipeline}{_versions(index)}; update diffusers"
        )
    missing = missing_files(folder)
    if missing:
        yield f"{missing[0]} is missing ({len(missing)} in all); {AGAIN}"
    yield from _damaged(folder)
    yield from _quantised(folder, first_line(error))
    yield from _other_variant(folder, settings)
    for part, (library, kind_name) in components(index).items():
        if library is not None and (folder / part).is_dir():
            yield from _faulty(folder / part, library, kind_name, _versions(index))
    yield f"diffusers cannot load it: {first_line(error, 300)}{_versions(index)}"


def _versions(index: Mapping[str, Any]) -> str:
    """Which diffusers wrote the folder and which reads it, where they differ."""
    import diffusers

    wanted, here = str(index.get("_diffusers_version", "unknown")), diffusers.__version__
    return "" if wanted == here else f"; it was written by diffusers {wanted}, installed is {here}"


def _damaged(folder: Path) -> Iterator[str]:
    """Files of components that are no JSON or no weights although they are called so."""
    for file in sorted(folder.glob("*/*")):
        try:
            if file.suffix == ".json":
                read_mapping(file)
            elif file.suffix in (".safetensors", ".bin"):
                _shapes(file)
        except ModelError as broken:
            yield str(broken).removeprefix(f"{folder}/")


def _quantised(folder: Path, text: str) -> Iterator[str]:
    """Components that are quantised, which not every machine can run."""
    for config in sorted(folder.glob("*/config.json")):
        method = quantisation(read_mapping(config))
        if method:
            yield (
                f"its {config.parent.name} is quantised with {method}: {text}; use a machine that {method} runs"
                " on, or a checkpoint that is not quantised"
            )


def _other_variant(folder: Path, settings: LoadSettings) -> Iterator[str]:
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
        yield f"its weights have no variant {settings.variant}; {' or '.join(instead)}"
    if settings.variant is None and not all(plain.values()) and variants:
        yield f"its weights are saved as variant {' or '.join(sorted(variants))}; {' or '.join(instead)}"


def _faulty(place: Path, library: str, kind_name: str, versions: str) -> Iterator[str]:
    """What is wrong with a component: it is made alone, a module without its weights, and compared with its files."""
    part = f"its {place.name} ({kind_name})"
    kind = component_class(place, library, kind_name)
    if kind is None:
        yield f"{library} has no class {kind_name}, which {place.name} is of{versions}"
        return
    config_file, make = _maker(kind, place)
    config = read_mapping(config_file) if config_file.is_file() else {}
    try:
        made = make(config)
    except ForeignError as failure:
        guilty = next((key for key in config if _can_be_made(make, config, key)), None)
        why = first_line(failure.error, 300)
        if guilty is not None:
            value = json.dumps(config[guilty])[:60]
            why = f"{guilty} in its {config_file.name} is {value}, without which it can be made: {why}"
        yield f"{part} cannot be made from its files: {why}; {AGAIN}"
        return
    if not isinstance(made, nn.Module):
        return
    held = Tensors(place)
    for key, tensor in made.state_dict().items():
        shapes = [held.shapes[name] for name in held.names(key)]
        if shapes and tensor.shape not in shapes:
            sizes = f"{_numbers(shapes[0])} in the file, {_numbers(tensor.shape)} by the config"
            yield f"{part}: the size of {key} is not what its config tells ({sizes}); {AGAIN}"
            return


def _maker(kind: Any, place: Path) -> tuple[Path, Callable[[Mapping[str, Any]], Any]]:
    """The config of a component, and what makes one of such settings: modules without weights, the rest whole."""

    def make(config: Mapping[str, Any]) -> Any:
        with foreign(f"making {kind.__name__}"), torch.device("meta"):
            if hasattr(kind, "from_config") and hasattr(kind, "config_name"):
                return kind.from_config(dict(config))
            if issubclass(kind, nn.Module) and hasattr(kind, "config_class"):
                return kind(kind.config_class.from_dict(dict(config)))
            return kind.from_pretrained(place, local_files_only=True)

    return place / str(getattr(kind, "config_name", "config.json")), make


def _can_be_made(
    make: Callable[[Mapping[str, Any]], Any], config: Mapping[str, Any], without: str
) -> bool:
    """Whether a component can be made when one setting of its config is the default of its class."""
    try:
        make({key: value for key, value in config.items() if key != without})
    except ForeignError:
        return False
    return True


def _numbers(shape: torch.Size) -> str:
    return ", ".join(map(str, shape))
