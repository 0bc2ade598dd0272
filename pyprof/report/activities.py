"""Records -> activities of GPUs on lines: the streams of each device of each process, and each device as a whole.

A device's line has all its streams together. Columns of long captures lie on the disk where those are wanted there, and are
looked at some rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyprof.arrays.columns import Growing, distinct_rows
from pyprof.arrays.intervals import order_of, reaches, spans
from pyprof.arrays.joining import mapped, rows_where
from pyprof.arrays.spool import computed, pieces, row_type, taken
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.records.records import PHASES, Limits, Records
from pyprof.parse.sources.trace import ActivityKind

_WHOLE, _NO_STREAM = -1, -2
_ON_GPU = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.MEMCPY, ActivityKind.MEMSET)
_NEVER = int(np.iinfo(np.int64).max)
_COPIES = (ActivityKind.MEMCPY, ActivityKind.MEMSET)


@dataclass(frozen=True)
class Lines:
    """pid, device and stream (-1: the whole device, -2: an unknown stream) of each line; of: the line of its device."""

    pid: Ints
    device: Ints
    stream: Ints
    of: Ints

    def __len__(self) -> int:
        return len(self.pid)

    @cached_property
    def whole(self) -> Bools:
        """Which lines are whole devices."""
        return np.asarray(self.stream == _WHOLE)

    @cached_property
    def shared(self) -> Bools:
        """Which lines are of devices with several streams."""
        return np.asarray(np.bincount(self.of, minlength=len(self))[self.of] > 2)


class Activities:
    """Activities of GPUs, in order of device, begin and end. record: row of Records; start, end: ns; stream, device: the lines
    of its stream and of its device."""

    def __init__(self, records: Records, chosen: Bools | None = None) -> None:
        """chosen: keep only the time from the first begin to the last end of these on each device, and clip all to it."""
        kind, begin, took = records["kind"], records["start_ns"], records["dur_ns"]
        row = rows_where(len(records), lambda part: np.isin(kind[part], _ON_GPU) & (begin[part] >= 0))
        start = taken(begin, row)
        end = computed(len(row), np.int64, lambda part: start[part] + np.maximum(took[row[part]], 0))
        if chosen is not None:
            row, start, end = _clipped(records, row, start, end, chosen)
        lines, stream, device = _lines(*(taken(records[name], row) for name in ("pid", "device", "stream")))
        if (order := order_of(device, start, end)) is not None:
            row, start, end, stream, device = (taken(column, order) for column in (row, start, end, stream, device))
        self.records, self.record, self.start, self.end = records, row, start, end
        self.lines, self.stream, self.device = lines, stream, device

    def __len__(self) -> int:
        return len(self.record)

    def column(self, name: str, places: Ints | slice) -> Ints:
        """A column of the records for some activities."""
        found: Ints = self.records[name][self.record[places]].astype(np.int64)
        return found

    @cached_property
    def counts(self) -> Ints:
        """How many activities each line has."""
        result = np.zeros(len(self.lines), np.int64)
        for part in pieces(len(self)):
            for line in (self.stream, self.device):
                result += np.bincount(line[part], minlength=len(result))
        return result

    @cached_property
    def order(self) -> Ints | None:
        """The order of activities by stream, begin and end; None where they stand so."""
        return order_of(self.stream, self.start, self.end)

    def at(self, line: int) -> Iterator[Ints | slice]:
        """The places of the activities of a line in order of begin, some at a time."""
        alike = self.lines.whole == self.lines.whole[line]
        first, order = int(self.counts[:line][alike[:line]].sum()), None if self.lines.whole[line] else self.order
        for some in pieces(int(self.counts[line])):
            part = slice(first + some.start, first + some.stop)
            yield part if order is None else order[part]

    def of_device(self, line: int) -> slice:
        """The places of all activities of a device."""
        first = int(self.counts[:line][self.lines.whole[:line]].sum())
        return slice(first, first + int(self.counts[line]))

    def span(self) -> tuple[Ints, Ints]:
        """(first begin, last end) of each line."""
        of_streams, of_devices = (spans(line, self.start, self.end, len(self.lines)) for line in (self.stream, self.device))
        return np.minimum(of_streams[0], of_devices[0]), np.maximum(of_streams[1], of_devices[1])

    def busy_ns(self, which: Callable[[slice], Bools]) -> Ints:
        """The time in which at least one of these activities runs on each device, by line."""
        rows, result = rows_where(len(self), which), np.zeros(len(self.lines), np.int64)
        device = taken(self.device, rows)
        for part, end, reach, _ in reaches(device, lambda part: self.end[rows[part]]):
            begin = np.minimum(np.maximum(self.start[rows[part]], reach), end)
            result[device[part.start]] += (end - begin).sum()
        return result

    def communicates(self, part: slice) -> Bools:
        """Which of some are communication between devices."""
        return np.asarray(self.column("phase", part) == PHASES.index("communication"))

    def copies(self, part: slice) -> Bools:
        """Which of some are copies and sets of memory."""
        return np.isin(self.column("kind", part), _COPIES)


def overlapping(records: Records, chosen: Bools) -> Ints:
    """The positions of the chosen records and of all that ran on GPUs between the first begin and the last end of these."""
    first, last = _NEVER, -_NEVER
    for some in _stretches(records, lambda rows, _: bool(chosen[rows].any())):
        for part, (begin, end) in _ran(records, some):
            mine = chosen[part] & (begin >= 0)
            first = min(first, int(begin[mine].min(initial=_NEVER)))
            last = max(last, int(end[mine].max(initial=-_NEVER)))
    found = Growing(row_type(len(records)))
    for some in _stretches(records, lambda rows, limits: limits.may_hold(0, last) or bool(chosen[rows].any())):
        for part, (begin, end) in _ran(records, some):
            inside = chosen[part] | ((begin >= 0) & (begin < last) & (end > first))
            found.append((np.flatnonzero(inside) + part.start).astype(row_type(len(records))))
    return found.whole()


def _stretches(records: Records, wanted: Callable[[slice, Limits], bool]) -> Iterator[slice]:
    """Some records that follow one another after others, those that are wanted by what limits their begin."""
    return (rows for rows, (limits,) in records.stretches("start_ns") if wanted(rows, limits))


def _ran(records: Records, rows: slice) -> Iterator[tuple[slice, tuple[Ints, Ints]]]:
    """Begin and end of some records, begin -1 for those that did not run on a GPU."""
    for part, (kind, begin, took) in records.pieces_of(("kind", "start_ns", "dur_ns"), rows):
        begin = np.where(np.isin(kind, _ON_GPU), begin, -1)
        yield part, (begin, begin + np.maximum(took, 0))


def _clipped(records: Records, row: Ints, start: Ints, end: Ints, chosen: Bools) -> tuple[Ints, Ints, Ints]:
    device = distinct_rows(*(taken(records[name], row) for name in ("pid", "device"))).inverse
    mine = rows_where(len(row), lambda part: chosen[row[part]])
    devices = int(device.max(initial=-1)) + 1
    first, last = spans(taken(device, mine), taken(start, mine), taken(end, mine), devices)

    def inside(part: slice) -> Bools:
        own = device[part]
        found: Bools = (end[part] > first[own]) & (start[part] < last[own]) | chosen[row[part]]
        return found

    kept = rows_where(len(row), inside)
    begins = computed(len(kept), np.int64, lambda part: np.maximum(start[kept[part]], first[device[kept[part]]]))
    ends = computed(len(kept), np.int64, lambda part: np.minimum(end[kept[part]], last[device[kept[part]]]))
    return taken(row, kept), begins, ends


def _lines(pid: Ints, device: Ints, stream: Ints) -> tuple[Lines, Ints, Ints]:
    """Lines with each device before its streams; the line of each row's stream and of its device."""
    (pids, devices, streams), _, number = distinct_rows(pid, device, stream)
    _, first, of = distinct_rows(pids, devices)
    whole, mine = first + np.arange(len(first)), np.arange(len(pids)) + of + 1
    order = np.argsort(np.concatenate([whole, mine]))
    names = np.concatenate([np.full(len(first), _WHOLE), np.where(streams == -1, _NO_STREAM, streams)])
    pids, devices = (np.concatenate([key[first], key])[order] for key in (pids, devices))
    lines = Lines(pids, devices, names[order], np.concatenate([whole, whole[of]])[order])
    kind = np.min_scalar_type(-max(len(order), 1))
    return lines, mapped(mine.astype(kind), number), mapped(whole[of].astype(kind), number)
