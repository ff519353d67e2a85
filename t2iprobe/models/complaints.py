"""What diffusers and transformers only warn of, kept so that it can be acted on."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from t2iprobe.models.log_filters import LIBRARIES


@contextmanager
def complaints() -> Iterator[list[str]]:
    """What is logged by the two libraries, and warned of by any, while the block is open; none of it is printed.

    Warnings of Python are in the list once the block has ended.
    """
    heard: list[str] = []
    with ExitStack() as stack:
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        for library in LIBRARIES:
            stack.enter_context(_overhear(library, heard))
        yield heard
    heard += [str(warning.message) for warning in warned or []]


@contextmanager
def plain_exceptions() -> Iterator[None]:
    """Turn errors that are no subclass of a usual one into a ValueError: of tokenizers and of checked configs."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception and "StrictDataclass" not in type(error).__name__:
            raise
        lines = str(error).splitlines() or [""]
        raise ValueError(lines[-1].strip()) from error


@contextmanager
def _overhear(library: str, heard: list[str]) -> Iterator[None]:
    logger = logging.getLogger(library)
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers
    logger.handlers = [listener]
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.setLevel(level)
        logger.propagate = propagate
