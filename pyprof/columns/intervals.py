"""Intervals of time in groups -> unions, covered time, depth, and sums and quantiles by group. No loops over rows.

Groups are integers from 0, times integer ns. `Sorted` rows are in order of group, then begin. An interval includes its begin
but not its end; intervals that touch leave no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.columns.distinct import extent, row_type
from pyprof.columns.nesting import stable_order
from pyprof.columns.types import Array, Floats, Ints

_FEW_ROWS = 1 << 10  # up to here integer sums take no time
_FEW_GROUPS = 1 << 16  # up to here rows are sorted by group first


@dataclass(frozen=True, eq=False, repr=False)
class Segments:
    """Disjoint intervals of groups, sorted."""

    group: Ints
    start: Ints
    end: Ints

    def total(self, groups: int) -> Ints:
        """Time covered in each group."""
        return summed(self.group, self.end - self.start, groups)

    def covered(self, group: Ints, times: Ints) -> Ints:
        """Time covered before each of the given times in its group, ns."""
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        place = count_before(self.group, self.start, group, times, inclusive=True)
        before, groups = self._before, distinct_groups(self.group)
        first = before[np.searchsorted(self.group, groups, "left")]
        at = np.maximum(place - 1, 0)
        good = (place > 0) & (self.group[at] == group)
        begin = first[np.minimum(np.searchsorted(groups, group), len(groups) - 1)]
        return np.where(good, before[at] - begin + np.minimum(times, self.end[at]) - self.start[at], 0)

    def of(self, group: int | np.int64) -> Segments:
        """The segments of one group."""
        mine = self.group == group
        return Segments(self.group[mine], self.start[mine], self.end[mine])

    def covered_by(self, times: Ints) -> Ints:
        """Time covered before each time, of segments of one group that span less than 2^53 ns."""
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        first = self.start[0]
        edges = np.stack([self.start - first, self.end - first], axis=1).ravel()
        covered = np.stack([self._before, self._before + self.end - self.start], axis=1).ravel()
        # Between two edges time is covered whole or not at all, so interpolation is exact.
        return np.asarray(np.interp(times - first, edges, covered), np.int64)

    @cached_property
    def _before(self) -> Ints:
        """Total length of the intervals before each interval."""
        lengths = (self.end - self.start).astype(np.int64)
        return np.cumsum(lengths) - lengths


def distinct_groups(group: Ints) -> Ints:
    """The distinct groups of sorted rows, ascending."""
    first: Ints = group[np.append(0, np.flatnonzero(group[1:] != group[:-1]) + 1)]
    return first


def summed(group: Ints, values: Ints, groups: int) -> Ints:
    """The exact sum of the values of each group; rows in any order."""
    # Below 2**53 sums of floats are exact.
    if len(values) > _FEW_ROWS and max(abs(int(values.max())), abs(int(values.min()))) * len(values) < 1 << 53:
        return np.bincount(group, values, groups).astype(np.int64)
    result = np.zeros(groups, np.int64)
    np.add.at(result, group, values)
    return result


def spans(group: Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints]:
    """(first begin, last end) of each group; rows in any order. A group without rows: largest and smallest int64."""
    first, last = np.full(groups, np.iinfo(np.int64).max), np.full(groups, np.iinfo(np.int64).min)
    np.minimum.at(first, group, start)
    np.maximum.at(last, group, end)
    return first, last


def quantiles(group: Ints, values: Floats | Ints, groups: int, *shares: float) -> Floats:
    """Interpolated quantiles of each group's known values, shape (shares, groups); NaN for a group without values."""
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
    """For each row the row of its group, among those up to it, that ends last (the first of equals). Groups are contiguous."""
    if not len(end):
        return np.empty(0, np.int64)
    code = _numbering((group,), (end,))(group, end)
    places = np.arange(len(end), dtype=row_type(len(end)))
    places[1:][code[1:] <= np.maximum.accumulate(code)[:-1]] = 0
    return np.maximum.accumulate(places, out=places)


