"""Task families as values: constituents, tasks, scenes. No files here; `families` reads them.

A family is a template and a vocabulary. A task is one assignment of a value to every constituent;
it renders to one prompt. A scene is what the picture should show: tasks that word the same picture
differently share one scene.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import combinations, product

from t2iprobe.errors import DataError
from t2iprobe.families.template import Template

Row = tuple[str, ...]  # one value per constituent, in the family's order


@dataclass(frozen=True)
class Constituent:
    """One slot of a family.

    Attributes:
        name: e.g. "color1".
        values: what it can be; the paper's modules.
        kind: which constituents share a vocabulary, e.g. "color".
    """

    name: str
    values: tuple[str, ...]
    kind: str


@dataclass(frozen=True)
class Task:
    """One assignment and its prompt.

    Attributes:
        id: 12 hex digits, a hash of the family's name and the values: the same on every machine,
            and in every version that has the same words.
        values: constituent -> value as worded, in the family's order.
        scene: the canonical assignment of the scene, same keys.
        scene_id: the id of the task that words the scene canonically.
    """

    id: str
    family: str
    values: dict[str, str] = field(hash=False)
    prompt: str
    scene: dict[str, str] = field(hash=False)
    scene_id: str

    @property
    def is_canonical(self) -> bool:
        """Whether this wording is the scene's canonical one."""
        return self.id == self.scene_id


@dataclass(frozen=True)
class SceneRule:
    """Which other assignment shows the same picture: swap constituents and turn values.

    Applied twice it gives back the first assignment. Of the two wordings the canonical one has its
    values in `canonical`; where both or neither have, it is the one that comes first in the
    family's order.

    Attributes:
        swap: constituent -> constituent whose value it takes; both directions are present.
        turn: constituent -> {value: value in the other wording}; both directions are present.
        canonical: constituent -> the values of the canonical wording.
    """

    swap: Mapping[str, str] = field(hash=False)
    turn: Mapping[str, Mapping[str, str]] = field(hash=False)
    canonical: Mapping[str, tuple[str, ...]] = field(hash=False)

    def other(self, values: Mapping[str, str]) -> dict[str, str]:
        """The other wording of the same scene."""
        turned = {name: values[self.swap.get(name, name)] for name in values}
        for name, turn in self.turn.items():
            turned[name] = turn.get(turned[name], turned[name])
        return turned

    def is_canonical(self, values: Mapping[str, str]) -> bool:
        """Whether the values are those asked of the canonical wording."""
        return all(values[name] in allowed for name, allowed in self.canonical.items())


