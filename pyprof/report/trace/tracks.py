"""Threads of the host, streams of devices, computed rows -> the tracks of a timeline: pid, tid, names, order.

Processes, threads, devices and streams keep their own numbers if these are unique in the file, as in a trace of torch.profiler.
Slices of one track must nest: slices that cross others go to further tracks of the same thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.nesting import crossing
from pyprof.columns.types import Integers, Ints
from pyprof.model.records import Records
from pyprof.model.trace import Trace

_FIRST_FREE = 1 << 23  # above process and thread ids of Linux
_MOST_LANES = 16  # tracks of one thread; slices that need more go to the last one and cross there
_DEVICES_BEHIND = 1 << 20  # in the order: devices come after the host
_FIRST_STREAM = 1 << 10  # in the order: computed tracks of a device come before its streams


class Track(NamedTuple):
    """A row of slices. row: of the trace's threads, None for other tracks; order: from the top of its process."""

    pid: int | str
    tid: int | str
    name: str
    order: int
    row: int | None = None

    @property
    def text(self) -> str:
        """`"pid":...,"tid":...,` of its events."""
        return f'"pid":{json.dumps(self.pid)},"tid":{json.dumps(self.tid)},'


class Tracks:
    """All tracks, numbered in order of first use."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.all: list[Track] = []
        self._code_of: dict[tuple[object, ...], int] = {}
        self._processes: dict[int | str, tuple[str, int]] = {}  # by pid: name and order
        self._tids: set[tuple[int | str, int | str]] = set()
        self._pids: dict[tuple[int, ...], int | str] = {}
        for row in range(len(trace.processes["pid"])):
            self.host(row)

    # ------------------------------------------------------------------ processes

    def host(self, process: int) -> int | str:
        """The pid of a process of the host, a row of `processes`."""
        pid = int(self._trace.processes["pid"][process]) if process >= 0 else -1
        rank = int(self._trace.processes["rank"][process]) if process >= 0 else -1
        name = f"process {pid}" if pid >= 0 else "process unknown"
        return self._pid((process,), pid, name + (f" (rank {rank})" if rank >= 0 else ""), process)

    def whole(self) -> int | str:
        """The pid of the whole program, above all others."""
        return self._pid((), -1, "program", -1)

    def gpu(self, process: int, device: int) -> int | str:
        """The pid of a device as a process sees it."""
        devices, name = self._trace.devices, ""
        for owner in (-1, process):
            for row in np.flatnonzero((devices["device"] == device) & (devices["process"] == owner)).tolist():
                name = self._trace.strings[int(devices["name"][row])]
        of = f" of {self._processes[self.host(process)][0]}" if len(self._trace.processes["pid"]) > 1 else ""
        name = f"GPU {device if device >= 0 else '?'}{': ' * bool(name)}{name}{of}"
        return self._pid((process, device), device, name, _DEVICES_BEHIND + len(self._pids))

    def _pid(self, key: tuple[int, ...], wanted: int, name: str, order: int) -> int | str:
        if key not in self._pids:
            pid: int | str = wanted
            if wanted < 0 and len(key) == 2:  # a number would be read as a device
                pid = name + "'" * sum(type(one) is str for one in self._processes)
            elif wanted < 0 or wanted in self._processes:
                pid = _FIRST_FREE + len(self._processes)
            self._pids[key] = pid
            self._processes[pid] = name, order
        return self._pids[key]

    # ------------------------------------------------------------------ tracks

    def of_threads(self, thread: Integers, lane: Integers) -> Ints:
        """Track numbers of rows on host threads; lane: from `lanes`."""

        def track(row: int, number: int) -> int:
            name, process, tid, main = self._described(row)
            name += f" ({number + 1})" if number else ""
            key = ("thread", row, number)
            return self._add(key, self.host(process), -1 if number else tid, name, 0 if main else 1, row)

        return self._codes(track, thread, lane)

    def of_streams(self, process: Integers, device: Integers, stream: Integers, lane: Integers) -> Ints:
        """Track numbers of rows on streams."""
        return self._codes(self._stream, process, device, stream, lane)

    def of_ops(self, thread: Integers, lane: Integers) -> Ints:
        """Track numbers of records that are ops on the CPU."""

        def track(row: int, number: int) -> int:
            name, process, *_ = self._described(row)
            name = f"ops of {name}" + f" ({number + 1})" * bool(number)
            return self._add(("ops", row, number), self.host(process), -1, name, 0)

        return self._codes(track, thread, lane)

    def added(self, pid: int | str, name: str, order: int) -> int:
        """The number of a track of pyprof's own."""
        return self._add((pid, name), pid, -1, name, order)

    def _codes(self, make: Callable[..., int], *columns: Integers) -> Ints:
        distinct, _, inverse = distinct_rows(*columns)
        return np.array([make(*one) for one in distinct.T.tolist()], np.int64)[inverse]

    def _described(self, thread: int) -> tuple[str, int, int, bool]:
        """Name, process, tid, whether it is the main thread."""
        if thread < 0:
            return "thread unknown", -1, -1, False
        process, tid, code, main = (int(self._trace.threads[key][thread]) for key in ("process", "tid", "name", "main"))
        return self._trace.strings[code] or f"thread {tid if tid >= 0 else 'unknown'}", process, tid, main == 1

    def _stream(self, process: int, device: int, stream: int, lane: int) -> int:
        pid, suffix = self.gpu(process, device), f" ({lane + 1})" if lane else ""
        if stream < 0:  # a number would be read as a stream
            tid = "unknown stream" + "'" * lane
            return self._add((pid, tid), pid, tid, f"stream unknown{suffix}", _FIRST_STREAM + (1 << 20) + lane)
        order = _FIRST_STREAM + min(stream, 1 << 12) * _MOST_LANES + lane
        return self._add((pid, stream, lane), pid, -1 if lane else stream, f"stream {stream}{suffix}", order)

    def _add(self, key: tuple[object, ...], pid: int | str, wanted: int | str, name: str, order: int,
             row: int | None = None) -> int:  # fmt: skip
        code = self._code_of.get(key)
        if code is None:
            tid = wanted
            if (type(tid) is int and tid < 0) or (pid, tid) in self._tids:
                tid = _FIRST_FREE + len(self.all)
            self._tids.add((pid, tid))
            code = self._code_of[key] = len(self.all)
            self.all.append(Track(pid, tid, name, order, row))
        return code

    # ------------------------------------------------------------------ output

    def threads(self) -> list[tuple[int, int, int]]:
        """(pid, tid, row of the trace's threads) of the tracks of threads."""
        return [
            (track.pid, track.tid, track.row)
            for track in self.all
            if track.row is not None and isinstance(track.pid, int) and isinstance(track.tid, int)
        ]

    def names(self) -> Iterator[str]:
        """Metadata events with names and order."""
        for pid, (name, order) in self._processes.items():
            head = f'{{"ph":"M","pid":{json.dumps(pid)},"tid":0,"ts":0,"name":'
            yield f'{head}"process_name","args":{{"name":{json.dumps(name)}}}}}'
            yield f'{head}"process_sort_index","args":{{"sort_index":{order}}}}}'
        for track in self.all:
            head = f'{{"ph":"M",{track.text}"ts":0,"name":'
            yield f'{head}"thread_name","args":{{"name":{json.dumps(track.name)}}}}}'
            yield f'{head}"thread_sort_index","args":{{"sort_index":{track.order}}}}}'


