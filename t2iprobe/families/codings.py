"""From tasks to probe targets. The coding decides the answer: each asks a question of its own.

slot      "What is the colour of the object *named first*?" One-hot per constituent, as worded. In
          the picture that object is left, right, above or below, as the relation says; so a slot is
          a product of two things and not linear in pooled image features. A model that learns to
          compose gets *worse* at it. It suits text streams.
scene     "What is the colour of the *left or upper* object?" One-hot per constituent of the
          canonical assignment, so two wordings of one picture have one target. It rises as a model
          learns to compose.
presence  "Is there *red*?" One column per value of a kind, 1 where it occurs anywhere. Says nothing
          about what belongs to what: a bag of words has it.
binding   "Is there a *red circle*?" One column per pair of values that describe one thing. A red
          square and a blue circle have the same presence as a red circle and a blue square, and
          another binding.

All four are one scheme: a group of columns is a set of places (tuples of constituents) looked up in
the worded or the canonical assignment; its columns are the value combinations that occur there in
the family.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from t2iprobe.errors import ConfigError, DataError, unknown
from t2iprobe.families.tasks import Family, Task

CODINGS = ("slot", "scene", "presence", "binding")


@dataclass(frozen=True)
class Targets:
    """What a probe has to predict; n tasks, c columns.

    Attributes:
        coding: one of CODINGS.
        matrix: (n, c), 0 or 1.
        columns: what each column says, e.g. "color1=red", "color=red" or "color+shape=red+circle".
        constituents: for each column the group it belongs to: a constituent ("color1"), a kind
            ("color") or a pair of kinds ("color+shape").
    """

    coding: str
    matrix: Float32[np.ndarray, "n c"]
    columns: tuple[str, ...]
    constituents: tuple[str, ...]


@dataclass(frozen=True)
class _Group:
    name: str
    places: tuple[tuple[str, ...], ...]
    worded: bool

    def combinations(self, task: Task) -> Iterable[tuple[str, ...]]:
        """The value combinations of a task at this group's places."""
        values = task.values if self.worded else task.scene
        return [tuple(values[name] for name in place) for place in self.places]


def applicable(family: Family) -> tuple[str, ...]:
    """The codings that ask different questions of a family, in the order of CODINGS.

    "slot" always applies; "scene" where two wordings can share a scene; "presence" where two
    constituents share a kind; "binding" where the family says what belongs together.
    """
    return family.codings


def encode(family: Family, tasks: Sequence[Task], coding: str) -> Targets:
    """The targets of tasks under a coding.

    Columns depend on the family only, never on which tasks are given.

    Args:
        family: the tasks' family.
        tasks: n tasks, any order, repeats allowed.
        coding: one of `applicable(family)`.

    Raises:
        ConfigError: the coding is unknown or does not apply to this family.
        DataError: a task is not of this family.

    Example:
        >>> from t2iprobe.families.reading import load_family
        >>> family = load_family("shapes-pair")
        >>> targets = encode(family, family.tasks()[:1], "binding")
        >>> [column for column, hot in zip(targets.columns, targets.matrix[0]) if hot]
        ['color+shape=red+circle', 'color+shape=orange+circle']
    """
    if coding not in CODINGS:
        raise ConfigError(unknown("coding", coding, CODINGS))
    if coding not in family.codings:
        raise ConfigError(
            f"{unknown('coding', coding, family.codings)} (of the family {family.name})"
        )
    columns: dict[tuple[str, tuple[str, ...]], int] = {}
    groups = _groups(family, coding)
    for group in groups:
        for combination in _vocabulary(family, group):
            columns[group.name, combination] = len(columns)
    matrix = np.zeros((len(tasks), len(columns)), dtype=np.float32)
    for row, task in enumerate(tasks):
        if task.family != family.name:
            raise DataError(f"task {task.id} is of the family {task.family!r}, not {family.name!r}")
        for group in groups:
            for combination in group.combinations(task):
                matrix[row, columns[group.name, combination]] = 1.0
    return Targets(
        coding=coding,
        matrix=matrix,
        columns=tuple(f"{name}={'+'.join(combination)}" for name, combination in columns),
        constituents=tuple(name for name, _ in columns),
    )


def _groups(family: Family, coding: str) -> list[_Group]:
    if coding == "slot":
        return [_Group(name, ((name,),), worded=True) for name in family.names]
    if coding == "scene":
        return [_Group(name, ((name,),), worded=False) for name in family.names]
    if coding == "presence":
        return [
            _Group(kind, tuple((name,) for name in names), worded=False)
            for kind, names in family.kinds.items()
        ]
    return [
        _Group("+".join(kinds), pairs, worded=False) for kinds, pairs in family.bound_pairs.items()
    ]


def _vocabulary(family: Family, group: _Group) -> list[tuple[str, ...]]:
    """The combinations that occur at the group's places, in the order of the family's values.

    A value that no canonical scene has ("right of") gets no column.
    """
    tasks = (task for task in family.tasks() if group.worded or task.is_canonical)
    occurring = {combination for task in tasks for combination in group.combinations(task)}
    constituents = {constituent.name: constituent for constituent in family.constituents}
    order = [constituents[name].values.index for name in group.places[0]]
    return sorted(
        occurring,
        key=lambda combination: [at(value) for at, value in zip(order, combination, strict=True)],
    )
