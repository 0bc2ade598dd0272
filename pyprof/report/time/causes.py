"""The gaps of a division of time and what the host did in them -> the causes of each, in ns that add up to its length.

MEANINGS lists the causes, the most specific first. A gap is divided by what the host did at each moment of it: waiting in a
call, pausing, launching.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.intervals import Segments, summed, union
from pyprof.columns.types import Bools, Integers, Ints
from pyprof.model.host import Host, Spans
from pyprof.model.trace import ActivityKind
from pyprof.report.time.division import DeviceGaps, Division
from pyprof.report.time.waits import Waits, blamed_calls, fall_into, idling_waits, last_wait, relieved, silences

# unrecorded: more than 1 ms before an activity whose launch had returned more than 1 ms before; inside of a graph's replay, or
# behind one most of whose kernels are missing. host: for more than 2 ms (after a wait 1 ms), at the window's end, or all of it
# without a device.
MEANINGS = {
    "data_loading": "the host loaded data or waited for it: in a DataLoader, or in a range that says so",
    "synchronization": "the CPU blocked on the GPU (.item(), a blocking copy), so nothing was queued",
    "compilation": "the host compiled, loaded modules or recorded a graph",
    "allocation": "the host allocated or freed memory of the device",
    "profiler": "estimated: what recording itself added between launches",
    "launch": "the CPU launches kernels more slowly than the GPU finishes them",
    "host": "the host did something else, or nothing that is recorded",
    "queued": "the device's own pause between two activities that were both launched in time",
    "unrecorded": "work was launched before the recording began, or was lost; on a CPU kernels of torch.compile",
    "unknown": "no cause is known, or the records do not show what the host did",
}
CAUSES = tuple(MEANINGS)
_CODE = {cause: code for code, cause in enumerate(CAUSES)}
_UNRECORDED_NS = 1_000_000
_QUEUED_NS = 20_000
_PAUSE_NS = 2_000_000  # without a call: more than it takes to launch the next; half of it after a wait or before inputs
_REPLAY = 8  # activities of one launch
_TIMES = 3  # as many activities of a replay as kernels: most of them are missing
_WORTH = 0.03  # of the window: from here on it is worth knowing what recording took of the time that launches came too late
_TO_DEVICE = 1  # CUDA's number of a copy from the host to a device
_LATE = -1  # as a cause: several, since the device waited for the host
_SELDOM = 0.1  # of the launches: fewer late ones are no program that launches too slowly


@dataclass(frozen=True, eq=False, repr=False)
class Causes:
    """How long gaps are for each of their causes: one row a gap and cause, in this order, none of 0 ns; cause: place in
    CAUSES."""

    gap: Integers
    cause: Integers
    ns: Ints

    def of(self, gaps: Ints) -> Ints:
        """(gaps, CAUSES): ns of these gaps."""
        first, stop = (np.searchsorted(self.gap, gaps, side) for side in ("left", "right"))
        result = np.zeros((len(gaps), len(CAUSES)), np.int64)
        count = stop - first
        at = np.arange(count.sum()) + np.repeat(stop - np.cumsum(count), count)
        result[np.repeat(np.arange(len(gaps)), count), self.cause[at]] = self.ns[at]
        return result

    def totals(self, group: Integers, groups: int) -> Ints:
        """(groups, CAUSES): ns of all gaps of each group. group: of each gap."""
        cell = group[self.gap].astype(np.int64) * len(CAUSES) + self.cause
        return summed(cell, self.ns, groups * len(CAUSES)).reshape(groups, len(CAUSES))


@dataclass(frozen=True, eq=False, repr=False)
class Idle:
    """devices: how many there are; causes: of each gap; waited: row of Waits of the call whose wait a gap is for, -1 none."""

    gaps: DeviceGaps
    devices: int
    causes: Causes
    waited: Integers

    def rows_of(self, cause: str) -> tuple[Ints, Ints]:
        """(the gaps that have time for a cause, ascending; how long it is)."""
        at = np.flatnonzero(self.causes.cause == _CODE[cause])
        return self.causes.gap[at].astype(np.int64), self.causes.ns[at]

    @cached_property
    def by_device(self) -> Ints:
        """(CAUSES, devices): ns."""
        return self.causes.totals(self.gaps.device, self.devices).T

    def causes_of(self, gap: int) -> list[tuple[int, str]]:
        """(ns, cause) of each cause of one gap."""
        return [(ns, cause) for ns, cause in zip(self.causes.of(np.array([gap]))[0].tolist(), CAUSES, strict=True) if ns]


def idle_causes(division: Division, host: Host | None, waits: Waits | None) -> Idle:
    """The causes of each gap of each device. host, waits: None for records without their capture's host."""
    gaps = division.gaps
    rows, waited = np.arange(len(gaps)), np.full(len(gaps), -1, np.int32)
    cause = np.full(len(gaps), _LATE, np.int8)
    if division.on_gpu:
        cause[:] = np.where((gaps.time_ns <= _QUEUED_NS) & (gaps.after >= 0), _CODE["queued"], _CODE["unknown"])
        cause[gaps.after < 0] = _CODE["host"]
        cause[division.waits_for_host] = _LATE
        for lost in (unrecorded(division), _in_replays(division)):
            # Of records without their capture copies may be missing, so that what seems lost perhaps is there.
            cause[lost] = _CODE["unknown" if host is None else "unrecorded"]
        rows = np.flatnonzero(cause == _LATE)
    if not len(rows):
        return Idle(gaps, division.count, Causes(np.arange(len(gaps), dtype=division.row.dtype), cause, gaps.time_ns), waited)
    late = _Late(division, host, waits, rows)
    if division.on_gpu:
        times, waited[rows] = late.divided()
    else:
        times, left = late.known()
        times["host"] = left
    single = np.flatnonzero(cause != _LATE)
    parts = [(single, cause[single], gaps.time_ns[single])]
    for name, time in times.items():
        some = np.flatnonzero(time)
        parts.append((rows[some], np.full(len(some), _CODE[name], np.int8), time[some]))
    gap, cause, ns = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((cause, gap))
    return Idle(gaps, division.count, Causes(gap[order].astype(division.row.dtype), cause[order], ns[order]), waited)


