"""Intervals of one rank's GPU -> how long it computed, communicated, copied and idled, step by step.

A step lasts from its first activity to the next step's first, the last step to its own end. Times are unions: overlapping
activities count once. Knows no ops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.intervals import spans, union
from pyprof.columns.types import Array, Bools, Integers, Ints
from pyprof.model.records import PHASES, Records
from pyprof.model.trace import ActivityKind

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


def classes(kind: Array, phase: Array) -> Array:
    """COMPUTE, COMMUNICATION or COPY for records of these kinds and phases."""
    copied = among(kind, (ActivityKind.MEMCPY, ActivityKind.MEMSET))
    found = np.where(copied, np.int8(COPY), np.int8(COMPUTE))
    found[phase == PHASES.index("communication")] = COMMUNICATION
    return found


def of_records(records: Records) -> Busy:
    """The times of one rank's records."""
    start, dur, kind, phase = (records[name] for name in ("start_ns", "dur_ns", "kind", "phase"))
    return breakdown(start, start + np.maximum(dur, 0), classes(kind, phase), records["step"])


def breakdown(start: Ints, end: Ints, kind: Integers, step: Integers) -> Busy:
    """start, end: ns; kind: COMPUTE, COMMUNICATION or COPY; step: -1 outside of steps. Without steps the whole is one."""
    steps, cuts = windows(start, end, step)

    def spent(rows: Bools) -> Ints:
        """The time of each step in which at least one of these runs."""
        one = np.zeros(np.count_nonzero(rows), np.int64)
        covered: Ints = np.diff(union(one, start[rows], end[rows]).covered(np.zeros_like(cuts), cuts))
        return covered

    span, every = np.diff(cuts), spent(np.ones(len(start), np.bool_))
    compute, communication, kernels = spent(kind == COMPUTE), spent(kind == COMMUNICATION), spent(kind != COPY)
    exposed = kernels - compute
    parts = (span, compute, communication, exposed, communication - exposed, every - kernels, span - every)
    return Busy(steps, np.stack(parts, axis=1))


def windows(start: Ints, end: Ints, step: Integers) -> tuple[Ints, Ints]:
    """Steps in order of their begin, and these begins followed by the end of the last step; without steps the whole is one."""
    rows = np.flatnonzero(step >= 0)
    if not len(rows):
        return np.array([-1], np.int64), np.array([start.min(), end.max()], np.int64)
    (steps,), _, which = distinct_rows(step[rows])
    begin, finish = spans(which, start[rows], end[rows], len(steps))
    order = np.argsort(begin, kind="stable")
    last = max(int(finish[order[-1]]), int(begin[order[-1]]))
    return steps[order], np.append(begin[order], last)
