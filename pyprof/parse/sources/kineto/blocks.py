"""The events of one block of a torch.profiler trace -> columns, with codes of the reader's own.

What needs more than the events of a block, or the meaning of a text, is left to where blocks are joined (`reader.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pyprof.arrays.types import Array, Ints
from pyprof.parse.sources.digits import integer
from pyprof.parse.sources.kineto import exported
from pyprof.parse.sources.kineto.ascend import ARROWS, is_marked
from pyprof.parse.sources.kineto.codes import Codes
from pyprof.parse.sources.kineto.events import (
    LAST_US,
    Event,
    Events,
    Int,
    Span,
    as_floats,
    decode_args,
    floats,
    kept,
    microseconds,
    nanoseconds,
    whole_numbers,
)
from pyprof.parse.sources.kineto.facts import Lost
from pyprof.parse.sources.kineto.gpu import activity_columns, launch_columns, launch_sizes
from pyprof.parse.sources.kineto.ops import OpArgs, op_codes
from pyprof.parse.sources.trace import ActivityKind, Table

GPU = {
    "kernel": ActivityKind.KERNEL, "Kernel": ActivityKind.KERNEL, "gpu_memcpy": ActivityKind.MEMCPY,
    "Memcpy": ActivityKind.MEMCPY, "gpu_memset": ActivityKind.MEMSET, "Memset": ActivityKind.MEMSET,
    "cuda_graph": ActivityKind.GRAPH,  # in timelines that pyprof wrote
}  # fmt: skip
ANNOTATION = "user_annotation"
_OPS = ("cpu_op", "Operator", ANNOTATION)
_FRAMES = ("python_function", "Python")
_LARGEST = (1 << 62) - 1
_KIND, _THREAD = attrgetter("ph", "cat"), attrgetter("pid", "tid")
_TS, _DUR, _NAME, _STACK, _CODES = (attrgetter(name) for name in ("ts", "dur", "name", "stack", "codes"))


class Block(NamedTuple):
    """What is in a block. parts: pieces of tables, see `BlockReader`; others: events that are read where blocks are joined;
    names: of threads, by pid and tid; new: of each kind of code what was met first in this block."""

    parts: list[tuple[str, Table]]
    others: list[tuple[str, list[Event]]]
    names: list[tuple[int | str, int | str, str]]
    lost: Lost
    new: dict[str, list[Hashable]]


Reader = Callable[[list[Event], Span], None]


class BlockReader:
    """Reads blocks. The codes in their columns:

    threads: pid and tid as the file spells them; texts; ops: see `op_codes`; stacks: `Call stack`; frames: their names;
    layers: see `activity_columns`.
    """

    def __init__(self) -> None:
        self._codes: dict[str, Codes[Any]] = {
            name: Codes() for name in ("threads", "texts", "ops", "stacks", "frames", "layers")
        }
        self._kinds: Codes[tuple[str, str]] = Codes()
        self._readers: list[Reader | None] = []
        self._begin()

    def _begin(self) -> None:
        self._parts: list[tuple[str, Table]] = []
        self._others: list[tuple[str, list[Event]]] = []
        self._names: list[tuple[int | str, int | str, str]] = []
        self._lost = Lost()

    def read(self, events: Events) -> Block:
        """One block."""
        kind = self._kinds.of(map(_KIND, events), len(events))
        self._readers += [self._reader(*one) for one in self._kinds.new()]
        span = self._times(events, kind)
        for number, reader in enumerate(self._readers):
            if reader is not None and len(rows := np.flatnonzero(kind == number)):
                reader([*map(events.__getitem__, rows.tolist())], span.take(rows))
        block = Block(
            self._parts, self._others, self._names, self._lost,
            {name: new for name, codes in self._codes.items() if (new := codes.new())},
        )  # fmt: skip
        self._begin()
        return block

    def _reader(self, phase: str, category: str) -> Reader | None:
        """What reads events of a kind; None: they are ignored."""
        if phase != "X":
            return {
                "M": self._read_names, "i": self._read_memory, "C": self._read_samples,
                "s": self._arrow_reader(category, "arrow begins"), "f": self._arrow_reader(category, "arrow ends"),
            }.get(phase)  # fmt: skip
        if category in GPU:
            return lambda events, span: self._read_activities(GPU[category], events, span)
        if category.endswith(("_runtime", "_driver")) or category == "Runtime":
            return self._read_launches
        if category in _OPS:
            return lambda events, span: self._read_ops(category == ANNOTATION, events, span)
        of_category = {
            **dict.fromkeys(_FRAMES, self._read_frames),
            "": self._read_tasks,
            "cuda_profiler_range": self._read_ranges,
        }
        return of_category.get(category)

    def _threads(self, events: list[Event]) -> Array:
        return self._codes["threads"].of(map(_THREAD, events), len(events))

    def _times(self, events: Events, kind: Array) -> Span:
        """Of all events. Those whose time cannot be lose their kind; one with a negative duration takes no time. Both are
        counted."""
        begin, duration = events.begin_us, None if events.begin_us is None else as_floats(map(_DUR, events), len(events))
        if begin is None or duration is None:
            begin, duration = (microseconds([*map(field, events)]) for field in (_TS, _DUR))
        timed, lasts = np.abs(floats(begin)) < LAST_US, floats(duration)
        usual = timed & (lasts >= 0) & (lasts < LAST_US)
        lost = self._lost
        for row in np.flatnonzero(~usual).tolist():
            event, of_gpu = events[row], events[row].cat in GPU
            if timed[row] and -LAST_US < lasts[row] < 0:
                lost = lost._replace(negative=lost.negative + of_gpu, backwards=lost.backwards + (not of_gpu))
            elif event.ph != "M":  # the time of a name does not matter
                if event.ph == "X":
                    lost = lost._replace(untimed=lost.untimed + of_gpu, others=lost.others + (not of_gpu))
                kind[row] = -1
        self._lost = lost
        if not usual.all():
            begin, duration = np.where(timed, begin, 0), np.where(np.abs(lasts) < LAST_US, duration, 0)
        start = nanoseconds(begin)
        return Span(start, start + np.maximum(nanoseconds(duration), 0))

    # ------------------------------------------------------------------ events of one kind

    def _read_activities(self, kind: int, events: list[Event], span: Span) -> None:
        columns = activity_columns(events, self._codes["texts"], self._codes["layers"])
        self._parts.append(("activities", {"kind": np.full(len(events), kind, np.int8), **_times(span), **columns}))

    def _read_launches(self, events: list[Event], span: Span) -> None:
        columns, args = launch_columns(events, self._codes["texts"])
        if len((sizes := launch_sizes(args))["corr"]):
            self._parts.append(("launch sizes", sizes))
        self._parts.append(("launches", {**_times(span), "thread": self._threads(events), **columns}))

    def _read_ops(self, annotation: bool, events: list[Event], span: Span) -> None:
        args = decode_args(OpArgs, events)
        columns = {
            **_times(span),
            "thread": self._threads(events),
            "seq": _sequence_numbers(args),
            # Rises as ops begin, which puts the outer first where two begin and end in the same microsecond.
            "op_id": np.maximum(whole_numbers(args, "external"), whole_numbers(args, "external_2021")),
        }
        if any(map(_CODES, args)) and (written := exported.range_columns([*map(_CODES, args)])) is not None:
            self._parts.append(("written ranges", columns | written))
            return
        columns["fwd_thread"] = forward = whole_numbers(args, "fwd")  # torch's own number, until blocks are joined
        columns["label"] = op_codes(events, args, annotation, columns["seq"] >= 0, forward > 0, self._codes["ops"])
        if any(map(_STACK, args)):
            columns["src"] = self._codes["stacks"].of(map(_STACK, args), len(args))
        self._parts.append(("ranges", columns))

    def _read_frames(self, events: list[Event], span: Span) -> None:
        args = decode_args(_FrameArgs, events)
        columns = {
            "start": span.start,
            "end": span.end,
            "thread": self._threads(events),
            "name": self._codes["frames"].of(map(_NAME, events), len(events)),
            "id": whole_numbers(args, "id"),
            "parent": np.array([-1 if one.parent is None else one.parent for one in args], np.int64),
        }
        self._parts.append(("frames", columns))

    def _arrow_reader(self, category: str, part: str) -> Reader | None:
        if category == ARROWS:
            return lambda events, span: self._others.append(("arrows of tasks", kept(events)))
        return (lambda events, span: self._read_arrows(part, events, span)) if category == "fwdbwd" else None

    def _read_arrows(self, part: str, events: list[Event], span: Span) -> None:
        ids = np.empty(len(events), np.object_)
        ids[:] = [event.id for event in events]
        self._parts.append((part, {"id": ids, "thread": self._threads(events), "time_ns": span.start}))

    def _read_memory(self, events: list[Event], span: Span) -> None:
        rows = np.flatnonzero([event.name == "[memory]" for event in events])
        events, span = [*map(events.__getitem__, rows.tolist())], span.take(rows)
        args = decode_args(_MemoryArgs, events)
        on_host = whole_numbers(args, "device_type") == _HOST
        columns = {
            "time_ns": span.start,
            "thread": self._threads(events),
            "bytes": whole_numbers(args, "bytes"),
            "device": np.where(on_host, -1, whole_numbers(args, "device")),
        }
        self._parts.append(("memory", columns))

    def _read_names(self, events: list[Event], _: Span) -> None:
        named = [event for event in events if event.name == "thread_name"]
        for event, args in zip(named, decode_args(_NameArgs, named), strict=True):
            self._names.append((event.pid, event.tid, args.name))

    def _read_tasks(self, events: list[Event], _: Span) -> None:
        self._others.append(("tasks", kept([event for event in events if is_marked(event)])))

    def _read_ranges(self, events: list[Event], _: Span) -> None:
        self._others.append(("counter ranges", kept(events)))

    def _read_samples(self, events: list[Event], _: Span) -> None:
        self._others.append(("counter samples", kept([event for event in events if event.cat == "hardware_counters"])))


def number_of(value: int | str) -> int:
    """The number in `25738` or `stream 7`; -1 unknown."""
    found = re.search(r"-?\d+$", value) if isinstance(value, str) else None
    number = value if isinstance(value, int) else integer(found[0]) if found else -1
    return number if -(1 << 62) < number < 1 << 62 else -1


def _times(span: Span) -> Table:
    return {"start_ns": span.start, "end_ns": span.end}


def _sequence_numbers(args: list[OpArgs]) -> Ints:
    """-1 for what means none, which some releases write as the largest number of 64 bits."""
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


class _NameArgs(msgspec.Struct, gc=False):
    name: str = ""
