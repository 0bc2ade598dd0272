"""Memory that freed arrays have left in the process -> the system, where it takes that back."""

from __future__ import annotations

import sys


def trim() -> None:
    """Give back what lies between arrays that are still used: glibc keeps it until all above it is free. Elsewhere nothing."""
    if sys.platform == "linux":
        import ctypes

        if (give_back := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
            give_back(0)
