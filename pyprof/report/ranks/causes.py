"""Delays and timelines -> what a rank that others waited for did meanwhile that took longer than on the other ranks.

The time looked at is that before the collective calls to which it came late, back to the last call in which it waited itself
for longer than it is late. Its computing, layer by layer, and its late launches are compared with the median of the other
ranks; so is when it began at all. A cause is one only if it explains at least a tenth of the delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.report.ranks.arrivals import Arrivals, Units
from pyprof.report.ranks.collective_calls import Attended
from pyprof.report.ranks.timeline import APART, LATE, LATE_LAUNCH, Timeline, Timelines, Work

LEAST_SHARE = 0.1  # of the delay
BEGUN: Work = ("-", "(began later)")
FIRST: Work = ("-", "(first launch later)")  # where it is not known when the host began
ALL_WORK: Work = ("-", "(all kernels)")
_ALL_OPS = "(all ops)"


class Delayed(NamedTuple):
    """Input of the search for causes. ranks: how many; rank_of: rank of each unit; offset: ns that each unit's clock is ahead;
    new: for each collective call the ns by which its last rank was late and had not been late before."""

    found: Arrivals
    units: Units
    timelines: Timelines
    offset: Ints
    new: Ints
    rank_of: Ints
    ranks: int


class Cause(NamedTuple):
    """rank: its row; work: (layer, op), (what the host did, `(launched late)`), BEGUN or FIRST; own: ns on that rank, of these
    two after the first rank; median: the same on the other ranks; share: of the rank's delay that the difference explains,
    at most 1."""

    rank: int
    work: Work
    own: float
    median: float
    share: float


def delay_of(job: Delayed, rank: int) -> float:
    """By how many ns this rank was late on average of the other ranks, each delay once."""
    found = job.found
    rows = np.flatnonzero(_anew(job) & (job.rank_of[found.slowest] == rank))
    mean = found.wait[rows] / (found.ranks[rows] - 1)
    return float((mean * job.new[rows] / (found.last - found.next)[rows]).sum())


def _anew(job: Delayed) -> Bools:
    """Collective calls to which the last rank came later than its earlier delays explain."""
    return (job.new > 0) & (2 * job.new >= job.found.last - job.found.next)


def causes_of(job: Delayed, slow: list[int]) -> list[Cause]:
    """Causes that explain at least a tenth of a rank's delay, rank by rank in this order, most important first."""
    meant = [_meant(job, rank) for rank in slow]
    found = [cause for at, rank in enumerate(slow) for cause in _late_begin(job, rank, meant[at])]
    works = len(job.timelines.work)
    times, met = np.zeros((len(slow), job.ranks, works)), np.zeros((len(slow), job.ranks), np.int64)
    for rank_of, unit, line in zip(job.rank_of.tolist(), job.units, job.timelines.units, strict=True):
        for at, wanted in enumerate(meant):
            sums, count = _sums(unit, line, wanted, job)
            times[at, rank_of] += sums
            met[at, rank_of] += count
    for rank, table, attended in zip(slow, times, met, strict=True):
        others = np.flatnonzero((2 * attended >= attended[rank]) & (np.arange(job.ranks) != rank))
        if len(others) and attended[rank]:
            found += _telling(job, rank, table[rank], np.median(table[others], axis=0))
    return sorted(found, key=lambda cause: (slow.index(cause.rank), cause.median - cause.own, cause.work))


def _meant(job: Delayed, rank: int) -> Bools:
    """Collective calls before which this rank lost its time."""
    chosen = np.zeros(len(job.new), np.bool_)
    for number, unit in enumerate(job.units):
        if job.rank_of[number] != rank:
            continue
        rows = np.flatnonzero(unit.call >= 0)
        rows = rows[np.argsort(unit.start[rows], kind="stable")]
        call = unit.call[rows]
        late = np.where(_anew(job)[call] & (job.found.slowest[call] == number), job.new[call], 0)
        waited = job.found.last[call] - (unit.start[rows] - job.offset[number])
        before = 0
        for at, more, wait in zip(call[::-1].tolist(), late[::-1].tolist(), waited[::-1].tolist(), strict=True):
            before = max(before, more) if more or wait < before else 0
            chosen[at] = before > 0
    return chosen