def lanes(group: Ints, start: Ints, end: Ints, weight: Integers) -> Ints:
    """The lane of each row within its group, from 0, such that rows of one lane nest.

    Rows of a group stand in order of (start, -end); of two that cross the lighter one moves on.
    """
    lane = np.zeros(len(group), np.int64)
    for number in np.unique(group).tolist():
        rows = np.flatnonzero(group == number)
        for level in range(_MOST_LANES - 1):
            rows = rows[crossing(start[rows], end[rows], weight[rows])]
            if not len(rows):
                break
            lane[rows] = level + 1
    return lane


def processes_of(trace: Trace, records: Records) -> Ints:
    """The row of `processes` of each record, -1 unknown."""
    row_of = {pid: row for row, pid in reversed([*enumerate(trace.processes["pid"].tolist())])}
    pids, inverse = np.unique(records["pid"], return_inverse=True)
    return np.array([row_of.get(pid, -1) for pid in pids.tolist()], np.int64)[inverse.ravel()]


def threads_of(trace: Trace, records: Records, process: Ints) -> Ints:
    """The row of `threads` that launched each record, -1 unknown."""
    row_of: dict[tuple[int, int], int] = {}
    for row, key in enumerate(zip(trace.threads["process"].tolist(), trace.threads["tid"].tolist(), strict=True)):
        row_of.setdefault(key, row)
    distinct, _, inverse = distinct_rows(process, records["tid"])
    rows = [row_of.get((of, tid), -1) if tid >= 0 else -1 for of, tid in distinct.T.tolist()]
    return np.array(rows, np.int64)[inverse]
