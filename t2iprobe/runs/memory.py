"""How much memory this process has used, and how soon it gives memory back."""

import ctypes
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def peak_bytes() -> int:
    """Largest resident memory so far, in bytes.

    Linux counts it for the program itself (VmHWM); `getrusage`, used elsewhere, may start from what the parent process
    held, in bytes on macOS and in kibibytes on other systems. What the interpreter reads in on leaving comes after
    that: with torch about 0.1 GB of library pages, which `/usr/bin/time` counts and this does not.
    """
    if _STATUS.is_file():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def give_back_soon() -> None:
    """Let freed tensors go back to the system at once, where the C library is glibc; elsewhere nothing is done.

    By itself it keeps what lies between blocks still in use, which in many short calls comes to more than is in use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            mallopt(option, 1 << 17)
