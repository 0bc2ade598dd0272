"""Work of ranks compared: medians by layer and op, and pauses for want of a launch."""

from __future__ import annotations

import numpy as np

from pyprof.report.ranks import causes
from pyprof.report.ranks.causes import LATE_LAUNCH, WorkTimes, late_launches
from tests.rank_records import Job


def test_a_pause_is_late_only_until_the_launch() -> None:
    start = np.array([0, 100, 150, 400, 420, 900])
    dur = np.array([50, 20, 200, 10, 5, 10])
    launch = np.array([-1, 80, 100, 390, 500, -1])
    # After 50: launched at 80; after 120: long before; after 350: at 390; after 410: when it began; after 425: not known.
    assert late_launches(start, dur, launch).tolist() == [0, 30, 0, 40, 10, 0]
    assert late_launches(start[:0], dur[:0], launch[:0]).tolist() == []


def test_blocks_of_work_give_what_one_table_gives() -> None:
    job = Job(5, straggler=(3, 1, 900), jitter=100)
    work = WorkTimes()
    for rank in range(5):
        work.add(rank, job.records(rank), job.steps)
    rows = np.array([4, 3, 2, 1, 0])  # ranks in another order than their files
    whole = work.compare(rows, 5, [1, 0])
    causes._CELLS, kept = 7, causes._CELLS
    try:
        assert work.compare(rows, 5, [1, 0]) == whole
    finally:
        causes._CELLS = kept
        work.close()
    assert whole[0][:2] == (1, ("layers.1", "mm"))
    times = job.compute.sum(axis=(1, 3)) / job.steps
    expected = {f"layers.{i}": (times[3, i], np.median(times[:, i])) for i in range(4) if times[3, i] > np.median(times[:, i])}
    assert {row[1][0]: row[2:] for row in whole if row[0] == 1 and row[1] != LATE_LAUNCH} == expected
