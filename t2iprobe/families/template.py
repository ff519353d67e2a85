"""Prompt templates: text with slots, rendered with the right article and number.

{color1}              the value of the constituent color1
{a color1}            with "a" or "an" before it, by sound; {A color1} at the start of a sentence
{object for count}    in the plural unless the value of the constituent count is one
{{ and }}             braces
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from string import Formatter

from t2iprobe.families.wording import article, counted

_FORMS = "{slot}, {a slot}, {A slot} or {object for count}"
_FIELD = re.compile(r"(?:(?P<article>[aA]) )?(?P<slot>\S+)(?: for (?P<count>\S+))?")


@dataclass(frozen=True)
class Slot:
    """Where one constituent's value stands.

    Attributes:
        before: the fixed text before it.
        name: the constituent.
        article: "a", "A" or "".
        count: the constituent that decides between singular and plural, or "".
    """

    before: str
    name: str
    article: str
    count: str


@dataclass(frozen=True)
class Template:
    """A parsed template.

    Attributes:
        text: the template as written.
        slots: the slots in order.
        after: the fixed text after the last slot.
        plurals: plurals that the English rules would get wrong, by singular.
    """

    text: str
    slots: tuple[Slot, ...]
    after: str
    plurals: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def parse(cls, text: str, plurals: Mapping[str, str] | None = None) -> "Template":
        """Read a template.

        Raises:
            ValueError: a brace or a field that is none of the forms above; the text says which and
                what is allowed.
        """
        slots: list[Slot] = []
        before = ""
        for literal, name, spec, conversion in Formatter().parse(text):
            before += literal
            if name is None:
                continue
            match = _FIELD.fullmatch(name)
            if match is None or spec or conversion or (match["article"] and match["count"]):
                raise ValueError(f"the field {{{name}}} is none of {_FORMS}")
            slots.append(Slot(before, match["slot"], match["article"] or "", match["count"] or ""))
            before = ""
        return cls(text, tuple(slots), before, dict(plurals or {}))

    @property
    def names(self) -> tuple[str, ...]:
        """The constituents in the order in which they stand in the prompt."""
        return tuple(slot.name for slot in self.slots)

    def render(self, values: Mapping[str, str]) -> str:
        """The prompt for one assignment."""
        parts: list[str] = []
        for slot in self.slots:
            parts += self._worded(slot, values)
        parts.append(self.after)
        return "".join(parts)

    def spans(self, values: Mapping[str, str]) -> dict[str, tuple[int, int]]:
        """Where each value stands, without its article: name -> (start, end), in characters."""
        spans = {}
        end = 0
        for slot in self.slots:
            before, word = self._worded(slot, values)
            start = end + len(before)
            end = start + len(word)
            spans[slot.name] = (start, end)
        return spans

    def _worded(self, slot: Slot, values: Mapping[str, str]) -> tuple[str, str]:
        """The text before a slot's value, article included, and the value as worded."""
        word = values[slot.name]
        if slot.count:
            word = counted(word, values[slot.count], self.plurals)
        return (slot.before + _article(slot.article, word) if slot.article else slot.before), word


@cache
def _article(form: str, word: str) -> str:
    found = article(word)
    return (found.capitalize() if form == "A" else found) + " "
