"""A loaded pipeline with its parts by role: denoisers, text encoders, tokenizers, and how it is called.

Roles are read from structure, not from class names: a denoiser is a component whose forward takes a timestep, a text
encoder is a transformers model with a token embedding.
"""

import inspect
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import nn

from t2iprobe.models.arguments import call_names
from t2iprobe.models.cards import Card
from t2iprobe.models.foreign import ForeignError, foreign
from t2iprobe.models.hooks import find_module, unwrap
from t2iprobe.models.schedulers import put_scheduler
from t2iprobe.models.sites import denoiser_blocks

# What denoisers of diffusers call the noise level they are given, most specific first.
TIMESTEP_NAMES = (
    "timestep",
    "timesteps",
    "timestep_ratio",
    "t",
    "r",
    "sigma",
    "sigmas",
    "noise_level",
)

SCHEDULER = "scheduler"
"""Name of the component that --scheduler replaces."""

_LEVEL_WORDS = ("time", "sigma", "noise")


def forward_names(module: nn.Module) -> list[str]:
    """The parameter names of a module's forward, in order, without `self` and without the `**kwargs` catch-all."""
    parameters = inspect.signature(unwrap(module).forward).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def timestep_name(module: nn.Module) -> str | None:
    """The forward argument that holds the noise level; None when the module takes none.

    A denoiser that is not of diffusers may call it otherwise ("time", "noise_labels"): then the first argument whose
    name speaks of it.
    """
    names = forward_names(module)
    known = next((name for name in TIMESTEP_NAMES if name in names), None)
    return known or next((n for n in names if any(word in n for word in _LEVEL_WORDS)), None)


def token_embedding(module: nn.Module) -> nn.Embedding | None:
    """The embedding that a transformers model declares for its token ids; None for other modules."""
    getter = getattr(module, "get_input_embeddings", None)
    if getter is None:
        return None
    try:
        with foreign(f"{type(module).__name__}.get_input_embeddings"):
            embedding = getter()
    except ForeignError:
        return None
    return embedding if isinstance(embedding, nn.Embedding) else None


def word_table(module: nn.Module) -> nn.Embedding | None:
    """The embedding that takes a text encoder's token ids: the declared one, else the largest; None without any."""
    tables = [child for child in module.modules() if isinstance(child, nn.Embedding)]
    return token_embedding(module) or max(tables, key=lambda t: t.num_embeddings, default=None)


def _is_codec(module: nn.Module) -> bool:
    """Whether a module turns latents into pictures."""
    return hasattr(module, "decode")


@dataclass(eq=False)
class Model:
    """A text-to-image pipeline, ready to be called.

    Attributes:
        name: what the user called it.
        pipe: the diffusers pipeline.
        call: arguments of every call, in the pipeline's own names; prompt, generator and output type excluded.
        provenance: revision, weight hash, dtype, device, scheduler: what a run folder has to remember.
        card: the model card of a zoo folder; None where there is none.
        given: what the user set of the call, or of the scheduler, as it was typed; by argument or component name.
        unset: what the call and the scheduler would be without; by the same names, where it is not the default.
    """

    name: str
    pipe: Any
    call: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    card: Card | None = None
    given: dict[str, str] = field(default_factory=dict)
    unset: dict[str, Any] = field(default_factory=dict)
    _found: dict[tuple[str, str], nn.Module] = field(default_factory=dict, repr=False)

    @property
    def class_name(self) -> str:
        """Class of the pipeline."""
        return type(self.pipe).__name__

    @cached_property
    def call_names(self) -> list[str]:
        """The parameter names of the pipeline's call."""
        return call_names(type(self.pipe))

    @contextmanager
    def without(self, names: Set[str]) -> Iterator[None]:
        """The model as it would be without some of the settings in `given`, while the block is open."""
        call = self.call
        other = {name: self.unset[name] for name in names if name in self.unset}
        scheduler = other.pop(SCHEDULER, None)
        self.call = {name: value for name, value in call.items() if name not in names} | other
        before = None if scheduler is None else put_scheduler(self.pipe, scheduler)
        try:
            yield
        finally:
            self.call = call
            if before is not None:
                put_scheduler(self.pipe, before)

    @cached_property
    def modules(self) -> dict[str, nn.Module]:
        """Every component that is a module, by its name in the pipeline, unwrapped.

        What a pipeline's class may be made without is registered like the rest, but no entry of `components`.
        """
        parts = dict(getattr(self.pipe, "components", {}))
        for name in getattr(self.pipe, "config", {}):
            parts.setdefault(name, vars(self.pipe).get(name))
        return {name: unwrap(part) for name, part in parts.items() if isinstance(part, nn.Module)}

    @cached_property
    def encoders(self) -> dict[str, nn.Module]:
        """Text encoders by component name. One object under two names is kept once."""
        found: dict[str, nn.Module] = {}
        for name, module in self.modules.items():
            seen = any(module is other for other in found.values())
            if self._reads_words(module) and not seen:
                found[name] = module
        return found

    def _reads_words(self, module: nn.Module) -> bool:
        """Whether a module declares a token embedding, or has one for a tokenizer's whole vocabulary."""
        if token_embedding(module) is not None:
            return True
        table = word_table(module)
        sees = "pixel_values" in forward_names(module)  # its table numbers patches
        if table is None or sees or _is_codec(module) or timestep_name(module) is not None:
            return False
        sizes = [len(t) for t in self._tokenizers.values() if hasattr(t, "__len__")]
        return bool(sizes) and table.num_embeddings >= min(sizes)

    @cached_property
    def denoisers(self) -> dict[str, nn.Module]:
        """Denoisers (UNets, transformers, priors, decoders) by component name.

        They are told by the noise level they are given. Where no component takes one (models of masked tokens), by
        being made of blocks and neither a text encoder, another transformers model nor the codec.
        """
        rest = {name: module for name, module in self.modules.items() if name not in self.encoders}
        timed = {
            name: module
            for name, module in rest.items()
            if token_embedding(module) is None and timestep_name(module) is not None
        }
        return timed or {
            name: module
            for name, module in rest.items()
            if not hasattr(module, "get_input_embeddings")
            and not _is_codec(module)
            and denoiser_blocks(module)
        }

    def module(self, component: str, path: str) -> nn.Module:
        """The module at a dotted path of a component; looked up once.

        Raises:
            SiteError: there is none.
        """
        key = (component, path)
        if key not in self._found:
            self._found[key] = find_module(self.modules[component], path)
        return self._found[key]

    @cached_property
    def _tokenizers(self) -> dict[str, Any]:
        return {
            name: getattr(part, "tokenizer", part)
            for name, part in getattr(self.pipe, "components", {}).items()
            if hasattr(getattr(part, "tokenizer", part), "convert_ids_to_tokens")
        }

    def tokenizer(self, encoder: str) -> Any | None:
        """The tokenizer that belongs to a text encoder, found by name, else the one whose vocabulary is most like its.

        Pipelines call it tokenizer, tokenizer_2, prior_tokenizer, processor, ...; a processor holds one inside.
        """
        parts = self._tokenizers
        for old in ("text_encoder", "encoder", "bert"):
            if old in encoder and encoder.replace(old, "tokenizer") in parts:
                return parts[encoder.replace(old, "tokenizer")]
        table = word_table(self.modules[encoder])
        if table is None or len(parts) < 2:
            return next(iter(parts.values()), None)
        return min(parts.values(), key=lambda part: abs(table.num_embeddings - _vocabulary(part)))


def _vocabulary(tokenizer: Any) -> int:
    return len(tokenizer) if hasattr(tokenizer, "__len__") else 0
