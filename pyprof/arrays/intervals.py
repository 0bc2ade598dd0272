"""Intervals of time in groups -> their unions, the gaps between them, what of a time they cover; figures of groups. No loops.

Groups are whole numbers from 0, times whole nanoseconds. Rows of one group stand together and in order of begin where it says
`sorted`. An interval is open from its begin until just before its end; intervals that touch leave no gap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyprof.arrays.nesting import stable_order

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segments:
    """Intervals of groups that do not touch, sorted."""

    group: Ints
    start: Ints
    end: Ints

    def total(self, groups: int) -> Ints:
        """Time covered in each group."""
        return summed(self.group, self.end - self.start, groups)

    def covered(self, group: Ints, times: Ints) -> Ints:
        """Time covered in a group before each time."""
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        at = count_before(self.group, self.start, group, times, inclusive=True) - 1
        good = (at >= 0) & (self.group[np.maximum(at, 0)] == group)
        at = np.maximum(at, 0)
        before = np.concatenate([[0], np.cumsum(self.end - self.start)[:-1]])
        first = np.searchsorted(self.group, group, "left")
        inside = before[at] - before[np.minimum(first, len(before) - 1)] + np.minimum(times, self.end[at]) - self.start[at]
        return np.where(good, inside, 0)


def summed(group: Ints, values: Ints, groups: int) -> Ints:
    """The exact sum of the values of each group; rows in any order."""
    result = np.zeros(groups, np.int64)
    np.add.at(result, group, values)
    return result


def spans(group: Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints]:
    """(first begin, last end) of each group; rows in any order. Without rows the largest and the smallest number."""
    first, last = np.full(groups, np.iinfo(np.int64).max), np.full(groups, np.iinfo(np.int64).min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last


def quantiles(group: Ints, values: Floats | Ints, groups: int, *shares: float) -> Floats:
    """The quantiles of each group's known values, (shares, groups), interpolated; NaN for a group without."""
    known = ~np.isnan(values)
    group, values = group[known], values[known]
    count = np.bincount(group, minlength=groups)
    order = np.argsort(values)
    ordered = np.append(values[order[stable_order(group[order])]], 0).astype(np.float64)
    first = np.cumsum(count) - count
    place = first + np.array(shares)[:, None] * np.maximum(count - 1, 0)
    low = place.astype(np.int64)
    high = np.minimum(low + 1, np.maximum(first + count - 1, first))
    return np.where(count > 0, ordered[low] + (place - low) * (ordered[high] - ordered[low]), np.nan)


def latest(group: Ints, end: Ints) -> Ints:
    """For each row that row of its group, up to it, which ends last; the first of equals. Rows of a group stand together."""
    if not len(end):
        return np.empty(0, np.int64)
    code = _numbered(group, end)
    new = np.ones(len(code), np.bool_)
    new[1:] = code[1:] > np.maximum.accumulate(code)[:-1]
    return np.maximum.accumulate(np.where(new, np.arange(len(code)), 0))


def between(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The gaps of sorted intervals: (row that begins after a gap, row that ended last before it)."""
    holder = latest(group, end)
    after = np.flatnonzero((group[1:] == group[:-1]) & (start[1:] > end[holder[:-1]])) + 1
    return after, holder[after - 1]


def union(group: Ints, start: Ints, end: Ints) -> Segments:
    """The time in which at least one interval of a group is open; the rows may stand in any order."""
    if (order := order_of(group, start, end)) is not None:
        group, start, end = group[order], start[order], end[order]
    if not len(start):
        return Segments(group, start, end)
    holder = latest(group, end)
    new = np.ones(len(start), np.bool_)
    new[1:] = (group[1:] != group[:-1]) | (start[1:] > end[holder[:-1]])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(start)) - 1
    return Segments(group[first], start[first], end[holder[last]])


def count_before(group: Ints, value: Ints, asked: Ints, times: Ints, *, inclusive: bool) -> Ints:
    """How many rows, sorted by (group, value), stand before each (group, time); inclusive: those of the same time too."""
    if not len(value):
        return np.zeros(len(times), np.int64)
    low, high = int(value.min()), int(value.max())
    # A time after all rows is as good as the first such one; up to and with a time is before the next.
    at = np.clip(times + np.int64(inclusive), low, high + 1)
    groups = np.concatenate([group, asked])
    rows, wanted = np.split(_numbered(groups, np.concatenate([value, at])), [len(value)])
    return np.searchsorted(rows, wanted, "left")


def order_of(*keys: Ints) -> Ints | None:
    """The order of rows by the first key, equal ones by the next, else as they stand; None where they stand so already."""
    ascends, same = np.zeros(max(len(keys[0]) - 1, 0), np.bool_), np.ones(max(len(keys[0]) - 1, 0), np.bool_)
    for key in keys:
        ascends |= same & (key[1:] > key[:-1])
        same &= key[1:] == key[:-1]
    return None if (ascends | same).all() else np.lexsort(keys[::-1])


def _numbered(group: Ints, value: Ints) -> Ints:
    """Numbers in the order of (group, value), equal ones for equal pairs."""
    low, first = int(value.min()), int(group.min())
    width = int(value.max()) - low + 1
    if width * (int(group.max()) - first + 1) < 1 << 62:
        result = np.subtract(group, first, dtype=np.int64)
        result *= width
        result += value
        result -= low
        return result
    values, rank = np.unique(value, return_inverse=True)
    return np.asarray(group * len(values) + rank.ravel(), np.int64)


def depth(start: Ints, end: Ints, edges: Ints) -> tuple[npt.NDArray[np.float64], Ints]:
    """How many intervals are open in each bin between ascending edges: (mean over the bin's time, most at once)."""
    times = np.concatenate([start, end])
    change = np.concatenate([np.ones(len(start), np.int64), np.full(len(end), -1)])
    order = np.lexsort((change, times))  # of one time the ends first: an interval without length is never open
    times, level = times[order], np.cumsum(change[order])
    last = np.searchsorted(times, edges, "right") - 1  # the change that holds at each edge
    at_edge = np.where(last >= 0, level[last], 0) if len(level) else np.zeros(len(edges), np.int64)
    # Where several changes fall on one time only the last of them holds.
    holds = np.ones(len(times), np.bool_)
    holds[:-1] = times[1:] != times[:-1]
    bins = np.searchsorted(edges, times, "right") - 1
    inside = holds & (bins >= 0) & (bins < len(edges) - 1)
    most = at_edge[:-1].copy()
    np.maximum.at(most, bins[inside], level[inside])
    widths = np.diff(edges)
    area = np.diff(_open_time(start, edges) - _open_time(end, edges))
    return area / np.maximum(widths, 1), most


def _open_time(begin: Ints, edges: Ints) -> npt.NDArray[np.float64]:
    """The sum over all begins of the time from each until an edge, where it lies before."""
    ordered = np.sort(begin) - edges[0]  # small numbers: sums stay exact
    count = np.searchsorted(ordered, edges - edges[0], "right")
    sums = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])
    times = (edges - edges[0]).astype(np.float64)
    return np.asarray(count * times - sums[count], np.float64)
