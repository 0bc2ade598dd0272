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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.arrays.columns import Growing, narrowest
from pyprof.arrays.intervals import Segments, count_before, order_of, reaches
from pyprof.arrays.joining import mapped, rows_where
from pyprof.arrays.spool import computed, full, pieces, row_type, taken
from pyprof.arrays.types import Array, Bools, Ints
from pyprof.parse.sources.trace import ActivityKind
from pyprof.report.activities import Activities
from pyprof.report.calls import Calls, waiting_call

REASONS = ("sync", "host", "launch", "queued", "copy", "kernel", "unknown")
SYNC, HOST, LAUNCH, QUEUED, COPY, KERNEL, UNKNOWN = range(7)
_QUEUED_NS = 5_000
_UNEXPLAINED_NS = 1_000_000  # after its launch: work before it was not recorded
_FOLLOWS_NS = 10_000


@dataclass(frozen=True)
class Gaps:
    """One row a gap, those of devices first, in order of line and begin. line: row of Lines; start, time: ns; before, after:
    rows of Records that ended last and begin next.

    reason: code of REASONS; elsewhere: ns of it in which the device worked on other streams; call: row of Calls, the API call
    that the host waited in, -1 none. of_devices: how many are gaps of devices.
    """

    line: Ints
    start: Ints
    time: Ints
    before: Ints
    after: Ints
    reason: Ints
    elsewhere: Ints
    call: Ints
    of_devices: int

    def __len__(self) -> int:
        return len(self.line)

    @cached_property
    def end(self) -> Ints:
        """When each ends, in ns."""
        return computed(len(self), np.int64, lambda part: self.start[part] + self.time[part])

    @cached_property
    def own(self) -> Ints:
        """The time that counts for the reason: the gap without `elsewhere`."""
        return computed(len(self), self.time.dtype, lambda part: self.time[part] - self.elsewhere[part])


class _Some(NamedTuple):
    """Gaps of one line, as they are found: places of the activities that ended last and begin next, and times in ns."""

    line: int
    before: Ints
    after: Ints
    start: Ints
    end: Ints


def find_gaps(activities: Activities, calls: Calls | None) -> Gaps:
    """All gaps of all lines; without the capture's API calls `sync` counts as `host`."""
    row, kind = row_type(len(activities.records)), activities.device.dtype
    found = [Growing(dtype) for dtype in (kind, np.int64, np.int32, row, row, np.int8)]
    follows, count, of_devices = Growing(np.int32), 0, 0
    for of, order in ((activities.device, None), (activities.stream, activities.order)):
        of_devices = count
        for some in _between(activities, of, order):
            reason, may_follow = _reasons(activities, some)
            times = some.start, narrowest(some.end - some.start)
            rows = activities.record[some.before], activities.record[some.after]
            for column, values in zip(found, (np.full(len(reason), some.line, kind), *times, *rows, reason), strict=True):
                column.append(values)
            follows.append((count + np.flatnonzero(may_follow)).astype(row_type(count + len(reason))))
            count += len(reason)
    line, start, time, before, after, reasons = (column.whole() for column in found)
    elsewhere, call = (np.broadcast_to(np.int64(unknown), count) for unknown in (0, -1))
    gaps = Gaps(line, start, time, before, after, reasons, elsewhere, call, of_devices)
    _follow(activities, gaps, follows.whole())
    return _explained(activities, gaps, calls)


def _between(activities: Activities, line: Ints, order: Ints | None) -> Iterator[_Some]:
    """The gaps of some lines, in order of line and begin. order: the activities by line, begin and end; None: as they stand."""

    def places(rows: slice | Ints) -> slice | Ints:
        found: slice | Ints = rows if order is None else order[rows]
        return found

    line = line if order is None else taken(line, order)
    for part, _, reach, holder in reaches(line, lambda part: activities.end[places(part)]):
        begin = activities.start[places(part)]
        at = np.flatnonzero((holder >= 0) & (begin > reach))
        before, after = (np.asarray(places(rows)) for rows in (holder[at], at + part.start))
        yield _Some(int(line[part.start]), before, after, reach[at], begin[at])


def _reasons(activities: Activities, gaps: _Some) -> tuple[Array, Bools]:
    """The reasons of gaps, as far as their own launches say them, HOST for SYNC; and which may follow another stream."""
    lines, is_stream = activities.lines, not activities.lines.whole[gaps.line]
    launch, took = activities.column("launch_ns", gaps.after), activities.column("launch_dur_ns", gaps.after)
    reason = np.full(len(launch), UNKNOWN, np.int8)
    in_time = (launch >= 0) & (launch <= gaps.start)
    reason[in_time & (gaps.end - gaps.start <= _QUEUED_NS)] = QUEUED
    reason[in_time & (took >= 0) & (launch + took > gaps.start)] = LAUNCH
    waited_since = gaps.end - launch - np.maximum(took, 0)
    is_late = launch > gaps.start
    is_late &= is_stream | (waited_since <= _UNEXPLAINED_NS) | (waited_since <= launch - gaps.start)
    reason[is_late] = HOST
    # On a device nothing ends in a gap but what also begins at its end, without length.
    others = lines.shared[gaps.line] if is_stream else activities.end[gaps.after] == gaps.end
    return reason, np.asarray(in_time & (reason == UNKNOWN) & others)


