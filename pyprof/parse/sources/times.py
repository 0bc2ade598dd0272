"""Which rows of a capture have a time, what was lost of it, and the notes that say so: the same for every source."""

from __future__ import annotations

import re

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.trace import ActivityKind, Table, Trace

LAST_NS = 1 << 62
"""Beyond it no time lies; sums and differences of times below it fit 64 bits."""

_EPOCH_NS = 10**18  # the year 2001: times from here on count from 1970
_LAUNCHES = re.compile(
    r"^(?:__)?(?:cuda|cu|hip|hipExt|hipModule|hipExtModule)Launch(?!Host)\w*Kernel|^(?:cuda|cu)Launch(?:Grid|_|$)"
)
_BEGIN_RECORDING, _END_RECORDING = (re.compile(rf"(?:cuda|hip|cu)Stream{what}Capture(?!Info)") for what in ("Begin", "End"))


def timed(start: Ints, end: Ints) -> Bools:
    """Which rows have a time: a begin, and an end not before it; both 0 is what a profiler writes that knows neither."""
    return np.asarray((start >= 0) & (start <= end) & (end < LAST_NS) & ((start != 0) | (end != 0)))


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
        what = [f"{number:,} {name}" for number, name in (
            (self.activities, "kernels, copies and fills"), (self.others, "ranges, ops and calls")) if number]  # fmt: skip
        why = "no time (none, 0, or an end before the begin) or no thread"
        return [f"left out, since they have {why}: {' and '.join(what)}"] if what else []


def lost_launches(trace: Trace, known: int = 0) -> list[str]:
    """A note where calls that launch a kernel have none in the capture; known: so many lost kernels are told of otherwise.

    Calls between the begin and the end of a graph's capture launch nothing.
    """
    launches, activities = trace.launches, trace.activities
    good = np.array([*(_LAUNCHES.search(text) is not None for text in trace.strings.values), False], np.bool_)
    rows = np.flatnonzero(good[launches["name"]] & (launches["thread"] >= 0))
    if not len(rows):
        return []
    process = trace.threads["process"].astype(np.int64)[launches["thread"][rows]]
    ran = activities["process"].astype(np.int64), activities["corr"].astype(np.int64)
    asked = process, launches["corr"][rows].astype(np.int64)
    codes = distinct_rows(*(np.concatenate(pair) for pair in zip(ran, asked, strict=True))).inverse
    lost = ~np.isin(codes[len(ran[0]) :], codes[: len(ran[0])]) & (asked[1] >= 0)
    # A process's kernels may be of no known process.
    lost &= ~np.isin(asked[1], ran[1][ran[0] < 0])
    lost &= ~_while_recording(trace, rows)
    number, every = int(lost.sum()), len(rows)
    if number <= known:
        return []
    if not (activities["kind"] == ActivityKind.KERNEL).any() and not known:
        return [
            f"{number:,} kernels were launched and none was recorded: the usual causes are WSL, no permission to profile "
            "(RmProfilingAdminOnly), another profiler of this GPU, or a recorder that was not asked for the GPU's activity"
        ]
    return [f"{number:,} of {every:,} launches are without a kernel in the capture: they were lost, or ran after the recording"]


def _while_recording(trace: Trace, rows: Ints) -> Bools:
    """Which launches lie between the begin and the end of a graph's capture on their thread."""
    launches, inside = trace.launches, np.zeros(len(rows), np.bool_)
    texts = trace.strings.values
    begins, ends = (
        np.flatnonzero(np.isin(launches["name"], [code for code, text in enumerate(texts) if pattern.match(text)]))
        for pattern in (_BEGIN_RECORDING, _END_RECORDING)
    )
    for begin in begins.tolist():
        thread, start = launches["thread"][begin], launches["start_ns"][begin]
        after = launches["start_ns"][ends[launches["thread"][ends] == thread]]
        until = int(after[after >= start].min(initial=LAST_NS))
        at = launches["start_ns"][rows]
        inside |= (launches["thread"][rows] == thread) & (at >= start) & (at < until)
    return inside
