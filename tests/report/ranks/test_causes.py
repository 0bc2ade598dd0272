"""Work of ranks compared: medians by layer and op, and pauses for want of a launch."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.report.ranks.survey import survey
from pyprof.report.ranks.timeline import late_launches
from pyprof.report.ranks.units import files_of
from tests.rank_records import Job

pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")


def test_a_pause_is_late_only_until_the_launch() -> None:
    start = np.array([0, 100, 150, 400, 420, 900])
    dur = np.array([50, 20, 200, 10, 5, 10])
    launch = np.array([-1, 80, 100, 390, 500, -1])
    # After 50: launched at 80; after 120: long before; after 350: at 390; after 410: when it began; after 425: not known.
    assert late_launches(start, dur, launch).tolist() == [0, 30, 0, 40, 10, 0]
    assert late_launches(start[:0], dur[:0], launch[:0]).tolist() == []


def test_work_is_compared_with_the_median_of_the_other_ranks(tmp_path: Path) -> None:
    job = Job(5, straggler=(3, 1, 900), jitter=100)
    whole = survey(files_of([str(job.write(tmp_path))]))
    assert whole.slowest[0] == 3
    first = whole.all_causes
    assert first[0].work == ("layers.1", "mm") and first[0].share > 0.9
    # Of the layers before the call at which it is late first, in every step: all of layer 1 and nothing after it.
    assert first[0].own == job.compute[3, :, 1].sum()
    assert first[0].median == np.median(job.compute[[0, 1, 2, 4], :, 1].sum(axis=(1, 2)))
