"""Clocks from the ends of collectives, against offsets that were put there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.report.ranks.clocks import align
from pyprof.report.ranks.collective_calls import Attended


def _attended(call: list[int], end: np.ndarray) -> Attended:  # type: ignore[type-arg]
    at = np.array(call, np.int64)
    return Attended(at, end - 5, end, np.full(len(at), -1, np.int64))


@given(st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=12), st.integers(0, 1000))
def test_offsets_of_one_group_are_found(offsets: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, 10**9, 40))
    units = [_attended(list(range(40)), ends + offset + rng.integers(-20, 21, 40)) for offset in offsets]
    found = align(units, np.zeros(40, np.int64))
    assert np.abs((found.offset - found.offset[0]) - (np.array(offsets) - offsets[0])).max() <= 60
    assert (found.component == 0).all() and (found.spread <= 60).all()


def test_groups_that_share_ranks_are_brought_together_and_others_left_alone() -> None:
    """Rows and columns of a grid of 3 x 4 ranks, and two ranks that only meet each other, and one that meets nobody."""
    rng = np.random.default_rng(0)
    offsets = rng.integers(-(10**9), 10**9, 15)
    ends = np.sort(rng.integers(0, 10**9, (8, 30)), axis=1)
    group = np.repeat(np.arange(8), 30)
    units = []
    for rank in range(15):
        groups = [rank // 4, 3 + rank % 4] if rank < 12 else [7] if rank < 14 else []
        calls = [n for g in groups for n in range(30 * g, 30 * g + 30)]
        units.append(_attended(calls, ends.ravel()[calls] + offsets[rank]))
    found = align(units, group)
    difference = found.offset - offsets
    assert np.ptp(difference[:12]) <= 2 and np.ptp(difference[12:14]) <= 1 and found.offset[14] == 0
    assert [len(set(found.component[part].tolist())) for part in (slice(0, 12), slice(12, 14))] == [1, 1]
    assert len(set(found.component.tolist())) == 3 and np.isnan(found.spread[14])


def test_a_rank_that_misses_some_and_a_late_end_do_not_spoil_it() -> None:
    ends = np.arange(1000, 1000 + 600 * 500, 500)
    offsets = [0, 7_000, -3_000]
    units = [_attended(list(range(600)), ends + offset) for offset in offsets]
    units[1] = _attended(list(range(0, 600, 7)), ends[::7] + 7_000)
    spoiled = units[2].end.copy()
    spoiled[::5] += 100_000
    units[2] = units[2]._replace(end=spoiled)
    found = align(units, np.zeros(600, np.int64))
    assert (found.offset - found.offset[0]).tolist() == offsets


@pytest.mark.parametrize("units", [[], [_attended([], np.empty(0, np.int64))], [_attended([-1, -1], np.array([5, 6]))]])
def test_nothing_in_common(units: list[Attended]) -> None:
    found = align(units, np.empty(0, np.int64))
    assert found.offset.tolist() == [0] * len(units) and np.isnan(found.spread).all()
