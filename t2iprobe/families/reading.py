"""Task families by name, or from a YAML file of the user's.

A file has these keys; `prompts/shapes-pair.yaml` shows each with a comment:

    name          lower-case letters, digits and hyphens
    description   one line
    template      the prompt: {slot}, {a slot}, {A slot}, {object for count}; every constituent once
    values        kind -> list of its values, e.g. color: [red, blue]
    constituents  slot -> kind, in order, e.g. color1: color
    headline      the coding that leads the report: slot, scene, presence or binding
    constraints   optional list of `different: [color1, color2]`
    scene         optional: swap {color1: color2}, turn {relation: {left of: right of}},
                  canonical {relation: [left of]}
    binding       optional list of constituents that describe one thing, e.g. [color1, shape1]
    hold_out      optional list of combinations of one thing, e.g. {color: red, shape: square}
    plurals       optional, singular -> plural, where English rules go wrong

Every error names file, line, key and the allowed form. Values are text as written (`yamlfile`).
"""

import re
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

from t2iprobe.errors import ConfigError, DataError, unknown
from t2iprobe.families.tasks import Constituent, Family, SceneRule, Task
from t2iprobe.families.template import Template
from t2iprobe.families.yamlfile import Entry, read_yaml

__all__ = ["Constituent", "Family", "SceneRule", "Task", "family_names", "load_family"]

_REQUIRED = ("name", "description", "template", "values", "constituents", "headline")
_OPTIONAL = ("constraints", "scene", "binding", "hold_out", "plurals")
_RESERVED = "all"  # the whole coding, in tables


def family_names() -> list[str]:
    """The names of the built-in families, sorted."""
    return sorted(path.stem for path in _builtin_folder().glob("*.yaml"))


def load_family(name_or_path: str | Path) -> Family:
    """A built-in family by name, or a family from a YAML file by path.

    Raises:
        ConfigError: there is no such family or file; the text names near matches.
        DataError: the file is not a valid family; the text names file, line, key and the allowed
            form.

    Example:
        >>> import t2iprobe
        >>> t2iprobe.load_family("shapes-pair").headline
        'scene'
    """
    name = str(name_or_path)
    if "/" in name or "\\" in name or name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    if name not in family_names():
        raise ConfigError(f"{unknown('family', name, family_names())}, or the path of a .yaml file")
    return _builtin(name)


@cache
def _builtin(name: str) -> Family:
    return _read(_builtin_folder() / f"{name}.yaml")


def _builtin_folder() -> Path:
    """Inside the package when installed from a wheel, beside it in a source checkout."""
    package = Path(__file__).parent.parent
    installed = package / "prompts"
    return installed if installed.is_dir() else package.parent / "prompts"


def _read(path: Path) -> Family:
    top = read_yaml(path)
    keys = top.record(_REQUIRED, _OPTIONAL)
    constituents = _constituents(keys["values"], keys["constituents"])
    binding = _binding(keys["binding"], constituents) if "binding" in keys else ()
    family = Family(
        name=_name(keys["name"]),
        description=keys["description"].text(),
        template=_template(keys["template"], keys.get("plurals"), constituents),
        constituents=tuple(constituents.values()),
        headline=keys["headline"].text(),
        different=_different(keys["constraints"], constituents) if "constraints" in keys else (),
        scene_rule=_scene_rule(keys["scene"], constituents) if "scene" in keys else None,
        binding=binding,
        hold_out=_hold_out(keys["hold_out"], constituents, binding) if "hold_out" in keys else (),
    )
    _check(family, keys)
    return family


def _name(entry: Entry) -> str:
    name = entry.text()
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        entry.fail(f"got {name!r}; a name has lower-case letters, digits and single hyphens")
    return name


def _constituents(values: Entry, entry: Entry) -> dict[str, Constituent]:
    vocabulary: dict[str, tuple[str, ...]] = {}
    for kind, listed in values.fields(
        "kinds with their values, such as color: [red, blue]"
    ).items():
        vocabulary[kind] = tuple(listed.texts("a list of values such as [red, blue]"))
        if len(vocabulary[kind]) < 2:
            listed.fail("a kind needs two values or more; put a single value into the template")
    constituents = {}
    for name, of in entry.fields("constituents with their kinds, such as color1: color").items():
        for word in (name, of.text("the name of a kind")):
            if not re.fullmatch(r"[A-Za-z]\w*", word) or word == _RESERVED:
                of.fail(f"got {word!r}; a name has letters, digits and _, and is not {_RESERVED!r}")
        kind = _one_of(of, "kind", vocabulary)
        constituents[name] = Constituent(name, vocabulary[kind], kind)
    for kind, listed in values.fields().items():
        if kind not in {constituent.kind for constituent in constituents.values()}:
            listed.fail(
                f"no constituent is of the kind {kind!r}; remove it or add one under constituents"
            )
    return constituents


def _template(entry: Entry, plurals: Entry | None, known: dict[str, Constituent]) -> Template:
    irregular = {}
    if plurals is not None:
        fields = plurals.fields("singulars with their plurals, such as {roof: rooves}")
        irregular = {singular: plural.text() for singular, plural in fields.items()}
    try:
        template = Template.parse(
            entry.text('text in quotes such as "{a color} {shape}"'), irregular
        )
    except ValueError as error:
        entry.fail(str(error))
    for name in (*template.names, *(slot.count for slot in template.slots if slot.count)):
        if name not in known:
            entry.fail(unknown("constituent", name, known))
    for name in known:
        if template.names.count(name) != 1:
            entry.fail(
                f"{{{name}}} stands in it {template.names.count(name)} times; every constituent "
                "stands once"
            )
    return template


