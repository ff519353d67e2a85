"""Pooled activations of one batch, kept on the device until the call is over."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from t2iprobe.capture import to_stored
from t2iprobe.models.calibration.tokens import Span
from t2iprobe.models.sites import Site

Rows = dict[str, slice]
"""Pooling name -> its rows among the pooled values."""


def text_rows(names: Sequence[str]) -> Rows:
    """One row per text pooling."""
    return {name: slice(i, i + 1) for i, name in enumerate(names)}


@dataclass(frozen=True)
class Texts:
    """What a batch asks for: prompts, characters of each constituent in each, and names of the text poolings."""

    prompts: list[str]
    spans: list[dict[str, Span]]
    names: list[str]


@dataclass
class Kept:
    """Pooled values (b, p, d) by site and step; b images in the order of the prompts."""

    n: int
    values: dict[tuple[Site, int | None], tuple[Tensor, Rows]] = field(default_factory=dict)

    def put(self, site: Site, step: int | None, pooled: Tensor, rows: Rows) -> None:
        """Keep the values of a site for the whole batch."""
        self.values[site, step] = (pooled, rows)

    def put_some(self, site: Site, images: Sequence[int], pooled: Tensor, rows: Rows) -> None:
        """Keep the values of a site for some images of the batch; the others keep theirs, at first NaN."""
        if list(images) != list(range(self.n)):
            held = self.values.get((site, None))
            shape = (self.n, *pooled.shape[1:])
            whole = held[0] if held else pooled.new_full(shape, float("nan"))
            whole[list(images)] = pooled
            pooled = whole
        self.values[site, None] = (pooled, rows)

    def activations(self, sites: Sequence[Site]) -> dict[str, Tensor]:
        """Every pooling under its key, (b, d) float32 on the CPU, in the order of the sites and of the steps."""
        order = {site: index for index, site in enumerate(sites)}
        keys = sorted(
            self.values, key=lambda key: (order[key[0]], -1 if key[1] is None else key[1])
        )
        found: dict[str, Tensor] = {}
        for site, step in keys:
            pooled, rows = self.values[site, step]
            stored = to_stored(pooled)
            at = "" if step is None else f"@{step}"
            for name, part in rows.items():
                found[f"{site}/{name}{at}"] = stored[:, part].flatten(1).contiguous()
        return found
