"""Rows on threads -> what lies around what. No texts and no meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.arrays.nesting import Forest, by_thread, crossing, nest
from pyprof.arrays.types import Array, Bools, Integers, Ints


class Intervals(NamedTuple):
    """Times on threads, in ns; rank: the lower is the outer of two with one begin and one end."""

    thread: Integers
    start: Ints
    end: Ints
    rank: Integers

    def take(self, rows: Array) -> Intervals:
        """Those of some rows."""
        return Intervals(*(column[rows] for column in self))


def nested(rows: Intervals) -> Iterator[tuple[int, Ints, Forest]]:
    """(thread, its rows in order of begin, their forest) of each thread; rows that cross others are left out."""
    for thread, own in by_thread(rows.thread, np.arange(len(rows.thread))).items():
        own = own[np.lexsort((rows.rank[own], -rows.end[own], rows.start[own]))]
        start, end = rows.start[own], rows.end[own]
        forest = nest(start, end)
        aside = crossing(start, end, np.zeros(len(own), np.bool_), forest)
        if aside.any():
            own, forest = own[~aside], nest(start[~aside], end[~aside])
        yield thread, own, forest


def open_at(rows: Intervals, thread: Integers, times: Ints) -> Bools:
    """For each thread and time whether one of these rows is open there."""
    result = np.zeros(len(times), np.bool_)
    asked = by_thread(thread, np.arange(len(times)))
    for number, own in by_thread(rows.thread, np.arange(len(rows.thread))).items():
        if (wanted := asked.get(number)) is not None:
            own = own[np.argsort(rows.start[own])]
            ends = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, rows.end[own]))
            result[wanted] = ends[np.searchsorted(rows.start[own], times[wanted], "right")] > times[wanted]
    return result
