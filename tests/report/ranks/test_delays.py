"""Delays of collective calls, each counted once, on jobs of a few of them whose times are written down."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pyprof.report.ranks.arrivals import arrivals
from pyprof.report.ranks.collective_calls import Attended
from pyprof.report.ranks.delays import delays
from pyprof.report.ranks.timeline import UNKNOWN, Timeline


def new(
    came: list[dict[int, int]], left: list[int], group: list[int], work: dict[int, list[tuple[int, int]]] | None = None
) -> list[int]:
    """came: of each call when each rank came; left: when all left; work: (begin, end) of kernels that a rank ran besides."""
    ranks = sorted(set().union(*came))
    units, lines = [], []
    for rank in ranks:
        met = [m for m, who in enumerate(came) if rank in who]
        start, end = np.array([came[m][rank] for m in met]), np.array([left[m] for m in met])
        units.append(Attended(np.array(met), start, end, np.full(len(met), -1)))
        both = [(a, b, -1) for a, b in zip(start.tolist(), end.tolist(), strict=True)]
        both += [(a, b, 0) for a, b in (work or {}).get(rank, [])]
        begin, stop, code = np.array(sorted(both)).T
        zeros = np.zeros_like(begin)
        lines.append(Timeline(begin, stop, zeros + UNKNOWN, code, zeros, zeros))
    timelines: Any = SimpleNamespace(units=lines)
    offset = np.zeros(len(ranks), np.int64)
    found = arrivals(units, offset, len(came), ends=False)
    return delays(found, units, timelines, offset, np.array(group)).tolist()


def test_calls_that_never_ran_together_are_not_compared() -> None:
    """Rank 0 had left the second one 160 ms before rank 1 came: it is another one, of which rank 0 has no record."""
    ms, calls, nothing = 1_000_000, np.arange(2), np.full(2, -1)
    units = [
        Attended(calls, np.array([0, 850]) * ms, np.array([9, 875]) * ms, nothing),
        Attended(calls, np.array([3, 1_035]) * ms, np.array([9, 1_129]) * ms, nothing),
    ]
    found = arrivals(units, np.zeros(2, np.int64), 2, ends=True)
    assert found.ranks.tolist() == [2, 0] and found.wait.tolist() == [3 * ms, 0]


def test_a_delay_that_the_others_computed_beside_is_carried_along() -> None:
    """Ranks 0 and 1 compute on while they wait, so that rank 2 is 30 late at both for one reason, and 10 more at the third."""
    came = [{0: 100, 1: 150, 2: 180}, {0: 300, 1: 350, 2: 380}, {0: 500, 1: 550, 2: 590}]
    work = {rank: [(90, 290), (295, 495), (496, 600)] for rank in (0, 1)}
    assert new(came, [200, 400, 600], [0, 0, 0], work) == [30, 0, 10]


def test_the_part_of_a_wait_in_which_the_next_to_last_stood_still_is_not_carried() -> None:
    came = [{0: 100, 1: 150, 2: 180}, {0: 300, 1: 350, 2: 380}]
    work = {rank: [(90, 170)] for rank in (0, 1)}  # until 10 before rank 2 comes
    assert new(came, [200, 400], [0, 0], work) == [30, 10]


def test_what_one_group_waited_for_is_not_lost_again_in_another() -> None:
    """Rank 0 is 500 late for its pair; for it the pair is late at the other two collective calls, with ranks 2 and 3."""
    pairs = [{0: 1_000, 1: 500}, {2: 500, 3: 500}]
    across = [{0: 1_200, 2: 700}, {1: 1_200, 3: 700}]
    assert new([*pairs, *across], [1_100, 600, 1_300, 1_300], [0, 1, 2, 3]) == [500, 0, 0, 0]


late = st.lists(st.lists(st.integers(0, 1000), min_size=3, max_size=3), min_size=1, max_size=12)


@given(late)
def test_ranks_that_stand_still_lose_exactly_the_time_until_the_last(rows: list[list[int]]) -> None:
    """All leave together: the job's time is the sum of the largest times, and would be the sum of the second largest."""
    now, came, left = 0, [], []
    for row in rows:
        came.append({rank: now + more for rank, more in enumerate(row)})
        now += max(row) + 10
        left.append(now)
    assert new(came, left, [0] * len(rows)) == [sorted(row)[-1] - sorted(row)[-2] for row in rows]


@given(late, st.booleans())
def test_never_more_than_the_next_to_last_waited(rows: list[list[int]], beside: bool) -> None:
    came = [{rank: 2000 * n + more for rank, more in enumerate(row)} for n, row in enumerate(rows)]
    left = [max(who.values()) + 10 for who in came]
    work = {rank: [(2000 * n + 1, 2000 * n + 900) for n in range(len(rows))] for rank in range(3)} if beside else None
    found = new(came, left, [0] * len(rows), work)
    assert all(0 <= one <= sorted(row)[-1] - sorted(row)[-2] for one, row in zip(found, rows, strict=True))
