"""Records in a window of time -> one division of that time, from which every figure and every advice of a report is taken.

Each nanosecond of each device belongs to one activity that runs, or to one gap between activities. Of several that run at once
a kernel that computes holds the device before communication, that before copies, and of equals the one that began first. So
what is busy and idle, exposed or saved adds up to the window, and nothing is counted twice. Of the host it knows the times of
launches alone: why a gap is one is not its business (see hostside).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from pyprof.arrays.columns import Growing, distinct_rows, map_distinct, narrowest
from pyprof.arrays.intervals import Segments, count_before, order_of, reaches, summed, union
from pyprof.arrays.joining import chosen, rows_where
from pyprof.arrays.spool import computed, full, kept, pieces, row_type, taken
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.records.records import PHASES, Records
from pyprof.parse.sources.trace import ActivityKind

BUSY = ("compute", "communication", "copy")  # what holds a device, first what holds it before the others
COMPUTE, COMMUNICATION, COPY = range(3)
_COPIES = (ActivityKind.MEMCPY, ActivityKind.MEMSET)
_LAUNCH_NS = 20_000  # a launch that takes longer waits; most take 3 to 10 us
_FAR_NS = 1 << 62  # beyond any time that is real
_COMPUTED = ("run", "waits_for_host", "pace_ns", "launched", "slack_ns")
EndsOf = Callable[[Any], Ints]
"""When some records end, given by a slice or their positions, in ns."""


class DeviceGaps:
    """One row a time in which nothing runs on a device, in order of device and begin.

    device: place in `Division.pids`; time_ns: its length; before, after: the rows of the records that ended last and begin
    next, -1 at the window's begin or end.
    """

    def __init__(self, division: Division, device: Ints, time_ns: Ints, before: Ints, after: Ints) -> None:
        self._division = division
        self.device, self.time_ns, self.before, self.after = map(kept, (device, time_ns, before, after))

    def __len__(self) -> int:
        return len(self.device)

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return self._division.count

    def ends(self, index: Ints | slice | Bools) -> Ints:
        """When some of them end."""
        of, after = self._division, self.after[index]
        found: Ints = np.where(after >= 0, np.maximum(of.records["start_ns"][after], of.begin_ns), of.end_ns)
        return found

    def starts(self, index: Ints | slice | Bools) -> Ints:
        """When some of them begin."""
        return self.ends(index) - self.time_ns[index]

    @property
    def start_ns(self) -> Ints:
        """When each begins."""
        return computed(len(self), np.int64, self.starts)

    @property
    def end_ns(self) -> Ints:
        """When each ends."""
        return computed(len(self), np.int64, self.ends)


class Division:
    """The time of a window on each device.

    records: all that the capture has; begin_ns, end_ns: the window; pids, devices: process and ordinal of each device that has
    activities in it (one entry, -1, for a capture of a CPU alone); row: the records that run in it, in order of device and
    begin; role: of these, place in BUSY.
    """

    def __init__(self, records: Records, ends_ns: EndsOf, begin_ns: int, end_ns: int) -> None:
        """ends_ns: of some of the records (that of an op on the CPU is not its own time's)."""
        self.records, self._ends_of, self.begin_ns, self.end_ns = records, ends_ns, begin_ns, max(end_ns, begin_ns)
        kind, start = records["kind"], records["start_ns"]
        self.on_gpu = any(bool((kind[part] != ActivityKind.CPU).any()) for part in pieces(len(records)))

        def inside(part: slice) -> Bools:
            found: Bools = (start[part] >= 0) & (start[part] < self.end_ns) & (ends_ns(part) > begin_ns)
            return found & (kind[part] != ActivityKind.CPU) if self.on_gpu else found

        row = rows_where(len(records), inside)
        (self.pids, self.devices), _, device = distinct_rows(*(_of_rows(records[name], row) for name in ("pid", "device")))
        device = device.astype(np.min_scalar_type(-max(self.count, 1)))
        if (order := order_of(device, _Of(row, self._begins), _Of(row, self._ends))) is not None:
            row, device = row[order], device[order]
        self.row, self._device = kept(row), kept(device)
        phase = records["phase"]

        def roles(part: slice) -> Ints:
            communicates = phase[row[part]] == PHASES.index("communication")
            copies = np.isin(kind[row[part]], _COPIES)
            return np.where(copies, COPY, np.where(communicates, COMMUNICATION, COMPUTE)).astype(np.int8)

        self.role = computed(len(row), np.int8, roles)

    def _begins(self, rows: Ints) -> Ints:
        """When some records begin in the window."""
        found: Ints = np.maximum(self.records["start_ns"][rows], self.begin_ns)
        return found

    def _ends(self, rows: Ints) -> Ints:
        """When some records end in it."""
        found: Ints = np.minimum(self._ends_of(rows), self.end_ns)
        return found

    def worked_out(self) -> dict[str, Any]:
        """What is computed when it is first looked at, but for the time that records hold their device, for another process to
        take over."""
        gaps = self.gaps
        columns = gaps.device, gaps.time_ns, gaps.before, gaps.after
        return {"gaps": columns, **{name: getattr(self, name) for name in _COMPUTED}}

    def take_over(self, found: dict[str, Any]) -> None:
        """Take what another process worked out of the same division."""
        self.__dict__.update(found, gaps=DeviceGaps(self, *found["gaps"]))

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
        for part in pieces(len(self.row)):
            result[self.row[part]] = self._device[part]
        return result

    def first_of(self, device: int) -> int:
        """The first record of a device in the window, -1 where it has none."""
        place = int(np.searchsorted(self._device, device))
        return int(self.row[place]) if place < len(self.row) and self._device[place] == device else -1

    @cached_property
    def held_ns(self) -> Ints:
        """For each record the time in which it holds its device; 0 outside of the window."""
        result = full(len(self.records), 0, np.int32 if self._longest_ns < 1 << 31 else np.int64)
        for role in (role for role in range(len(BUSY)) if (self.role == role).any()):
            mine = rows_where(len(self.row), lambda part, role=role: self.role[part] == role)  # type: ignore[misc]
            device = taken(self._device, mine)
            covered = self._covered_by(role, mine, device)
            for part, end, reach, _ in reaches(device, lambda part, mine=mine: self._ends(self.row[mine[part]])):  # type: ignore[misc]
                rows = self.row[mine[part]]
                begin = np.minimum(np.maximum(self._begins(rows), reach), end)
                time = end - begin
                if covered is not None:
                    time -= covered.covered(device[part], end) - covered.covered(device[part], begin)
                result[rows] = time
        return result

    @property
    def _longest_ns(self) -> int:
        """The time of the longest activity."""
        parts = (self.row[part] for part in pieces(len(self.row)))
        return max((int((self._ends(rows) - self._begins(rows)).max()) for rows in parts), default=0)

    def _covered_by(self, role: int, mine: Ints, device: Ints) -> Segments | None:
        """When what holds a device before this role runs, as far as it matters to it; None: never. mine: places of the role."""
        if not (self.role < role).any():
            return None
        when = union(device, self._begins(self.row[mine]), self._ends(self.row[mine]))

        def meets(part: slice) -> Bools:
            own, rows = self._device[part], self.row[part]
            begun = count_before(when.group, when.start, own, self._ends(rows), inclusive=False)
            ended = count_before(when.group, when.end, own, self._begins(rows), inclusive=True)
            return np.asarray((self.role[part] < role) & (begun > ended))

        others = rows_where(len(self.row), meets)
        found = union(self._device[others], self._begins(self.row[others]), self._ends(self.row[others]))
        return found if len(found.start) else None

    @cached_property
    def busy_ns(self) -> Ints:
        """(BUSY, devices): the time that each role holds each device."""
        result, count = np.zeros(len(BUSY) * self.count, np.int64), max(self.count, 1)
        for part in pieces(len(self.row)):
            group = self.role[part].astype(np.int64) * count + self._device[part]
            result += summed(group, self.held_ns[self.row[part]], len(result))
        return result.reshape(len(BUSY), -1)

    @cached_property
    def gaps(self) -> DeviceGaps:
        """All gaps of all devices, those at both ends of the window included."""
        row, kind = self.row, row_type(len(self.records))
        columns = [Growing(dtype) for dtype in (self._device.dtype, np.int32, kind, kind)]

        def add(device: Ints, time: Ints, before: Ints, after: Ints) -> None:
            for column, values in zip(columns, (device, narrowest(time), before.astype(kind), after.astype(kind)), strict=True):
                column.append(values)

        for part, end, reach, holder in reaches(self._device, lambda part: self._ends(row[part])):
            begin = self._begins(row[part])
            ahead = np.where(holder >= 0, reach, self.begin_ns)
            at = np.flatnonzero(begin > ahead)
            before = np.where(holder[at] >= 0, row[holder[at]], -1)
            add(self._device[part][at], (begin - ahead)[at], before, row[part][at])
            last = part.stop - 1
            if last + 1 == len(row) or self._device[last + 1] != self._device[last]:  # the device's last activity
                until, then = max(int(reach[-1]), int(end[-1])), last if end[-1] > reach[-1] else int(holder[-1])
                if until < self.end_ns:
                    add(self._device[last : part.stop], np.array([self.end_ns - until]), row[then : then + 1], np.array([-1]))
        return DeviceGaps(self, *map(Growing.whole, columns))

    @cached_property
    def run(self) -> Ints:
        """For each record the number of its run: the activities of a device between one gap in which it waited for the host and
        the next, -1 outside of the window."""
        gaps, result = self.gaps, full(len(self.records), -1, row_type(len(self.records)))
        late = np.flatnonzero(self.waits_for_host)
        device, ends = gaps.device[late], gaps.ends(late)
        for part in pieces(len(self.row)):
            rows, own = self.row[part], self._device[part]
            result[rows] = count_before(device, ends, own, self._begins(rows), inclusive=True) + own
        return result

    @cached_property
    def waits_for_host(self) -> Bools:
        """Before which gaps' next activity the device waited for its launch: it had not returned when the device ran dry."""
        gaps, launch, took = self.gaps, self.records["launch_ns"], self.records["launch_dur_ns"]

        def waits(part: slice) -> Bools:
            row = gaps.after[part]
            begun = launch[row]
            return np.asarray((row >= 0) & (begun >= 0) & (begun + np.maximum(took[row], 0) > gaps.starts(part)))

        return computed(len(gaps), np.bool_, waits)

    @cached_property
    def pace_ns(self) -> float:
        """How long the host usually takes from one launch to the next: the median over all of one thread. Where a launch waits,
        as for room in the device's queue, that is not the host's time. 0 where less than two launches are known."""
        rows, records = self.launched, self.records
        between = []
        for part in pieces(max(len(rows) - 1, 0)):
            mine, then = rows[part], rows[part.start + 1 : part.stop + 1]
            same = (records["pid"][mine] == records["pid"][then]) & (records["tid"][mine] == records["tid"][then])
            waited = np.maximum(records["launch_dur_ns"][mine] - _LAUNCH_NS, 0)
            between.append(narrowest((records["launch_ns"][then] - records["launch_ns"][mine] - waited)[same]))
        times = np.concatenate([np.empty(0, np.int32), *between])
        return float(np.median(times)) if len(times) else 0.0

    @cached_property
    def launched(self) -> Ints:
        """One record of each launch in the window, in order of process, thread and time."""
        times, rows = self.records["launch_ns"], self.row
        known = chosen(rows, lambda part: times[rows[part]] >= 0)
        thread, launch = self._threads(known), _Of(known, times.__getitem__)
        order = order_of(thread, launch)

        def begins(part: slice) -> Bools:
            places = np.arange(max(part.start - 1, 0), part.stop)
            at = places if order is None else order[places[0] : part.stop]
            own, begun = thread[at], launch[at]
            new = (own[1:] != own[:-1]) | (begun[1:] != begun[:-1])
            return new if part.start else np.append(True, new)

        first = rows_where(len(known), begins)
        return taken(known, first if order is None else taken(order, first))

    def _threads(self, rows: Ints) -> Ints:
        """A number for the process and thread that launched each of these records, ascending as these are."""
        numbers, processes, threads = self.records, count(), count()
        pid, tid = (_of_rows(numbers[name], rows) for name in ("pid", "tid"))
        process, thread = map_distinct(pid, lambda _: next(processes)), map_distinct(tid, lambda _: next(threads))
        if next(processes) < 2:
            return thread
        each = next(threads)
        return computed(len(rows), np.int64, lambda part: process[part].astype(np.int64) * each + thread[part])

    @cached_property
    def slack_ns(self) -> Ints:
        """For each run the most that its activities can be shortened before the host bounds them: its length less its launches
        at the host's usual pace, less than 0 where these take longer. A number without bound where no launch is known."""
        count = max((int(self.run[part].max()) for part in pieces(len(self.run))), default=-1) + 1
        begins, ends = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        for part in pieces(len(self.row)):
            rows = self.row[part]
            np.minimum.at(begins, self.run[rows], self._begins(rows))
            np.maximum.at(ends, self.run[rows], self._ends(rows))
        launched = np.zeros(count, np.int64)
        for part in pieces(len(self.launched)):
            launched += np.bincount(self.run[self.launched[part]], minlength=count)
        slack = np.clip(ends - begins - launched * self.pace_ns, -_FAR_NS, _FAR_NS).astype(np.int64)  # damaged times are huge
        return np.where(launched > 0, slack, np.iinfo(np.int64).max)


class _Of:
    """A column that is computed where it is looked at. rows: of records; value: of some records."""

    def __init__(self, rows: Ints, value: EndsOf) -> None:
        self._rows, self._value = rows, value

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: slice | Ints) -> Ints:
        return self._value(self._rows[index])


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


def _of_rows(values: Ints, rows: Ints) -> Ints:
    """A column of some rows; of one value for all rows it stays that."""
    return values[: len(rows)] if values.strides == (0,) else taken(values, rows)
