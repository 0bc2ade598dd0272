"""A torch.profiler (Kineto) trace, .json or .json.gz of torch 1.8 to today -> Trace.

Events are read a block at a time into columns. A GPU activity belongs to the launch with its correlation id; ops, annotations
and modules become ranges; Python frames give the source line of each op. Projections of annotations onto the GPU
(gpu_user_annotation) are not activities. Times stay relative to the trace's base time, which is `utc_ns`.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from pyprof.arrays.columns import distinct_rows, distinct_values
from pyprof.arrays.intervals import union
from pyprof.errors import EmptyCapture, NotACapture
from pyprof.markers import Kind, Marker
from pyprof.parse.sources.digits import integer
from pyprof.parse.sources.kineto import exported
from pyprof.parse.sources.kineto.annotations import give_layers
from pyprof.parse.sources.kineto.ascend import ARROWS, AscendTasks
from pyprof.parse.sources.kineto.collectives import give_facts
from pyprof.parse.sources.kineto.counters import CounterEvents
from pyprof.parse.sources.kineto.events import LAST_US, Event, Int, TraceFile, decode_args, nanoseconds
from pyprof.parse.sources.kineto.facts import Lost, devices_of, notes_of, rank_of_file, tables_of_threads
from pyprof.parse.sources.kineto.gpu import Activities, Launches, number_nodes, process_of_activities, times
from pyprof.parse.sources.kineto.modules import module_ranges
from pyprof.parse.sources.kineto.ops import OpArgs, OpLabels
from pyprof.parse.sources.kineto.python import Frames, source_of_stack
from pyprof.parse.sources.kineto.threads import Arrows, NumberedOps, forward_threads
from pyprof.parse.sources.trace import ActivityKind, Table, Trace, concatenated, make_table

Ints = npt.NDArray[np.int64]

_GPU = {
    "kernel": ActivityKind.KERNEL, "Kernel": ActivityKind.KERNEL, "gpu_memcpy": ActivityKind.MEMCPY,
    "Memcpy": ActivityKind.MEMCPY, "gpu_memset": ActivityKind.MEMSET, "Memset": ActivityKind.MEMSET,
    "cuda_graph": ActivityKind.GRAPH,  # in timelines that pyprof wrote
}  # fmt: skip
_ANNOTATION = "user_annotation"
_OPS = ("cpu_op", "Operator", _ANNOTATION)
_FRAMES = ("python_function", "Python")


def read(stream: io.BufferedReader, path: Path, name: str) -> Trace:
    """The whole trace.

    stream: the file from its beginning; path: its file name may hold the rank; name: its name for people.
    Raises NotACapture where it is not a trace of torch.profiler, EmptyCapture where it holds neither GPU activity nor ops,
    InputError where it is damaged.
    """
    return _TraceReader(TraceFile(stream, name), path).read()


class _Threads(dict[tuple[int | str, int | str], int]):
    """(pid, tid) as the file spells them -> number of the thread; numbers: by pid and tid as integers."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[tuple[int, int], int] = {}

    def __missing__(self, key: tuple[int | str, int | str]) -> int:
        number = self[key] = self.numbers.setdefault((_integer(key[0]), _integer(key[1])), len(self.numbers))
        return number


def _integer(value: int | str) -> int:
    """The number in `25738` or `stream 7`; -1 unknown."""
    found = re.search(r"-?\d+$", value) if isinstance(value, str) else None
    number = value if isinstance(value, int) else integer(found[0]) if found else -1
    return number if -(1 << 62) < number < 1 << 62 else -1


