"""Which rows of a capture have a time, what was lost of it, and the notes that say so: the same for every source."""

from __future__ import annotations

import numpy as np

from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.trace import Table

LAST_NS = 1 << 62
"""Beyond it no time lies; sums and differences of times below it fit 64 bits."""

_EPOCH_NS = 10**18  # the year 2001: times from here on count from 1970


def timed(start: Ints, end: Ints) -> Bools:
    """Which rows have a time: a begin other than -1, which is none, and an end not before it; both 0 is what a profiler writes
    that knows neither."""
    return np.asarray((start != -1) & (start > -LAST_NS) & (start <= end) & (end < LAST_NS) & ((start != 0) | (end != 0)))


def of_epoch(start: Array) -> bool:
    """Whether most of these times count from 1970, so that one near 0 is no time of the same clock."""
    return len(start) > 0 and int(np.median(start)) > _EPOCH_NS


class LeftOut:
    """Number of rows without a time or a thread: of kernels, copies and fills, and of everything else."""

    def __init__(self) -> None:
        self.activities = self.others = 0

    def keep(self, columns: Table, *, activities: bool) -> Table:
        """The rows of `columns` that have a time, by start_ns and end_ns; the others are counted."""
        kept = timed(columns["start_ns"], columns["end_ns"])
        self.count(int(len(kept) - kept.sum()), activities=activities)
        return columns if kept.all() else {name: values[kept] for name, values in columns.items()}

    def count(self, number: int, *, activities: bool) -> None:
        """Count more rows."""
        if activities:
            self.activities += number
        else:
            self.others += number

    def notes(self) -> list[str]:
        """One note with both numbers, none where every row had a time."""
        what = [f"{number:,} of the {name}" for number, name in (
            (self.activities, "kernels, copies and fills"), (self.others, "ranges, ops and calls")) if number]  # fmt: skip
        why = "no time (none, 0, or an end before the begin) or no thread"
        return [f"left out, since they have {why}: {', '.join(what)}"] if what else []
