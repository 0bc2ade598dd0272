"""pyprof: for every GPU kernel of a PyTorch program, the op, layer and source line that launched it and what it should cost.

Importing it imports neither torch nor pandas; the names below are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyprof.capture.torchprof import capture as capture
    from pyprof.capture.torchprof import schedule as schedule
    from pyprof.dataframe import load as load
    from pyprof.timers.timing import timeit as timeit

__version__ = "4.0.0.dev0"

_LAZY = {
    "init": "pyprof.nvtx",
    "shutdown": "pyprof.nvtx",
    "wrap": "pyprof.nvtx",
    "instrument": "pyprof.nvtx",
    "step": "pyprof.nvtx",
    "formula": "pyprof.prof.formulas",
    "schedule": "pyprof.capture.torchprof",
    "timeit": "pyprof.timers.timing",
    "profile": "pyprof.capture.profile",
    "table": "pyprof.dataframe",
    "PyprofError": "pyprof.errors",
}

__all__ = [
    "PyprofError",
    "__version__",
    "capture",
    "formula",
    "init",
    "instrument",
    "load",
    "profile",
    "schedule",
    "shutdown",
    "step",
    "table",
    "timeit",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name in ("capture", "load"):  # modules that can be called
        return import_module(f"pyprof.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'pyprof' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