def unrecorded(division: Division) -> Ints:
    """The gaps whose next activity had been launched long before the device began it, although it had nothing else to do."""
    gaps, records = division.gaps, division.records
    rows = np.flatnonzero(gaps.time_ns > _UNRECORDED_NS)
    after, end = gaps.after[rows], gaps.end_ns[rows]
    launch = records["launch_ns"][after]
    returned = launch + np.maximum(records["launch_dur_ns"][after], 0)
    return rows[(after >= 0) & (launch >= 0) & (returned < end - _UNRECORDED_NS)]


def _in_replays(division: Division) -> Ints:
    """Gaps inside a graph's replay, which runs one node after another, and gaps after a replay whose kernels are mostly
    missing."""
    gaps, records = division.gaps, division.records
    long = np.flatnonzero(gaps.time_ns > _QUEUED_NS)
    before, after = gaps.before[long], gaps.after[long]
    corr, pid = records["corr"], records["pid"]
    same = (before >= 0) & (after >= 0) & (corr[before] == corr[after]) & (corr[after] >= 0) & (pid[before] == pid[after])
    same &= records["launch_ns"][after] >= 0  # migrations of unified memory have a number of their own, and no launch
    if not same.any():
        return np.empty(0, np.int64)
    rows = np.flatnonzero(corr >= 0)
    replay = distinct_rows(pid[rows], corr[rows]).inverse
    kernels = np.isin(records["kind"][rows], (ActivityKind.KERNEL, ActivityKind.GRAPH))
    total = np.bincount(replay)
    broken = np.zeros(len(records) + 1, np.bool_)
    broken[rows] = ((total >= _REPLAY) & (np.bincount(replay, kernels) * _TIMES < total))[replay]
    found: Ints = long[same | broken[before]]
    return found


