"""Events of a torch.profiler trace, block by block -> the tables of a Trace; `reader` adds what needs all events."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import attrgetter

import msgspec
import numpy as np

from pyprof.columns.types import Array, Ints
from pyprof.model.trace import ActivityKind, GrowingTable, Trace, integer
from pyprof.parse.sources.inputs import LeftOut
from pyprof.parse.sources.kineto import exported
from pyprof.parse.sources.kineto.ascend import ARROWS, AscendTasks
from pyprof.parse.sources.kineto.counters import CounterEvents
from pyprof.parse.sources.kineto.events import (
    LAST_US,
    Codes,
    Event,
    Events,
    Int,
    Span,
    as_floats,
    decode_args,
    floats,
    microseconds,
    nanoseconds,
    whole_numbers,
)
from pyprof.parse.sources.kineto.gpu import Activities, Launches, activity_columns, launch_columns
from pyprof.parse.sources.kineto.ops import OpArgs, OpLabels, RecordedOp, op_codes
from pyprof.parse.sources.kineto.python import Frames, source_of_stack
from pyprof.parse.sources.kineto.threads import Arrows

_GPU = {
    "kernel": ActivityKind.KERNEL, "Kernel": ActivityKind.KERNEL, "gpu_memcpy": ActivityKind.MEMCPY,
    "Memcpy": ActivityKind.MEMCPY, "gpu_memset": ActivityKind.MEMSET, "Memset": ActivityKind.MEMSET,
    "mtia_ccp_events": ActivityKind.KERNEL,  # or a copy, see `_read_mtia`
    "cuda_graph": ActivityKind.GRAPH,  # in timelines that pyprof wrote
}  # fmt: skip
_MTIA = "mtia_ccp_events"
_ANNOTATION = "user_annotation"
_OPS = ("cpu_op", "Operator", _ANNOTATION)
_FRAMES = ("python_function", "Python")
_LARGEST = (1 << 62) - 1
_FARTHEST_US = Decimal(10) ** 30  # beyond it no number is a time
_KIND, _THREAD = attrgetter("ph", "cat"), attrgetter("pid", "tid")
_TS, _DUR, _NAME, _STACK, _CODES = (attrgetter(name) for name in ("ts", "dur", "name", "stack", "codes"))

_Reader = Callable[[list[Event], Span], None]


class EventTables:
    """The tables of the events read so far.

    threads: number of each thread by pid and tid, which the columns `thread` hold until `reader` gives them their rows;
    thread_names: by pid and tid; has_stacks: whether any op has a `Call stack`; left_out: events without a time; far: whether
    all times lie so far from 0 that they count from the first; waits: number of events of a device that do no work.
    """

    def __init__(self, trace: Trace) -> None:
        strings = trace.strings
        self.threads: dict[tuple[int, int], int] = {}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.ops, self.frames = OpLabels(trace.labels), Frames(strings)
        self.activities, self.launches, self.tasks = Activities(strings), Launches(), AscendTasks(strings)
        self.ranges, self.memory = GrowingTable("ranges"), GrowingTable("memory")
        self.arrows, self.counters = Arrows(self.threads), CounterEvents()
        self.has_stacks, self.left_out = False, LeftOut()
        self.far, self.waits = False, 0
        self._base: int | None = None  # which all times in the file count from, in microseconds
        self._pairs: list[Event] = []  # begins and ends that are events of their own
        self._unclosed = False

        def source_of(stack: str) -> int:
            self.has_stacks |= bool(stack)
            source = source_of_stack(stack)
            return strings.code(source) if source else -1

        threads = self.threads
        self._thread_codes: Codes[tuple[int | str, int | str]] = Codes(
            lambda key: threads.setdefault((number_of(key[0]), number_of(key[1])), len(threads))
        )
        self._texts: Codes[str] = Codes(strings.code)
        self._labels: Codes[RecordedOp] = Codes(self.ops.code)
        self._sources: Codes[str] = Codes(source_of)
        self._layers: Codes[tuple[str, bool]] = Codes(self.activities.layer)
        self._readers: list[_Reader | None] = []
        self._kinds: Codes[tuple[str, str]] = Codes()

    def read(self, events: Events) -> None:
        """Add a block."""
        if self._base is None and any(event.ph in "XB" for event in events):
            self._base = far_base([event.ts for event in events if event.ph in ("X", "B")])
            self.far = self._base != 0
        if self._base:
            for event in events:
                event.ts = Decimal(event.ts) - self._base if Decimal(event.ts).is_finite() else event.ts
            events.begin_us = None
        kind = self._kinds.of(map(_KIND, events), len(events))
        self._readers += [self._reader(*one) for one in [*self._kinds][len(self._readers) :]]
        span = self._times(events, kind)
        for number, reader in enumerate(self._readers):
            if reader is not None and len(rows := np.flatnonzero(kind == number)):
                reader([*map(events.__getitem__, rows.tolist())], span.take(rows))

    def finish(self) -> None:
        """Add the events that were written as a begin and an end. One that never ended is open up to the last of these."""
        closed, pending = Events(), dict[tuple[int | str, int | str], list[Event]]()
        for event in sorted(self._pairs, key=lambda event: Decimal(event.ts)):
            running = pending.setdefault(_THREAD(event), [])
            if event.ph == "B":
                running.append(event)
            elif running:
                begun = running.pop()
                closed.append(_whole(begun, Decimal(event.ts)))
            else:
                self.left_out.count(1, activities=event.cat in _GPU)
        begun_only = [event for running in pending.values() for event in running]
        gpu = [event for event in begun_only if event.cat in _GPU]
        self.left_out.count(len(gpu), activities=True)
        never = [event for event in begun_only if event.cat not in _GPU]
        last = max((Decimal(event.ts) for event in self._pairs), default=Decimal(0))
        self._pairs, self._base = [], 0
        self.read(closed)
        self._unclosed = True
        self.read(Events(_whole(event, last) for event in never))

    def _reader(self, phase: str, category: str) -> _Reader | None:
        """The function that reads events of a kind; None: they are ignored."""
        if phase == "X":
            return self._reader_of_spans(category)
        if phase == "M":
            return self._read_names
        if phase in ("B", "E"):
            return self._keep_pairs
        if phase == "i":
            return self._read_memory
        if phase == "C":
            return lambda events, _: self.counters.add_samples(events)
        if phase in ("s", "f") and category == ARROWS:
            return lambda events, _: self.tasks.add_arrows(events, self._threads_of([e for e in events if e.ph == "s"]))
        if phase in ("s", "f") and category == "fwdbwd":
            return lambda events, span: self.arrows.add(phase == "s", events, self._threads_of(events), span.start)
        return None

    def _reader_of_spans(self, category: str) -> _Reader | None:
        if category == _MTIA:
            return self._read_mtia
        if category in _GPU:
            kind = _GPU[category]
            return lambda events, span: self.activities.add(activity_columns(events, kind, span, self._texts, self._layers))
        if category.endswith(("_runtime", "_driver")) or category == "Runtime":
            return lambda events, span: self.launches.add(*launch_columns(events, span, self._threads_of(events), self._texts))
        if category in _OPS:
            return lambda events, span: self._read_ops(category == _ANNOTATION, events, span)
        if category in _FRAMES:
            return self._read_frames
        if category == "cuda_profiler_range":
            return lambda events, _: self.counters.add_ranges(events)
        return (lambda events, _: self.tasks.add(events)) if category == "" else None

    def _times(self, events: Events, kind: Array) -> Span:
        """Begin and end of all events. One without a usable time loses its kind and is counted: no number as begin or
        duration, a negative duration, or 0 for both, which is written for lost events."""
        begin, duration = events.begin_us, None if events.begin_us is None else as_floats(map(_DUR, events), len(events))
        if begin is None or duration is None:
            begin, duration = (microseconds([*map(field, events)]) for field in (_TS, _DUR))
        timed, lasts = np.abs(floats(begin)) < LAST_US, floats(duration)
        begun = floats(begin)
        usual = timed & (lasts >= 0) & (lasts < LAST_US) & ((begun != 0) | (lasts != 0))
        for row in np.flatnonzero(~usual).tolist():
            event = events[row]
            if event.ph == "M" or (event.ph != "X" and timed[row] and lasts[row] == 0):  # the time of a name does not matter
                continue
            if event.ph == "X":
                self.left_out.count(1, activities=event.cat in _GPU)
            kind[row] = -1
        if not usual.all():
            begin, duration = np.where(timed, begin, 0), np.where(np.abs(lasts) < LAST_US, duration, 0)
        start = nanoseconds(begin)
        return Span(start, start + np.maximum(nanoseconds(duration), 0))

    def _threads_of(self, events: list[Event]) -> Array:
        return self._thread_codes.of(map(_THREAD, events), len(events))

    # ------------------------------------------------------------------ events of one kind

    def _keep_pairs(self, events: list[Event], _: Span) -> None:
        for event in events:
            event.args = event.args.copy()  # they are valid until the next block
        self._pairs += events

    def _read_ops(self, annotation: bool, events: list[Event], span: Span) -> None:
        args = decode_args(OpArgs, events)
        columns = {
            **span.columns(),
            "thread": self._threads_of(events),
            "seq": _sequence_numbers(args),
            # Rises as ops begin, which puts the outer first where two begin and end in the same microsecond.
            "op_id": np.maximum(whole_numbers(args, "external"), whole_numbers(args, "external_2021")),
        }
        if self._unclosed:
            columns["open"] = np.ones(len(events), np.int8)
        if any(map(_CODES, args)) and (written := exported.range_columns([*map(_CODES, args)])) is not None:
            self.ranges.add(columns | written)
            return
        columns["fwd_thread"] = forward = whole_numbers(args, "fwd")  # torch's own number, until `reader` replaces it
        columns["label"] = op_codes(events, args, annotation, columns["seq"] >= 0, forward > 0, self._labels)
        if any(map(_STACK, args)):
            columns["src"] = self._sources.of(map(_STACK, args), len(args))
        self.ranges.add(columns)

    def _read_mtia(self, events: list[Event], span: Span) -> None:
        """Work of Meta's MTIA: kernels, and requests to its DMA. Its waits for events and their marks are no work."""
        idle = np.array([event.name.startswith(("event_wait", "event_record")) for event in events], np.bool_)
        copies = np.array([event.name.startswith("dma_") for event in events], np.bool_)
        self.waits += int(idle.sum())
        for kind, chosen in ((ActivityKind.KERNEL, ~copies & ~idle), (ActivityKind.MEMCPY, copies)):
            if len(rows := np.flatnonzero(chosen)):
                own = [*map(events.__getitem__, rows.tolist())]
                self.activities.add(activity_columns(own, kind, span.take(rows), self._texts, self._layers))

    def _read_frames(self, events: list[Event], span: Span) -> None:
        args = decode_args(_FrameArgs, events)
        columns = {
            "start": span.start,
            "end": span.end,
            "thread": self._threads_of(events),
            "name": self.frames.names.of(map(_NAME, events), len(events)),
            "id": whole_numbers(args, "id"),
            "parent": np.array([-1 if one.parent is None else one.parent for one in args], np.int64),
        }
        self.frames.add(columns)

    def _read_memory(self, events: list[Event], span: Span) -> None:
        rows = np.flatnonzero([event.name == "[memory]" for event in events])
        events, span = [*map(events.__getitem__, rows.tolist())], span.take(rows)
        args = decode_args(_MemoryArgs, events)
        on_host = whole_numbers(args, "device_type") == _HOST
        columns = {
            "time_ns": span.start,
            "thread": self._threads_of(events),
            "bytes": whole_numbers(args, "bytes"),
            "device": np.where(on_host, -1, whole_numbers(args, "device")),
            "address": whole_numbers(args, "address"),
            "allocated": whole_numbers(args, "allocated"),
            "reserved": whole_numbers(args, "reserved"),
        }
        self.memory.add(columns)

    def _read_names(self, events: list[Event], _: Span) -> None:
        named = [event for event in events if event.name == "thread_name"]
        for event, args in zip(named, decode_args(_NameArgs, named), strict=True):
            self.thread_names[number_of(event.pid), number_of(event.tid)] = args.name


