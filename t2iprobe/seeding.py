"""Keyed randomness: every draw has a seed of its own, made from the names of what it is for.

A seed never depends on the order of work, the batch size, the device or the rank.
"""

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def derive(*keys: str | int) -> int:
    """A seed in [0, 2**63) from any number of names and numbers; equal keys give equal seeds.

    The keys are written as JSON before hashing, so ("a", 1) and ("a", "1") differ.

    Example:
        >>> derive("image", 0) == derive("image", 0), derive("image", 0) == derive("image", 1)
        (True, False)
    """
    digest = blake2b(json.dumps(keys).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(*keys: str | int) -> "torch.Generator":
    """A CPU torch generator seeded from the keys: the same numbers on every device."""
    import torch

    return torch.Generator("cpu").manual_seed(derive(*keys))
