"""Code of other libraries, called so that its faults are told from ours; memory and libraries that are missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch

from t2iprobe.errors import ModelError, T2IProbeError, first_line
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


def missing_library(error: Exception) -> str | None:
    """The library that an error names and that is not installed; None where it names none.

    A module that diffusers imports only where it is installed shows up as a NameError (`ftfy` in several pipelines).
    """
    name = error.name if isinstance(error, ImportError | NameError) else None
    library = (name or "").partition(".")[0]
    return library if library and find_spec(library) is None else None


_SAYINGS = (
    "out of memory",  # CUDA, MPS and XPU
    "DefaultCPUAllocator",  # torch on the CPU: "can't allocate memory", "not enough memory"
    "enforce fail at alloc_cpu",
    "Cannot allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "bad_alloc",
)
"""What a plain RuntimeError or OSError says when memory has run out."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, says that there was no memory."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError | torch.OutOfMemoryError):
            return True
        if isinstance(error, RuntimeError | OSError) and any(t in str(error) for t in _SAYINGS):
            return True
        error = error.__cause__ or error.__context__
    return False


def out_of_memory(
    doing: str, device: str, dtype: str, offload: str = "none", n_images: int = 0
) -> ModelError:
    """One line for memory that ran out, with what can still be done about it.

    Args:
        doing: what was being done, e.g. "loading shapes-mmdit".
        device: where, e.g. "cuda:0".
        dtype: number format of the weights, e.g. "float32".
        offload: what is kept off the device already: none, model or sequential.
        n_images: images that were being made at once; 0 while the model is loaded.
    """
    on_cpu = device.startswith("cpu")
    remedies = [f"--batch-size {n_images // 2}"] if n_images > 1 else []
    if not on_cpu and offload != "sequential":
        remedies.append("--offload model" if offload == "none" else "--offload sequential")
    if dtype == "float32":
        remedies.append("--dtype bf16")
    if n_images:
        remedies.append("a smaller --height and --width")
    where = "this machine" if on_cpu else device
    advice = f"try {' or '.join(remedies)}" if remedies else "use a machine with more memory"
    return ModelError(f"{where} ran out of memory {doing} in {dtype}; {advice}")
