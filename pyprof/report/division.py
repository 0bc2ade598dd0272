"""Records in a window of time -> one division of that time, from which every figure and every advice of a report is taken.

Each nanosecond of each device belongs to one activity that runs, or to one gap between activities. Of several that run at once
a kernel that computes holds the device before communication, that before copies, and of equals the one that began first. So
what is busy and idle, exposed or saved adds up to the window, and nothing is counted twice. Of the host it knows the times of
launches alone: why a gap is one is not its business (see hostside).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.arrays.columns import distinct_rows, narrowest
from pyprof.arrays.intervals import Segments, count_before, latest, order_of, spans, summed, union
from pyprof.arrays.spool import computed, empty, full, joined, kept, pieces, row_type, taken
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.records.records import PHASES, Records
from pyprof.parse.sources.trace import ActivityKind

BUSY = ("compute", "communication", "copy")  # what holds a device, first what holds it before the others
COMPUTE, COMMUNICATION, COPY = range(3)
_COPIES = (ActivityKind.MEMCPY, ActivityKind.MEMSET)
_LAUNCH_NS = 20_000  # a launch that takes longer waits; most take 3 to 10 us
_FAR_NS = 1 << 62  # beyond any time that is real


@dataclass(frozen=True, eq=False, repr=False)
class DeviceGaps:
    """One row a time in which nothing runs on a device, in order of device and begin.

    device: place in `Division.pids`; before, after: the rows of the records that ended last and begin next, -1 at the window's
    begin or end.
    """

    device: Ints
    start_ns: Ints
    end_ns: Ints
    before: Ints
    after: Ints

    def __len__(self) -> int:
        return len(self.device)

    @property
    def time_ns(self) -> Ints:
        """The length of each."""
        return self.end_ns - self.start_ns


class Division:
    """The time of a window on each device.

    records: all that the capture has; begin_ns, end_ns: the window; pids, devices: process and ordinal of each device that has
    activities in it (one entry, -1, for a capture of a CPU alone).
    """

    def __init__(self, records: Records, ends_ns: Ints, begin_ns: int, end_ns: int) -> None:
        """ends_ns: of each record (that of an op on the CPU is not its own time's)."""
        self.records, self.begin_ns, self.end_ns = records, begin_ns, max(end_ns, begin_ns)
        kind, start, end = records["kind"], records["start_ns"], ends_ns
        self.on_gpu = bool((kind != ActivityKind.CPU).any())

        def inside(part: slice) -> Bools:
            found: Bools = (start[part] >= 0) & (start[part] < self.end_ns) & (end[part] > begin_ns)
            return found & (kind[part] != ActivityKind.CPU) if self.on_gpu else found

        row = kept(narrowest(np.flatnonzero(computed(len(records), np.bool_, inside))))
        phase = records["phase"]

        def roles(part: slice) -> Ints:
            communicates = phase[row[part]] == PHASES.index("communication")
            return np.where(np.isin(kind[row[part]], _COPIES), COPY, np.where(communicates, COMMUNICATION, COMPUTE))

        role = computed(len(row), np.int8, roles)
        (self.pids, self.devices), _, device = distinct_rows(taken(records["pid"], row), taken(records["device"], row))
        begin = computed(len(row), np.int64, lambda part: np.maximum(start[row[part]], begin_ns))
        end = computed(len(row), np.int64, lambda part: np.minimum(ends_ns[row[part]], self.end_ns))
        if (order := order_of(device, begin, end)) is not None:
            row, role, device, begin, end = row[order], role[order], device[order], begin[order], end[order]
        self.row, self.role = kept(row), kept(role)
        self._device, self._begin, self._end = kept(device), kept(begin), kept(end)

    @property
    def wall_ns(self) -> int:
        """The length of the window."""
        return self.end_ns - self.begin_ns

    @property
    def count(self) -> int:
        """How many devices there are."""
        return len(self.pids)

    @cached_property
    def device(self) -> Ints:
        """The device of each record, -1 for those outside of the window."""
        result = full(len(self.records), -1, np.min_scalar_type(-max(self.count, 1)))
        result[self.row] = self._device
        return result

    @cached_property
    def held_ns(self) -> Ints:
        """For each record the time in which it holds its device; 0 outside of the window."""
        result = full(len(self.records), 0, np.int64)
        covered: Segments | None = None
        there = [role for role in range(len(BUSY)) if (self.role == role).any()]
        for role in there:
            mine = narrowest(np.flatnonzero(self.role == role))
            device, end = taken(self._device, mine), taken(self._end, mine)
            begin = _after_earlier(device, taken(self._begin, mine), end)
            if covered is not None and len(covered.start):
                before, after = covered.covered(device, begin), covered.covered(device, end)
            for part in pieces(len(mine)):
                time = end[part] - begin[part]
                if covered is not None and len(covered.start):
                    time -= after[part] - before[part]
                result[self.row[mine[part]]] = time
            if role != there[-1]:
                upto = narrowest(np.flatnonzero(self.role <= role))
                covered = union(*(taken(column, upto) for column in (self._device, self._begin, self._end)))
        return result

    @cached_property
    def busy_ns(self) -> Ints:
        """(BUSY, devices): the time that each role holds each device."""
        result = np.zeros((len(BUSY), self.count), np.int64)
        for part in pieces(len(self.row)):
            np.add.at(result, (self.role[part], self._device[part]), self.held_ns[self.row[part]])
        return result

    @cached_property
    def gaps(self) -> DeviceGaps:
        """All gaps of all devices, those at both ends of the window included."""
        if not len(self.row):
            return DeviceGaps(*np.zeros((5, 0), np.int64))
        device, begin, end = self._device, self._begin, self._end
        last = latest(device, end)
        first = np.flatnonzero(np.diff(device, prepend=-1) != 0)
        final = np.append(first[1:], len(device)) - 1
        # The gap ahead of each row: from the last end before it (for a device's first row the window's begin) to its begin.
        ahead, before = empty(len(last), np.int64), empty(len(last), last.dtype)
        for part in pieces(len(last)):
            before[part] = last[np.maximum(np.arange(part.start, part.stop) - 1, 0)]
            ahead[part] = end[before[part]]
        ahead[first], before[first] = self.begin_ns, -1
        rows = narrowest(np.flatnonzero(computed(len(last), np.bool_, lambda part: begin[part] > ahead[part])))
        tail = final[end[last[final]] < self.end_ns]

        def ended(part: slice) -> Ints:
            place = before[rows[part]]
            return np.where(place >= 0, self.row[place], -1)

        columns = (
            joined([taken(device, rows), device[tail]]),
            joined([taken(ahead, rows), end[last[tail]]]),
            joined([taken(begin, rows), np.full(len(tail), self.end_ns)]),
            joined([computed(len(rows), self.row.dtype, ended), self.row[last[tail]]]),
            joined([taken(self.row, rows), np.full(len(tail), -1, self.row.dtype)]),
        )
        order = order_of(*columns[:2])
        return DeviceGaps(*(columns if order is None else (taken(column, order) for column in columns)))

    @cached_property
    def run(self) -> Ints:
        """For each record the number of its run: the activities of a device between one gap in which it waited for the host and
        the next, -1 outside of the window."""
        gaps, result = self.gaps, full(len(self.records), -1, row_type(len(self.records)))
        late = np.flatnonzero(self.waits_for_host)
        ended = count_before(gaps.device[late], gaps.end_ns[late], self._device, self._begin, inclusive=True)
        for part in pieces(len(self.row)):
            result[self.row[part]] = ended[part] + self._device[part]
        return result

    @cached_property
    def waits_for_host(self) -> Bools:
        """Before which gaps' next activity the device waited for its launch: it had not returned when the device ran dry."""
        after, launch = self.gaps.after, self.records["launch_ns"]
        took, begin = self.records["launch_dur_ns"], self.gaps.start_ns

        def waits(part: slice) -> Bools:
            row = after[part]
            returned = launch[row] + np.maximum(took[row], 0)
            return (row >= 0) & (launch[row] >= 0) & (returned > begin[part])

        return computed(len(after), np.bool_, waits)

    @cached_property
    def pace_ns(self) -> float:
        """How long the host usually takes from one launch to the next: the median over all of one thread. Where a launch waits,
        as for room in the device's queue, that is not the host's time. 0 where less than two launches are known."""
        rows = self.launched
        launch = taken(self.records["launch_ns"], rows)
        took = self.records["launch_dur_ns"][rows]
        same = (np.diff(self.records["pid"][rows]) == 0) & (np.diff(self.records["tid"][rows]) == 0)
        between = (np.diff(launch) - np.maximum(took - _LAUNCH_NS, 0)[:-1])[same]
        return float(np.median(between)) if len(between) else 0.0

    @cached_property
    def launched(self) -> Ints:
        """One record of each launch in the window, in order of process, thread and time."""
        times = self.records["launch_ns"]
        known = self.row[computed(len(self.row), np.bool_, lambda part: times[self.row[part]] >= 0)]
        keys = [taken(self.records[name], known) for name in ("pid", "tid", "launch_ns")]
        if (order := order_of(*keys)) is not None:
            known, *keys = (taken(values, order) for values in (known, *keys))

        def begins(part: slice) -> Bools:
            row = np.arange(part.start, part.stop)
            new: Bools = row == 0
            for values in keys:
                new |= values[part] != values[np.maximum(row - 1, 0)]
            return new

        return kept(known[computed(len(known), np.bool_, begins)])

    @cached_property
    def slack_ns(self) -> Ints:
        """For each run the most that its activities can be shortened before the host bounds them: its length less its launches
        at the host's usual pace, less than 0 where these take longer. A number without bound where no launch is known."""
        count, runs = int(self.run.max(initial=-1)) + 1, self.run[self.row]
        begins, ends = spans(runs, self._begin, self._end, count)
        launched = np.bincount(self.run[self.launched], minlength=count)
        slack = np.clip(ends - begins - launched * self.pace_ns, -_FAR_NS, _FAR_NS).astype(np.int64)  # damaged times are huge
        return np.where(launched > 0, slack, np.iinfo(np.int64).max)


def _after_earlier(device: Ints, begin: Ints, end: Ints) -> Ints:
    """The begin of each interval, sorted by (device, begin), without what earlier ones of the device cover."""
    if not len(begin):
        return begin
    last = latest(device, end)

    def of_part(part: slice) -> Ints:
        row = np.arange(part.start, part.stop)
        before = np.maximum(row - 1, 0)
        same = (row > 0) & (device[part] == device[before])
        return np.where(same, np.minimum(np.maximum(begin[part], end[last[before]]), end[part]), begin[part])

    return computed(len(begin), np.int64, of_part)


def mean_parts(parts: Ints, total: int) -> list[int]:
    """The mean over devices of each part, (parts, devices), rounded so that they add up to `total`, which each device's do."""
    devices = parts.shape[1]
    if not devices:
        return [0] * len(parts)
    sums = parts.sum(axis=1)
    result = sums // devices
    for part in np.argsort(-(sums % devices), kind="stable")[: total - int(result.sum())].tolist():
        result[part] += 1
    return [int(number) for number in result]


def by_code(gaps: DeviceGaps, code: Ints, time_ns: Ints, codes: int, devices: int) -> Ints:
    """(codes, devices): the time of gaps summed by a code of each."""
    return summed(code * devices + gaps.device, time_ns, codes * devices).reshape(codes, devices)
