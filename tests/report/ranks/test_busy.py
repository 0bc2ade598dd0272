"""Unions of intervals by step against a count of every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.report.ranks.busy import COMMUNICATION, COMPUTE, COPY, breakdown

rows = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 25), st.sampled_from([COMPUTE, COMMUNICATION, COPY]), st.integers(-1, 3)),
    min_size=1,
    max_size=25,
)


@given(rows)
def test_every_nanosecond_is_counted_once(activities: list[tuple[int, int, int, int]]) -> None:
    start, length, kind, step = (np.array(column, np.int64) for column in zip(*activities, strict=True))
    found = breakdown(start, start + length, kind, step)
    begins = {s: min(start[step == s]) for s in step.tolist() if s >= 0} or {-1: start.min()}
    order = sorted(begins, key=lambda s: (begins[s], s))
    assert found.steps.tolist() == order
    ends = [begins[s] for s in order[1:]]
    last = (start + length)[step == order[-1]].max() if order != [-1] else (start + length).max()
    expected = []
    for number, end in zip(order, [*ends, last], strict=True):
        states = [{k for s, n, k, _ in activities if s <= t < s + n} for t in range(begins[number], end)]
        compute = sum(COMPUTE in state for state in states)
        communication = sum(COMMUNICATION in state for state in states)
        overlap = sum({COMPUTE, COMMUNICATION} <= state for state in states)
        copy = sum(state == {COPY} for state in states)
        idle = sum(not state for state in states)
        expected.append([len(states), compute, communication, communication - overlap, overlap, copy, idle])
    assert found.times.tolist() == expected
