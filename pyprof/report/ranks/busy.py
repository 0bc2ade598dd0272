"""Intervals of one rank's GPU -> how long it computed, communicated, copied and idled, step by step.

A step lasts from its first activity to that of the next one, the last one to its own end. Times are of unions: what runs at the
same time counts once. Numpy over all rows; no names of ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.parse.records.records import PHASES, Records
from pyprof.parse.sources.trace import ActivityKind

__all__ = ["COMMUNICATION", "COMPUTE", "COPY", "MEASURES", "Busy", "breakdown", "classes", "of_records"]

Ints = npt.NDArray[np.int64]
COMPUTE, COMMUNICATION, COPY = range(3)


class Measures(NamedTuple):
    """Names of the columns of `Busy.times`: span = compute + exposed + copy + idle; communication = exposed + overlap.

    exposed: communication without a kernel beside it; copy: only copies or fills; idle: nothing at all.
    """

    span: str = "span"
    compute: str = "compute"
    communication: str = "communication"
    exposed: str = "exposed"
    overlap: str = "overlap"
    copy: str = "copy"
    idle: str = "idle"


MEASURES = Measures()


@dataclass(frozen=True)
class Busy:
    """steps: step numbers, -1 for a capture without steps; times: ns, a row a step and a column a measure."""

    steps: Ints
    times: npt.NDArray[np.int64]


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
    """start, end: ns; kind: COMPUTE, COMMUNICATION or COPY; step: -1 is in none. Without any step the whole is one."""
    steps, cuts = _windows(start, end, step)
    times = np.concatenate([start, end, cuts])
    order = np.argsort(times, kind="stable")
    when = times[order]
    length = np.diff(when)
    window = np.searchsorted(cuts, when[:-1], "right") - 1
    counted = (length > 0) & (window >= 0) & (window < len(steps))

    def runs(of: int) -> npt.NDArray[np.bool_]:
        change = np.concatenate([kind == of, np.zeros(len(cuts), np.bool_)]).astype(np.int32)
        both = np.concatenate([change[: len(start)], -change[: len(start)], np.zeros(len(cuts), np.int32)])
        found: npt.NDArray[np.bool_] = np.cumsum(both[order])[:-1] > 0
        return found

    compute, communication, copy = runs(COMPUTE), runs(COMMUNICATION), runs(COPY)
    exposed = communication & ~compute
    parts = (
        np.ones(len(length), np.bool_),
        compute,
        communication,
        exposed,
        communication & compute,
        copy & ~communication & ~compute,
        ~(compute | communication | copy),
    )
    sums = [np.bincount(window[mask & counted], length[mask & counted], len(steps)) for mask in parts]
    return Busy(steps, np.stack(sums, axis=1).astype(np.int64))


def _windows(start: Ints, end: Ints, step: Ints) -> tuple[Ints, Ints]:
    """Steps in order of begin, and where each begins; after them the end of the last."""
    inside = step >= 0
    if not inside.any():
        return np.array([-1], np.int64), np.array([start.min(), end.max()], np.int64)
    steps, which = np.unique(step[inside], return_inverse=True)
    begin = np.full(len(steps), np.iinfo(np.int64).max)
    finish = np.full(len(steps), np.iinfo(np.int64).min)
    np.minimum.at(begin, which.ravel(), start[inside])
    np.maximum.at(finish, which.ravel(), end[inside])
    order = np.argsort(begin, kind="stable")
    last = max(int(finish[order[-1]]), int(begin[order[-1]]))
    return steps[order], np.append(begin[order], last)