def _follow(activities: Activities, gaps: Gaps, rows: Ints) -> None:
    """Give those of these gaps their reason that end soon after something on another stream."""
    line = taken(gaps.line, rows)
    device = mapped(activities.lines.of.astype(line.dtype), line)
    end = computed(len(rows), np.int64, lambda part: gaps.start[rows[part]] + gaps.time[rows[part]])
    other = _ended_before(activities, device, end)
    for part in pieces(len(rows)):
        at, row = other[part], rows[part]
        ended = activities.end[at]
        waited = (at >= 0) & (activities.stream[at] != line[part])
        waited &= (ended > gaps.start[row]) & (end[part] - ended <= _FOLLOWS_NS)
        is_copy = activities.column("kind", at[waited]) == ActivityKind.MEMCPY
        gaps.reason[row[waited]] = np.where(is_copy, COPY, KERNEL)


def _ended_before(activities: Activities, device: Ints, times: Ints) -> Ints:
    """The activity of a device that ended last before each time or at it, -1 where none did within the time of one that
    follows."""
    if not len(times):
        return np.empty(0, np.int64)
    order = order_of(device, times)
    group, asked = (device, times) if order is None else (taken(device, order), taken(times, order))
    ends = activities.end
    # Where more times lie before an end and a while than before the end, one of them lies in that while.
    until = computed(len(ends), np.int64, lambda part: ends[part] + _FOLLOWS_NS)
    first = count_before(group, asked, activities.device, ends, inclusive=False)
    last = count_before(group, asked, activities.device, until, inclusive=True)
    near = rows_where(len(ends), lambda part: last[part] > first[part])
    keys = taken(activities.device, near), taken(ends, near), taken(activities.record, near)
    if (order := order_of(*keys)) is not None:
        near, keys = taken(near, order), tuple(taken(key, order) for key in keys)  # type: ignore[assignment]
    if not len(near):
        return np.full(len(times), -1, np.int64)
    before = count_before(keys[0], keys[1], device, times, inclusive=True)

    def found(part: slice) -> Ints:
        at = np.maximum(before[part] - 1, 0)
        return np.where((before[part] > 0) & (keys[0][at] == device[part]), near[at], -1)

    return computed(len(times), np.int64, found)


def _explained(activities: Activities, gaps: Gaps, calls: Calls | None) -> Gaps:
    """Gaps with the calls that the host waited in, and what the device did elsewhere in those that the host is late in."""
    late = rows_where(len(gaps), lambda part: gaps.reason[part] == HOST)
    call: Array = gaps.call
    if calls is not None and len(calls.pid) and len(late):
        next_one = taken(gaps.after, late)
        pid, tid, launch = (taken(activities.records[name], next_one) for name in ("pid", "tid", "launch_ns"))
        found = waiting_call(calls, pid.astype(np.int64), tid.astype(np.int64), taken(gaps.start, late), launch)
        call = full(len(gaps), -1, row_type(len(calls.pid)))
        for part in pieces(len(late)):
            call[late[part]] = found[part]
            gaps.reason[late[part]] = np.where(found[part] >= 0, SYNC, HOST)
    shared = activities.lines.shared
    rows = late[rows_where(len(late), lambda part: (late[part] >= gaps.of_devices) & shared[gaps.line[late[part]]])]
    worked = _worked(activities, gaps, rows)
    elsewhere: Array = gaps.elsewhere
    if len(rows):
        elsewhere = full(len(gaps), 0, gaps.time.dtype)
        for part in pieces(len(rows)):
            elsewhere[rows[part]] = worked[part]
    columns = gaps.line, gaps.start, gaps.time, gaps.before, gaps.after, gaps.reason
    return Gaps(*columns, elsewhere, call, gaps.of_devices)


def _worked(activities: Activities, gaps: Gaps, rows: Ints) -> Ints:
    """How long the device worked in each of these gaps of its streams, in ns."""
    device = mapped(activities.lines.of.astype(gaps.line.dtype), taken(gaps.line, rows))
    idle, start, end = idle_devices(gaps), taken(gaps.start, rows), taken(gaps.end, rows)
    since, until = idle.covered(device, start), idle.covered(device, end)
    return computed(len(rows), np.int64, lambda part: end[part] - start[part] - (until[part] - since[part]))


def idle_devices(gaps: Gaps) -> Segments:
    """When nothing runs on each device, by line."""
    return Segments(*(column[: gaps.of_devices] for column in (gaps.line, gaps.start, gaps.end)))
