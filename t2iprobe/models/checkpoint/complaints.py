"""What diffusers only warns of, kept so that it can be acted on."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def complaints() -> Iterator[list[str]]:
    """The warnings that diffusers gives while the block is open; none of them is printed."""
    logger = logging.getLogger("diffusers")
    heard: list[str] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers
    logger.handlers = [listener]
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.handlers = handlers
        logger.setLevel(level)
        logger.propagate = propagate
