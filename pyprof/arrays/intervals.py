"""Intervals of time in groups -> their unions, the gaps between them, what of a time they cover; figures of groups. No loops.

Groups are whole numbers from 0, times whole nanoseconds. Rows of one group stand together and in order of begin where it says
`sorted`. An interval is open from its begin until just before its end; intervals that touch leave no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from pyprof.arrays.columns import Column, extent
from pyprof.arrays.joining import rows_where
from pyprof.arrays.nesting import stable_order
from pyprof.arrays.sorting import Groups
from pyprof.arrays.spool import computed, empty, piece_rows, pieces, row_type, taken

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


_FEW_ROWS = 1 << 10  # of which sums as whole numbers take no time
_BY_DIGITS = 2  # bytes of numbers that numpy sorts digit by digit
_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True, eq=False, repr=False)
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
        place = count_before(self.group, self.start, group, times, inclusive=True)
        before, groups = self._before, distinct_groups(self.group)
        first = before[np.searchsorted(self.group, groups, "left")]

        def of_part(part: slice) -> Ints:
            own = group[part]
            at = place[part] - 1
            good = (at >= 0) & (self.group[np.maximum(at, 0)] == own)
            at = np.maximum(at, 0)
            begin = first[np.minimum(np.searchsorted(groups, own), len(groups) - 1)]
            return np.where(good, before[at] - begin + np.minimum(times[part], self.end[at]) - self.start[at], 0)

        return computed(len(times), np.int64, of_part)

    @cached_property
    def _before(self) -> Ints:
        """The time that all intervals before each cover."""
        result, done = empty(len(self.start), np.int64), 0
        for part in pieces(len(result)):
            ends = np.cumsum(self.end[part] - self.start[part]) + done
            result[part.start] = done
            result[part.start + 1 : part.stop] = ends[:-1]
            done = ends[-1]
        return result


def distinct_groups(group: Ints) -> Ints:
    """The distinct groups of sorted rows, ascending."""
    first: Ints = group[np.append(0, np.flatnonzero(group[1:] != group[:-1]) + 1)]
    return first


def summed(group: Ints, values: Ints, groups: int) -> Ints:
    """The exact sum of the values of each group; rows in any order."""
    result = np.zeros(groups, np.int64)
    for part in pieces(len(group)):
        own = values[part]
        if len(own) > _FEW_ROWS and _sums_exactly(own):
            result += np.bincount(group[part], own, groups).astype(np.int64)
        else:
            np.add.at(result, group[part], own)
    return result


def _sums_exactly(values: Ints) -> bool:
    """Whether floats hold every sum of some of the values."""
    return max(abs(int(values.max())), abs(int(values.min()))) * len(values) < 1 << 53


def spans(group: Ints, start: Ints, end: Ints, groups: int) -> tuple[Ints, Ints]:
    """(first begin, last end) of each group; rows in any order. Without rows the largest and the smallest number."""
    first, last = np.full(groups, np.iinfo(np.int64).max), np.full(groups, np.iinfo(np.int64).min)
    for part in pieces(len(group)):
        np.minimum.at(first, group[part], start[part])
        np.maximum.at(last, group[part], end[part])
    return first, last


def quantiles(group: Ints, values: Floats | Ints, groups: int, *shares: float) -> Floats:
    """The quantiles of each group's known values, (shares, groups), interpolated; NaN for a group without. Of many rows some
    groups after others."""
    if len(group) > piece_rows() and groups > 1:
        return _quantiles_by_groups(group, values, groups, *shares)
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


def _quantiles_by_groups(group: Ints, values: Floats | Ints, groups: int, *shares: float) -> Floats:
    if (order := order_of(group)) is not None:
        group, values = taken(group, order), taken(values, order)
    ends = np.cumsum(sum(np.bincount(group[part], minlength=groups) for part in pieces(len(group))))
    found, first, begin = list[Floats](), 0, 0
    while first < groups:
        stop = max(int(np.searchsorted(ends, begin + piece_rows(), "right")), first + 1)
        some = slice(begin, int(ends[stop - 1]))
        number = np.subtract(group[some], first, dtype=np.int64)
        found.append(quantiles(number, values[some], stop - first, *shares))
        first, begin = stop, some.stop
    return np.concatenate(found, axis=1)


def latest(group: Ints, end: Ints) -> Ints:
    """For each row that row of its group, up to it, which ends last; the first of equals. Rows of a group stand together."""
    if not len(end):
        return np.empty(0, np.int64)
    number = _numbering((group,), (end,))
    result, most, last = empty(len(end), row_type(len(end))), np.int64(-1), 0
    for part in pieces(len(end)):
        code = number(group[part], end[part])
        before = np.maximum.accumulate(np.append(most, code))
        places = np.where(code > before[:-1], np.arange(part.start, part.stop), last)
        result[part] = np.maximum.accumulate(places, out=places)
        most, last = before[-1], places[-1]
    return result


def union(group: Ints, start: Ints, end: Ints) -> Segments:
    """The time in which at least one interval of a group is open; the rows may stand in any order."""
    if (order := order_of(group, start, end)) is not None:
        group, start, end = group[order], start[order], end[order]
    if not len(start):
        return Segments(group, start, end)
    holder = latest(group, end)

    def begins(part: slice) -> Bools:
        rows, before = slice(max(part.start, 1), part.stop), slice(max(part.start - 1, 0), part.stop - 1)
        new = (group[rows] != group[before]) | (start[rows] > end[holder[before]])
        return new if part.start else np.append(True, new)

    first = rows_where(len(start), begins)

    def ends(part: slice) -> Ints:
        after = first[part.start + 1 : part.stop + 1]
        return np.asarray(end[holder[(after if part.stop < len(first) else np.append(after, len(start))) - 1]])

    return Segments(taken(group, first), taken(start, first), computed(len(first), np.int64, ends))


def count_before(group: Ints, value: Ints, asked: Ints, times: Ints, *, inclusive: bool) -> Ints:
    """How many rows, sorted by (group, value), stand before each (group, time); inclusive: those of the same time too."""
    if not len(value):
        return np.zeros(len(times), np.int64)
    low, high = int(value.min()), int(value.max())
    # A time after all rows is as good as the first such one; up to and with a time is before the next.
    at = np.clip(times + np.int64(inclusive), low, high + 1)
    number = _numbering((group, asked), (value, at))
    rows = computed(len(value), np.int64, lambda part: number(group[part], value[part]))
    return computed(len(at), np.int64, lambda part: np.searchsorted(rows, number(asked[part], at[part]), "left"))


def order_of(*keys: Column) -> Ints | None:
    """The order of rows by the first key, equal ones by the next, else as they stand; None where they stand so already."""
    if _ascend(keys, lambda key, part: key[part]):
        return None
    least, most = extent(keys[0])
    if most - least < 1 << 8 * _BY_DIGITS:  # rows of each group often are in order: dividing them takes next to no time
        first = computed(len(keys[0]), np.uint16, lambda part: keys[0][part] - least)
        order = Groups(first, int(most - least) + 1).order
        if order is not None and _ascend(keys, lambda key, part: key[order[part]]):
            return order
    return np.lexsort([key[:] for key in keys[::-1]])


def _ascend(keys: Sequence[Column], of: Callable[[Column, slice], Ints]) -> bool:
    """Whether the rows stand in the order of the keys. of: the values of a key in some rows."""
    for part in pieces(max(len(keys[0]) - 1, 0)):
        size = part.stop - part.start
        ascends, same = np.zeros(size, np.bool_), np.ones(size, np.bool_)
        for key in keys:
            values = of(key, slice(part.start, part.stop + 1))
            ascends |= same & (values[1:] > values[:-1])
            same &= values[1:] == values[:-1]
        if not (ascends | same).all():
            return False
    return True


def reaches(group: Ints, ends: Callable[[slice], Ints]) -> Iterator[tuple[slice, Ints, Ints, Ints]]:
    """Some sorted intervals of one group at a time: (rows, their ends, the last end of all rows of the group before each, the
    row that it is of, the first of equals). Before a group's first row the least number and -1. ends: of some rows."""
    edges = [*_group_begins(group).tolist(), len(group)]
    for first, stop in pairwise(edges):
        most, last = np.int64(_LEAST), np.int64(-1)
        for some in pieces(stop - first):
            part = slice(first + some.start, first + some.stop)
            end = ends(part)
            before = np.maximum.accumulate(np.concatenate([[most], end]))
            places = np.where(end > before[:-1], np.arange(part.start, part.stop), -1)
            places = np.maximum.accumulate(np.concatenate([[last], places]))
            yield part, end, before[:-1], places[:-1]
            most, last = before[-1], places[-1]