def far_base(times: Sequence[int | float | Decimal]) -> int:
    """The earliest of these times if most lie farther from 0 than any time of today, so that all count from there; else 0."""
    far = sorted(time for time in map(Decimal, times) if time.is_finite() and LAST_US <= abs(time) < _FARTHEST_US)
    if 2 * len(far) <= len(times):
        return 0
    middle = far[len(far) // 2]
    return math.floor(min(time for time in far if abs(time - middle) < Decimal(LAST_US)))


def _whole(begun: Event, end: Decimal) -> Event:
    """The event of a begin and its end."""
    dur = end - Decimal(begun.ts)
    return Event("X", begun.cat, begun.name, begun.pid, begun.tid, begun.ts, dur, begun.id, begun.args)


def number_of(value: int | str) -> int:
    """The number in `25738` or `stream 7`; -1 unknown."""
    found = re.search(r"-?\d+$", value) if isinstance(value, str) else None
    number = value if isinstance(value, int) else integer(found[0]) if found else -1
    return number if -(1 << 62) < number < 1 << 62 else -1


def _sequence_numbers(args: list[OpArgs]) -> Ints:
    """Sequence numbers; -1 for none, which some releases write as the largest 64-bit integer."""
    try:
        found = whole_numbers(args, "seq")
    except OverflowError:
        found = np.array([one.seq if abs(one.seq) <= _LARGEST else -1 for one in args], np.int64)
    return np.where(found <= _LARGEST, found, -1)


class _FrameArgs(msgspec.Struct, gc=False):
    id: Int = msgspec.field(default=-1, name="Python id")
    parent: Int | None = msgspec.field(default=None, name="Python parent id")


_HOST = 0  # c10::DeviceType


class _MemoryArgs(msgspec.Struct, gc=False):
    bytes: Int = msgspec.field(default=0, name="Bytes")
    device: Int = msgspec.field(default=0, name="Device Id")
    device_type: Int = msgspec.field(default=_HOST, name="Device Type")
    address: Int = msgspec.field(default=-1, name="Addr")
    allocated: Int = msgspec.field(default=-1, name="Total Allocated")
    reserved: Int = msgspec.field(default=-1, name="Total Reserved")


class _NameArgs(msgspec.Struct, gc=False):
    name: str = ""
