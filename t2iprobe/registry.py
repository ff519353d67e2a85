"""Names a user can choose, where each lives, and what the help says of it. Nothing is imported until it is chosen.

To add a scorer or a probe: write one file, add one entry here, add one test. A scorer is a class called ...Scorer, a
probe a function called cross_predict, so that the search for unused code knows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from t2iprobe.errors import ConfigError, unknown

if TYPE_CHECKING:
    from t2iprobe.probes.crossfit import CrossPredict
    from t2iprobe.scorers.base import Scorer


@dataclass(frozen=True)
class Choice:
    """Something that is chosen by name.

    Attributes:
        home: where it lives, as module:attribute.
        what: what it is, in a few words of the help text.
    """

    home: str
    what: str


SCORERS = {
    "pixels": Choice("t2iprobe.scorers.pixels:PixelScorer", "exact, for the shapes families"),
}
"""Classes that are a `t2iprobe.scorers.base.Scorer`."""

PROBES = {
    "ridge": Choice("t2iprobe.probes.crossfit:cross_predict", "ridge regression"),
    "logistic": Choice(
        "t2iprobe.probes.logistic:cross_predict", "logistic regression, which is much slower"
    ),
}
"""Functions that are a `t2iprobe.probes.crossfit.CrossPredict`."""


def choices(table: Mapping[str, Choice]) -> str:
    """The names of a table with what each is, as part of a help text."""
    return "; ".join(f"{name}: {choice.what}" for name, choice in table.items())


def scorer(name: str) -> "type[Scorer]":
    """The class of a scorer.

    Raises:
        ConfigError: there is no such scorer; the message names near matches.
    """
    kind: type[Scorer] = resolve("scorer", _homes(SCORERS), name)
    return kind


def probe(name: str) -> "CrossPredict":
    """The function of a probe.

    Raises:
        ConfigError: there is no such probe; the message names near matches.
    """
    predict: CrossPredict = resolve("probe", _homes(PROBES), name)
    return predict


def _homes(table: Mapping[str, Choice]) -> dict[str, str]:
    return {name: choice.home for name, choice in table.items()}


def resolve(kind: str, homes: Mapping[str, str], name: str) -> Any:
    """What a name stands for in a table of name -> module:attribute.

    Raises:
        ConfigError: the name is not in the table; the message names near matches.
    """
    if name not in homes:
        raise ConfigError(unknown(kind, name, homes))
    module, attribute = homes[name].split(":")
    return getattr(import_module(module), attribute)
