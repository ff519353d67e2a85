"""What diffusers and transformers only warn of, kept so that it can be acted on."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def complaints() -> Iterator[list[str]]:
    """The warnings that the two libraries give while the block is open; none of them is printed."""
    heard: list[str] = []
    with ExitStack() as stack:
        for library in ("diffusers", "transformers"):
            stack.enter_context(_overhear(library, heard))
        yield heard


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
