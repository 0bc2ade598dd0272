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


def launching(trace: Trace) -> Bools:
    """Which calls launch a kernel, by their name."""
    good = np.array([*(_LAUNCHES.search(text) is not None for text in trace.strings.values), False], np.bool_)
    return np.asarray(good[trace.launches["name"]])


def launches_without_kernel(trace: Trace) -> tuple[Ints, int]:
    """Rows of the calls that launch a kernel and have none in the capture, and the number of all that launch one.

    Calls between the begin and the end of a graph's capture launch nothing.
    """
    launches, activities = trace.launches, trace.activities
    rows = np.flatnonzero(launching(trace) & (launches["thread"] >= 0))
    if not len(rows):
        return rows, 0
    corr = launches["corr"][rows]
    lost = (corr >= 0) & ~np.isin(corr, activities["corr"])
    if len(trace.processes["pid"]) > 1:  # another process may have used the id
        process = trace.threads["process"].astype(np.int64)[launches["thread"][rows]]
        ran = activities["process"].astype(np.int64), activities["corr"].astype(np.int64)
        pairs = zip(ran, (process, corr.astype(np.int64)), strict=True)
        codes = distinct_rows(*map(np.concatenate, pairs)).inverse
        unknown = ran[1][ran[0] < 0]  # kernels of no known process
        lost |= (corr >= 0) & ~np.isin(codes[len(ran[0]) :], codes[: len(ran[0])]) & ~np.isin(corr, unknown)
    if lost.any():
        lost &= ~_while_recording(trace, rows)
    return rows[lost], len(rows)


def lost_launches(trace: Trace, known: int = 0) -> list[str]:
    """A note where calls that launch a kernel have none in the capture; known: so many lost kernels are told of otherwise."""
    rows, every = launches_without_kernel(trace)
    number = len(rows)
    if number <= known:
        return []
    if not (trace.activities["kind"] == ActivityKind.KERNEL).any() and not known:
        many = "kernel was" if number == 1 else "kernels were"
        return [
            f"{number:,} {many} launched and none was recorded: the usual causes are WSL, no permission to profile "
            "(RmProfilingAdminOnly), another profiler of this GPU, or a recorder that was not asked for the GPU's activity"
        ]
    return [f"{number:,} of {every:,} launches have no kernel in the capture: it was lost, or ran after the recording"]


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
