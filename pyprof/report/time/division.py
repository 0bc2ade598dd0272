"""Records in a window of time -> one division of that time, from which every figure and every advice of a report is taken.

Each nanosecond of each device belongs to one activity that runs, or to one gap between activities. If several run at once, a
kernel that computes takes the time before communication, communication before copies, and among equals the first to begin
(their exclusive time). So busy and idle, exposed and saved time add up to the window, and nothing counts twice. Of the host
only the times of launches are used; causes.py says why a gap is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.columns.distinct import distinct_rows, row_type
from pyprof.columns.intervals import latest, order_of, summed, union
from pyprof.columns.nesting import stable_order
from pyprof.columns.types import Bools, Integers, Ints
from pyprof.model.records import PHASES, Records
from pyprof.model.trace import ActivityKind

BUSY = ("compute", "communication", "copy")  # what holds a device, first what holds it before the others
COMPUTE, COMMUNICATION, COPY = range(3)
_COPIES = (ActivityKind.MEMCPY, ActivityKind.MEMSET)
_LAUNCH_NS = 20_000  # a launch that takes longer waits; most take 3 to 10 us
_FAR_NS = 1 << 62  # beyond any time that is real


@dataclass(frozen=True, eq=False, repr=False)
class DeviceGaps:
    """Gaps, one row each: times in which nothing runs on a device, in order of device and begin.

    device: place in `Division.pids`; start_ns, end_ns; before, after: the rows of the records that ended last and begin next,
    -1 at the window's begin or end, and where a pause of the recording is.
    """

    device: Integers
    start_ns: Ints
    end_ns: Ints
    before: Integers
    after: Integers

    @property
    def time_ns(self) -> Ints:
        """Length of each."""
        return self.end_ns - self.start_ns

    def __len__(self) -> int:
        return len(self.device)


class Division:
    """The time of a window on each device.

    records: all records of the capture; begin_ns, end_ns: the window; pauses: (begin, end) of times in it that were not
    recorded and do not count; pids, devices: process and ordinal of each device with activities in the window (one entry, -1,
    for a capture of a CPU alone). One entry for each record in the window, in order of device and begin: row, its position in
    `records`; place, index of its device; begins, ends, clipped to the window; role, index into BUSY.
    """

    def __init__(self, records: Records, begin_ns: int, end_ns: int, pauses: tuple[tuple[int, int], ...] = ()) -> None:
        self.records, self.begin_ns, self.end_ns, self.pauses = records, begin_ns, max(end_ns, begin_ns), pauses
        kind, start = records["kind"], records["start_ns"]
        end = start + np.maximum(records["dur_ns"], 0)
        self.on_gpu = bool((kind != ActivityKind.CPU).any())
        inside = (start >= 0) & (start < self.end_ns) & (end > begin_ns)
        if self.on_gpu:
            inside &= kind != ActivityKind.CPU
        for first, last in pauses:
            inside &= (start < first) | (start >= last)
        row = np.flatnonzero(inside).astype(row_type(len(kind)))
        (self.pids, self.devices), _, place = distinct_rows(records["pid"][row], records["device"][row])
        place = place.astype(np.min_scalar_type(-max(self.count, 1)))
        begin, end = np.maximum(start[row], begin_ns), np.minimum(end[row], self.end_ns)
        if (order := order_of(place, begin, end)) is not None:
            row, place, begin, end = row[order], place[order], begin[order], end[order]
        self.row, self.place, self.begins, self.ends = row, place, begin, end
        communicates = records["phase"][self.row] == PHASES.index("communication")
        copies = np.isin(kind[self.row], _COPIES)
        self.role = np.where(copies, COPY, np.where(communicates, COMMUNICATION, COMPUTE)).astype(np.int8)

    @property
    def wall_ns(self) -> int:
        """Length of the window, without pauses."""
        return self.end_ns - self.begin_ns - sum(end - begin for begin, end in self.pauses)

    @property
    def count(self) -> int:
        """How many devices there are."""
        return len(self.pids)

    @cached_property
    def device(self) -> Ints:
        """The device of each record, -1 for those outside of the window."""
        result = np.full(len(self.records), -1, self.place.dtype)
        result[self.row] = self.place
        return result

    def first_of(self, device: int) -> int:
        """The first record of a device in the window, -1 where it has none."""
        place = int(np.searchsorted(self.place, device))
        return int(self.row[place]) if place < len(self.row) and self.place[place] == device else -1

    @cached_property
    def exclusive_ns(self) -> Ints:
        """Exclusive time of each record, so that sums never count a moment twice; 0 outside of the window."""
        result = np.zeros(len(self.records), np.int64)
        for role in range(len(BUSY)):
            mine = np.flatnonzero(self.role == role)
            if not len(mine):
                continue
            device, begin, end = self.place[mine], self.begins[mine], self.ends[mine]
            reach, _ = self._reached(device, end)
            begin = np.minimum(np.maximum(begin, reach), end)
            others = self.role < role
            if others.any():
                covered = union(self.place[others], self.begins[others], self.ends[others])
                result[self.row[mine]] = end - begin - covered.covered(device, end) + covered.covered(device, begin)
            else:
                result[self.row[mine]] = end - begin
        return result

    @staticmethod
    def _reached(device: Integers, end: Ints) -> tuple[Ints, Ints]:
        """For each activity the latest end among earlier activities of its device, and the index of that activity; for a
        device's first activity -_FAR_NS and -1."""
        last = latest(device, end)
        holder = np.append(-1, last[:-1])[: len(end)]
        holder[np.append(True, device[1:] != device[:-1])[: len(end)]] = -1
        return np.where(holder >= 0, end[holder], -_FAR_NS), holder

    @cached_property
    def busy_ns(self) -> Ints:
        """Exclusive time by role and device, of shape (BUSY, devices)."""
        count = max(self.count, 1)
        group = self.role.astype(np.int64) * count + self.place
        return summed(group, self.exclusive_ns[self.row], len(BUSY) * count)[: len(BUSY) * self.count].reshape(len(BUSY), -1)

    @cached_property
    def gaps(self) -> DeviceGaps:
        """All gaps of all devices, those at both ends of the window included."""
        reach, holder = self._reached(self.place, self.ends)
        ahead = np.where(holder >= 0, reach, self.begin_ns)
        at = np.flatnonzero(self.begins > ahead)
        before = np.where(holder[at] >= 0, self.row[holder[at]], self.row.dtype.type(-1))
        # After a device's last activity, up to the window's end.
        last = np.flatnonzero(np.append(self.place[1:] != self.place[:-1], True)[: len(self.row)])
        ends = latest(self.place, self.ends)[last]
        until = self.ends[ends]
        open_end = until < self.end_ns
        last, ends, until = last[open_end], ends[open_end], until[open_end]
        place = np.concatenate([self.place[at], self.place[last]])
        order = stable_order(place)
        columns = (
            np.concatenate([ahead[at], until]),
            np.concatenate([self.begins[at], np.full(len(last), self.end_ns)]),
            np.concatenate([before, self.row[ends]]),
            np.concatenate([self.row[at], np.full(len(last), -1, self.row.dtype)]),
        )
        found = DeviceGaps(place[order], *(column[order] for column in columns))
        return self._without_pauses(found) if self.pauses else found

    def _without_pauses(self, gaps: DeviceGaps) -> DeviceGaps:
        """The gaps with the recording's pauses cut out."""
        for first, last in self.pauses:
            over = (gaps.start_ns < last) & (gaps.end_ns > first)
            none = np.full(int(over.sum()), -1, gaps.after.dtype)
            whole, ahead, behind = ~over, np.minimum(gaps.end_ns[over], first), np.maximum(gaps.start_ns[over], last)
            device, before, after = gaps.device[over], gaps.before[over], gaps.after[over]
            columns = (
                (gaps.device[whole], device, device),
                (gaps.start_ns[whole], gaps.start_ns[over], behind),
                (gaps.end_ns[whole], ahead, gaps.end_ns[over]),
                (gaps.before[whole], before, none),
                (gaps.after[whole], none, after),
            )
            joined = [np.concatenate(column) for column in columns]
            keep = np.flatnonzero(joined[2] > joined[1])
            keep = keep[np.lexsort((joined[1][keep], joined[0][keep]))]
            gaps = DeviceGaps(*(column[keep] for column in joined))
        return gaps

    @cached_property
    def waits_for_host(self) -> Bools:
        """Before which gaps' next activity the device waited for its launch: it had not returned when the device ran dry."""
        gaps, row = self.gaps, self.gaps.after
        begun, took = self.records["launch_ns"][row], self.records["launch_dur_ns"][row]
        late: Bools = (row >= 0) & (begun >= 0) & (begun + np.maximum(took, 0) > gaps.start_ns)
        # A call that returns when its copy has run says nothing of when it gave the copy to the device.
        returned, ran = begun + took, self.records["start_ns"][row] + self.records["dur_ns"][row]
        return late & ~((gaps.time_ns <= _LAUNCH_NS) & (returned >= ran) & (begun + _LAUNCH_NS <= gaps.start_ns))


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
