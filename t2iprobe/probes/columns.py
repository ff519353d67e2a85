"""Groups of target columns: which columns belong to one constituent of one coding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from t2iprobe.errors import DataError

ALL = "all"


@dataclass(frozen=True)
class Columns:
    """Names of the groups, in order of first appearance, and the group of each column.

    Attributes:
        names: (g,) group names.
        index: (c,) the group number of each column.
    """

    names: tuple[str, ...]
    index: tuple[int, ...]

    @classmethod
    def of(cls, groups: Sequence[str] | None, n_columns: int) -> "Columns":
        """The groups of a list of one name a column; one group "all" when there is none.

        Raises:
            DataError: the list does not hold one name for each column.
        """
        labels = [ALL] * n_columns if groups is None else list(groups)
        if len(labels) != n_columns:
            raise DataError(
                f"{len(labels)} column groups for {n_columns} target columns: give one name each"
            )
        names = tuple(dict.fromkeys(labels))
        number = {name: g for g, name in enumerate(names)}
        return cls(names, tuple(number[label] for label in labels))

    @property
    def members(self) -> Float[np.ndarray, "c g"]:
        """(c, g) indicator, 1.0 where the column belongs to the group."""
        return np.eye(len(self.names))[list(self.index)].reshape(len(self.index), len(self.names))

    def of_group(self, name: str) -> list[int]:
        """Positions of the columns of one group."""
        g = self.names.index(name)
        return [c for c, group in enumerate(self.index) if group == g]
