"""Fetching a checkpoint from the hub, with one clear line for each way it can fail."""

import errno
import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from t2iprobe.errors import ModelError, first_line
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.index import components, read_mapping
from t2iprobe.models.settings import LoadSettings

ASK_ABOVE = 10e9
"""Bytes of a download above which consent is needed."""


def fetch(name: str, settings: LoadSettings, without: Collection[str] = ()) -> Path:
    """The local snapshot of a hub repository.

    Args:
        name: owner/name.
        settings: revision, variant, consent.
        without: components whose weights are not needed.

    Raises:
        ModelError: gated, absent, offline, bad token, half a cache, or no space; each has its own line.
    """
    import diffusers

    local = settings.local or _offline()
    try:
        if not local:
            _announce(name, settings, without)
        with foreign(f"the download of {name}"):
            path = diffusers.DiffusionPipeline.download(
                name,
                revision=settings.revision,
                variant=settings.variant,
                local_files_only=local,
                trust_remote_code=settings.trust_remote_code,
                **dict.fromkeys(without),
            )
    except ForeignError as failure:
        raise ModelError(_advice(name, settings, failure.error)) from failure
    missing = [file for file in missing_files(Path(path)) if file.split("/")[0] not in without]
    if missing:
        raise ModelError(
            f"{name} is only partly in the cache, {missing[0]} is missing; run once with the hub in reach"
        )
    return Path(path)


CONFIGS = ("*.json", "*.txt", "*.model", "*.jinja")
"""Files of a repository that say what a pipeline is: configs, tokenizers, indices of weight shards."""


def fetch_configs(name: str, settings: LoadSettings) -> Path:
    """The local snapshot of a hub repository with its configs and tokenizers; no weight file is asked for.

    Raises:
        ModelError: gated, absent, offline, bad token, or not in the cache; each has its own line.
    """
    from huggingface_hub import snapshot_download

    patterns = [*CONFIGS, "*.py"] if settings.trust_remote_code else list(CONFIGS)
    try:
        with foreign(f"the download of {name}"):
            path = snapshot_download(
                name,
                revision=settings.revision,
                allow_patterns=patterns,
                local_files_only=settings.local or _offline(),
            )
    except ForeignError as failure:
        raise ModelError(_advice(name, settings, failure.error)) from failure
    return Path(path)


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _announce(name: str, settings: LoadSettings, without: Collection[str]) -> None:
    """Say what will be downloaded, to where, and what space there is; big downloads need --yes.

    Raises:
        ModelError: no space, or no consent.
    """
    from huggingface_hub import HfApi, constants, try_to_load_from_cache

    with foreign(f"asking the hub for {name}"):
        info: Any = HfApi().model_info(name, revision=settings.revision, files_metadata=True)
    files = [
        (str(f.rfilename), int(f.size or 0))
        for f in info.siblings or []
        if str(f.rfilename).split("/")[0] not in without
        and not isinstance(try_to_load_from_cache(name, f.rfilename, revision=info.sha), str)
    ]
    size = planned_bytes(files, settings.variant)
    target = Path(constants.HF_HUB_CACHE)
    at = next(p for p in (target, *target.parents) if p.exists())
    free = shutil.disk_usage(at).free
    line = f"{name}: {_gigabytes(size)} to download to {target}, {_gigabytes(free)} free"
    if size > free:
        raise ModelError(f"{line}; make room or set HF_HOME to another disk")
    if size > ASK_ABOVE and not settings.yes:
        raise ModelError(f"{line}; pass --yes to download that much")
    if size:
        print(line)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def planned_bytes(files: list[tuple[str, int]], variant: str | None) -> int:
    """Bytes a pipeline download takes: safetensors where there are any, of the variant where it is asked for.

    Args:
        files: (path in the repository, bytes).
        variant: e.g. fp16; None takes the plain files.
    """
    by_folder: dict[str, list[tuple[str, int]]] = {}
    for path, size in files:
        folder, _, file = path.rpartition("/")
        by_folder.setdefault(folder, []).append((file, size))
    total = 0
    for folder, inside in by_folder.items():
        weights = [(f, s) for f, s in inside if f.endswith((".safetensors", ".bin"))]
        if folder == "":  # a single-file copy beside the pipeline is not fetched
            total += sum(s for f, s in inside if not f.endswith((".safetensors", ".bin", ".ckpt")))
            continue
        safe = [(f, s) for f, s in weights if f.endswith(".safetensors")] or weights
        own = [(f, s) for f, s in safe if variant and f".{variant}." in f"{f}"]
        plain = [(f, s) for f, s in safe if f.count(".") == 1]
        total += sum(s for _, s in own or plain or safe)
        total += sum(s for f, s in inside if f.endswith((".json", ".txt", ".model")))
    return total


