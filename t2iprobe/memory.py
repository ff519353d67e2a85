"""How much memory this process has used."""

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


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
