"""The division of time on captures whose truth is on the screen, and against counting every nanosecond."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.model.records import COLUMNS, PHASES, Records
from pyprof.model.trace import ActivityKind
from pyprof.report.time.division import BUSY, Division, mean_parts
from tests import examples

_ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=25
)  # role, device, begin, time


def _records(rows: list[tuple[int, int, int, int]]) -> Records:
    columns = {name: np.full(len(rows), -1, dtype) for name, (dtype, _) in COLUMNS.items()}
    for at, (role, device, begin, time) in enumerate(sorted(rows, key=lambda row: row[2])):
        columns["kind"][at] = ActivityKind.MEMCPY if role == 2 else ActivityKind.KERNEL
        columns["phase"][at] = PHASES.index("communication") if role == 1 else -1
        columns["device"][at], columns["pid"][at] = device, 7
        columns["start_ns"][at], columns["dur_ns"][at] = begin, time
    return Records(columns)


@given(_ROWS, st.integers(0, 20), st.integers(0, 25))
@settings(max_examples=examples(80), deadline=None)
def test_every_nanosecond_belongs_to_one_record_or_one_gap(
    rows: list[tuple[int, int, int, int]], begin: int, length: int
) -> None:
    records = _records(rows)
    ends = records["start_ns"] + records["dur_ns"]
    division = Division(records, begin, begin + length)
    held, busy = np.zeros(len(records), np.int64), np.zeros((len(BUSY), division.count), np.int64)
    idle = np.zeros(division.count, np.int64)
    for place, device in enumerate(division.devices.tolist()):
        for now in range(begin, begin + length):
            open_ = [
                (division.role[np.flatnonzero(division.row == r)[0]], records["start_ns"][r], ends[r], r)
                for r in division.row.tolist()
                if records["device"][r] == device and records["start_ns"][r] <= now < ends[r]
            ]
            if open_:
                first = min(open_)
                busy[first[0], place] += 1
                held[first[3]] += 1
            else:
                idle[place] += 1
    assert np.array_equal(division.busy_ns, busy)
    assert held.sum() == division.exclusive_ns.sum()
    assert (division.exclusive_ns <= records["dur_ns"]).all()
    assert np.array_equal(np.bincount(division.gaps.device, division.gaps.time_ns, division.count), idle)


def test_means_over_devices_add_up_exactly() -> None:
    assert mean_parts(np.array([[3, 4, 4], [7, 6, 6]]), 10) == [4, 6]
    assert sum(mean_parts(np.array([[1, 0, 0], [0, 1, 0], [9, 9, 10]]), 10)) == 10
