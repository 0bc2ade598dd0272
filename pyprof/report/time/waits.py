"""Calls in which the host waited for a device -> the gaps that they cause.

A gap is caused by a call if the host was waiting in it when the device ran dry. Waits cause later gaps too: without them the
host would be further ahead. A replay finds these: each activity starts as soon as the previous one has ended and its launch,
moved earlier by all waits so far, allows; as far as a gap closes in the replay, it is due to the waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.intervals import Segments, count_before, latest, union
from pyprof.columns.types import Bools, Ints
from pyprof.model.host import Host
from pyprof.model.trace import ActivityKind
from pyprof.report.time.division import Division

TO_HOST = 2  # CUDA's number of a copy from a device to the host
FEW_BYTES = 4096
_SILENT_NS = 500_000


@dataclass(frozen=True)
class Waits:
    """Calls in which the host waited, one row each. launching: whether the thread launches work; active: ids of other threads
    that made calls meanwhile; text: index into texts, which are (call, op that made it, its source line or layers)."""

    pid: Ints
    tid: Ints
    start_ns: Ints
    end_ns: Ints
    launching: Bools
    active: list[list[int]]
    text: Ints
    texts: list[tuple[str, str, str]]

    @classmethod
    def of(cls, host: Host) -> Waits:
        """All waits of a capture."""
        rows = host.waits
        columns = (
            [one.pid for one in rows],
            [one.tid for one in rows],
            [one.begin_ns for one in rows],
            [one.end_ns for one in rows],
        )
        pid, tid, begin, end = (np.array(column, np.int64) for column in columns)
        launching, text = np.array([one.launching for one in rows], np.bool_), np.array([one.text for one in rows], np.int64)
        return cls(pid, tid, begin, end, launching, [one.active for one in rows], text, host.texts)

    def __len__(self) -> int:
        return len(self.pid)

    def open_at(self, pid: Ints, tid: Ints, dry: Ints, launch: Ints) -> Ints:
        """The call (row) in which the launching thread was waiting when the device ran dry, -1 none.

        If it was not waiting: the call in which another thread of the process was, provided that the launching thread made no
        call meanwhile and launched after it. (Autograd's thread has nothing to do until the main thread returns from .item().)
        """
        thread, asked = np.split(distinct_rows(np.append(self.pid, pid), np.append(self.tid, tid)).inverse, [len(self)])
        process, asked_process = np.split(distinct_rows(np.append(self.pid, pid)).inverse, [len(self)])
        found, other = self._open(thread, asked, dry), self._open(process, asked_process, dry)
        quiet = (found < 0) & (other >= 0)
        quiet[quiet] &= self.end_ns[other[quiet]] <= launch[quiet]
        for at in np.flatnonzero(quiet).tolist():
            quiet[at] = tid[at] not in self.active[other[at]]
        return np.where(quiet, other, found)

    def _open(self, group: Ints, asked: Ints, dry: Ints) -> Ints:
        """For each time the call of the asked group that is open then and ends last, -1 none."""
        if not len(self):
            return np.full(len(dry), -1, np.int64)
        rows = np.lexsort((self.end_ns, self.start_ns, group))
        holder = rows[latest(group[rows], self.end_ns[rows])]
        at = count_before(group[rows], self.start_ns[rows], asked, dry, inclusive=True) - 1
        found = holder[np.maximum(at, 0)]
        return np.where((at >= 0) & (group[found] == asked) & (self.end_ns[found] >= dry), found, -1)


def blamed_calls(division: Division, waits: Waits | None, late: Ints) -> tuple[Bools, Ints]:
    """For each of the late gaps whether the host had been waiting when it began, and the row of the call, -1 unknown.

    late: rows of the division's gaps; waits: None for records alone, where a small copy to the host before the gap says it.
    """
    gaps, records = division.gaps, division.records
    after, before = gaps.after[late], gaps.before[late]
    copied = (before >= 0) & (records["kind"][before] == ActivityKind.MEMCPY) & (records["copykind"][before] == TO_HOST)
    ended = records["start_ns"][before] + records["dur_ns"][before]
    copied &= (records["bytes"][before] <= FEW_BYTES) & (records["launch_ns"][after] >= ended)
    if waits is None:
        return copied, np.full(len(late), -1, np.int64)
    who = records["pid"][after].astype(np.int64), records["tid"][after].astype(np.int64)
    call = waits.open_at(*who, gaps.start_ns[late], records["launch_ns"][after].astype(np.int64))
    return (call >= 0) | copied, call


def idling_waits(division: Division, waits: Waits) -> tuple[Ints, Segments]:
    """Waits during which no other thread of the process launched: their rows, and their time by index of the process in
    `division`."""
    records = division.records
    rows = np.flatnonzero((waits.end_ns > division.begin_ns) & (waits.start_ns < division.end_ns) & waits.launching)
    mine, launching = _process(division, waits.pid[rows]), _process(division, records["pid"])
    rows, mine = rows[mine >= 0], mine[mine >= 0]
    launched = np.flatnonzero((records["launch_ns"] >= 0) & (launching >= 0))
    launched = launched[np.lexsort((records["launch_ns"][launched], launching[launched]))]
    when = launching[launched], records["launch_ns"][launched]
    meanwhile = count_before(*when, mine, waits.end_ns[rows], inclusive=False)
    meanwhile = meanwhile - count_before(*when, mine, waits.start_ns[rows], inclusive=True)
    rows, mine = rows[meanwhile <= 0], mine[meanwhile <= 0]
    begin, end = np.maximum(waits.start_ns[rows], division.begin_ns), np.minimum(waits.end_ns[rows], division.end_ns)
    return rows, union(mine, begin, end)


def _process(division: Division, pid: Ints) -> Ints:
    """The place of each pid among those that have devices, -1 none."""
    pids = distinct_values(division.pids)
    at = np.minimum(np.searchsorted(pids, pid), len(pids) - 1)
    return np.where(pids[at] == pid, at, -1)


def last_wait(division: Division, waits: Waits, rows: Ints, late: Ints) -> Ints:
    """For each late gap the last of these waits that began before its end, -1 none. rows: of `idling_waits`."""
    if not len(rows):
        return np.full(len(late), -1)
    gaps, group = division.gaps, _process(division, waits.pid[rows])
    order = np.lexsort((waits.start_ns[rows], group))
    begun, wanted = (group[order], waits.start_ns[rows[order]]), _process(division, division.pids)[gaps.device[late]]
    at = count_before(*begun, wanted, gaps.end_ns[late], inclusive=False) - 1
    good = (at >= 0) & (group[order][np.maximum(at, 0)] == wanted)
    return np.where(good, rows[order[np.maximum(at, 0)]], -1)


def silences(division: Division) -> Segments:
    """When each process, by place in the distinct pids, launched nothing for long: for records, which hold no other calls."""
    records = division.records
    group = _process(division, records["pid"])
    rows = np.flatnonzero((records["launch_ns"] >= 0) & (group >= 0))
    rows = rows[np.lexsort((records["launch_ns"][rows], group[rows]))]
    group, launch = group[rows], records["launch_ns"][rows]
    end = launch + np.maximum(records["launch_dur_ns"][rows], 0)
    last = latest(group, end)
    same = np.flatnonzero(group[1:] == group[:-1]) + 1
    before = end[last[same - 1]]
    long = launch[same] - np.maximum(before, 0) >= _SILENT_NS
    begin = np.maximum(before[long], division.begin_ns)
    until = np.minimum(launch[same][long], division.end_ns)
    inside = until > begin
    return union(group[same][long][inside], begin[inside], until[inside])


def fall_into(division: Division, segments: Segments, late: Ints) -> Bools:
    """Which late gaps begin inside of a segment of their process."""
    process = _process(division, division.pids)[division.gaps.device[late]]
    begin = division.gaps.start_ns[late]
    return np.asarray(segments.covered(process, begin + 1) > segments.covered(process, begin))


def relieved(division: Division, waited: Segments, late: Ints) -> Ints:
    """For each late gap how much of it would go if the host did not wait at these times, in ns and at most its length."""
    gaps, result = division.gaps, np.zeros(len(late), np.int64)
    process = _process(division, division.pids)
    if not len(waited.start) or not len(late):
        return result
    of_row = division.device[division.row]
    for device in range(division.count):
        mine = np.flatnonzero(gaps.device[late] == device)
        own = late[mine]
        time = gaps.time_ns[own]
        upto = _remaining(division, division.row[of_row == device], waited, process[device], gaps.end_ns[own], time)
        gone = np.maximum(time - np.diff(upto, prepend=0), 0)
        total, most = int(time.sum()) - int(upto[-1]) if len(upto) else 0, int(gone.sum())
        result[mine] = gone if total >= most else gone * (max(total, 0) / max(most, 1))
    return result


def _remaining(division: Division, rows: Ints, waited: Segments, process: np.int64, ends: Ints, time: Ints) -> Ints:
    """Time that a device would have to wait in all, until the end of each late gap. rows: of its records, in order of
    begin; ends, time: of its late gaps."""
    records = division.records
    late_ns = np.concatenate([[0], np.cumsum(time)])
    # Until when each launch keeps the device waiting, on a clock that stands still in late gaps.
    begin, launch = np.maximum(records["start_ns"][rows], division.begin_ns), records["launch_ns"][rows]
    owed = np.minimum(launch + np.maximum(records["launch_dur_ns"][rows], 0), begin)
    owed -= waited.of(process).covered_by(launch)
    owed += late_ns[np.searchsorted(ends, begin, "right")] - begin
    owed[launch < 0] = 0
    remains = np.maximum.accumulate(np.append(0, owed))
    found: Ints = remains[np.searchsorted(begin, ends, "right")]
    return found