@dataclass(frozen=True)
class Family:
    """A task family.

    Attributes:
        name: lower-case letters, digits and hyphens.
        description: one line.
        template: the prompt.
        constituents: in the order of tasks and columns.
        headline: name of the coding that leads the report.
        different: groups of constituents whose values must all differ.
        scene_rule: which tasks show the same scene; None when every task is a scene of its own.
        binding: groups of constituents that describe one thing, e.g. (("color1", "shape1"),
            ("color2", "shape2")).
        hold_out: kind -> value combinations of one thing that the family declares held out, e.g.
            ({"color": "red", "shape": "square"},).

    Example:
        >>> import t2iprobe
        >>> family = t2iprobe.load_family("shapes-pair")
        >>> family.names
        ('color1', 'shape1', 'relation', 'color2', 'shape2')
    """

    name: str
    description: str
    template: Template
    constituents: tuple[Constituent, ...]
    headline: str = "slot"
    different: tuple[tuple[str, ...], ...] = ()
    scene_rule: SceneRule | None = None
    binding: tuple[tuple[str, ...], ...] = ()
    hold_out: tuple[dict[str, str], ...] = field(default=(), hash=False)

    @property
    def n_tasks(self) -> int:
        """Number of valid assignments."""
        return len(self._rows)

    @property
    def n_scenes(self) -> int:
        """Number of different scenes."""
        return len(set(self._canonical_rows.values()))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The constituents' names."""
        return tuple(constituent.name for constituent in self.constituents)

    @cached_property
    def kinds(self) -> dict[str, tuple[str, ...]]:
        """Kind -> the constituents that share it, in the family's order."""
        kinds: dict[str, tuple[str, ...]] = {}
        for constituent in self.constituents:
            kinds[constituent.kind] = (*kinds.get(constituent.kind, ()), constituent.name)
        return kinds

    @cached_property
    def bound_pairs(self) -> dict[tuple[str, str], tuple[tuple[str, str], ...]]:
        """Pair of kinds -> the pairs of constituents that describe one thing.

        Example: {("color", "shape"): (("color1", "shape1"), ("color2", "shape2"))}
        """
        order = list(self.kinds).index
        pairs: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
        for group in self.binding:
            by_kind = sorted(group, key=lambda name: order(self._kind[name]))
            for a, b in combinations(by_kind, 2):
                kinds = (self._kind[a], self._kind[b])
                pairs[kinds] = (*pairs.get(kinds, ()), (a, b))
        return pairs

    @property
    def codings(self) -> tuple[str, ...]:
        """The codings that ask different questions of this family (`codings` explains them)."""
        return (
            "slot",
            *(["scene"] if self.scene_rule else []),
            *(["presence"] if any(len(names) > 1 for names in self.kinds.values()) else []),
            *(["binding"] if self.binding else []),
        )

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with anything that changes a prompt, a task or a scene."""
        words = [(task.id, task.prompt, task.scene_id) for task in self._tasks.values()]
        return blake2b(repr((self.name, words)).encode(), digest_size=8).hexdigest()

    def tasks(self) -> list[Task]:
        """Every valid assignment, in product order (the last constituent changes fastest)."""
        return list(self._tasks.values())

    def task(self, values: Mapping[str, str]) -> Task:
        """The task with these values.

        Raises:
            DataError: the values are not a valid assignment of this family.
        """
        row = tuple(values.get(name, "") for name in self.names)
        if row not in self._tasks or len(values) != len(row):
            raise DataError(f"family {self.name!r} has no task with the values {dict(values)}")
        return self._tasks[row]

    def scenes(self) -> list[dict[str, str]]:
        """The canonical assignment of every scene, in product order."""
        return [dict(task.scene) for task in self._tasks.values() if task.is_canonical]

    @cached_property
    def scene_index(self) -> dict[str, int]:
        """Scene id -> position in `scenes()`."""
        canonical = (task.id for task in self._tasks.values() if task.is_canonical)
        return {scene_id: i for i, scene_id in enumerate(canonical)}

    def spans(self, task: Task) -> dict[str, tuple[int, int]]:
        """Where each value stands in the prompt, without its article: (start, end), characters."""
        return self.template.spans(task.values)

    def things(self, values: Mapping[str, str], kinds: Iterable[str]) -> list[Row]:
        """What each bound thing is in these kinds, e.g. [("red", "circle"), ("blue", "square")].

        Things that lack one of the kinds are left out.
        """
        kinds = tuple(kinds)
        found = []
        for group in self.binding:
            by_kind = {self._kind[name]: values[name] for name in group}
            if all(kind in by_kind for kind in kinds):
                found.append(tuple(by_kind[kind] for kind in kinds))
        return found

    def is_held_out(self, task: Task) -> bool:
        """Whether some thing of the scene, in whatever position, is declared held out."""
        return any(
            tuple(combination.values()) in self.things(task.scene, combination)
            for combination in self.hold_out
        )

    @cached_property
    def _kind(self) -> dict[str, str]:
        return {constituent.name: constituent.kind for constituent in self.constituents}

    @cached_property
    def _rows(self) -> list[Row]:
        places = {name: i for i, name in enumerate(self.names)}
        groups = [[places[name] for name in group] for group in self.different]
        return [
            row
            for row in product(*(constituent.values for constituent in self.constituents))
            if all(len({row[i] for i in group}) == len(group) for group in groups)
        ]

    @cached_property
    def _canonical_rows(self) -> dict[Row, Row]:
        """Row -> the row of its scene; of two equal claims the one first met is the earlier."""
        rule = self.scene_rule
        if rule is None:
            return {row: row for row in self._rows}
        valid = set(self._rows)
        canonical: dict[Row, Row] = {}
        for row in self._rows:
            if row in canonical:
                continue
            values = dict(zip(self.names, row, strict=True))
            other = rule.other(values)
            twin = tuple(other.values())
            if twin not in valid:
                raise DataError(
                    f"{values} has the other wording {other}, which breaks a constraint; "
                    "the constraints must allow both or neither"
                )
            turn = rule.is_canonical(other) and not rule.is_canonical(values)
            canonical[row] = canonical[twin] = twin if turn else row
        return canonical

    @cached_property
    def _tasks(self) -> dict[Row, Task]:
        names = self.names
        render = self.template.render
        canonical = self._canonical_rows
        scenes = {row: dict(zip(names, row, strict=True)) for row in set(canonical.values())}
        scene_ids = {row: self._id(row) for row in scenes}
        tasks: dict[Row, Task] = {}
        for row in self._rows:
            scene = canonical[row]
            values = dict(zip(names, row, strict=True))
            task_id = scene_ids[row] if row == scene else self._id(row)
            tasks[row] = Task(
                task_id, self.name, values, render(values), scenes[scene], scene_ids[scene]
            )
        self._refuse_equal_prompts(tasks.values())
        return tasks

    def _id(self, row: Row) -> str:
        words = "\n".join((self.name, *map("=".join, zip(self.names, row, strict=True))))
        return blake2b(words.encode(), digest_size=6).hexdigest()

    def _refuse_equal_prompts(self, tasks: Iterable[Task]) -> None:
        seen: dict[str, Task] = {}
        for task in tasks:
            first = seen.setdefault(task.prompt, task)
            if first is not task:
                raise DataError(
                    f"{first.values} and {task.values} give the same prompt {task.prompt!r}; "
                    "change the template or a value so that prompts differ"
                )