def _group_begins(group: Ints) -> Ints:
    """Where the groups of sorted rows begin."""
    changes = [part.start + 1 + np.flatnonzero(group[part.start + 1 : part.stop + 1] != group[part.start : part.stop])
               for part in pieces(max(len(group) - 1, 0))]  # fmt: skip
    return np.concatenate([np.zeros(min(len(group), 1), np.int64), *changes])


def _numbering(groups: Sequence[Ints], values: Sequence[Ints]) -> Callable[[Ints, Ints], Ints]:
    """A function of (group, value) whose numbers have the order of these pairs, equal ones for equal pairs, none below 0.
    groups, values: columns of all that it is asked for."""
    low, high = (int(bound([bound(each) for each in values if len(each)])) for bound in (np.min, np.max))
    first, last = (int(bound([bound(each) for each in groups if len(each)])) for bound in (np.min, np.max))
    width = high - low + 1
    if width * (last - first + 1) < 1 << 62:
        return lambda group, value: (np.subtract(group, first, dtype=np.int64) * width + value) - low
    known = np.unique(np.concatenate(values), return_counts=True)[0]
    return lambda group, value: np.asarray(
        np.subtract(group, first, dtype=np.int64) * len(known) + np.searchsorted(known, value)
    )


def depth(start: Ints, end: Ints, edges: Ints) -> tuple[npt.NDArray[np.float64], Ints]:
    """How many intervals are open in each bin between ascending edges: (mean over the bin's time, most at once)."""
    begins, ends = _ascending(start), _ascending(end)

    def level(times: Ints) -> Ints:
        """How many are open after all that happens at some times: an interval without length never is."""
        found: Ints = np.searchsorted(begins, times, "right") - np.searchsorted(ends, times, "right")
        return found

    most = level(edges[:-1])
    for part in pieces(len(begins)):
        times = begins[part]
        bins = np.searchsorted(edges, times, "right") - 1
        inside = (bins >= 0) & (bins < len(edges) - 1)
        np.maximum.at(most, bins[inside], level(times)[inside])
    area = np.diff(np.array(_open_time(begins, edges), object) - np.array(_open_time(ends, edges), object))
    return area.astype(np.float64) / np.maximum(np.diff(edges), 1), most


def _ascending(times: Ints) -> Ints:
    """The times in order."""
    result = computed(len(times), np.int64, lambda part: times[part].copy())
    result.sort(kind="stable")  # they nearly are, which takes it no time
    return result


def _open_time(begins: Ints, edges: Ints) -> list[int]:
    """The sum over all ascending begins of the time from each until an edge, where it lies before."""
    result, done, total = [], 0, 0
    for edge, count in zip(edges.tolist(), np.searchsorted(begins, edges, "right").tolist(), strict=True):
        for part in pieces(count - done):
            some = begins[done + part.start : done + part.stop]
            total += int((some - begins[0]).sum()) + len(some) * int(begins[0])
        done = count
        result.append(count * edge - total)
    return result
