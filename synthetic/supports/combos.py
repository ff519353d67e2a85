"""Combinations of modules as boolean rows, and the facts that make a set of them a task support.

A combination is a set of 1 to K active modules out of M (paper, section 2: the k-hot task vectors). Rows are
listed by size and then in lexicographic order.
"""

from dataclasses import dataclass
from itertools import chain, combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Support:
    """A split of all combinations into those seen in training and those held out.

    Attributes:
        name: how it was made.
        seen: (n, M) the combinations of training tasks.
        held_out: (k, M) the combinations kept for the test of composition.
        note: what a reader has to know about this support, one sentence or empty.
    """

    name: str
    seen: Bools
    held_out: Bools
    note: str = ""

    @property
    def num_modules(self) -> int:
        """M, the number of modules."""
        return int(self.seen.shape[1])

    @property
    def usage(self) -> Ints:
        """(M,) how many seen combinations use each module."""
        return np.asarray(self.seen.sum(axis=0), dtype=np.int64)

    @property
    def unseen_modules(self) -> tuple[int, ...]:
        """The modules that no training task uses."""
        return tuple(int(m) for m in np.flatnonzero(self.usage == 0))

    @property
    def components(self) -> int:
        """The number of groups of seen modules that no training task joins; 1 means connected."""
        return count_components(self.seen)

    @property
    def overlap(self) -> int:
        """The number of combinations that are both seen and held out; always 0 in a proper support."""
        return len(np.intersect1d(codes(self.seen), codes(self.held_out)))

    def facts(self) -> dict[str, object]:
        """The facts a run stores: counts, components, overlap, unseen modules, usage, hotness."""
        return {
            "name": self.name,
            "seen": len(self.seen),
            "held_out": len(self.held_out),
            "frac_ood": len(self.held_out) / (len(self.seen) + len(self.held_out)),
            "components": self.components,
            "overlap": self.overlap,
            "unseen_modules": list(self.unseen_modules),
            "usage": self.usage.tolist(),
            "held_out_usage": self.held_out.sum(axis=0).tolist(),
            "hotness_seen": _hotness(self.seen),
            "hotness_held_out": _hotness(self.held_out),
            "note": self.note,
        }


def _hotness(rows: Bools) -> dict[str, int]:
    sizes, counts = np.unique(rows.sum(axis=1), return_counts=True)
    return {str(size): int(count) for size, count in zip(sizes, counts, strict=True)}


def count_combinations(num_modules: int, num_hot: int) -> int:
    """The number of combinations of 1 to K out of M modules.

    Example:
        >>> count_combinations(8, 2), count_combinations(16, 3), count_combinations(28, 6)
        (36, 696, 499177)
    """
    return sum(comb(num_modules, hot) for hot in range(1, num_hot + 1))


def all_combinations(num_modules: int, num_hot: int) -> Bools:
    """(N, M) every combination of 1 to K modules, by size, then in lexicographic order."""
    rows = np.zeros((count_combinations(num_modules, num_hot), num_modules), dtype=bool)
    start = 0
    for hot in range(1, num_hot + 1):
        count = comb(num_modules, hot)
        members = np.fromiter(
            chain.from_iterable(combinations(range(num_modules), hot)), np.int64, count * hot
        )
        rows[start + np.repeat(np.arange(count), hot), members] = True
        start += count
    return rows


def codes(rows: Bools) -> Ints:
    """(n,) one integer per combination, bit m set when module m is active (M <= 62)."""
    powers = np.left_shift(np.int64(1), np.arange(rows.shape[1], dtype=np.int64))
    return rows.astype(np.int64) @ powers


def uses_any(rows: Bools, modules: slice | Bools) -> Bools:
    """(n,) whether a combination uses at least one of some modules."""
    return np.asarray(rows[:, modules].any(axis=1), dtype=np.bool_)


def count_components(rows: Bools) -> int:
    """The number of connected groups among the modules used in rows; two modules of one row are joined."""
    used = np.flatnonzero(rows.any(axis=0))
    dense = rows[:, used].astype(np.float32)
    joined = (dense.T @ dense) > 0
    left = set(range(len(used)))
    components = 0
    while left:
        components += 1
        frontier = {left.pop()}
        while frontier:
            near = {int(m) for m in np.flatnonzero(joined[list(frontier)].any(axis=0))}
            frontier = near & left
            left -= frontier
    return components


def is_compositional(rows: Bools) -> bool:
    """Whether every module is used and all are joined: what composition can be asked of."""
    return bool(rows.any(axis=0).all()) and count_components(rows) == 1


def min_connected(num_modules: int, num_hot: int) -> int | None:
    """The fewest combinations that use and join all M modules; None when K = 1 cannot join any.

    Each combination of K joins at most K - 1 more modules to what is there: ceil((M - 1) / (K - 1)).
    """
    if num_modules == 1:
        return 1
    if num_hot == 1:
        return None
    return -(-(num_modules - 1) // (num_hot - 1))
