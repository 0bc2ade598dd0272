"""Time of ranks by layer and op -> what takes a slow rank longer than the median rank.

Times are ns a step, so that ranks with other numbers of steps compare. Beside ops stands the time in which a GPU computed
nothing since the host had not launched the next kernel yet: that too makes a rank late. Idle time as such would not do, for
while a rank waits in a collective it is not idle. Each unit's sums go to a file; medians are of some layers and ops at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.parse.records.records import Records
from pyprof.report.ranks.busy import COMMUNICATION, classes

__all__ = ["LATE_LAUNCH", "WorkTimes", "late_launches"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LATE_LAUNCH = ("-", "(launched late)")
_CELLS = 1 << 21  # of the table of ranks and work that is in memory at once


class WorkTimes:
    """Time a step of each (layer, op) on each rank."""

    def __init__(self) -> None:
        self.work: dict[tuple[str, str], int] = {LATE_LAUNCH: 0}
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="pyprof-ranks-")
        self._blocks: list[tuple[int, int, int]] = []  # unit, place in the file, steps

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def add(self, unit: int, records: Records, steps: int) -> None:
        """One unit's kernels, copies and late launches; steps: how many it has."""
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
        """Some work at a time: the first of it, and ns a step of each rank (rows) and work (columns)."""
        steps = np.zeros(ranks)
        for unit, _, count in self._blocks:
            steps[rank_of[unit]] += count
        width = max(_CELLS // max(ranks, 1), 1)
        for begin in range(0, len(self.work), width):
            table = np.zeros((ranks, min(width, len(self.work) - begin)))
            for unit, place, _ in self._blocks:
                self._file.seek(place)
                codes, sums = np.load(self._file)
                inside = (codes >= begin) & (codes < begin + width)
                table[rank_of[unit], codes[inside].astype(np.int64) - begin] += sums[inside]
            yield begin, table / np.maximum(steps, 1)[:, None]

    def compare(self, rank_of: Ints, ranks: int, slow: list[int]) -> list[tuple[int, tuple[str, str], float, float]]:
        """For each slow rank the work that takes it longer than the median rank: (rank, (layer, op), its ns a step, median's).

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
        place = {rank: number for number, rank in enumerate(slow)}
        return sorted(found, key=lambda row: (place[row[0]], row[3] - row[2], row[1]))


def late_launches(start: Ints, dur: Ints, launch: Ints) -> Ints:
    """Of each activity of a GPU that ends a pause, how much of that pause was over before it was launched, in ns.

    All in order of start; launch: -1 unknown.
    """
    end = np.maximum.accumulate(start + np.maximum(dur, 0)) if len(start) else start
    before = np.concatenate([start[:1], end[:-1]])
    late: Ints = np.clip(np.minimum(launch, start) - before, 0, None)
    return late
