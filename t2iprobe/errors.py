"""Every error a user can cause. One tree, one-line texts: what came, what is allowed, what to do.

T2IProbeError
├── ConfigError    a setting, a command line or a configuration file
├── DataError      a family, a run folder, an image or a table
├── SiteError      a place inside a model that cannot be found or read
├── ModelError     a checkpoint that cannot be loaded or used
├── MissingExtra   an optional library that has to be installed
└── InstallError   a library that is missing or older than the package needs
"""

from collections.abc import Iterable
from difflib import get_close_matches


class T2IProbeError(Exception):
    """Base of every error whose text is meant for the user; the command line prints it and exits with 2.

    Example:
        >>> import t2iprobe
        >>> try:
        ...     t2iprobe.load_family("shapes-pear")
        ... except t2iprobe.T2IProbeError as error:
        ...     print(str(error)[:47])
        unknown family 'shapes-pear': did you mean 'sha
    """


class ConfigError(T2IProbeError):
    """A setting that cannot be used."""


class DataError(T2IProbeError):
    """A family, run folder, image or table that cannot be used."""


class SiteError(T2IProbeError):
    """A place inside a model that cannot be found or read."""


class ModelError(T2IProbeError):
    """A checkpoint that cannot be loaded or used."""


class MissingExtra(T2IProbeError):  # noqa: N818 - says what the user lacks
    """An optional library that has to be installed first."""


class InstallError(T2IProbeError):
    """A library that every command needs is missing or too old."""


def first_line(error: BaseException, limit: int = 200) -> str:
    """The first line of an error's text, its class where it has none: what a library says, fit for one line of ours.

    Args:
        error: of a library.
        limit: most letters; longer text ends in an ellipsis.

    Example:
        >>> first_line(ValueError("no such layer.")), first_line(StopIteration()), first_line(KeyError("down"))
        ('no such layer', 'StopIteration', "there is no 'down'")
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].rstrip(". ") if lines else type(error).__name__
    if text.endswith(":") and len(lines) > 1:
        text = f"{text} {lines[-1]}"  # of a checked config the first line names the field, the last what it has to be
    if isinstance(error, KeyError) and lines:
        text = f"there is no {text}"  # the text of a KeyError is the key with its quotes
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def unknown(kind: str, got: str, allowed: Iterable[str]) -> str:
    """One line that says which name came, which are near, and which are known.

    Args:
        kind: what the name should have been, e.g. "family".
        got: the name that came.
        allowed: every known name.

    Example:
        >>> unknown("coding", "scen", ["slot", "scene"])
        "unknown coding 'scen': did you mean 'scene'? Known: scene, slot"
    """
    names = sorted(allowed)
    near = get_close_matches(got, names, n=3, cutoff=0.6)
    hint = f" did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return f"unknown {kind} {got!r}:{hint} Known: {', '.join(names) or 'none'}"
