"""Rows on threads, parted by time, so that what lies around what is found with some of them in memory at a time.

A part has the rows that begin in a stretch of one thread's time. What of earlier parts is still open there comes with it.
No texts and no meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import distinct_values
from pyprof.arrays.nesting import Forest, crossing, nest
from pyprof.arrays.sorting import Groups
from pyprof.arrays.spool import PIECE_ROWS, computed, empty, pieces, release, taken
from pyprof.arrays.types import Array, Bools, Integers, Ints

_SAMPLES = 256  # of each part


class Intervals(NamedTuple):
    """Times on threads, in ns; rank: the lower is the outer of two with one begin and one end."""

    thread: Integers
    start: Ints
    end: Ints
    rank: Integers

    def take(self, rows: Array) -> Intervals:
        """Those of some rows."""
        return Intervals(*(taken(column, rows) for column in self))


class Parts:
    """Parts of about PIECE_ROWS of these rows each, by thread and time.

    thread: of each part; begin: the time from which on its rows begin, ns, the lowest number for the first of a thread.
    """

    def __init__(self, thread: Integers, start: Ints) -> None:
        rows = len(thread)
        step = max(rows // (max(-(-rows // PIECE_ROWS), 1) * _SAMPLES), 1)
        some_threads, some_starts = np.array(thread[::step]), np.array(start[::step])
        found = [np.empty(0, np.int64), *(distinct_values(thread[part]) for part in pieces(rows))]
        self._first: dict[int, int] = {}
        self._cuts: dict[int, Ints] = {}
        self.thread: list[int] = []
        self.begin: list[int] = []
        for number in distinct_values(np.concatenate(found)).tolist():
            sample = np.sort(some_starts[some_threads == number])
            parts = max(-(-len(sample) * step // PIECE_ROWS), 1)
            cuts = distinct_values(sample[np.arange(1, parts) * len(sample) // parts]) if parts > 1 else sample[:0]
            self._first[number], self._cuts[number] = len(self.thread), cuts
            self.thread += [number] * (len(cuts) + 1)
            self.begin += [np.iinfo(np.int64).min, *cuts.tolist()]

    def __len__(self) -> int:
        return len(self.thread)

    def groups(self, thread: Integers, start: Ints) -> Groups:
        """The rows of each part among any with a thread and a time; those on other threads are in a group after all parts."""

        def number(part: slice) -> Array:
            result = np.full(part.stop - part.start, len(self), np.int32)
            for one in distinct_values(thread[part]).tolist():
                if one in self._first:
                    own = thread[part] == one
                    result[own] = self._first[one] + np.searchsorted(self._cuts[one], start[part][own], "right")
            return result

        return Groups(computed(len(thread), np.int32, number), len(self) + 1)


class NestedParts:
    """The nestings of rows on threads, a part at a time; rows that cross others are left out."""

    def __init__(self, rows: Intervals) -> None:
        self._rows = rows
        self.parts = Parts(rows.thread, rows.start)

    def __iter__(self) -> Iterator[tuple[int, Ints, Forest]]:
        """(number of the part, its rows in order of begin with those still open before them, their forest)."""
        _, start, end, rank = self._rows
        groups = self.parts.groups(self._rows.thread, start)
        before, kept = -1, np.empty(0, np.int64)
        for number, (thread, begin) in enumerate(zip(self.parts.thread, self.parts.begin, strict=True)):
            own = groups[number]
            own = own[np.lexsort((rank[own], -end[own], start[own]))]
            still = kept[end[kept] > begin] if thread == before else kept[:0]
            rows = np.concatenate([still, own])
            aside = crossing(start[rows], end[rows], np.zeros(len(rows), np.bool_))
            kept, before = rows[~aside], thread
            yield number, kept, nest(start[kept], end[kept])
            release()


def open_at(rows: Intervals, thread: Integers, times: Ints) -> Bools:
    """For each thread and time whether one of these rows is open there."""
    parts = Parts(rows.thread, rows.start)
    groups, asked = parts.groups(rows.thread, rows.start), parts.groups(thread, times)
    result = empty(len(times), np.bool_)
    result[:] = False
    before, last = -1, 0
    for number, one in enumerate(parts.thread):
        own, wanted = groups[number], asked[number]
        own = own[np.argsort(rows.start[own])]
        last = last if one == before else np.iinfo(np.int64).min
        ends = np.maximum.accumulate(np.append(last, rows.end[own]))
        result[wanted] = ends[np.searchsorted(rows.start[own], times[wanted], "right")] > times[wanted]
        before, last = one, int(ends[-1])
        release()
    return result
