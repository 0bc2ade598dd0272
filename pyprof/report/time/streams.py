"""A division of time and the causes of its gaps -> lines, devices and their streams, and the gaps of each with their causes.

A stream idles while its device works on other streams (`elsewhere`), and with its device, for the same causes as that. So busy,
elsewhere and the causes of a line add up to the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed, union
from pyprof.columns.types import Bools, Integers, Ints
from pyprof.report.time.causes import Causes, Idle
from pyprof.report.time.division import Division

WHOLE, NO_STREAM = -1, -2  # as streams: the whole device; a stream that is not known


@dataclass(frozen=True)
class LineGaps:
    """Gaps, one row each, in order of line and begin. line: row of DeviceLines; before, after: the records that end and begin
    the gap, -1 none; waited: row of Waits, -1 none; causes: of each gap, leaving out the time in which the device worked on
    other streams."""

    line: Integers
    start_ns: Ints
    end_ns: Ints
    before: Integers
    after: Integers
    waited: Integers
    causes: Causes

    @cached_property
    def idle_ns(self) -> Ints:
        """The time of each that has causes: without what the device worked elsewhere."""
        return summed(self.causes.gap, self.causes.ns, len(self))

    def __len__(self) -> int:
        return len(self.line)


class DeviceLines:
    """Each device, and behind it its streams. of: place of its device in the division; stream: its number, WHOLE or
    NO_STREAM."""

    def __init__(self, division: Division) -> None:
        self.division = division
        stream = division.records["stream"][division.row].astype(np.int64)
        (of, streams), _, code = distinct_rows(division.place, np.where(stream == -1, NO_STREAM, stream))
        whole = np.arange(division.count)
        if not division.on_gpu:  # threads of a CPU are no streams
            of, streams = of[:0], streams[:0]
        self.of = np.concatenate([whole, of])
        self.stream = np.concatenate([np.full(len(whole), WHOLE), streams])
        order = np.lexsort((self.stream, self.stream != WHOLE, self.of))
        self.of, self.stream = self.of[order], self.stream[order]
        line = np.argsort(order)  # of each before they were put in order
        self.of_activity = line[len(whole) + code] if len(of) else code
        self.of_device = line[: len(whole)]

    def __len__(self) -> int:
        return len(self.of)

    @property
    def whole(self) -> Bools:
        """Which lines are whole devices."""
        return np.asarray(self.stream == WHOLE)

    def activities(self, line: int) -> Ints:
        """Positions in `division.row` of the activities of a line, in order of begin."""
        of = self.division.place == self.of[line] if self.stream[line] == WHOLE else self.of_activity == line
        return np.flatnonzero(of)

    @cached_property
    def busy_ns(self) -> Ints:
        """Time in which at least one activity of each line runs."""
        division = self.division
        of_devices = division.busy_ns.sum(axis=0)
        busy = union(self.of_activity, division.begins, division.ends).total(len(self))
        return np.where(self.whole, of_devices[self.of], busy)

    def gaps(self, idle: Idle, by_stream: bool) -> LineGaps:
        """All gaps of devices, or of streams."""
        if not by_stream:
            gaps = idle.gaps
            columns = gaps.start_ns, gaps.end_ns, gaps.before, gaps.after, idle.waited, idle.causes
            return LineGaps(self.of_device.astype(np.int32)[gaps.device], *columns)
        found = [np.empty((6, 0), np.int64)]  # line, start, end, before, after, waited
        causes, count = [np.empty((3, 0), np.int64)], 0  # gap, cause, ns
        for line in np.flatnonzero(~self.whole).tolist():
            own, divided = self._gaps_of(line, idle)
            divided[0] += count
            causes.append(divided)
            found.append(own)
            count += own.shape[1]
        line_of, start, end, before, after, waited = np.concatenate(found, axis=1)
        return LineGaps(line_of, start, end, before, after, waited, Causes(*np.concatenate(causes, axis=1)))

    def _gaps_of(self, line: int, idle: Idle) -> tuple[Ints, Ints]:
        """The gaps of one stream and their causes, which are those of the device gaps inside them."""
        division, mine, gaps = self.division, self.activities(line), idle.gaps
        row, begin = division.row[mine], division.begins[mine]
        reach = np.maximum.accumulate(np.append(division.begin_ns, division.ends[mine]))
        holder = np.append(-1, np.maximum.accumulate(np.where(division.ends[mine] > reach[:-1], np.arange(len(mine)), -1)))
        begin, after = np.append(begin, division.end_ns), np.append(row, -1)
        at = np.flatnonzero(begin > reach)
        before = np.where(holder[at] >= 0, np.append(row, -1)[holder[at]], -1)
        theirs = gaps.device == self.of[line]
        inside = np.searchsorted(reach[at], gaps.start_ns, "right") - 1  # of gaps of this device
        waited, known = np.full(len(at), -1, np.int64), theirs & (idle.waited >= 0)
        waited[inside[known]] = idle.waited[known]
        own = np.flatnonzero(theirs[idle.causes.gap])
        places, _, which = distinct_rows(inside[idle.causes.gap[own]], idle.causes.cause[own])
        divided = np.stack([*places, summed(which, idle.causes.ns[own], places.shape[1])])
        return np.stack([np.full(len(at), line), reach[at], begin[at], before, after[at], waited]), divided