def union(group: Ints, start: Ints, end: Ints) -> Segments:
    """The time in which at least one interval of a group is open. Rows may be in any order."""
    if (order := order_of(group, start)) is not None:
        group, start, end = group[order], start[order], end[order]
    if not len(start):
        return Segments(group, start, end)
    holder = latest(group, end)
    begins = (group[1:] != group[:-1]) | (start[1:] > end[holder[:-1]])
    first = np.flatnonzero(np.append(True, begins))
    ends: Ints = end[holder[np.append(first[1:], len(start)) - 1]]
    return Segments(group[first], start[first], ends)


def count_before(group: Ints, value: Ints, asked: Ints, times: Ints, *, inclusive: bool) -> Ints:
    """How many rows, sorted by (group, value), come before each (group, time). inclusive: count equal times too."""
    if not len(value):
        return np.zeros(len(times), np.int64)
    low, high = int(value.min()), int(value.max())
    # `inclusive` counts up to the next ns; times outside the rows are clipped to their range.
    at = np.clip(times + np.int64(inclusive), low, high + 1)
    number = _numbering((group, asked), (value, at))
    return np.searchsorted(number(group, value), number(asked, at), "left")


def order_of(*keys: Array) -> Ints | None:
    """A stable order by the keys, the first counts most; None if the rows are in that order already."""
    if _ascend(keys):
        return None
    least, most = extent(keys[0])
    if most - least < _FEW_GROUPS:  # rows within a group are often in order: sorting by group is nearly free
        order = stable_order(np.asarray(keys[0] - least))
        if _ascend([key[order] for key in keys]):
            return order
    return np.lexsort(keys[::-1])


def _ascend(columns: Sequence[Ints]) -> bool:
    """Whether the rows are in order, the first column counts most."""
    size = max(len(columns[0]) - 1, 0)
    ascends, same = np.zeros(size, np.bool_), np.ones(size, np.bool_)
    for values in columns:
        ascends |= same & (values[1:] > values[:-1])
        same &= values[1:] == values[:-1]
    return bool((ascends | same).all())


def _numbering(groups: Sequence[Ints], values: Sequence[Ints]) -> Callable[[Ints, Ints], Ints]:
    """A function that maps (group, value) to one number >= 0 with the same order and equality. groups, values: columns of all
    the groups and values that it will be given."""
    low, high = (int(bound([bound(each) for each in values if len(each)])) for bound in (np.min, np.max))
    first, last = (int(bound([bound(each) for each in groups if len(each)])) for bound in (np.min, np.max))
    width = high - low + 1
    if width * (last - first + 1) < 1 << 62:
        return lambda group, value: (np.subtract(group, first, dtype=np.int64) * width + value) - low
    known = np.unique(np.concatenate(values), return_counts=True)[0]
    return lambda group, value: np.asarray(
        np.subtract(group, first, dtype=np.int64) * len(known) + np.searchsorted(known, value)
    )


def depth(start: Ints, end: Ints, edges: Ints) -> tuple[Floats, Ints]:
    """How many intervals are open in each bin between ascending edges: (mean over the bin's time, most at once)."""
    begins, ends = ascending_times(start), ascending_times(end)

    def level(times: Ints) -> Ints:
        """How many are open just after each time; empty intervals never are."""
        found: Ints = np.searchsorted(begins, times, "right") - np.searchsorted(ends, times, "right")
        return found

    most = level(edges[:-1])
    bins = np.searchsorted(edges, begins, "right") - 1
    inside = (bins >= 0) & (bins < len(edges) - 1)
    np.maximum.at(most, bins[inside], level(begins)[inside])
    area = np.diff(np.array(_open_time(begins, edges), object) - np.array(_open_time(ends, edges), object))
    return area.astype(np.float64) / np.maximum(np.diff(edges), 1), most


def ascending_times(times: Ints) -> Ints:
    """Sorted times."""
    return np.sort(times.astype(np.int64, copy=False), kind="stable")  # fast, as they nearly are in order


def _open_time(begins: Ints, edges: Ints) -> list[int]:
    """For each edge the sum, over the ascending begins before it, of the time from begin to edge."""
    result, done, total = [], 0, 0
    for edge, count in zip(edges.tolist(), np.searchsorted(begins, edges, "right").tolist(), strict=True):
        some = begins[done:count]
        total += int((some - begins[:1]).sum()) + len(some) * int(begins[0]) if len(some) else 0
        done = count
        result.append(count * edge - total)
    return result
