"""Collective calls on one clock -> which unit came last, how long the others waited for it, how long the transfer took.

A collective begins on a rank when its kernel begins: from then to the last arrival that rank waits. It ends nowhere before all
have come: calls of which one ended before another began were paired wrongly, as where collectives are missing in a capture.
One unit at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.columns.types import Ints
from pyprof.report.ranks.collective_calls import Attended

_LATE = np.iinfo(np.int64).max
_APART_NS = 5_000_000  # between an end and a later begin: more than clocks are apart after aligning, gloo's on busy CPUs too
Units = Sequence[Attended]


class Arrivals(NamedTuple):
    """One row a collective call, ns on the common clock.

    ranks: units that took part, 0 if the call cannot be compared; first, next, last: when the first, the next-to-last and
    the last began; earliest, second, slowest: these units; wait: of all others than the last together; time: the shortest stay
    of a unit, which is the transfer without waiting; nbytes: -1 unknown.
    """

    ranks: Ints
    first: Ints
    next: Ints
    last: Ints
    earliest: Ints
    second: Ints
    slowest: Ints
    wait: Ints
    time: Ints
    nbytes: Ints


def arrivals(units: Units, offset: Ints, count: int, *, ends: bool) -> Arrivals:
    """Rows for `count` collective calls; offset: ns that each unit's clock is ahead; ends: whether their ends are known."""
    ranks, total = np.zeros(count, np.int64), np.zeros(count, np.int64)
    first, time, ended = np.full((3, count), _LATE)
    next_one, last = np.full(count, -_LATE), np.full(count, -_LATE)
    earliest, second, slowest, nbytes = (np.full(count, -1, np.int64) for _ in range(4))
    for number, unit in enumerate(units):
        inside = unit.call >= 0
        at, start = unit.call[inside], unit.start[inside] - offset[number]
        ranks[at] += 1
        total[at] += start
        earliest[at] = np.where(start < first[at], number, earliest[at])
        first[at] = np.minimum(first[at], start)
        is_last, is_second = start > last[at], start > next_one[at]
        second[at] = np.where(is_last, slowest[at], np.where(is_second, number, second[at]))
        next_one[at] = np.where(is_last, last[at], np.where(is_second, start, next_one[at]))
        slowest[at] = np.where(is_last, number, slowest[at])
        last[at] = np.maximum(last[at], start)
        time[at] = np.minimum(time[at], (unit.end - unit.start)[inside])
        ended[at] = np.minimum(ended[at], unit.end[inside] - offset[number])
        nbytes[at] = np.maximum(nbytes[at], unit.nbytes[inside])
    ranks[ends & (ranks > 0) & (ended < last - _APART_NS)] = 0
    wait = np.where(ranks > 0, ranks * last - total, 0)
    return Arrivals(ranks, first, next_one, last, earliest, second, slowest, wait, time, nbytes)


class RankWaits(NamedTuple):
    """One row a unit and step. wait: ns that it waited in collectives; caused: ns that the others together waited for it; late:
    how often it was the last; met: collectives compared; left_out: those that could not be."""

    unit: Ints
    step: Ints
    wait: Ints
    caused: Ints
    late: Ints
    met: Ints
    left_out: Ints


def waits(units: Units, offset: Ints, found: Arrivals, step: Ints, steps: int) -> RankWaits:
    """step: of each collective call, below `steps`; collectives that cannot be compared are counted once a unit, at step -1."""
    rows: list[Ints] = []
    for number, unit in enumerate(units):
        at, start = unit.call, unit.start - offset[number]
        together = (at >= 0) & (found.ranks[at] > 1) if len(found.ranks) else np.zeros(len(at), np.bool_)
        alone = int((~together).sum())
        at, start = at[together], start[together]
        where = step[at]
        last = found.slowest[at] == number
        sums = [
            np.bincount(where, weights, steps).astype(np.int64)
            for weights in (found.last[at] - start, np.where(last, found.wait[at], 0), last, np.ones(len(at)))
        ]
        present = np.flatnonzero(sums[3])
        zeros = np.zeros_like(present)
        rows.append(np.stack([zeros + number, present, *(s[present] for s in sums), zeros]))
        if alone:
            rows.append(np.array([[number, -1, 0, 0, 0, 0, alone]], np.int64).T)
    whole = np.concatenate([np.empty((7, 0), np.int64), *rows], axis=1)
    return RankWaits(*whole)
