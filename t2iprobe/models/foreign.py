"""Code of other libraries, called so that its faults are told from ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from t2iprobe.errors import T2IProbeError, first_line
from t2iprobe.models.hooks import StopCall


class ForeignError(T2IProbeError):
    """What code of another library raised.

    Attributes:
        call: what was called, e.g. "StableDiffusion3Pipeline(...)".
        error: what it raised.
    """

    def __init__(self, call: str, error: Exception) -> None:
        super().__init__(f"{call} failed: {first_line(error, 240)}")
        self.call, self.error = call, error


@contextmanager
def foreign(call: str) -> Iterator[None]:
    """Run one call of another library: a pipeline, a loader, a constructor, never a line of our own.

    Our hooks run inside such calls. Their errors do not pass through here: `HookSet` keeps them and raises them when
    the call is over.

    Args:
        call: what is called, as the user may read it.

    Raises:
        ForeignError: it raised something.
        T2IProbeError: as it is.
    """
    try:
        yield
    except (T2IProbeError, StopCall):
        raise
    except Exception as error:
        raise ForeignError(call, error) from error
