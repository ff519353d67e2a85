"""Names a user can choose, and where each lives. Nothing is imported until it is chosen.

To add a scorer or a probe: write one file, add one line here, add one test.
"""

from importlib import import_module
from typing import Any

from t2iprobe.errors import ConfigError, unknown

# Classes that are a `t2iprobe.scorers.verdict.Scorer`.
SCORERS = {
    "pixels": "t2iprobe.scorers.pixels:PixelScorer",
}

# Functions of (X, Y, folds, column_groups) that give a `t2iprobe.probes.crossfit.OutOfFold`.
PROBES = {
    "ridge": "t2iprobe.probes.crossfit:cross_predict",
    "logistic": "t2iprobe.probes.logistic:cross_predict",
}


def resolve(kind: str, table: dict[str, str], name: str) -> Any:
    """What a name stands for.

    Raises:
        ConfigError: the name is not in the table; the message names near matches.
    """
    if name not in table:
        raise ConfigError(unknown(kind, name, table))
    module, attribute = table[name].split(":")
    return getattr(import_module(module), attribute)
