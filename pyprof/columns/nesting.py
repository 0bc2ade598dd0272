"""Ranges of one thread -> which contains which, and the innermost range open at given times, in time proportional to rows.

Numbers only: no texts, no meaning. Ranges that do not nest (one begins inside another and ends after it) are set aside by
`crossing`, after which the rest is a forest. A range is open from its begin until just before its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from pyprof.columns.distinct import distinct_values
from pyprof.columns.types import Array, Bools, Integers, Ints

_LEAST_RUN = 64  # rows in order, as a mean


def stable_order(numbers: Integers) -> Ints:
    """np.argsort(numbers, kind="stable"), in time proportional to rows where the numbers are small."""
    small = len(numbers) and numbers.min() >= -(1 << 15) and numbers.max() < 1 << 15
    return np.argsort(numbers.astype(np.int16) if small else numbers, kind="stable")


def any_order(values: Integers) -> Ints:
    """The rows in ascending order of their values; the order of equal ones is any. Where few are less than the one before,
    as in columns of times, it takes little more than a pass."""
    falls = np.count_nonzero(values[1:] < values[:-1])
    if not falls:
        return np.arange(len(values))
    # Runs that ascend are merged by the stable sort; where they are short the other takes a third of its time.
    return np.argsort(values, kind="stable" if falls * _LEAST_RUN < len(values) else None)


def by_thread(thread: Integers, rows: Integers) -> dict[int, Array]:
    """Rows by their thread, each in the order given; thread: of each row, -1 none."""
    order = stable_order(thread)
    threads, first = np.unique(thread[order], return_index=True)
    parts = dict(zip(threads.tolist(), np.split(rows[order], first[1:]), strict=False))
    parts.pop(-1, None)
    return parts


class Forest:
    """Ranges of one thread in order of begin (longer first).

    start: ns; ends: the ends in ascending order; parent: index of the enclosing range, -1 none; by_depth: indices at each
    depth, outermost first.
    """

    def __init__(self, start: Ints, ends: Ints, parent: Ints, by_depth: list[Ints]) -> None:
        self.start, self.ends, self.parent, self.by_depth = start, ends, parent, by_depth

    def innermost(self, times: Ints) -> Ints:
        """Index of the innermost range open at each time, -1 where none is."""
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
                # Among ranges of one depth at most one is open at a time: the last that began.
                result[wanted] = indices[np.searchsorted(self.start[indices], times[wanted], "right") - 1]
        return result


def nest(start: Ints, end: Ints) -> Forest:
    """The forest of ranges sorted by (start, -end); those that cross must have been set aside before."""
    rows = len(start)
    before = np.arange(rows)
    ends = np.sort(end, kind="stable")  # nearly sorted
    closed = np.searchsorted(ends, start, "right")
    # Ranges without length close at their own begin and may come after this row: they did not close before it.
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
    """Which ranges to set aside so that the rest nests; sorted by (start, -end).

    weight: small numbers; of two crossing ranges the lighter goes, or the later if they weigh the same; forest: result of
    `nest` on all ranges, if the caller has it. In most captures none cross, which is found out without a loop.
    """
    aside = np.zeros(len(start), np.bool_)
    if not len(start):
        return aside
    forest = nest(start, end) if forest is None else forest
    has_parent = forest.parent >= 0
    if not (end[has_parent] > end[forest.parent[has_parent]]).any():
        return aside
    stack: list[int] = []
    of_weight: dict[int, list[int]] = {number: [] for number in distinct_values(weight).tolist()}  # the same, apart by weight
    starts, ends, weights = start.tolist(), end.tolist(), weight.tolist()

    def leave() -> int:
        row = stack.pop()
        of_weight[weights[row]].pop()
        return row

    for row in range(len(starts)):
        while stack and ends[stack[-1]] <= starts[row]:
            leave()
        # Ends grow outwards, so that the innermost of each weight shows whether any of it is crossed.
        if any(own and ends[own[-1]] < ends[row] for number, own in of_weight.items() if number >= weights[row]):
            aside[row] = True
            continue
        while stack and ends[stack[-1]] < ends[row]:
            aside[leave()] = True
        stack.append(row)
        of_weight[weights[row]].append(row)
    return aside


def sort_ranges(start: Ints, end: Ints, ties: Callable[[Ints], Sequence[Integers]] | None = None) -> Ints:
    """Order by begin, longer first, then by columns; a pass without sorting where that holds already.

    ties: those columns of some rows; called only with rows that have begin and end in common with others.
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