def _segments(spans: list[Spans], group: dict[tuple[int, int], int]) -> Segments:
    """Spans of processes or threads as one union; group: the number of each (pid, tid)."""
    parts = [np.empty((3, 0), np.int64)]
    for one in spans:
        number = group.setdefault((one.pid, one.tid), len(group))
        parts.append(np.stack([np.full(len(one.begin_ns), number), np.array(one.begin_ns), np.array(one.end_ns)]))
    return union(*np.concatenate(parts, axis=1))


class _Late:
    """Late gaps, in which a device waited for the host, divided by what the host did."""

    def __init__(self, division: Division, host: Host | None, waits: Waits | None, rows: Ints) -> None:
        """rows: of the division's gaps."""
        gaps = division.gaps
        self.division, self.host, self.waits, self.rows = division, host, waits, rows
        self.begin, self.end, self.after = gaps.start_ns[rows], gaps.end_ns[rows], gaps.after[rows]
        pid = division.pids[gaps.device[rows]]
        self.processes: dict[tuple[int, int], int] = {}
        self.process = np.empty(len(rows), np.int64)
        for one in np.unique(pid).tolist():
            self.process[pid == one] = self.processes.setdefault((one, -1), len(self.processes))
        work = {} if host is None else host.work
        kinds = ("loading", "compilation", "allocation", "generated", "long_calls")
        self.work = {kind: _segments(work.get(kind, []), self.processes) for kind in kinds}

    def known(self) -> tuple[dict[str, Ints], Ints]:
        """The ns of each gap by known cause, and the ns of each gap that remain."""
        left = self.end - self.begin
        loading, compilation = self.work["loading"], _joined(self.work["compilation"], self._first_launches())
        before, covered, times = loading, np.zeros(len(left), np.int64), {}
        named = {"data_loading": loading, "compilation": compilation, "allocation": self.work["allocation"]}
        named["unrecorded"] = self.work["generated"]
        for cause, segments in named.items():
            before = _joined(before, segments)
            upto = before.covered(self.process, self.end) - before.covered(self.process, self.begin)
            times[cause] = upto - covered
            covered = upto
        return times, left - covered

    def divided(self) -> tuple[dict[str, Ints], Ints]:
        """(ns of each gap by cause, the call that the host had been waiting in)."""
        times, left = self.known()
        division, records = self.division, self.division.records
        if self.host is not None and self.host.frames and left.sum() >= _WORTH * division.wall_ns * division.count:
            # How much of each gap recording Python's frames took of the launching thread.
            who, _, wanted = distinct_rows(records["pid"][self.after], records["tid"][self.after])
            threads = {(pid, tid): number for number, (pid, tid) in enumerate(who.T.tolist())}
            recorder = _segments(self.host.recorder, threads)
            taken = recorder.covered(wanted, self.end) - recorder.covered(wanted, self.begin)
            times["profiler"] = np.minimum(taken, left)
            left = left - times["profiler"]
        waited, call = blamed_calls(division, self.waits, self.rows)
        paused = np.zeros(len(left), np.bool_)
        for cause, time in self._pauses(left, waited).items():
            times[cause] = times.get(cause, 0) + time
            left, paused = left - time, paused | (time > 0)
        if self.waits is None:
            silent = silences(division)
            gone = np.where(fall_into(division, silent, self.rows), left, relieved(division, silent, self.rows))
            times["unknown"] = np.where(waited, 0, np.minimum(gone, left))
            left = left - times["unknown"]
            drained = np.where(waited, left, 0)
        else:
            rows, waiting = idling_waits(division, self.waits)
            drained = np.where(waited, left, np.minimum(relieved(division, waiting, self.rows), left))
            # What follows a pause is no longer the fault of the wait before it.
            ends = np.append(self.waits.end_ns, 0)[call]
            drained = np.where(paused & (call >= 0), np.clip(ends - self.begin, 0, left), drained)
            last = last_wait(division, self.waits, rows, self.rows)
            call = np.where((call < 0) & (drained > 0), last, call)
        times["synchronization"] = drained
        # Before the first activity of a window nothing was launched that this launch comes after.
        rest, first = left - drained, division.gaps.before[self.rows] < 0
        launch = division.records["launch_ns"][division.row]
        late = np.count_nonzero((rest > 0) & ~first)
        seldom = late < _SELDOM * len(distinct_values(launch[launch >= 0]))
        times["launch"] = np.where(first | seldom, 0, rest)
        times["host"] = times["host"] + np.where(first | seldom, rest, 0)
        return times, call

    def _first_launches(self) -> Segments:
        """Launching calls of at least 1 ms of a kernel that had not run before: its module is loaded."""
        records, after = self.division.records, self.after
        took = records["launch_dur_ns"][after]
        rows = np.flatnonzero((took >= _UNRECORDED_NS) & (records["kind"][after] == ActivityKind.KERNEL))
        first = [not (records["name"][:row] == records["name"][row]).any() for row in after[rows].tolist()]
        rows = rows[np.array(first, np.bool_)]
        begin = records["launch_ns"][after[rows]].astype(np.int64)
        return union(self.process[rows], begin, begin + took[rows])

    def _pauses(self, left: Ints, waited: Bools) -> dict[str, Ints]:
        """Divide the rest of each gap: pauses of the host (no API call and, except before copies to a device, no op either)
        count as compilation before a module is loaded, else as the host's. waited: in a call when the gap began."""
        compiled, result, copies = np.zeros_like(left), np.zeros_like(left), self._copies_to_device
        least = np.where(copies | waited & (self.waits is not None), _PAUSE_NS // 2, _PAUSE_NS)
        long = np.flatnonzero(left > least)
        if self.host is None:
            launch = self.division.records["launch_ns"][self.after[long]]
            result[long] = np.maximum(np.minimum(launch, self.end[long]) - self.begin[long], 0)
        else:
            for row in long.tolist():
                compiled[row], result[row] = self._paused(row, bool(copies[row]), int(least[row]))
        compiled = np.minimum(compiled, left)
        return {"compilation": compiled, "host": np.minimum(result, left - compiled)}

    def _paused(self, row: int, copies: bool, least_ns: int) -> tuple[int, int]:
        """The time of one gap in pauses of at least so long, less long calls and known work in them, as of a loader that the
        pause begins with: (those that end as compilation begins, all others)."""
        begin, end = self._pauses_of["call_pauses" if copies else "op_pauses"].get(int(self.process[row]), _NONE)
        first, last = np.searchsorted(end, self.begin[row], "right"), np.searchsorted(begin, self.end[row], "left")
        begin, end = np.maximum(begin[first:last], self.begin[row]), np.minimum(end[first:last], self.end[row])
        group = np.full(len(begin), self.process[row])
        length = end - begin - (self._known.covered(group, end) - self._known.covered(group, begin))
        pause = length > least_ns
        to_module = pause & np.isin(end, self.work["compilation"].start)
        return int(length[to_module].sum()), int(length[pause & ~to_module].sum())

    @cached_property
    def _known(self) -> Segments:
        """Times of known work and of long calls."""
        return reduce(_joined, self.work.values())

    @cached_property
    def _pauses_of(self) -> dict[str, dict[int, tuple[Ints, Ints]]]:
        """Begin and end of the pauses of each process, with and without ops as moments."""
        assert self.host is not None
        return {
            kind: {
                self.processes[one.pid, -1]: (np.array(one.begin_ns, np.int64), np.array(one.end_ns, np.int64))
                for one in self.host.work.get(kind, [])
                if (one.pid, -1) in self.processes
            }
            for kind in ("call_pauses", "op_pauses")
        }

    @cached_property
    def _copies_to_device(self) -> Bools:
        """Which gaps are followed by a copy from the host."""
        kind, copied = (self.division.records[name][self.after] for name in ("kind", "copykind"))
        return np.asarray((kind == ActivityKind.MEMCPY) & (copied == _TO_DEVICE))


_NONE = (np.empty(0, np.int64), np.empty(0, np.int64))


def _joined(one: Segments, other: Segments) -> Segments:
    parts = zip((one.group, one.start, one.end), (other.group, other.start, other.end), strict=True)
    return union(*map(np.concatenate, parts))
