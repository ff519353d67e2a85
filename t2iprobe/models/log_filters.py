"""What diffusers and transformers warn of in a normal run: what is kept from the user and why, and what is passed on.

Only messages of this table are held back, by the library they come from and by their text; any other is printed as it
is. What a user can act on is told in words of our own, once.
"""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

LIBRARIES = ("diffusers", "transformers")


@dataclass(frozen=True)
class Hushed:
    """A kind of message that is not printed.

    Attributes:
        text: pattern that the message holds.
        why: the reason for holding it back.
        note: what is told in its place; None where there is nothing to do.
    """

    text: str
    why: str
    note: str | None = None


LOGGED = (
    Hushed(
        r"part of your input was truncated|sequence length is longer than",
        "each prompt of each batch would say it; the run tells once what is cut, and which constituents are lost",
    ),
    Hushed(
        r"Potential NSFW content was detected",
        "each flagged image is counted as unscored, with the safety checker as the reason",
    ),
    Hushed(
        r"`?clean_caption.* (requires the Beautiful Soup library|requires the ftfy library|to False)",
        "it strips HTML, of which our prompts have none; the pipeline goes on without",
    ),
    Hushed(
        r"Pipelines loaded with `dtype=torch\.float16` cannot run with `cpu` device",
        "they do run, slowly, and an operation that is lacking ends in a line of its own",
    ),
    Hushed(
        r"have to be divisible by .* Dimensions will be resized accordingly",
        "it comes with every batch; the size that is drawn instead is told once",
    ),
    Hushed(
        r"`use_return_dict` is deprecated",
        "a pipeline of diffusers calls transformers by an old name",
    ),
    Hushed(
        r"true_cfg_scale is passed as .* no negative_prompt is provided",
        "it comes with every batch",
        "without a negative prompt this pipeline does not guide; --negative-prompt ' ' turns guidance on",
    ),
    Hushed(
        r"negative_prompt is passed but classifier-free guidance is not enabled",
        "it comes with every batch",
        "the negative prompt is not used: --pipe-arg true_cfg_scale has to be above 1",
    ),
    Hushed(
        r"Guidance scale .* is ignored for step-wise distilled models",
        "it comes with every batch",
        "the guidance scale is ignored: this model was distilled to do without",
    ),
)
"""What the two libraries log."""

WARNED = (
    Hushed(
        r"(?s).* is deprecated and will be removed in version ",
        "code of diffusers calls what diffusers itself will drop; its versions are checked when the program starts",
    ),
    Hushed(
        r"(?s)The configuration file of this scheduler: .* is outdated",
        "diffusers corrects the value it asks for by itself",
    ),
)
"""What diffusers gives as a FutureWarning, matched from the start of its text."""


QUIET = {
    "torch.utils._pytree": "how torchao registers its types, on import",
    "diffusers.quantizers.torchao.torchao_quantizer": "names that torchao has moved, on import; a checkpoint that"
    " needs them ends in a line of its own",
    "bitsandbytes": "kernels that it would download, on import; every layer whose input it casts, in every call",
}
"""Loggers of which only errors are printed, and what they warn of; diffusers imports their libraries if it can."""


def _is_printed(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    return not any(re.search(kind.text, text, re.DOTALL) for kind in LOGGED)


def hush() -> None:
    """Hold back the messages of the table from now on, and the progress bars of both libraries; doing it twice is once.

    Handlers that the libraries print with are filtered, so that a handler of the caller's own still hears everything.
    """
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()
    for library in LIBRARIES:
        for handler in logging.getLogger(library).handlers:
            handler.addFilter(_is_printed)
    known = {(entry[0], getattr(entry[1], "pattern", None)) for entry in warnings.filters}
    for kind in WARNED:
        if ("ignore", kind.text) not in known:  # each change makes Python forget what it has shown
            warnings.filterwarnings("ignore", kind.text, FutureWarning, r"diffusers\.")


@contextmanager
def noted() -> Iterator[list[str]]:
    """A list that holds, when the block ends, the notes in place of what was logged in it; each once."""
    notes: list[str] = []
    listener = logging.Handler(logging.WARNING)

    def emit(record: logging.LogRecord) -> None:
        for kind in LOGGED:
            heard = kind.note is not None and re.search(kind.text, record.getMessage(), re.DOTALL)
            if heard and kind.note not in notes:
                notes.append(str(kind.note))

    listener.emit = emit  # type: ignore[method-assign]
    loggers = [logging.getLogger(library) for library in LIBRARIES]
    for logger in loggers:
        logger.addHandler(listener)
    try:
        yield notes
    finally:
        for logger in loggers:
            logger.removeHandler(listener)


@contextmanager
def overheard() -> Iterator[list[str]]:
    """What is logged by the two libraries, and warned of by any, while the block is open; none of it is printed.

    Warnings of Python are in the list once the block has ended.
    """
    texts: list[str] = []
    with ExitStack() as stack:
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        for library in LIBRARIES:
            stack.enter_context(_only_kept(logging.getLogger(library), texts))
        yield texts
    texts += [str(warning.message) for warning in warned or []]


@contextmanager
def _only_kept(logger: logging.Logger, texts: list[str]) -> Iterator[None]:
    """Put what a logger says into a list instead of printing it, while the block is open."""
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers
    logger.handlers, logger.propagate = [listener], False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