class _TraceReader:
    """One trace while it is read."""

    def __init__(self, file: TraceFile, path: Path) -> None:
        self.file, self.path = file, path
        self.trace = Trace("kineto")
        self.threads = _Threads()
        self.ops = OpLabels(self.trace.labels)
        self.frames = Frames(self.trace.strings)
        self.activities, self.launches = Activities(self.trace.strings), Launches(self.trace.strings)
        self.tasks = AscendTasks(self.trace.strings)
        self.arrows = Arrows()
        self.ranges: list[Table] = []
        self.memory: list[Table] = []
        self.thread_names: dict[tuple[int, int], str] = {}
        self.counters = CounterEvents()
        self.lost = Lost()
        self._sources: dict[str, int] = {"": -1}

    def read(self) -> Trace:
        for block in self.file.blocks():
            by_category: dict[str, list[Event]] = defaultdict(list)
            for event in block:
                if not (-LAST_US < event.ts < LAST_US and 0 <= event.dur < LAST_US):
                    self._mend(event)
                by_category[event.cat if event.ph == "X" else event.ph].append(event)
            for category, events in by_category.items():
                self._add(category, events)
        return self._finish()

    def _add(self, category: str, events: list[Event]) -> None:
        """Add the events of one category or, of those without a duration, of one phase; others are ignored."""
        of_category = {
            **dict.fromkeys(_OPS, self._add_ops), **dict.fromkeys(_FRAMES, self._add_frames),
            "s": self._add_arrows, "f": self._add_arrows, "M": self._add_names, "i": self._add_memory,
            "": self.tasks.add, "cuda_profiler_range": self.counters.add_ranges, "C": self.counters.add_samples,
        }  # fmt: skip
        if category in _GPU:
            self.activities.add(_GPU[category], events)
        elif category.endswith(("_runtime", "_driver")) or category == "Runtime":
            self.launches.add(events, self._rows(events))
        elif category in of_category:
            of_category[category](events)

    def _rows(self, events: list[Event]) -> Ints:
        threads = self.threads
        return np.array([threads[e.pid, e.tid] for e in events], np.int64)

    # ------------------------------------------------------------------ events of one block

    def _add_ops(self, events: list[Event]) -> None:
        args = decode_args(OpArgs, events)
        start, end = times(events)
        columns = {
            "start_ns": start,
            "end_ns": end,
            "thread": self._rows(events),
            "seq": np.array([a.seq if a.seq < 1 << 62 else -1 for a in args], np.int64),
            # Rises as ops begin, which puts the outer first where two begin and end in the same microsecond.
            "op_id": np.array([max(a.external, a.external_2021) for a in args], np.int64),
        }
        columns |= exported.range_columns([a.codes for a in args]) or self._meanings(events, args)
        self.ranges.append(make_table("ranges", columns))

    def _meanings(self, events: list[Event], args: list[OpArgs]) -> Table:
        code = self.ops.code
        return {
            "label": np.array(
                [code(e.name, a, e.cat == "user_annotation") for e, a in zip(events, args, strict=True)], np.int64
            ),
            "fwd_thread": np.array([a.fwd for a in args], np.int64),  # torch's own number until _finish
            "src": np.array([self._source(a.stack) for a in args], np.int64),
        }

    def _source(self, stack: str) -> int:
        code = self._sources.get(stack)
        if code is None:
            source = source_of_stack(stack)
            code = self._sources[stack] = self.trace.strings.code(source) if source else -1
        return code

    def _add_frames(self, events: list[Event]) -> None:
        (start, end), thread = times(events), self._rows(events)
        args = decode_args(_FrameArgs, events)
        ids = np.array([a.id for a in args], np.int64), np.array([-1 if a.parent is None else a.parent for a in args], np.int64)
        self.frames.add(thread, start, end, [e.name for e in events], ids)

    def _add_arrows(self, events: list[Event]) -> None:
        of_tasks = [e for e in events if e.cat == ARROWS]
        if of_tasks:
            self.tasks.add_arrows(of_tasks, self._rows([e for e in of_tasks if e.ph == "s"]))
        events = [e for e in events if e.cat == "fwdbwd"]
        moments = nanoseconds([e.ts for e in events]).tolist()
        for event, when, thread in zip(events, moments, self._rows(events).tolist(), strict=True):
            ends = self.arrows.begin if event.ph == "s" else self.arrows.end
            ends[_integer(event.pid), event.id] = (thread, when)

    def _add_names(self, events: list[Event]) -> None:
        named = [e for e in events if e.name == "thread_name"]
        for event, args in zip(named, decode_args(_NameArgs, named), strict=True):
            self.thread_names[_integer(event.pid), _integer(event.tid)] = args.name

    def _add_memory(self, events: list[Event]) -> None:
        events = [e for e in events if e.name == "[memory]"]
        args = decode_args(_MemoryArgs, events)
        columns = {
            "time_ns": nanoseconds([e.ts for e in events]),
            "thread": self._rows(events),
            "bytes": np.array([a.bytes for a in args], np.int64),
            "device": np.array([-1 if a.device_type == _HOST else a.device for a in args], np.int64),
        }
        self.memory.append(make_table("memory", columns))

    def _mend(self, event: Event) -> None:
        """Count an event whose time cannot be, and leave it out; one with a negative duration takes no time from here on."""
        lost, of_gpu, of_cpu = self.lost, event.cat in _GPU, event.cat not in _GPU
        if -LAST_US < event.ts < LAST_US and -LAST_US < event.dur < 0:
            event.dur = 0
            self.lost = lost._replace(negative=lost.negative + of_gpu, backwards=lost.backwards + of_cpu)
            return
        if event.ph == "M":  # the time of a name does not matter
            return
        if event.ph == "X":
            self.lost = lost._replace(untimed=lost.untimed + of_gpu, others=lost.others + of_cpu)
        event.ph = ""

    # ------------------------------------------------------------------ the tables, once all is read

    def _finish(self) -> Trace:
        trace, facts = self.trace, self.file.facts
        if (written := exported.given(facts.pyprof, self.file.name)) is not None:
            return self._restored(written)
        if (frames := self.frames.table()) is not None:
            self.ranges.append(module_ranges(frames, self.frames.names(), facts.pyprof_modules, trace.labels))
            trace.frames = self.frames.kept()
        self._join()
        give_facts(trace.ranges, trace.labels)
        self.launches.give_geometry(trace.activities)
        self._check()
        self._give_sources()
        self._give_frames_to_launches()
        numbers, row = self._used_threads()
        trace.threads, trace.processes = tables_of_threads(numbers, self.thread_names, trace)
        self._give_forward_threads(numbers, row)
        processes = len(trace.processes["pid"])
        owner, shared = process_of_activities(trace.activities, trace.launches, trace.threads, processes)
        trace.activities["process"] = owner.astype(np.int32)
        number_nodes(trace)
        give_layers(trace, self.activities.layers(), self.activities.qualified)
        self._give_facts(processes, self.lost._replace(shared=shared))
        return trace

    def _join(self) -> None:
        trace = self.trace
        parts = self.ranges or [make_table("ranges")]  # columns that can be written to
        trace.ranges = {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
        trace.memory = concatenated(self.memory or [make_table("memory")])
        trace.launches, trace.activities = self.launches.table(), self.activities.table()
        tasks, launches = self.tasks.tables(int(trace.launches["corr"].max(initial=0)) + 1)
        trace.activities, trace.launches = concatenated([trace.activities, tasks]), concatenated([trace.launches, launches])

    def _restored(self, written: exported.Exported) -> Trace:
        """The trace of which `pyprof trace` wrote a timeline: nothing is derived from events again."""
        trace = self.trace
        trace.frames, trace.samples = self.frames.kept(), self.counters.samples()
        self._join()
        self._check()
        try:
            written.restore(trace, list(self.threads.numbers))
        except ValueError as error:
            raise exported.damaged(self.file.name, error) from error
        return trace

    def _check(self) -> None:
        trace, facts = self.trace, self.file.facts
        if len(trace.activities["kind"]) or len(trace.ranges["label"]):
            return
        if facts.schemaVersion is None and facts.deviceProperties is None and not len(trace.launches["corr"]):
            raise NotACapture(
                f"{self.file.name}: a trace of events, but not of torch.profiler",
                "pass the file that prof.export_chrome_trace() or tensorboard_trace_handler() wrote",
            )
        raise EmptyCapture(
            f"{self.file.name}: nothing was captured: neither GPU activity nor ops",
            "check that prof.step() is called and that the schedule reaches its active steps before the program ends",
        )

    def _give_sources(self) -> None:
        ranges = self.trace.ranges
        rows = np.flatnonzero((self.trace.kinds != Kind.LAYER) & (ranges["src"] < 0))
        ranges["src"][rows] = self.frames.sources(ranges["thread"][rows].astype(np.int64), ranges["start_ns"][rows])

    def _give_frames_to_launches(self) -> None:
        """A range of source lines alone for each launch outside ops, as by a library that torch does not know."""
        trace, ranges, launches = self.trace, self.trace.ranges, self.trace.launches
        ops = np.isin(trace.kinds, (Kind.DISPATCH, Kind.BACKWARD))
        covered = union(*(ranges[name][ops].astype(np.int64) for name in ("thread", "start_ns", "end_ns")))
        thread, start = launches["thread"].astype(np.int64), launches["start_ns"]
        outside = np.flatnonzero(covered.covered(thread, start + 1) == covered.covered(thread, start))
        source = self.frames.sources(thread[outside], start[outside])
        rows, label = outside[source >= 0], trace.labels.add(("launch", ""), Marker(Kind.TRACE, "", "launch"))
        columns = {name: launches[name][rows] for name in ("start_ns", "end_ns", "thread")}
        columns |= {"src": source[source >= 0], "label": np.full(len(rows), label)}
        trace.ranges = concatenated([ranges, make_table("ranges", columns)])

    def _used_threads(self) -> tuple[list[tuple[int, int]], list[int]]:
        """(pid, tid) of the threads that ran ops or launched, to which the columns `thread` then refer, and the row of each
        thread there by its first number, -1 without one. Frames, and so modules, that ran on others are dropped: Kineto writes
        those of unknown threads under pid 0, tid 0."""
        ranges, launches = self.trace.ranges, self.trace.launches
        layer = self.trace.kinds == Kind.LAYER
        used = distinct_values(np.concatenate([ranges["thread"][~layer], launches["thread"]]))
        keep = ~layer | np.isin(ranges["thread"], used)
        if not keep.all():
            self.trace.ranges = ranges = {name: column[keep] for name, column in ranges.items()}
        row = np.full(len(self.threads.numbers) + 1, -1, np.int32)
        row[used] = np.arange(len(used))
        if not (known := np.isin(self.trace.frames["thread"], used)).all():
            self.trace.frames = {name: column[known] for name, column in self.trace.frames.items()}
        for table in (ranges, launches, self.trace.memory, self.trace.frames):
            table["thread"] = row[table["thread"]]
        every = list(self.threads.numbers)
        return [every[i] for i in used.tolist()], row.tolist()

    def _give_forward_threads(self, numbers: list[tuple[int, int]], row: list[int]) -> None:
        """Replace torch's own thread numbers by rows of `threads`; a forward thread outside the capture gets a row of its own,
        so that no op of another thread with the same sequence number is taken for the forward one."""
        trace, ranges = self.trace, self.trace.ranges
        logical, thread = ranges["fwd_thread"].astype(np.int64), ranges["thread"].astype(np.int64)
        rows = np.flatnonzero(ranges["seq"] >= 0)
        pids = {pid: i for i, pid in enumerate(trace.processes["pid"].tolist())}
        ops = NumberedOps(
            process=np.array([pid for pid, _ in numbers], np.int64)[thread[rows]] if len(rows) else rows,
            thread=thread[rows],
            start=ranges["start_ns"][rows],
            seq=ranges["seq"][rows],
            logical=logical[rows],
            label=ranges["label"][rows],
            names=[marker.name for marker in trace.markers],
        )
        known = forward_threads(ops, self.arrows.pairs(row))
        result = np.full(len(logical), -1, np.int64)
        absent: list[int] = []
        backward = ops.logical > 0
        ids = distinct_rows(ops.process[backward], ops.logical[backward]).columns
        for pid, number in ids.T.tolist():
            forward = known.get((pid, number))
            if forward is None:
                forward = len(numbers) + len(absent)
                absent.append(pids[pid])
            result[rows[(ops.process == pid) & (ops.logical == number)]] = forward
        ranges["fwd_thread"] = result.astype(np.int32)
        if absent:
            trace.threads = concatenated([trace.threads, make_table("threads", {"process": np.array(absent)})])

    def _give_facts(self, processes: int, lost: Lost) -> None:
        trace, facts = self.trace, self.file.facts
        trace.devices = devices_of(facts.deviceProperties, trace.strings)
        if processes == 1:
            trace.processes["rank"] = np.full(1, rank_of_file(facts.distributedInfo, self.path), np.int32)
        base = facts.baseTimeNanoseconds
        names = map(trace.strings.__getitem__, trace.devices["name"].tolist())
        gpus = dict(zip(trace.devices["device"].tolist(), names, strict=True))
        trace.measured, trace.samples = self.counters.measured(gpus), self.counters.samples()
        trace.utc_ns = base if isinstance(base, int) and 0 <= base < 1 << 62 else 0
        trace.version = f"Kineto schema {facts.schemaVersion}"
        # Kineto writes an event when it ends, so that none is left open: the session ends just after the last.
        ends = [int(t["end_ns"].max()) for t in (trace.ranges, trace.launches, trace.activities) if len(t["end_ns"])]
        trace.session_end_ns = max(ends, default=-2) + 1
        trace.notes = notes_of(trace, self.ops.shapes, bool(self.frames.names()) or len(self._sources) > 1, lost)


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
