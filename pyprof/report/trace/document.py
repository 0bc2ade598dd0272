"""Parts of events -> a file in the format of Chrome traces, written some events at a time; its size before that."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import BinaryIO

import msgspec
import numpy as np

from pyprof.arrays.types import Ints
from pyprof.messages import done
from pyprof.parse.sources.kineto.exported import Exported
from pyprof.parse.sources.trace import Strings, Trace
from pyprof.prof.frame import Frame
from pyprof.report.time.steps import Steps
from pyprof.report.trace.events import Events
from pyprof.report.trace.overview import counter_part, layer_part, placed, step_part
from pyprof.report.trace.parts import Part

_ROWS = 1 << 14  # events whose text is in memory at once
_SAMPLE = 2048  # events of each part that are made to measure it
_LEVEL = 4  # of compression: the next ones take twice the time for a few percent


class Document:
    """A timeline that can be measured, and written once."""

    def __init__(self, frame: Frame, trace: Trace, chosen: Ints, steps: Steps | None) -> None:
        """frame: all records; trace: what of the capture is drawn; chosen, steps: the records and the steps that are."""
        self._trace, self._texts = trace, Strings()
        self._since_ns = _first_ns(frame, trace, chosen, steps)
        self._events = events = Events(frame, trace, chosen, self._since_ns, self._texts)
        on_device = placed(frame, events.process, chosen)
        computed = (layer_part, counter_part)
        parts = [make(frame, events.tracks, events.process, on_device, self._since_ns) for make in computed]
        self._parts: list[Part] = [*events.parts(), *parts, step_part(steps, events.tracks, self._since_ns)]

    def moments(self) -> tuple[Ints, Ints]:
        """The begin of each event, and about how many bytes it takes; in order of begin."""
        start = np.concatenate([part.start_ns for part in self._parts])
        size = np.concatenate([np.full(part.number, _bytes_each(part)) for part in self._parts]).astype(np.int64)
        order = np.argsort(start, kind="stable")
        return start[order], size[order]

    def write(self, stream: BinaryIO, *, compressed: bool) -> None:
        """Write it. The same bytes for the same capture."""
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
    """The first time that is drawn, so that no event begins before 0."""
    records = frame.records
    launch = records["launch_ns"][chosen]
    times = [records["start_ns"][chosen], launch[launch >= 0], trace.memory["time_ns"]]
    times += [table["start_ns"] for table in (trace.ranges, trace.launches, trace.frames)]
    times += [trace.samples.time_ns] if trace.samples is not None else []
    times += [steps.begin_ns] if steps is not None else []
    return min((int(time.min()) for time in times if len(time)), default=0)


def _bytes_each(part: Part) -> float:
    """The mean size of an event, from some of them that are spread over all."""
    if not part.number:
        return 0.0
    at = np.unique(np.linspace(0, part.number - 1, min(part.number, _SAMPLE)).astype(np.int64))
    lines = [*part.lines(at)]
    return sum(len(line.encode()) + 2 for line in lines) / len(lines)
