"""A capture or its records, and the part of it that the user asked for -> a timeline as a file in the format of Chrome traces.

A part shows the chosen activities, the calls that launched them, and everything that ran on the host meanwhile, uncut. Events
are written some at a time; the size of the file is estimated before.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

import msgspec
import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Bools, Ints
from pyprof.messages import done
from pyprof.model.records import GPU_NUMBERS, Records
from pyprof.model.trace import ActivityKind, Samples, Strings, Table, Trace, make_table
from pyprof.parse.sources.kineto.exported import Exported
from pyprof.prof.frame import Frame
from pyprof.report.time.steps import Steps
from pyprof.report.trace.computed import counter_part, layer_part, placed, step_part
from pyprof.report.trace.events import TimelineEvents
from pyprof.report.trace.parts import Part

_ROWS = 1 << 14  # events whose text is in memory at once
_SAMPLE = 2048  # events of each part that are made to estimate its size
_LEVEL = 4  # of compression: the next ones take twice the time for a few percent


class Document:
    """A timeline whose size can be estimated, and which can be written once."""

    def __init__(self, frame: Frame, trace: Trace, chosen: Ints, steps: Steps | None) -> None:
        """frame: all records; trace: the part of the capture that is drawn; chosen, steps: records and steps that are drawn."""
        self._trace, self._texts = trace, Strings()
        self._since_ns = _first_ns(frame, trace, chosen, steps)
        self._events = events = TimelineEvents(frame, trace, chosen, self._since_ns, self._texts)
        on_device = placed(frame, events.process, chosen)
        computed = (layer_part, counter_part)
        parts = [make(frame, events.tracks, events.process, on_device, self._since_ns) for make in computed]
        self._parts: list[Part] = [*events.parts(), *parts, step_part(steps, events.tracks, self._since_ns)]

    def moments(self) -> tuple[Ints, Ints]:
        """(begin, estimated bytes) of each event, in order of begin."""
        start = np.concatenate([part.start_ns for part in self._parts])
        size = np.concatenate([np.full(part.number, _bytes_each(part)) for part in self._parts]).astype(np.int64)
        order = np.argsort(start, kind="stable")
        return start[order], size[order]

    def write(self, stream: BinaryIO, *, compressed: bool) -> None:
        """Write the file: the same bytes for the same capture."""
        if not compressed:
            stream.writelines(self._chunks())
            return
        with gzip.GzipFile("", "wb", _LEVEL, stream, 0) as packed:
            packed.writelines(self._chunks())

    def _chunks(self) -> Iterator[bytes]:
        base = max(self._trace.utc_ns, 0) + self._since_ns
        yield b'{"schemaVersion":1,"displayTimeUnit":"ns","baseTimeNanoseconds":%d,"traceEvents":[\n' % base
        events, written = sum(part.number for part in self._parts), 0
        for part in self._parts:
            for begin in range(0, part.number, _ROWS):
                at = np.arange(begin, min(begin + _ROWS, part.number))
                yield "".join([f"{line},\n" for line in part.lines(at)]).encode()
                written += len(at)
                done(written / events)
        yield ",\n".join(self._events.tracks.names()).encode()
        tracks = self._events.tracks.threads()
        own = Exported.of(self._trace, self._texts, self._events.labels, self._since_ns, tracks)
        yield b'\n],\n"pyprof":' + msgspec.json.encode(own) + b"}\n"


def _first_ns(frame: Frame, trace: Trace, chosen: Ints, steps: Steps | None) -> int:
    """The earliest time drawn: events count from it, so none begins before 0."""
    records = frame.records
    launch = records["launch_ns"][chosen]
    times = [records["start_ns"][chosen], launch[launch >= 0], trace.memory["time_ns"]]
    times += [table["start_ns"] for table in (trace.ranges, trace.launches, trace.frames)]
    times += [trace.samples.time_ns] if trace.samples is not None else []
    times += [steps.begin_ns] if steps is not None else []
    return min((int(time.min()) for time in times if len(time)), default=0)


def _bytes_each(part: Part) -> float:
    """The mean bytes of an event, from a sample."""
    if not part.number:
        return 0.0
    at = np.unique(np.linspace(0, part.number - 1, min(part.number, _SAMPLE)).astype(np.int64))
    lines = [*part.lines(at)]
    return sum(len(line.encode()) + 2 for line in lines) / len(lines)


def extent(records: Records, chosen: Bools) -> tuple[int, int]:
    """From the first launch to the last end of the records chosen."""
    start, launch = records["start_ns"][chosen], records["launch_ns"][chosen]
    end = start + np.maximum(records["dur_ns"][chosen], 0)
    first = int(np.where(launch >= 0, np.minimum(launch, start), start).min(initial=np.iinfo(np.int64).max))
    return first, int(end.max(initial=np.iinfo(np.int64).min))


def cut(trace: Trace, first: int, last: int) -> Trace:
    """The part of a trace between two times."""
    ranges, launches, frames = (
        _rows(table, (table["start_ns"] <= last) & (table["end_ns"] >= first))
        for table in (trace.ranges, trace.launches, trace.frames)
    )
    time, samples = trace.memory["time_ns"], trace.samples
    memory = _rows(trace.memory, (time >= first) & (time <= last))
    if samples is not None:
        inside = (samples.time_ns >= first) & (samples.time_ns <= last)
        time, device, metric, value, metrics = samples
        samples = Samples(time[inside], device[inside], metric[inside], value[inside], metrics)
    return replace(trace, ranges=ranges, launches=launches, frames=frames, memory=memory, samples=samples)


def _rows(table: Table, keep: Bools) -> Table:
    return {name: values[keep] for name, values in table.items()}


def trace_of(records: Records) -> Trace:
    """A Trace made from records: processes, threads, devices and launch calls; no ranges."""
    trace = Trace(records.source, strings=records.strings, utc_ns=records.utc_ns)
    known = records["pid"] >= 0
    processes = distinct_rows(records["pid"][known], records["rank"][known])
    trace.processes = make_table("processes", dict(zip(("pid", "rank"), processes.columns, strict=True)))
    process = np.full(len(records), -1, np.int64)
    process[known] = processes.inverse
    run = records["tid"] >= 0
    threads = distinct_rows(process[run], records["tid"][run])
    trace.threads = make_table("threads", dict(zip(("process", "tid"), threads.columns, strict=True)))
    thread = np.full(len(records), -1, np.int64)
    thread[run] = threads.inverse
    trace.launches = _launches(records, trace, thread)
    trace.devices = _devices(records, trace, process)
    return trace


def _launches(records: Records, trace: Trace, thread: Ints) -> Table:
    rows = np.flatnonzero((records["launch_ns"] >= 0) & (thread >= 0) & (records["kind"] != ActivityKind.CPU))
    start, took, corr = (records[name][rows].astype(np.int64) for name in ("launch_ns", "launch_dur_ns", "corr"))
    distinct = distinct_rows(start, np.maximum(took, 0), thread[rows], corr).columns
    columns = dict(zip(("start_ns", "end_ns", "thread", "corr"), distinct, strict=True))
    columns["end_ns"] = columns["start_ns"] + columns["end_ns"]
    columns["name"] = np.full(len(columns["corr"]), trace.strings.code("launch"))
    return make_table("launches", columns)


def _devices(records: Records, trace: Trace, process: Ints) -> Table:
    known = (records["gpu"] >= 0) & (records["kind"] != ActivityKind.CPU)
    found = distinct_rows(process[known], records["device"][known], records["gpu"][known]).columns
    columns = dict(zip(("process", "device"), found, strict=False))
    infos = [records.gpus[code] for code in found[2].tolist()]
    numbers = [(*(info.cc or (-1, -1)), *(getattr(info, name) for name in GPU_NUMBERS)) for info in infos]
    names = ("cc_major", "cc_minor", *GPU_NUMBERS)
    columns |= dict(zip(names, np.array(numbers, np.int64).reshape(-1, len(names)).T, strict=True))
    columns["name"] = np.array([trace.strings.code(info.name) for info in infos], np.int64)
    return make_table("devices", columns)
