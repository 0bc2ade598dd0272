"""Memory that freed arrays have left in the process: kept for the next ones, or given back to the system."""

from __future__ import annotations

import sys

import numpy as np

_REUSED_BYTES = 16 << 20  # of one array


def reuse() -> None:
    """Let arrays of some size that are freed leave their memory to the next ones. Otherwise glibc gives it back each time, and
    takes it again page by page: it goes by the largest that was freed so far."""
    np.empty(_REUSED_BYTES, np.uint8)


def trim() -> None:
    """Give back what lies between arrays that are still used: glibc keeps it until all above it is free. Elsewhere nothing."""
    if sys.platform == "linux":
        import ctypes

        if (give_back := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            give_back(0)
