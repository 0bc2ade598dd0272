"""Records and the capture's API calls -> where each stream and each device idles, and why.

Lines are the streams of each device of each process, and each device as a whole (all its streams together). A gap lies between
the end of one activity on a line and the begin of the next. It has one reason, found from the launch of the next activity:

    sync       launched after the line had run dry, when the host was waiting for the device
    host       launched after the line had run dry
    launch     the call that launched it was still running when the line ran dry
    queued     launched before, and the gap is at most 5 us: what a device takes from one kernel to the next
    copy       launched before, and it begins at most 10 us after a copy on another stream of the device ended
    kernel     launched before, and it begins as soon after a kernel on another stream
    unknown    launched before and nothing is known that it waited for, or its launch is not in the capture; of a device also
               where more than 1 ms, and most of the gap, came after a late launch

The part of a `sync` or `host` gap in which other streams of the device worked counts as `elsewhere` instead: the line had
nothing to do. So busy + elsewhere + the reasons is the span of a line. Times are ns. Knows nothing of how it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.intervals import Segments, between, count_before, spans, union
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.records.records import PHASES, Records
from pyprof.parse.sources.trace import ActivityKind
from pyprof.report.calls import Calls, waiting_call

REASONS = ("sync", "host", "launch", "queued", "copy", "kernel", "unknown")
SYNC, HOST, LAUNCH, QUEUED, COPY, KERNEL, UNKNOWN = range(7)
_QUEUED_NS = 5_000
_UNEXPLAINED_NS = 1_000_000  # after its launch: work before it was not recorded
_FOLLOWS_NS = 10_000
_WHOLE, _NO_STREAM = -1, -2
_LEAST = np.iinfo(np.int64).min
_ON_GPU = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.MEMSET)


@dataclass(frozen=True)
class Lines:
    """pid, device and stream (-1: the whole device, -2: an unknown stream) of each line; of: the line of its device."""

    pid: Ints
    device: Ints
    stream: Ints
    of: Ints

    def __len__(self) -> int:
        return len(self.pid)

    @property
    def whole(self) -> Bools:
        """Which lines are whole devices."""
        return np.asarray(self.stream == _WHOLE)


class Activities:
    """Activities of GPUs. record: row of Records; start, end: ns; stream, device: the lines of its stream and of its device."""

    def __init__(self, records: Records, chosen: Bools | None = None) -> None:
        """chosen: keep only the time from the first begin to the last end of these on each device, and clip all to it."""
        on_gpu = np.isin(records["kind"], _ON_GPU) & (records["start_ns"] >= 0)
        row = np.flatnonzero(on_gpu)
        start = records["start_ns"][row]
        end = start + np.maximum(records["dur_ns"][row], 0)
        keys = (records["pid"][row], records["device"][row], records["stream"][row])
        if chosen is not None:
            row, start, end = _clipped(row, start, end, distinct_rows(*keys[:2]).inverse, chosen)
            keys = (records["pid"][row], records["device"][row], records["stream"][row])
        self.records, self.record, self.start, self.end = records, row, start, end
        self.lines, self.stream, self.device = _lines(*keys)

    def __len__(self) -> int:
        return len(self.record)

    def column(self, name: str) -> Ints:
        """A column of the records for each activity."""
        return self.records[name][self.record].astype(np.int64)

    def busy(self, which: Bools | None = None) -> Segments:
        """The time in which at least one activity runs on each line; which: of these activities alone."""
        keep = np.ones(len(self), np.bool_) if which is None else which
        twice = (np.concatenate([times[keep], times[keep]]) for times in (self.start, self.end))
        return union(np.concatenate([self.stream[keep], self.device[keep]]), *twice)

    def span(self) -> tuple[Ints, Ints]:
        """(first begin, last end) of each line."""
        lines = np.concatenate([self.stream, self.device])
        return spans(lines, np.tile(self.start, 2), np.tile(self.end, 2), len(self.lines))

    @property
    def communication(self) -> Bools:
        """Which of them are communication between devices."""
        return np.asarray(self.column("phase") == PHASES.index("communication"))

    @property
    def copy(self) -> Bools:
        """Which of them are copies and sets of memory."""
        return np.isin(self.column("kind"), (ActivityKind.MEMCPY, ActivityKind.MEMSET))


def _clipped(row: Ints, start: Ints, end: Ints, device: Ints, chosen: Bools) -> tuple[Ints, Ints, Ints]:
    mine = chosen[row]
    first, last = spans(device[mine], start[mine], end[mine], int(device.max(initial=-1)) + 1)
    keep = (end > first[device]) & (start < last[device]) | mine
    return row[keep], np.maximum(start, first[device])[keep], np.minimum(end, last[device])[keep]


def _lines(pid: Ints, device: Ints, stream: Ints) -> tuple[Lines, Ints, Ints]:
    """Lines with each device before its streams; the line of each row's stream and of its device."""
    both = [np.concatenate([key, key]) for key in (pid, device)]
    found = distinct_rows(*both, np.concatenate([stream, np.full(len(pid), _LEAST)]))
    pids, devices, streams = found.columns
    whole = streams == _LEAST
    of = np.maximum.accumulate(np.where(whole, np.arange(len(whole)), 0))
    of_stream, of_device = np.split(found.inverse, 2)
    return Lines(pids, devices, np.where(whole, _WHOLE, np.where(streams == -1, _NO_STREAM, streams)), of), of_stream, of_device


