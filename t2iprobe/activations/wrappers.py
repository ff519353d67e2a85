"""What has been done to the modules of a pipeline that a hook cannot see through: replicas, caches, compiled graphs."""

from typing import Any

from torch import nn

from t2iprobe.errors import SiteError
from t2iprobe.models.hooks import is_compiled, unwrap
from t2iprobe.models.model import Model
from t2iprobe.models.sites import denoiser_blocks


def refuse_unreadable(model: Model) -> None:
    """Refuse modules whose blocks cannot be read rightly, by name.

    A component compiled as a whole skips the hooks of its blocks (blocks compiled one by one do not), a cache leaves
    blocks out, and DataParallel runs copies of them.

    Raises:
        SiteError: the module is named, with what to do.
    """
    parts = getattr(model.pipe, "components", {})
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            _refuse_replicas(name, part)
    for name in (*model.denoisers, *model.encoders):
        part = getattr(model.pipe, name, None)
        if isinstance(part, nn.Module):
            _refuse_shortcuts(name, part)
        if part is not None and is_compiled(part):
            raise SiteError(
                f"{name} is compiled as a whole, its blocks would skip their hooks; use pipe.{name}._orig_mod, or"
                " compile its blocks with compile_repeated_blocks()"
            )


def _refuse_replicas(name: str, part: nn.Module) -> None:
    """DataParallel, DistributedDataParallel, FullyShardedDataParallel and the like, at the top or inside."""
    for path, module in part.named_modules():
        if set(dict(module.named_children())) in ({"module"}, {"_fsdp_wrapped_module"}):
            at = f"{name}.{path}" if path else name
            raise SiteError(
                f"{at} is wrapped in {type(module).__name__}, which splits or moves batches; use pipe.{at}.module"
            )


def _refuse_shortcuts(name: str, part: nn.Module) -> None:
    """Caches: hooks of diffusers that put a forward with a memory in the place of a module's own."""
    if getattr(part, "is_cache_enabled", False):
        raise SiteError(
            f"{name} uses a cache that leaves blocks out; call pipe.{name}.disable_cache() first"
        )
    for path, module in part.named_modules():
        registry: Any = getattr(module, "_diffusers_hook", None)
        for hook_name, hook in getattr(registry, "hooks", {}).items():
            if hasattr(hook, "new_forward") and getattr(hook, "_is_stateful", False):
                at = f"{name}.{path}" if path else name
                raise SiteError(
                    f"{at} has the hook {hook_name}, which can leave it out; load the model again without it"
                )


def compiled_inside(model: Model) -> list[str]:
    """Blocks of the denoisers that are compiled and hold further blocks: those inside cannot be read."""
    return [
        f"{name}.{path}"
        for name, denoiser in model.denoisers.items()
        for path, block in denoiser_blocks(denoiser).items()
        if is_compiled(block) and denoiser_blocks(unwrap(block))
    ]
