"""Ranges and kernels of a capture -> slices of time that are attributed one after another, with the result of the whole.

A slice has the kernels launched in it and every range that is open in it at any time, so that the ranges around each kernel are
all there. What autograd's engine ran is told by all that lies inside: such a range comes whole into each of the two slices that
it may lie in. The rest of attribution then takes memory by the slice, and its arrays stay in the processor's caches. That no
ranges cross is taken for granted here. No texts, no ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.arrays.nesting import stable_order
from pyprof.parse.attribution.crossing import NEVER
from pyprof.parse.sources.trace import Table

__all__ = ["MOST_KERNELS", "Slice", "Slices"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_KERNELS = 1 << 16  # of a slice, about
_MOST_SLICES = 1 << 14
_ROWS = 1 << 20  # looked at at a time
_MOST_OPEN = 4096  # ranges open at the edge of a slice, which both slices have


class Slice(NamedTuple):
    """Time from begin until before end, in ns; rows of the tables `ranges` and `activities`."""

    begin: int
    end: int
    ranges: Ints
    kernels: Ints


class Slices:
    """The slices of a capture, in order of time.

    ranges: the table; kept: which of its rows count; whole: which labels are those of ranges that must not be taken apart;
    when: where in time each kernel is looked for, below 0 nowhere; most: kernels of a slice.
    """

    def __init__(self, ranges: Table, kept: Bools, whole: Bools, when: Ints, most: int) -> None:
        self.start, self.end, self.thread, self.kept = ranges["start_ns"], ranges["end_ns"], ranges["thread"], kept
        self.threads = int(self.thread.max(initial=-1)) + 2  # and a place for what is on no thread, -1
        self.cuts = _cuts(when, most)
        first, self.open = self._place()
        self.open_first = first[self.open].astype(np.int64)
        self.open_last = np.searchsorted(self.cuts, self.end[self.open], "left")
        self.open_whole = whole[ranges["label"][self.open]] if len(whole) else np.zeros(len(self.open), np.bool_)
        number = self._fewer_cuts(len(first))
        self.rows = _Groups(number[first], len(self.cuts) + 1)
        self.kernels = _Groups(_number(self.cuts, when), len(self.cuts) + 1)

    def _place(self) -> tuple[npt.NDArray[np.int16], Ints]:
        """The slice in which each range begins, and the rows of those that are open where it ends."""
        first = np.zeros(len(self.start), np.int16)
        following = np.append(self.cuts, NEVER)
        opened = [np.empty(0, np.int64)]
        for begin in range(0, len(first) if len(self.cuts) else 0, _ROWS):
            part = slice(begin, begin + _ROWS)
            first[part] = _number(self.cuts, self.start[part])
            opened.append(np.flatnonzero(self.kept[part] & (self.end[part] > following[first[part]])) + begin)
        return first, np.concatenate(opened)

    def __len__(self) -> int:
        return len(self.cuts) + 1

    def _fewer_cuts(self, rows: int) -> npt.NDArray[np.int16]:
        """Give up cuts at which too much is open, and all but one of those that go through one whole; the new number of each
        slice that there was."""
        keep = np.ones(len(self.cuts), np.bool_)
        opened = np.bincount(self.open_first, minlength=len(self.cuts) + 1) - np.bincount(
            self.open_last, minlength=len(self.cuts) + 1
        )
        keep[np.cumsum(opened)[:-1] > max(_MOST_OPEN, rows // (4 * len(self)))] = False
        for row in np.flatnonzero(self.open_whole & (self.open_last - self.open_first > 1)).tolist():
            through = np.flatnonzero(keep[self.open_first[row] : self.open_last[row]]) + self.open_first[row]
            keep[through[1:]] = False
        number = np.concatenate([[0], np.cumsum(keep)]).astype(np.int16)
        self.cuts = self.cuts[keep]
        self.open_first, self.open_last = number[self.open_first].astype(np.int64), number[self.open_last].astype(np.int64)
        still = self.open_last > self.open_first
        self.open, self.open_whole = self.open[still], self.open_whole[still]
        self.open_first, self.open_last = self.open_first[still], self.open_last[still]
        return number

    def __iter__(self) -> Iterator[Slice]:
        edges = [-1 - NEVER, *self.cuts.tolist(), NEVER]
        for number in range(len(self)):
            begin, end = edges[number], edges[number + 1]
            before = self.open[(self.open_first < number) & (self.open_last >= number)]
            parts = [before, self._rest(number - 1, number, begin), self._own(number), self._rest(number + 1, number, end)]
            yield Slice(begin, end, np.concatenate(parts) if len(self) > 1 else parts[2], self.kernels[number])

    def _own(self, number: int) -> Ints:
        """Rows that begin in a slice."""
        rows = self.rows[number]
        kept = self.kept[rows]
        return rows if kept.all() else rows[kept]

    def _rest(self, neighbour: int, number: int, edge: int) -> Ints:
        """Rows of the slice before or after that lie in a whole range across the edge, without those across it themselves."""
        first = min(neighbour, number)
        across = self.open[self.open_whole & (self.open_first == first)] if 0 <= neighbour < len(self) else self.open[:0]
        if not len(across):
            return across
        rows = self._own(neighbour)
        if neighbour < number:
            begin = np.full(self.threads, NEVER)
            np.minimum.at(begin, self.thread[across], self.start[across])
            return rows[(self.start[rows] >= begin[self.thread[rows]]) & (self.end[rows] <= edge)]
        until = np.full(self.threads, -1 - NEVER)
        np.maximum.at(until, self.thread[across], self.end[across])
        return rows[self.start[rows] < until[self.thread[rows]]]


class _Groups:
    """Rows by the number of their slice."""

    def __init__(self, number: npt.NDArray[Any], count: int) -> None:
        self.order: npt.NDArray[np.int32] | None = None
        if (number[1:] < number[:-1]).any():
            order = stable_order(number)
            number, self.order = number[order], order.astype(np.int32)
        self.bounds = np.searchsorted(number, np.arange(count + 1)).tolist()

    def __getitem__(self, number: int) -> Ints:
        begin, end = self.bounds[number], self.bounds[number + 1]
        return np.arange(begin, end) if self.order is None else self.order[begin:end].astype(np.int64)


def _cuts(when: Ints, most: int) -> Ints:
    """Times that part the kernels into about equal numbers."""
    slices = min(-(-len(when) // most), _MOST_SLICES)
    if slices < 2:
        return np.empty(0, np.int64)
    sample = np.sort(when[:: max(len(when) // (slices * 256), 1)])
    cuts: Ints = np.unique(sample[np.arange(1, slices) * len(sample) // slices])
    return cuts[cuts > 0]


def _number(cuts: Ints, times: Ints) -> npt.NDArray[np.int16]:
    """The slice of each time."""
    if not len(cuts):
        return np.zeros(len(times), np.int16)
    return np.searchsorted(cuts, times, "right").astype(np.int16)