@dataclass(frozen=True)
class Gaps:
    """One row a gap. line: row of Lines; start, end: ns; before, after: rows of Records that ended last and begin next.

    reason: code of REASONS; elsewhere: ns of it in which the device worked on other streams; call: row of Calls, the API call
    that the host waited in, -1 none.
    """

    line: Ints
    start: Ints
    end: Ints
    before: Ints
    after: Ints
    reason: Ints
    elsewhere: Ints
    call: Ints

    @property
    def own(self) -> Ints:
        """The time that counts for the reason: the gap without `elsewhere`."""
        return self.end - self.start - self.elsewhere


def find_gaps(activities: Activities, calls: Calls | None) -> Gaps:
    """All gaps of all lines; without the capture's API calls `sync` counts as `host`."""
    line = np.concatenate([activities.stream, activities.device])
    twice = np.tile(np.arange(len(activities)), 2)
    start, end = activities.start[twice], activities.end[twice]
    order = np.lexsort((activities.record[twice], end, start, line))
    line, twice, start, end = line[order], twice[order], start[order], end[order]
    after, before = between(line, start, end)
    gap_line, next_one, dry, begin = line[after], twice[after], end[before], start[after]
    launch, took = activities.column("launch_ns")[next_one], activities.column("launch_dur_ns")[next_one]
    reason = np.full(len(after), UNKNOWN)
    in_time = (launch >= 0) & (launch <= dry)
    whole = activities.lines.of[gap_line]
    other = _ended_before(activities, whole, begin)
    waited = in_time & (other >= 0) & (activities.stream[other] != gap_line)
    waited &= (activities.end[other] > dry) & (begin - activities.end[other] <= _FOLLOWS_NS)
    is_copy = activities.column("kind")[other] == ActivityKind.MEMCPY
    reason[waited] = np.where(is_copy, COPY, KERNEL)[waited]
    reason[in_time & (begin - dry <= _QUEUED_NS)] = QUEUED
    reason[in_time & (took >= 0) & (launch + took > dry)] = LAUNCH
    is_late = launch > dry
    waited_since = begin - launch - np.maximum(took, 0)
    is_late &= (whole != gap_line) | (waited_since <= _UNEXPLAINED_NS) | (waited_since <= launch - dry)
    reason[is_late] = HOST
    call = np.full(len(after), -1, np.int64)
    if calls is not None and len(calls.pid):
        rows = np.flatnonzero(is_late)
        who = (activities.column("pid")[next_one[rows]], activities.column("tid")[next_one[rows]])
        call[rows] = waiting_call(calls, *who, dry[rows], launch[rows])
        reason[call >= 0] = SYNC
    busy = activities.busy()
    worked = busy.covered(whole, begin) - busy.covered(whole, dry)
    return Gaps(
        gap_line, dry, begin, activities.record[twice[before]], activities.record[next_one], reason,
        np.where(is_late, worked, 0), call,
    )  # fmt: skip


def _ended_before(activities: Activities, device: Ints, times: Ints) -> Ints:
    """The activity of a device that ended last before each time or at it, -1 none."""
    order = np.lexsort((activities.record, activities.end, activities.device))
    at = count_before(activities.device[order], activities.end[order], device, times, inclusive=True) - 1
    good = (at >= 0) & (activities.device[order][np.maximum(at, 0)] == device) if len(order) else at >= 0
    return np.where(good, order[at], -1) if len(order) else at
