"""Rows on threads: what lies around what, and what is open when."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.sources.kineto.modules import Intervals, nested, open_at

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 20)), max_size=60)


def intervals(rows: list[tuple[int, int, int]]) -> Intervals:
    thread, start, length = np.array(rows, np.int64).reshape(-1, 3).T
    return Intervals(thread.astype(np.int32), start, start + length, np.arange(len(rows)))


def innermost(rows: list[tuple[int, int, int]], thread: int) -> list[int]:
    """The innermost row open at each time on a thread, one row after another."""
    order = sorted((row for row in range(len(rows)) if rows[row][0] == thread), key=lambda r: (rows[r][1], -rows[r][2], r))
    found, stack, todo = [], list[int](), list(order)
    end = {row: rows[row][1] + rows[row][2] for row in order}
    for time in range(62):
        while todo and rows[todo[0]][1] <= time:
            row = todo.pop(0)
            while stack and end[stack[-1]] <= rows[row][1]:
                stack.pop()
            if not stack or end[stack[-1]] >= end[row]:
                stack.append(row)
        while stack and end[stack[-1]] <= time:
            stack.pop()
        found.append(stack[-1] if stack else -1)
    return found


@given(ROWS)
def test_what_is_open_at_each_time(rows: list[tuple[int, int, int]]) -> None:
    times, found = np.arange(62), dict.fromkeys(range(4), np.full(62, -1))
    for thread, own, forest in nested(intervals(rows)):
        at = forest.innermost(times)
        found[thread] = np.where(at >= 0, np.append(own, -1)[at], -1)
    for thread in range(4):
        assert found[thread].tolist() == innermost(rows, thread)
        covered = [any(one == thread and start <= time < start + length for one, start, length in rows) for time in range(62)]
        assert open_at(intervals(rows), np.full(62, thread), times).tolist() == covered
