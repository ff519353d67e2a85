"""What moves together: bootstrap draws and permutations by unit (task), never by row (image)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations, product
from math import factorial, prod

import numpy as np
from jaxtyping import Float, Integer, Shaped

MAX_EXACT = 40_320  # 8!: below this number all arrangements are tried
_CHUNK = 1 << 21  # entries of an index matrix held at once

Draws = Integer[np.ndarray, "b n"]


def rows_by_unit(units: Shaped[np.ndarray, " n"]) -> list[Integer[np.ndarray, " _"]]:
    """The rows of each unit, units in sorted order."""
    _, index = np.unique(units, return_inverse=True)
    order = np.argsort(index, kind="stable")
    return np.split(order, np.cumsum(np.bincount(index))[:-1])


def bootstrap_values(
    statistic: Callable[[Draws], Float[np.ndarray, " b"]],
    units: Shaped[np.ndarray, " n"],
    n_resamples: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " b"]:
    """The statistic on resamples of whole units, drawn with replacement.

    Args:
        statistic: from a (b, n) matrix of row numbers to (b,) values, one a resample.
        units: (n,) unit of each row.
        n_resamples: number of values.
        rng: source of the draws.
    """
    rows = rows_by_unit(units)
    draws = rng.integers(len(rows), size=(n_resamples, len(rows)))
    if len({len(r) for r in rows}) == 1:
        table = np.stack(rows)
        step = max(1, _CHUNK // table.size)
        parts = [
            table[draws[i : i + step]].reshape(-1, table.size) for i in range(0, n_resamples, step)
        ]
        return np.concatenate([statistic(part) for part in parts])
    return np.array(
        [statistic(np.concatenate([rows[u] for u in draw])[None, :])[0] for draw in draws]
    )


@dataclass(frozen=True)
class Arrangements:
    """The ways to hand the rows' values to other units that a permutation test may use.

    Units can be exchanged when they are in the same stratum and have the same number of rows.

    Attributes:
        classes: for each set of exchangeable units a (units, rows of a unit) matrix of row numbers.
        n: how many arrangements are looked at, the one observed included when `exact`.
        exact: whether these are all there are.
    """

    classes: tuple[Integer[np.ndarray, "_ _"], ...]
    n: int
    exact: bool

    @property
    def movable(self) -> bool:
        """Whether any unit can be exchanged with another."""
        return any(len(rows) > 1 for rows in self.classes)

    def chunks(self, rng: np.random.Generator) -> Iterator[Draws]:
        """Matrices of row numbers, one arrangement a row, in pieces that fit in memory."""
        n_rows = sum(rows.size for rows in self.classes)
        step = max(1, _CHUNK // n_rows)
        if self.exact:
            every = product(*(permutations(range(len(rows))) for rows in self.classes))
            everything = np.empty((self.n, n_rows), dtype=np.intp)
            for b, order in enumerate(every):
                for rows, places in zip(self.classes, order, strict=True):
                    everything[b, rows] = rows[list(places)]
            yield everything
            return
        for start in range(0, self.n, step):
            size = min(step, self.n - start)
            index = np.empty((size, n_rows), dtype=np.intp)
            for rows in self.classes:
                moved = rng.permuted(np.tile(np.arange(len(rows)), (size, 1)), axis=1)
                index[:, rows.ravel()] = rows[moved].reshape(size, -1)
            yield index


def arrangements(
    units: Shaped[np.ndarray, " n"],
    n_permutations: int,
    strata: Shaped[np.ndarray, " n"] | None = None,
) -> Arrangements:
    """All arrangements when there are at most `MAX_EXACT`, else `n_permutations` random ones.

    Args:
        units: (n,) unit of each row.
        n_permutations: number of random arrangements.
        strata: (n,) stratum of each row; units are exchanged within strata only. Default: one
            stratum.
    """
    found: dict[tuple[object, int], list[Integer[np.ndarray, " _"]]] = {}
    for rows in rows_by_unit(units):
        stratum = None if strata is None else strata[rows[0]]
        found.setdefault((stratum, len(rows)), []).append(rows)
    classes = tuple(np.stack(rows) for rows in found.values())
    if max(len(rows) for rows in classes) <= 8:
        count = prod(factorial(len(rows)) for rows in classes)
        if count <= MAX_EXACT:
            return Arrangements(classes, count, True)
    return Arrangements(classes, n_permutations, False)
