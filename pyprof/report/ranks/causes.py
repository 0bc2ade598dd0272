"""Time of ranks by layer and op -> what takes a slow rank longer than the median rank.

Times are ns a step, so that ranks with different numbers of steps compare. Beside ops there is the time in which a GPU computed
nothing because the host had not launched the next kernel yet, which makes a rank late as well. Idle time as such would not do:
a rank that waits in a collective is not idle. Each unit's sums go to a file; medians are taken of some work at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Floats, Ints
from pyprof.parse.records.records import Records
from pyprof.report.ranks.busy import COMMUNICATION, classes

LATE_LAUNCH = ("-", "(launched late)")
_CELLS = 1 << 21  # cells of the table of ranks and work in memory at once


class WorkTimes:
    """Time a step of each (layer, op) on each rank. work: a number for each of these."""

    def __init__(self) -> None:
        self.work: dict[tuple[str, str], int] = {LATE_LAUNCH: 0}
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="pyprof-ranks-")
        self._blocks: list[tuple[int, int, int]] = []  # unit, position in the file, steps

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def add(self, unit: int, records: Records, steps: int) -> None:
        """One unit's kernels, copies and late launches; steps: their number."""
        work = np.flatnonzero(classes(records) != COMMUNICATION)
        late = late_launches(*(records[name][work].astype(np.int64) for name in ("start_ns", "dur_ns", "launch_ns")))
        step = records["step"][work]
        counted = (step >= 0) | ~(step >= 0).any()
        rows = work[counted]
        distinct = distinct_rows(records["scope"][rows], records["call"][rows])
        spent = np.bincount(distinct.inverse, np.maximum(records["dur_ns"][rows], 0), distinct.columns.shape[1])
        sums = np.zeros(len(self.work) + distinct.columns.shape[1])
        sums[0] = late[counted].sum()
        for (scope, call), time in zip(distinct.columns.T.tolist(), spent.tolist(), strict=True):
            layer = ":".join(records.stacks[scope].layer) if scope >= 0 else ""
            op = records.calls[call].op if call >= 0 else "na"
            sums[self.work.setdefault((layer or "-", op), len(self.work))] += time
        codes = np.flatnonzero(sums)
        self._blocks.append((unit, self._file.tell(), steps))
        np.save(self._file, np.stack([codes.astype(np.float64), sums[codes]]))

    def _tables(self, rank_of: Ints, ranks: int) -> Iterator[tuple[int, Floats]]:
        """Some work at a time: the number of the first, and ns a step by rank (rows) and work (columns)."""
        steps = np.zeros(ranks)
        for unit, _, count in self._blocks:
            steps[rank_of[unit]] += count
        width = max(_CELLS // max(ranks, 1), 1)
        for begin in range(0, len(self.work), width):
            table = np.zeros((ranks, min(width, len(self.work) - begin)))
            for unit, position, _ in self._blocks:
                self._file.seek(position)
                codes, sums = np.load(self._file)
                inside = (codes >= begin) & (codes < begin + width)
                table[rank_of[unit], codes[inside].astype(np.int64) - begin] += sums[inside]
            yield begin, table / np.maximum(steps, 1)[:, None]

    def compare(self, rank_of: Ints, ranks: int, slow: list[int]) -> list[tuple[int, tuple[str, str], float, float]]:
        """For each slow rank the work that takes it longer than the median rank: (rank, (layer, op), ns a step, median).

        rank_of: the row of each unit's rank, below `ranks`.
        """
        names = list(self.work)
        found: list[tuple[int, tuple[str, str], float, float]] = []
        for begin, table in self._tables(rank_of, ranks):
            median = np.median(table, axis=0)
            for rank in slow:
                own = table[rank]
                more = np.flatnonzero(own > median).tolist()
                found += [(rank, names[begin + at], float(own[at]), float(median[at])) for at in more]
        return sorted(found, key=lambda row: (slow.index(row[0]), row[3] - row[2], row[1]))


def late_launches(start: Ints, dur: Ints, launch: Ints) -> Ints:
    """For each activity of a GPU the ns of the pause before it that had passed when it was launched.

    All in order of start; launch: -1 unknown.
    """
    end = np.maximum.accumulate(start + np.maximum(dur, 0))
    before = np.concatenate([start[:1], end[:-1]])
    late: Ints = np.clip(np.minimum(launch, start) - before, 0, None)
    return late