def _late_begin(job: Delayed, rank: int, meant: Bools) -> Iterator[Cause]:
    """Cause "began later": time lost before the first collective call."""
    begin = np.full(job.ranks, np.inf)
    first = np.zeros(job.ranks, np.bool_)
    for number, unit in enumerate(job.units):
        own = int(job.rank_of[number])
        inside = np.flatnonzero(unit.call >= 0)
        at = job.timelines.begin[number] - int(job.offset[number])
        if len(inside) and at < begin[own]:
            begin[own] = at
            first[own] = meant[unit.call[inside[np.argmin(unit.start[inside])]]]
    others = begin[np.isfinite(begin) & (np.arange(job.ranks) != rank)]
    if first[rank] and len(others):
        earliest = min(float(others.min()), float(begin[rank]))
        known = all(job.timelines.begin_known)
        yield from _explaining(
            job, rank, {BEGUN if known else FIRST: (float(begin[rank]) - earliest, float(np.median(others)) - earliest)}
        )


def _sums(unit: Attended, line: Timeline, meant: Bools, job: Delayed) -> tuple[Floats, int]:
    """(ns of each work before the chosen collective calls, how many of these the unit took part in)."""
    works = len(job.timelines.work)
    rows = np.flatnonzero(unit.call >= 0)
    rows = rows[np.argsort(unit.start[rows], kind="stable")]
    came, call = unit.start[rows], unit.call[rows]
    wanted = np.append(meant[call], False)
    together = came[job.found.ranks[call] > 1]
    inside = wanted[np.searchsorted(came, line.start, "left")]
    does = inside & ((line.work >= 0) | ~among(line.start, together))
    apart = np.where(line.work >= 0, line.work, job.timelines.work[APART])
    sums = np.zeros(works)
    sums += np.bincount(apart[does], (line.end - line.start)[does], works)
    sums += np.bincount(line.doing[inside], line.pause[inside], works)
    return sums, int(wanted.sum())


def _telling(job: Delayed, rank: int, own: Floats, median: Floats) -> Iterator[Cause]:
    """Causes in computing and in late launches, each at the finest level that explains at least half of the difference: ops,
    layers or all computing; one activity of the host or all of them. Also communication that cannot be compared."""
    works = list(job.timelines.work)
    late = np.array([op == LATE for _, op in works])
    apart = job.timelines.work[APART]
    yield from _explaining(job, rank, {APART: (float(own[apart]), float(median[apart]))})
    computed = ~late & (np.arange(len(works)) != apart)
    for which, whole in ((computed, ALL_WORK), (late, LATE_LAUNCH)):
        levels: list[dict[Work, tuple[float, float]]] = [{}, {}, {}]
        for at in np.flatnonzero(which & ((own > 0) | (median > 0))).tolist():
            names = (works[at], works[at] if whole == LATE_LAUNCH else (works[at][0], _ALL_OPS), whole)
            for level, name in zip(levels, names, strict=True):
                before = level.get(name, (0.0, 0.0))
                level[name] = before[0] + float(own[at]), before[1] + float(median[at])
        more = max((mine - other for mine, other in levels[2].values()), default=0.0)
        for level in levels:
            most = max((mine - other for mine, other in level.values()), default=0.0)
            if most >= more / 2 > 0 and (found := list(_explaining(job, rank, level))):
                yield from found
                break


def _explaining(job: Delayed, rank: int, times: dict[Work, tuple[float, float]]) -> Iterator[Cause]:
    delay = delay_of(job, rank)
    for work, (own, median) in times.items():
        share = min((own - median) / delay, 1.0) if delay else 0.0
        if share >= LEAST_SHARE:
            yield Cause(rank, work, own, median, share)
