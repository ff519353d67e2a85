"""Pooling on the device, and the pooled values of one batch, which stay there until the call is over."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from t2iprobe.activations.pooling import Rows
from t2iprobe.places import Place, Site


def pool_tokens(
    values: Float[Tensor, "b n d"], weights: Float[Tensor, "*b p n"]
) -> Float[Tensor, "b p d"]:
    """Pooled tokens in float32; half precision is left before the sum, where it would overflow or round."""
    values = values.float()
    return torch.bmm(weights.expand(values.shape[0], -1, -1), values)


def pool_map(
    values: Float[Tensor, "b d h w"], weights: Float[Tensor, "p n"]
) -> Float[Tensor, "b p d"]:
    """Pooled feature map in float32."""
    return torch.matmul(values.flatten(2).float(), weights.T).transpose(1, 2)


@dataclass
class PooledValues:
    """Pooled values (b, p, d) by site and step; b images in the order of the prompts."""

    n: int
    values: dict[tuple[Site, int | None], tuple[Tensor, Rows]] = field(default_factory=dict)

    def put(self, site: Site, step: int | None, pooled: Tensor, rows: Rows) -> None:
        """Keep the values of a site for the whole batch."""
        self.values[site, step] = (pooled, rows)

    def put_some(self, site: Site, images: Sequence[int], pooled: Tensor, rows: Rows) -> None:
        """Keep the values of a site for some images of the batch; the others keep theirs, at first NaN."""
        if list(images) != list(range(self.n)):
            before = self.values.get((site, None))
            shape = (self.n, *pooled.shape[1:])
            whole = before[0] if before else pooled.new_full(shape, float("nan"))
            whole[list(images)] = pooled
            pooled = whole
        self.values[site, None] = (pooled, rows)

    def activations(self, sites: Sequence[Site]) -> dict[Place, Tensor]:
        """Every pooling under its place, (b, d) float32 on the CPU, in the order of the sites and of the steps.

        Values of one shape leave the device together: hundreds of small copies would each wait for it.
        """
        by_shape: dict[Any, list[tuple[Site, int | None]]] = {}
        for key, (pooled, rows) in self.values.items():
            by_shape.setdefault((pooled.shape, pooled.device, tuple(rows)), []).append(key)
        activations: dict[tuple[Site, int | None], dict[str, Tensor]] = {
            key: {} for key in self.values
        }
        for keys in by_shape.values():
            targets = [activations[key] for key in keys]
            together = torch.stack([self.values[key][0] for key in keys])
            stored = together.detach().to("cpu", torch.float32)  # stacking has copied them
            for name, part in self.values[keys[0]][1].items():
                pieces = stored[:, :, part].flatten(2).contiguous().unbind()
                for target, piece in zip(targets, pieces, strict=True):
                    target[name] = piece
        order = {site: index for index, site in enumerate(sites)}
        return {
            Place(site, name, step): piece
            for site, step in sorted(activations, key=lambda key: (order[key[0]], _number(key[1])))
            for name, piece in activations[site, step].items()
        }


def _number(step: int | None) -> int:
    return -1 if step is None else step
