"""How much memory this process has used."""

import resource
import sys


def peak_bytes() -> int:
    """Largest resident memory so far, in bytes; the system counts in bytes on macOS, in kibibytes elsewhere."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
