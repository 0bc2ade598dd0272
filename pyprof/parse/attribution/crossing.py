"""Ranges that nest with nothing -> a table of their own, and which of them are open on a thread at a time.

Layers, steps and the user's own ranges that were never closed, or that cross others: they name no op and are still told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyprof.arrays.nesting import sort_ranges
from pyprof.parse.attribution.ranges import by_thread, ties
from pyprof.parse.sources.trace import Trace

__all__ = ["NEVER", "Loose"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Loose:
    """Rows in order of begin. start, end: ns, NEVER for what was never closed; thread, label, domain, src as in `ranges`."""

    start: Ints
    end: Ints
    thread: Ints
    label: Ints
    domain: Ints
    src: Ints

    @staticmethod
    def of(trace: Trace, rows: Ints, never: Bools) -> Loose:
        """These rows of a trace's ranges; never: whether each was never closed."""
        ranges = trace.ranges
        start, end = ranges["start_ns"][rows], np.where(never, NEVER, ranges["end_ns"][rows])
        order = sort_ranges(start, end, lambda at: ties(trace, rows[at]))
        rest = (ranges[name][rows[order]].astype(np.int64) for name in ("thread", "label", "domain", "src"))
        return Loose(start[order], end[order], *rest)

    def __len__(self) -> int:
        return len(self.start)

    def open(self, thread: Ints, times: Ints) -> Bools:
        """Whether any is open on each thread at each time."""
        result = np.zeros(len(times), np.bool_)
        if not len(self):
            return result
        for number, rows in by_thread(thread, np.arange(len(thread))).items():
            mine = self.thread == number
            begun = np.searchsorted(self.start[mine], times[rows], "right")
            result[rows] = begun > np.searchsorted(np.sort(self.end[mine]), times[rows], "right")
        return result
