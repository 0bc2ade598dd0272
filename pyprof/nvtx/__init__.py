"""Stage 1, the instrumenter: a running PyTorch program -> NVTX ranges with each op, layer, optimizer step and source line.

    import pyprof
    pyprof.init()                    # for the rest of the program, where a tool is attached
    with pyprof.instrument(): ...    # for a part of it
    pyprof.wrap(mymodule, "fn")      # functions of the user's own too
    pyprof.shutdown()                # torch as it was

Importing this package does not import torch; using one of its functions does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyprof.nvtx.api import enabled, init, instrument, pause, resume, shutdown, stats, step, wrap

__all__ = ["enabled", "init", "instrument", "pause", "resume", "shutdown", "stats", "step", "wrap"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pyprof.nvtx' has no attribute {name!r}")
    return getattr(import_module("pyprof.nvtx.api"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
