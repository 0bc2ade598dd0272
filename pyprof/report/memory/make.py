"""A file -> its memory report."""

from __future__ import annotations

from pyprof.errors import InputError
from pyprof.loading.formats import op_rules
from pyprof.loading.load import load_allocations
from pyprof.model.allocations import AllocationTrace
from pyprof.model.trace import Trace
from pyprof.report.memory.of_trace import allocations_of
from pyprof.report.memory.report import MemoryReport


def memory_of(name: str, at: str = "peak") -> MemoryReport:
    """The report of a snapshot or a capture. Raises InputError without allocations, UsageError for a bad `at`."""
    return reported(load_allocations(name), name, at)


def reported(found: AllocationTrace | Trace | None, name: str, at: str) -> MemoryReport:
    """The report of loaded allocations or a loaded capture. Raises as `memory_of`."""
    if found is None:
        raise InputError(f"{name}: records hold no allocations", "give the capture that they were parsed from")
    return MemoryReport(name, found if isinstance(found, AllocationTrace) else allocations_of(found, op_rules(), name), at)
