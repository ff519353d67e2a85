"""Where activations can be read, found from the shape of the module tree."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from torch import nn

from t2iprobe.errors import SiteError, unknown
from t2iprobe.models.hooks import is_compiled
from t2iprobe.places import Site


def _is_list(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList | nn.Sequential | nn.ModuleDict)


def _is_block(module: nn.Module) -> bool:
    """Several parts with weights of their own: a block, as opposed to a single linear layer or an activation."""
    if _is_list(module):
        return False
    parts = [m for m in module.modules() if next(m.parameters(recurse=False), None) is not None]
    return len(parts) >= 2 and not isinstance(module, nn.Embedding)


def attends(module: nn.Module) -> bool:
    """Whether there is attention inside: projections to queries, whatever the class is called."""
    names = {name.rpartition(".")[2] for name, _ in module.named_modules()}
    queries = {"to_q", "q_proj", "query", "to_qkv", "qkv", "in_proj", "q"}
    return bool(names & queries) or any(
        isinstance(m, nn.MultiheadAttention) for m in module.modules()
    )


def _members(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Blocks in a list, lists of lists followed down."""
    for name, child in module.named_children():
        at = f"{path}.{name}" if path else name
        if _is_list(child):
            yield from _members(child, at)
        elif _is_block(child):
            yield at, child


def _has_blocks(module: nn.Module) -> bool:
    return any(
        _is_list(m) and any(True for _ in _members(m, ""))
        for m in module.modules()
        if m is not module
    )


def denoiser_blocks(module: nn.Module) -> dict[str, nn.Module]:
    """Blocks of a denoiser by path, in tree order.

    A block is a member of a list of modules with several weighted parts; the outermost lists give the blocks
    themselves, lists inside blocks give only what attends (a UNet block's attentions and their transformer blocks).
    A child outside any list that holds lists of blocks itself (a UNet's middle block) is a block too. Blocks inside a
    compiled one are left out: they would skip their hooks.
    """
    blocks: dict[str, nn.Module] = {}

    def descend(parent: nn.Module, path: str, inside: bool) -> None:
        if inside and is_compiled(parent):
            return
        for name, child in parent.named_children():
            at = f"{path}.{name}" if path else name
            if _is_list(child):
                for where, member in _members(child, at):
                    if not inside or _is_attention_block(member):
                        blocks[where] = member
                        descend(member, where, True)
            elif _has_blocks(child):
                if not inside:
                    blocks[at] = child
                descend(child, at, True)

    descend(module, "", False)
    return blocks


def _is_attention_block(module: nn.Module) -> bool:
    """Attention with its norm: what a UNet block lists beside its convolutions. A list of bare projections is not."""
    children = list(module.children())
    return attends(module) and len(children) >= 3 and any(_is_norm(child) for child in children)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()


def encoder_layers(module: nn.Module) -> list[tuple[str, list[str]]]:
    """Lists of layers in a text encoder: (path of the list, paths of its layers), longest first.

    Lists inside a layer (T5 keeps attention and feed-forward in one) do not count. Which list is the text's own is
    decided by what runs: vision towers stay silent.
    """
    lists: list[tuple[str, list[str]]] = []

    def descend(parent: nn.Module, path: str) -> None:
        for name, child in parent.named_children():
            at = f"{path}.{name}" if path else name
            if isinstance(child, nn.ModuleList):
                members = [where for where, _ in _members(child, at)]
                if members:
                    lists.append((at, members))
            else:
                descend(child, at)

    descend(module, "")
    return sorted(lists, key=lambda item: -len(item[1]))


def norms_outside(module: nn.Module, layers: Sequence[str]) -> list[str]:
    """Norm layers of an encoder that are not inside one of its layers; the last one to run is the final norm."""
    return [
        name
        for name, child in module.named_modules()
        if _is_norm(child) and not any(name == at or name.startswith(at + ".") for at in layers)
    ]


def spread(items: Sequence[Site], limit: int) -> list[Site]:
    """At most `limit` items, evenly spread and with both ends."""
    if len(items) <= limit:
        return list(items)
    if limit == 1:
        return [items[len(items) // 2]]
    return [items[round(i * (len(items) - 1) / (limit - 1))] for i in range(limit)]


def default_sites(sites: Sequence[Site], denoisers: Sequence[str], limit: int = 24) -> list[Site]:
    """About `limit` well spread sites: half from the denoisers' image streams, the rest from text streams.

    Args:
        sites: every site, in the order in which the model runs them.
        denoisers: component names of the denoisers; the other components are text encoders.
        limit: the most sites to keep.
    """
    conditioning = [site for site in sites if site.is_conditioning]
    rest = [site for site in sites if not site.is_conditioning]
    image = [site for site in rest if site.component in denoisers and site.stream == "image"]
    text = [site for site in rest if site.component in denoisers and site.stream == "text"]
    encoded = [site for site in rest if site.component not in denoisers]
    left = max(limit - len(conditioning), 3)
    # Outer blocks first: a UNet's blocks before the attentions inside them.
    depth = {site: _nesting(site, image) for site in image}
    outer = [site for site in image if depth[site] == 0]
    inner = [site for site in image if depth[site] > 0]
    n_image = max(left - min(len(text), left // 5) - min(len(encoded), left // 3), 1)
    chosen = spread(outer, n_image)
    chosen += spread(inner, n_image - len(chosen)) if len(chosen) < n_image else []
    n_text = min(len(text), max(left // 5, left - len(chosen) - len(encoded)))
    chosen += spread(text, n_text)
    chosen += spread(encoded, left - len(chosen))
    keep = set(chosen) | set(conditioning)
    return [site for site in sites if site in keep]


def _nesting(site: Site, others: Sequence[Site]) -> int:
    return sum(
        site.component == other.component and site.path.startswith(other.path + ".")
        for other in others
    )


def select_sites(
    sites: Sequence[Site], wanted: str | Sequence[str], denoisers: Sequence[str]
) -> list[Site]:
    """The sites a user asks for: "default", "all", or globs over `component.path:stream`.

    Raises:
        SiteError: a glob fits no site; the message names the nearest.
    """
    patterns = [wanted] if isinstance(wanted, str) else list(wanted)
    patterns = [part.strip() for pattern in patterns for part in pattern.split(",") if part.strip()]
    keep: set[Site] = set()
    for pattern in patterns:
        if pattern == "default":
            keep |= set(default_sites(sites, denoisers))
            continue
        glob = "*" if pattern == "all" else pattern
        fits = [s for s in sites if fnmatchcase(str(s), glob) or fnmatchcase(str(s), glob + ":*")]
        if not fits:
            raise SiteError(unknown("site", pattern, [str(site) for site in sites]))
        keep |= set(fits)
    return [site for site in sites if site in keep]
