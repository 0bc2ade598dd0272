"""pyprof: for every GPU kernel of a PyTorch program, the op, layer and source line that launched it and what it should cost.

Importing it imports neither torch nor pandas; the names below are loaded when first used. Packages of the stages are too:
`import pyprof; pyprof.nvtx.init()`.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # of `typing`, which takes half as long to import as the interpreter to start
if TYPE_CHECKING:
    from typing import Any

    from pyprof import nvtx as nvtx
    from pyprof import parse as parse
    from pyprof import prof as prof
    from pyprof import timers as timers
    from pyprof.api import load as load
    from pyprof.api import summary as summary
    from pyprof.api import table as table
    from pyprof.prof.formulas import formula as formula
    from pyprof.recording.torchprof import capture as capture
    from pyprof.recording.torchprof import schedule as schedule
    from pyprof.timers.timing import timeit as timeit

__version__ = "4.0.0.dev0"

_LAZY = {
    "init": "pyprof.nvtx",
    "shutdown": "pyprof.nvtx",
    "wrap": "pyprof.nvtx",
    "instrument": "pyprof.nvtx",
    "step": "pyprof.nvtx",
    "formula": "pyprof.prof.formulas",
    "capture": "pyprof.recording.torchprof",
    "load": "pyprof.api",
    "schedule": "pyprof.recording.torchprof",
    "timeit": "pyprof.timers.timing",
    "profile": "pyprof.recording.profile",
    "summary": "pyprof.api",
    "table": "pyprof.api",
    "PyprofError": "pyprof.errors",
}

_STAGES = ("counters", "examples", "nvtx", "parse", "prof", "recording", "report", "scrub", "timers")

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
    "summary",
    "table",
    "timeit",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name in _STAGES:
        return import_module(f"pyprof.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'pyprof' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_STAGES])
