"""Finding again, in a module's output, the tensor that calibration named."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from t2iprobe.errors import SiteError
from t2iprobe.places import Site


def _step(value: Any, part: str) -> Any:
    if part.isdigit() and isinstance(value, list | tuple):
        return value[int(part)]
    return value[part] if isinstance(value, Mapping) else getattr(value, part)


def pick(output: Any, item: str, site: Site) -> Tensor:
    """A tensor of an output by the dotted name it had in calibration; "" is the output itself.

    Raises:
        SiteError: the output has another structure now.
    """
    value = output
    for part in item.split(".") if item else ():
        try:
            value = _step(value, part)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise SiteError(f"{site}: its output has no {item!r} any more") from error
    if not isinstance(value, Tensor):
        raise SiteError(f"{site}: {item or 'output'!r} is a {type(value).__name__}, not a tensor")
    return value