def _different(entry: Entry, known: dict[str, Constituent]) -> tuple[tuple[str, ...], ...]:
    form = "a list such as - different: [color1, color2]"
    groups = []
    for constraint in entry.items(form):
        listed = constraint.record(("different",))["different"]
        group = _group(listed, known)
        if len({known[name].kind for name in group}) > 1:
            listed.fail(
                f"{', '.join(group)} are not of one kind; only values of one kind can differ"
            )
        groups.append(group)
    return tuple(groups)


def _scene_rule(entry: Entry, known: dict[str, Constituent]) -> SceneRule:
    keys = entry.record((), ("swap", "turn", "canonical"))
    if not keys.keys() & {"swap", "turn"}:
        entry.fail("expected swap, turn or both; without them every task is a scene of its own")
    swap = _both_ways(keys["swap"], known, "constituent") if "swap" in keys else {}
    for name, other in swap.items():
        if known[name].kind != known[other].kind:
            keys["swap"].fail(f"{name} and {other} are of different kinds; swap within one kind")
    turn = {}
    for name, pairs in (keys["turn"].fields() if "turn" in keys else {}).items():
        values = _known(pairs, name, known).values
        if name in swap:
            pairs.fail(f"{name} is swapped already; a constituent is swapped or turned")
        turn[name] = _both_ways(pairs, values, f"value of {name}")
    canonical = {}
    for name, listed in (keys["canonical"].fields() if "canonical" in keys else {}).items():
        values = _known(listed, name, known).values
        canonical[name] = tuple(
            _one_of(item, f"value of {name}", values) for item in listed.items()
        )
    return SceneRule(swap, turn, canonical)


def _both_ways(entry: Entry, known: Collection[str], what: str) -> dict[str, str]:
    """A mapping that undoes itself: {a: b} becomes {a: b, b: a}."""
    pairs: dict[str, str] = {}
    for a, right in entry.fields("pairs such as {color1: color2}").items():
        if a not in known:
            right.fail(unknown(what, a, known))
        b = _one_of(right, what, known)
        if pairs.get(a, b) != b or pairs.get(b, a) != a:
            right.fail(
                f"{a} and {b}: one of them has another partner already; every name has one partner"
            )
        pairs |= {a: b, b: a}
    return pairs


def _binding(entry: Entry, known: dict[str, Constituent]) -> tuple[tuple[str, ...], ...]:
    groups: list[tuple[str, ...]] = []
    for listed in entry.items("a list of groups such as - [color1, shape1]"):
        group = _group(listed, known)
        if len({known[name].kind for name in group}) < len(group):
            listed.fail(f"{', '.join(group)}: one thing has one constituent of each kind")
        for name in group:
            if any(name in other for other in groups):
                listed.fail(
                    f"{name} describes another thing already; a constituent belongs to one group"
                )
        groups.append(group)
    return tuple(groups)


def _hold_out(
    entry: Entry, known: dict[str, Constituent], binding: tuple[tuple[str, ...], ...]
) -> tuple[dict[str, str], ...]:
    values = {constituent.kind: constituent.values for constituent in known.values()}
    combinations = []
    for item in entry.items("a list such as - {color: red, shape: square}"):
        combination = {}
        for kind, value in item.fields("a combination such as {color: red, shape: square}").items():
            if kind not in values:
                value.fail(unknown("kind", kind, values))
            combination[kind] = _one_of(value, kind, values[kind])
        if not any(combination.keys() <= {known[name].kind for name in group} for group in binding):
            item.fail(f"no group under binding has the kinds {', '.join(combination)}; add one")
        if len(combination) < 2:
            item.fail("a combination names two kinds or more, such as {color: red, shape: square}")
        combinations.append(combination)
    return tuple(combinations)


def _check(family: Family, keys: dict[str, Entry]) -> None:
    """What only the whole family shows."""
    if family.headline not in family.codings:
        keys["headline"].fail(
            f"{unknown('coding', family.headline, family.codings)} (of this family)"
        )
    if family.n_tasks == 0:
        keys["constraints"].fail("no assignment satisfies the constraints; add values or drop one")
    if "scene" in keys:
        _blame(keys["scene"], lambda: family.n_scenes)
    _blame(keys["template"], family.tasks)


def _blame(entry: Entry, compute: Callable[[], object]) -> None:
    """Compute, and let an error name the place that causes it."""
    try:
        compute()
    except DataError as error:
        entry.fail(str(error))


def _group(entry: Entry, known: dict[str, Constituent]) -> tuple[str, ...]:
    names = tuple(_one_of(item, "constituent", known) for item in entry.items())
    if len(set(names)) < 2 or len(set(names)) < len(names):
        entry.fail("expected two different constituents or more, such as [color1, color2]")
    return names


def _one_of(entry: Entry, what: str, allowed: Collection[str]) -> str:
    text = entry.text()
    if text not in allowed:
        entry.fail(unknown(what, text, allowed))
    return text


def _known(entry: Entry, name: str, known: dict[str, Constituent]) -> Constituent:
    """The constituent that a key names."""
    if name not in known:
        entry.fail(unknown("constituent", name, known))
    return known[name]
