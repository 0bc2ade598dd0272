"""Ranges of one thread -> the parent of each range and the innermost range open at given times, in linear time.

Ranges that do not nest (one begins inside another and ends after it) are set aside by `crossing`; the rest is a forest. A range
includes its begin but not its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Array, Bools, Integers, Ints

_LEAST_RUN = 64  # mean length of ascending runs from which merging them pays off


def stable_order(numbers: Integers) -> Ints:
    """np.argsort(numbers, kind="stable"), in linear time if the numbers are small."""
    small = len(numbers) and numbers.min() >= -(1 << 15) and numbers.max() < 1 << 15
    return np.argsort(numbers.astype(np.int16) if small else numbers, kind="stable")


def any_order(values: Integers) -> Ints:
    """np.argsort(values), equal values in any order; little more than one pass if the values are nearly in order, as times
    are."""
    falls = np.count_nonzero(values[1:] < values[:-1])
    if not falls:
        return np.arange(len(values))
    # The stable sort merges ascending runs; if they are short, the default sort takes a third of its time.
    return np.argsort(values, kind="stable" if falls * _LEAST_RUN < len(values) else None)


def by_thread(thread: Integers, rows: Integers) -> dict[int, Array]:
    """Thread -> its rows, in the order given; rows of thread -1 are left out."""
    order = stable_order(thread)
    threads, first = np.unique(thread[order], return_index=True)
    parts = dict(zip(threads.tolist(), np.split(rows[order], first[1:]), strict=False))
    parts.pop(-1, None)
    return parts


@dataclass(eq=False, repr=False)
class Forest:
    """Ranges of one thread in order of begin (longer first).

    start: ns; ends: the ends in ascending order; parent: index of the enclosing range, -1 none; by_depth: indices at each
    depth, outermost first.
    """

    start: Ints
    ends: Ints
    parent: Ints
    by_depth: list[Ints]

    def innermost(self, times: Ints) -> Ints:
        """Index of the innermost range open at each time, -1 none."""
        result = np.full(len(times), -1, np.int64)
        if not len(self.start):
            return result
        begun = np.searchsorted(self.start, times, "right")
        ended = np.searchsorted(self.ends, times, "right")
        level = begun - ended - 1
        order = stable_order(level)
        bounds = np.searchsorted(level[order], np.arange(len(self.by_depth) + 1))
        for depth, indices in enumerate(self.by_depth):
            wanted = order[bounds[depth] : bounds[depth + 1]]
            if len(wanted):
                # At most one range of a depth is open at a time: the last that began.
                result[wanted] = indices[np.searchsorted(self.start[indices], times[wanted], "right") - 1]
        return result


def nest(start: Ints, end: Ints) -> Forest:
    """The forest of ranges sorted by (start, -end), none of which may cross another."""
    rows = len(start)
    before = np.arange(rows)
    ends = np.sort(end, kind="stable")  # nearly sorted
    closed = np.searchsorted(ends, start, "right")
    # Empty ranges end at their own begin; those that come after this row must not count as closed before it.
    empty = (start == end).astype(np.int64)
    last_of_same_start = np.searchsorted(start, start, "right")
    total = np.concatenate([[0], np.cumsum(empty)])
    closed -= total[last_of_same_start] - total[before]
    depth = before - closed
    order = stable_order(depth)
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 1))
    by_depth = np.split(order, bounds) if rows else []
    parent = np.full(rows, -1, np.int64)
    for outer, inner in pairwise(by_depth):
        parent[inner] = outer[np.searchsorted(outer, inner) - 1]
    return Forest(start, ends, parent, by_depth)


def crossing(start: Ints, end: Ints, weight: Integers | Bools, forest: Forest | None = None) -> Bools:
    """Mask of the ranges, sorted by (start, -end), to set aside so that the rest nests.

    weight: small integers; of two crossing ranges the lighter goes, of equals the later. forest: the result of `nest`, if
    known. In most captures none cross, which is checked without a loop.
    """
    aside = np.zeros(len(start), np.bool_)
    if not len(start):
        return aside
    forest = nest(start, end) if forest is None else forest
    has_parent = forest.parent >= 0
    if not (end[has_parent] > end[forest.parent[has_parent]]).any():
        return aside
    stack: list[int] = []
    of_weight: dict[int, list[int]] = {number: [] for number in distinct_values(weight).tolist()}  # the stack's rows by weight
    starts, ends, weights = start.tolist(), end.tolist(), weight.tolist()

    def leave() -> int:
        row = stack.pop()
        of_weight[weights[row]].pop()
        return row

    for row in range(len(starts)):
        while stack and ends[stack[-1]] <= starts[row]:
            leave()
        # Ends grow outwards: if the innermost range of a weight is not crossed, none of that weight is.
        if any(own and ends[own[-1]] < ends[row] for number, own in of_weight.items() if number >= weights[row]):
            aside[row] = True
            continue
        while stack and ends[stack[-1]] < ends[row]:
            aside[leave()] = True
        stack.append(row)
        of_weight[weights[row]].append(row)
    return aside


def sort_ranges(start: Ints, end: Ints, ties: Callable[[Ints], Sequence[Integers]] | None = None) -> Ints:
    """Order by begin, longer first, then by `ties`; one pass if the rows are in order already.

    ties: gives further sort columns for some rows; asked only for rows with equal begin and end.
    """
    order = any_order(start)
    if (start[1:] < start[:-1]).any():
        start, end = start[order], end[order]
    same = start[1:] == start[:-1]
    if not same.any():
        return order
    tied, group = runs(same)
    by_end = tied[np.lexsort((order[tied], -end[tied], group))]
    order[tied] = order[by_end]
    same[tied[1:] - 1] &= end[by_end][1:] == end[by_end][:-1]
    if ties is None or not same.any():
        return order
    tied, group = runs(same)
    rows = order[tied]
    order[tied] = rows[np.lexsort([*reversed(ties(rows)), group])]
    return order


def runs(same: Bools) -> tuple[Ints, Ints]:
    """Rows of a sorted column that equal a neighbour, and each one's run number. same: whether a row equals the one before."""
    joined = np.concatenate([[False], same, [False]])
    tied = np.flatnonzero(joined[:-1] | joined[1:])
    return tied, np.cumsum(~joined[tied])
