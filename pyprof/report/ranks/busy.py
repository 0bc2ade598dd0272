"""Intervals of one rank's GPU -> how long it computed, communicated, copied and idled, step by step.

A step lasts from its first activity to that of the next step, the last step to its own end. Times are of unions: what runs at
the same time counts once. Knows no ops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.arrays.intervals import spans, union
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.records.records import PHASES, Records
from pyprof.parse.sources.trace import ActivityKind

COMPUTE, COMMUNICATION, COPY = range(3)
# The columns of `Busy.times`: span = compute + exposed + copy + idle; communication = exposed + overlap.
MEASURES = {
    "span": "from the step's first activity to the next step's",
    "compute": "kernels that are no communication",
    "communication": "kernels of communication, waiting included",
    "exposed": "communication without a kernel beside it",
    "overlap": "communication with a kernel beside it",
    "copy": "only copies or fills",
    "idle": "nothing at all",
}


class Busy(NamedTuple):
    """steps: step numbers, -1 for a capture without steps; times: ns, a row a step and a column a measure."""

    steps: Ints
    times: Ints


def classes(records: Records) -> Ints:
    """COMPUTE, COMMUNICATION or COPY for each record."""
    copied = np.isin(records["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET))
    found = np.where(copied, COPY, COMPUTE)
    found[records["phase"] == PHASES.index("communication")] = COMMUNICATION
    return found.astype(np.int64)


def of_records(records: Records) -> Busy:
    """The times of one rank's records."""
    start = records["start_ns"].astype(np.int64)
    end = start + np.maximum(records["dur_ns"], 0)
    return breakdown(start, end, classes(records), records["step"].astype(np.int64))


def breakdown(start: Ints, end: Ints, kind: Ints, step: Ints) -> Busy:
    """start, end: ns; kind: COMPUTE, COMMUNICATION or COPY; step: -1 outside of steps. Without steps the whole is one."""
    steps, cuts = _windows(start, end, step)
    zeros = np.zeros_like(start)

    def spent(which: Bools) -> Ints:
        """The time of each step in which at least one of these runs."""
        return np.diff(union(zeros[which], start[which], end[which]).covered(np.zeros_like(cuts), cuts))

    span, every = np.diff(cuts), spent(np.ones(len(start), np.bool_))
    compute, communication, kernels = spent(kind == COMPUTE), spent(kind == COMMUNICATION), spent(kind != COPY)
    exposed = kernels - compute
    parts = (span, compute, communication, exposed, communication - exposed, every - kernels, span - every)
    return Busy(steps, np.stack(parts, axis=1))


def _windows(start: Ints, end: Ints, step: Ints) -> tuple[Ints, Ints]:
    """Steps in order of their begin, and these begins followed by the end of the last step."""
    inside = step >= 0
    if not inside.any():
        return np.array([-1], np.int64), np.array([start.min(), end.max()], np.int64)
    steps, which = np.unique(step[inside], return_inverse=True)
    begin, finish = spans(which.ravel(), start[inside], end[inside], len(steps))
    order = np.argsort(begin, kind="stable")
    last = max(int(finish[order[-1]]), int(begin[order[-1]]))
    return steps[order], np.append(begin[order], last)