def _advice(name: str, settings: LoadSettings, error: Exception) -> str:
    """One line: what is wrong and what to do. The token is never in it."""
    from huggingface_hub import errors

    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    status = next(
        (
            code
            for e in chain
            if (code := getattr(getattr(e, "response", None), "status_code", None)) is not None
        ),
        None,
    )

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(e, kinds) for e in chain)

    if has(errors.HFValidationError):
        return f"unknown model {name!r}: not a zoo name, a folder or a hub id (owner/name)"
    if any(getattr(e, "errno", None) == errno.ENOSPC or "No space left" in str(e) for e in chain):
        return f"{name}: the disk is full; make room or set HF_HOME to another disk, then run the same command"
    if has(errors.GatedRepoError):
        return f"{name} is gated; ask for access at https://huggingface.co/{name} and set HF_TOKEN to one that has it"
    if has(errors.RevisionNotFoundError):
        return f"{name} has no revision {settings.revision!r}; leave --revision out or name an existing one"
    if has(errors.EntryNotFoundError) and not has(errors.LocalEntryNotFoundError):
        return (
            f"{name} has no model_index.json, as modular pipelines and collections of weights have none; give the id of"
            " a whole diffusers pipeline"
        )
    if has(errors.RepositoryNotFoundError) or status == 404:
        return f"{name} is not on the hub, or it is private; check the spelling, or set HF_TOKEN"
    if status == 401 and _has_token():
        return "the hub refused the token in HF_TOKEN; log in again or unset it"
    local = settings.local or _offline()
    of_hub = any(
        isinstance(e, OSError) or type(e).__module__.startswith("huggingface_hub") for e in chain
    )
    if (local and (of_hub or isinstance(error, ValueError))) or (status is None and of_hub):
        half = _half_cached(name)
        if half:
            return f"{name} is only partly in the cache, {half} is missing; run once with the hub in reach"
        how = " and ".join(_kept_offline(settings)) if local else "check the network"
        return f"{name} is neither a folder here nor in the local cache, and the hub cannot be asked; {how}"
    return f"{name} cannot be fetched from the hub: {first_line(error)}"


def _kept_offline(settings: LoadSettings) -> list[str]:
    """What to undo so that the hub is asked: only what is really set."""
    found = [
        f"unset {name}"
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        if os.environ.get(name)
    ]
    if settings.local:
        found.append("leave --local out")
    return found or ["unset HF_HUB_OFFLINE"]


def _has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


_SHARD = re.compile(r"(?P<stem>.+)-\d+-of-\d+(?P<ending>\.safetensors|\.bin)")


def missing_files(folder: Path) -> list[str]:
    """Component folders, weight shards and lists of shards that a pipeline folder should have and has not.

    Raises:
        ModelError: a JSON file that says what should be there is damaged.
    """
    file = folder / "model_index.json"
    if not file.is_file():
        return ["model_index.json"]
    missing = [
        f"{name}/"
        for name, value in components(read_mapping(file)).items()
        if value[0] and not (folder / name).is_dir()
    ]
    for index in folder.glob("*/*.index*.json"):
        names = read_mapping(index).get("weight_map")
        if not isinstance(names, dict):
            raise ModelError(f"{index} lists no shards (weight_map); copy or download it again")
        missing += [
            f"{index.parent.name}/{shard}"
            for shard in sorted(set(map(str, names.values())))
            if not (index.parent / shard).is_file()
        ]
    for config in folder.glob("*/config.json"):
        missing += _missing_weights(config.parent)
    return missing


def _missing_weights(part: Path) -> list[str]:
    """What a component with a config lacks: all its weights, or the list of its shards."""
    weights = [p for p in part.iterdir() if p.suffix in (".safetensors", ".bin") and p.is_file()]
    if any(part.glob("*.index*.json")):
        return []
    shards = [shard for p in weights if (shard := _SHARD.fullmatch(p.name))]
    if shards and len(shards) == len(weights):
        return [f"{part.name}/{shards[0]['stem']}{shards[0]['ending']}.index.json"]
    return [] if weights else [f"{part.name}/*.safetensors"]


def _half_cached(name: str) -> str | None:
    """A file that a cached repository lacks; None when nothing of it is cached or all of it is."""
    from huggingface_hub import try_to_load_from_cache

    index = try_to_load_from_cache(name, "model_index.json")
    missing = missing_files(Path(index).parent) if isinstance(index, str) else []
    return missing[0] if missing else None
