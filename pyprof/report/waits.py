"""Calls in which the host waited for a device -> which gaps of the device are their fault.

A gap is the fault of a call that the host was waiting in when the device ran dry. And without its waits the host would have
been ahead by as much: what remains of the later gaps is found by letting the activities run again, each as early as the one
before it and its launch, made earlier by what the host has waited until then, allow.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_values
from pyprof.arrays.intervals import Segments, count_before, order_of, reaches, union
from pyprof.arrays.joining import rows_where
from pyprof.arrays.spool import computed, pieces, taken
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.sources.trace import ActivityKind
from pyprof.report.calls import Calls, waiting_call
from pyprof.report.division import Division

_TO_HOST = 2  # CUDA's number of a copy from a device to the host
_FEW_BYTES = 4096
_SILENT_NS = 500_000


def blamed_calls(division: Division, calls: Calls | None, late: Ints) -> tuple[Bools, Ints]:
    """For each of the late gaps whether the host had been waiting when it began, and the row of the call, -1 unknown.

    late: rows of the division's gaps; calls: None for records alone, where a small copy to the host before the gap says it.
    """
    gaps, records = division.gaps, division.records
    after, before = gaps.after[late], gaps.before[late]
    copied = (before >= 0) & (records["kind"][before] == ActivityKind.MEMCPY) & (records["copykind"][before] == _TO_HOST)
    ended = records["start_ns"][before] + records["dur_ns"][before]
    copied &= (records["bytes"][before] <= _FEW_BYTES) & (records["launch_ns"][after] >= ended)
    if calls is None or not len(calls.pid):
        return copied, np.full(len(late), -1, np.int64)
    who = (records["pid"][after].astype(np.int64), records["tid"][after].astype(np.int64))
    call = waiting_call(calls, *who, gaps.starts(late), records["launch_ns"][after])
    return (call >= 0) | copied, call


def idling_waits(division: Division, calls: Calls) -> tuple[Ints, Segments]:
    """(rows of the calls, their time by place in the distinct pids of `division`) in which the host did nothing but wait: no
    other thread of the process launched meanwhile."""
    records = division.records
    inside = (calls.end_ns > division.begin_ns) & (calls.start_ns < division.end_ns)
    waits = np.flatnonzero(calls.waits & inside & calls.by_launching_threads())
    mine, launching = _process(division, calls.pid[waits]), _process(division, records["pid"])
    waits, mine = waits[mine >= 0], mine[mine >= 0]
    launched = np.flatnonzero((records["launch_ns"] >= 0) & (launching >= 0))
    launched = launched[np.lexsort((records["launch_ns"][launched], launching[launched]))]
    rows = (launching[launched], records["launch_ns"][launched])
    meanwhile = count_before(*rows, mine, calls.end_ns[waits], inclusive=False)
    meanwhile = meanwhile - count_before(*rows, mine, calls.start_ns[waits], inclusive=True)
    waits, mine = waits[meanwhile <= 0], mine[meanwhile <= 0]
    begin, end = np.maximum(calls.start_ns[waits], division.begin_ns), np.minimum(calls.end_ns[waits], division.end_ns)
    return waits, union(mine, begin, end)


def _process(division: Division, pid: Ints) -> Ints:
    """The place of each pid among those that have devices, -1 none."""
    pids = distinct_values(division.pids)
    at = np.minimum(np.searchsorted(pids, pid), len(pids) - 1)
    return np.where(pids[at] == pid, at, -1)


def last_wait(division: Division, calls: Calls, waits: Ints, late: Ints) -> Ints:
    """For each late gap the row of the last of these waits that began before its end, -1 none. waits: of `idling_waits`."""
    gaps, group = division.gaps, _process(division, calls.pid[waits])
    order = np.lexsort((calls.start_ns[waits], group))
    rows, wanted = (group[order], calls.start_ns[waits[order]]), _process(division, division.pids)[gaps.device[late]]
    at = count_before(*rows, wanted, gaps.ends(late), inclusive=False) - 1
    good = (at >= 0) & (group[order][np.maximum(at, 0)] == wanted) if len(waits) else np.zeros(len(late), np.bool_)
    return np.where(good, waits[order[np.maximum(at, 0)]], -1) if len(waits) else np.full(len(late), -1)


def silences(division: Division) -> Segments:
    """When each process, by place in the distinct pids, launched nothing for long: for records, which hold no other calls."""
    records = division.records
    times, took, pid = (records[name] for name in ("launch_ns", "launch_dur_ns", "pid"))
    rows = rows_where(len(times), lambda part: (times[part] >= 0) & (_process(division, pid[part]) >= 0))
    group = computed(len(rows), np.int16, lambda part: _process(division, pid[rows[part]]))
    if (order := order_of(group, taken(times, rows))) is not None:
        rows, group = taken(rows, order), taken(group, order)
    found = [np.empty((3, 0), np.int64)]
    for part, _, before, last in reaches(group, lambda part: times[rows[part]] + np.maximum(took[rows[part]], 0)):
        launch = times[rows[part]]
        at = np.flatnonzero((last >= 0) & (launch - np.maximum(before, 0) >= _SILENT_NS))
        found.append(np.stack([group[part][at], before[at], launch[at]]))
    process, begin, end = np.concatenate(found, axis=1)
    begin, end = np.maximum(begin, division.begin_ns), np.minimum(end, division.end_ns)
    inside = end > begin
    return union(process[inside], begin[inside], end[inside])


def fall_into(division: Division, segments: Segments, late: Ints) -> Bools:
    """Which late gaps begin inside of a segment of their process."""
    gaps = division.gaps
    process = _process(division, division.pids)[gaps.device[late]]
    begin = gaps.starts(late)
    return np.asarray(segments.covered(process, begin + 1) > segments.covered(process, begin))


def relieved(division: Division, waited: Segments, late: Ints) -> Ints:
    """For each late gap how much of it would go if the host did not wait at these times, in ns and at most its length."""
    gaps, result = division.gaps, np.zeros(len(late), np.int64)
    process = _process(division, division.pids)
    if not len(waited.start) or not len(late):
        return result
    of_row = division.device
    for device in range(division.count):
        rows = division.row[rows_where(len(division.row), lambda part, device=device: of_row[division.row[part]] == device)]  # type: ignore[misc]
        mine = np.flatnonzero(gaps.device[late] == device)
        own = late[mine]
        time = computed(len(own), np.int64, lambda part, own=own: gaps.time_ns[own[part]])  # type: ignore[misc]
        ends = computed(len(own), np.int64, lambda part, own=own: gaps.ends(own[part]))  # type: ignore[misc]
        upto = _remaining(division, rows, waited, process[device], ends, np.concatenate([[0], np.cumsum(time)]))
        gone = np.maximum(time - np.diff(upto, prepend=0), 0)
        total, most = int(time.sum()) - int(upto[-1]) if len(upto) else 0, int(gone.sum())
        result[mine] = gone if total >= most else gone * (max(total, 0) / max(most, 1))
    return result


def _remaining(division: Division, rows: Ints, waited: Segments, process: np.int64, ends: Ints, late_ns: Ints) -> Ints:
    """Of a device, until the end of each late gap: how long it would have to wait in all. rows: of its records, in order of
    begin; ends: of its late gaps; late_ns: their time up to each."""
    records, result, most = division.records, np.zeros(len(ends), np.int64), np.int64(0)
    for part in pieces(len(rows)):
        # Until when each launch keeps the device waiting, on a clock that stands still in late gaps.
        begin, launch = np.maximum(records["start_ns"][rows[part]], division.begin_ns), records["launch_ns"][rows[part]]
        owed = np.minimum(launch + np.maximum(records["launch_dur_ns"][rows[part]], 0), begin)
        owed -= waited.covered(np.broadcast_to(process, len(begin)), launch)
        owed -= begin
        owed += late_ns[np.searchsorted(ends, begin, "right")]
        owed[launch < 0] = 0
        remains = np.maximum.accumulate(np.append(most, owed))
        most = remains[-1]
        first = np.searchsorted(ends, begin[0], "left")
        result[first:] = remains[np.searchsorted(begin, ends[first:], "right")]
    return result
