"""The ranges and API calls of a capture -> what its host did: when it loaded data, compiled, allocated, waited for a device.

By name: ranges of PyTorch's DataLoader and of users who name the loading of data; of torch.compile; calls of CUDA and HIP. A
call waits by its name (synchronisation, a plain copy, freeing memory), or because it is a copy that had run when it returned:
cudaMemcpyAsync to or from memory that is not pinned does not return before. What a device did meanwhile is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.intervals import Segments, quantiles, union
from pyprof.columns.nesting import crossing, nest
from pyprof.columns.sorting import places_in_runs
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.host import AllocationCalls, Compilation, Host, Spans, Wait
from pyprof.model.markers import Kind
from pyprof.model.trace import ActivityKind, Trace
from pyprof.model.trace import Table as TraceTable
from pyprof.parse.attribution.memory_peaks import memory_peaks
from pyprof.parse.attribution.ops import ops_around
from pyprof.parse.attribution.pauses import actions_of, begins_of_steps, named_pauses
from pyprof.parse.attribution.ranges import CaptureFacts
from pyprof.parse.attribution.stacks import Placed, Stacks
from pyprof.parse.attribution.whereabouts import RECORDER, whereabouts

_BATCH = r"(?:data|batch(?:es)?|inputs?|samples?|images?)"
_LOADING = re.compile(
    r"enumerate\(DataLoader\)|data[ _.:-]?load"
    rf"|\b(?:load|fetch|read|get|prepar|prefetch|next|wait[ _]for)(?:e|ing)?[ _](?:the[ _]|next[ _])?{_BATCH}\b"
    rf"|\b{_BATCH}[ _](?:load|fetch|read|prepar|augment)(?:e|ing|ation)?\b|\bcollate\b",
    re.IGNORECASE,
)
_LOADED = ("load", "collate", "data", "batch", "input", "sample", "image")  # every match of _LOADING contains one of these
_LOADER_FILE = re.compile(r"(?:^|[/\\])(?:torch[/\\]utils[/\\]data|torchdata|webdataset)[/\\]")
_SINGLE, _WITH_WORKERS = (re.compile(rf"enumerate\(DataLoader\).*_{kind}Process") for kind in ("Single", "Multi"))
_IN_WORKERS = re.compile(r"[/\\]dataloader\.py\(\d+\): (?:_try_get_data|_get_data|_process_data)$")
_COMPILING = re.compile(
    r"\(dynamo_timed\)|compile_inner|compile_fx|inductor_compile|async_compile|CachingAutotuner\.(?:benchmark|precompile)",
)
_COMPILING_FRAME = re.compile(r"compile_inner \(dynamo_timed\)|^entire_frame_compile(?: \(dynamo_timed\))?$")
_COMPILE_ID = re.compile(r"compile_id=(\S+)/(\d+)")  # frame and attempt; a restarted one has `_1` behind
_COMPILES = re.compile(r"(?:cu|hip)(?:Module|Library)Load|(?:cu|hip)Link|(?:nv|hip)rtc|(?:cuda|hip)GraphInstantiate")
_GENERATED = re.compile(r"## Call CompiledFxGraph ")
_ALLOCATES = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostRegister|HostUnregister|ExtMalloc)(?!.*Async)"
    r"|(?:cu|hip)Mem(?:Alloc|Free|HostAlloc|Create|Map|Unmap|Release|SetAccess|AddressReserve)"
)
_BEGIN_RECORDING, _END_RECORDING = (re.compile(rf"(?:cuda|hip|cu)Stream{what}Capture(?!Info)") for what in ("Begin", "End"))
_GRAPH_LAUNCH = re.compile(r"(?:cuda|hip|cu)GraphLaunch")
_ASKS = re.compile(r"Query|Get|IsCapturing|Peek")
_LAUNCHES = re.compile(r"Launch|Memcpy|Memset")
_WAITS = re.compile(
    r"(cuda|cu|hip)(Device|Ctx|Stream|Event|Thread)Synchronize(_|$)"
    r"|(cuda|cu|hip)Memcpy(?!.*(Async|Batch))"
    r"|(cuda|hip)Free(_|$)|cuMemFree(_v2)?(_|$)"
)
_LONG_NS = 1_000_000  # of a call or of a pause between calls
_OPS = (Kind.OP, Kind.DISPATCH, Kind.BACKWARD)
_FAR_NS = 1 << 62  # beyond any time that is real: before the first call of a process, or after its last
_MOST_FRAMES = 4096  # whose begins are kept
Table = tuple[Ints, Ints, Ints]
"""Process (row of the trace's processes), begin and end."""


def says_loading(name: str) -> bool:
    """Whether the name of a range says that data is loaded. The list of words rules most names out quickly."""
    words = name.casefold()
    return any(word in words for word in _LOADED) and _LOADING.search(name) is not None


class Calls(NamedTuple):
    """API calls. thread: row of the trace's threads; name: code into strings; waits: whether the host waited in it."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    name: Ints
    waits: Bools


def host_of(trace: Trace, capture: CaptureFacts, launch: Array) -> Host:
    """Everything the host did except its steps. launch: see `launch_of_activity`."""
    return _HostOfCapture(trace, capture, launch).read()


def calls_of(trace: Trace, launch: Array) -> Calls:
    """All API calls of a capture. launch: see `launch_of_activity`."""
    launches, activities = trace.launches, trace.activities
    waiting = [_WAITS.match(text) is not None for text in trace.strings.values]
    waits = np.array([*waiting, False], np.bool_)[launches["name"]]
    copies = np.flatnonzero((activities["kind"] == ActivityKind.MEMCPY) & (launch >= 0))
    done = launches["end_ns"][launch[copies]] >= activities["end_ns"][copies]
    waits[launch[copies[done]]] = True
    return Calls(launches["thread"], launches["start_ns"], launches["end_ns"], launches["name"], waits)


class _HostOfCapture:
    """The tables of one capture, and the meaning of each call's name."""

    def __init__(self, trace: Trace, capture: CaptureFacts, launch: Array) -> None:
        self.trace, self.capture, self.launch, self.calls = trace, capture, launch, calls_of(trace, launch)
        self.called = np.zeros(len(trace.strings) + 1, np.bool_)  # which strings are names of calls
        self.called[self.calls.name] = True
        self.process = trace.threads["process"].astype(np.int64)
        self.launching = np.zeros(len(self.process), np.bool_)  # threads; others, as those that pin memory, hold nobody up
        self.launching[self.calls.thread[self.named(_LAUNCHES.search)]] = True
        self.leading = self.launching if self.launching.any() else ~self.launching  # on a CPU all threads

    def read(self) -> Host:
        trace, frames = self.trace, np.sort(self.trace.frames["start_ns"].astype(np.int64))
        chosen = np.unique(np.linspace(0, max(len(frames) - 1, 0), _MOST_FRAMES).astype(np.int64)) if len(frames) else frames
        graphs = self.calls.start_ns[self.named(_GRAPH_LAUNCH.match)]
        loaders = [marker.name for marker in trace.markers if "enumerate(DataLoader)" in marker.name]
        spent = [int((end - begin).sum()) for _, begin, end in map(self.ranges, (_SINGLE.search, _WITH_WORKERS.search))]
        # A program may have both. Ranges that were cut off, or on threads that launch nothing, have no time here.
        single = spent[0] >= spent[1] and any("_SingleProcess" in name for name in loaders)
        if not loaders and (calls := self.loader_functions):
            loaders, single = calls, not any(map(_IN_WORKERS.search, calls))
        waits, texts = self.waits()
        doing = named_pauses(trace, self.launch)
        leading, tables = np.append(self.leading, False), (trace.ranges, trace.launches, trace.frames)
        begin = min(int(table["start_ns"][leading[table["thread"]]].min(initial=_FAR_NS)) for table in tables)
        optimizers = {marker.name.removesuffix(".step") for marker in trace.markers if marker.kind == Kind.OPTIMIZER}
        return Host(
            work=self.work(), recorder=self.recorder(), waits=waits, texts=texts, frames=len(frames),
            graph_launch_ns=np.sort(graphs).tolist(), frame_ns=frames[chosen].tolist(),
            loader="single" if single else "several" if loaders else "none", optimizers=sorted(optimizers),
            backward_ranges=any(marker.kind == Kind.BACKWARD for marker in trace.markers),
            allocations=self.allocations(), compilations=self.compilations(), memory=memory_peaks(trace), groups=trace.groups,
            doing=doing, begins=begins_of_steps(trace) if doing else [], actions=actions_of(trace),
            whereabouts=whereabouts(trace, self.launch), begin_ns=begin if begin < _FAR_NS else -1,
            shapes=any(marker.call is not None and marker.call.described and marker.call.tensors for marker in trace.markers),
        )  # fmt: skip

    def named(self, named: Callable[[str], object]) -> Bools:
        """Which calls have a name for which `named` returns something."""
        good = np.zeros(len(self.called), np.bool_)
        for code in np.flatnonzero(self.called[:-1]).tolist():
            good[code] = named(self.trace.strings[code]) is not None
        return np.asarray(good[self.calls.name])

    # ------------------------------------------------------------------------------------------ what it worked on

    def work(self) -> dict[str, list[Spans]]:
        """Times of each kind of work, by process."""
        calls, acting = self.calls, self.launching[self.calls.thread]
        parts = [self.ranges(_COMPILING.search), self.rows(self.named(_COMPILES.match) & acting), self.graph_recordings()]
        compilation: Table = tuple(map(np.concatenate, zip(*parts, strict=True)))  # type: ignore[assignment]
        both = zip(self.ranges(says_loading), self.loader_calls(), strict=True)
        loading: Table = tuple(map(np.concatenate, both))  # type: ignore[assignment]
        acts = acting & ~self.named(_ASKS.search)
        tables = {
            "loading": loading,
            "compilation": compilation,
            "allocation": self.rows(self.named(_ALLOCATES.match) & acting),
            "generated": self.ranges(_GENERATED.match if not len(self.trace.activities["start_ns"]) else lambda _: False),
            "long_calls": self.rows((calls.end_ns - calls.start_ns >= _LONG_NS) & (calls.waits | self.named(_LAUNCHES.search))),
        }
        found = {kind: self.spans(*table) for kind, table in tables.items()}
        found["call_pauses"], found["op_pauses"] = self.pauses(acts)
        return {kind: spans for kind, spans in found.items() if spans}

    def spans(self, process: Ints, begin: Ints, end: Ints) -> list[Spans]:
        """The union of these times by process."""
        whole, pids = union(process, begin, end), self.trace.processes["pid"]
        return [
            Spans(int(pids[one]), whole.start[mine].tolist(), whole.end[mine].tolist())
            for one in distinct_values(whole.group).tolist()
            for mine in [whole.group == one]
        ]

    def rows(self, which: Bools) -> Table:
        """Process, begin and end of some calls."""
        rows = np.flatnonzero(which)
        return self.process[self.calls.thread[rows]], self.calls.start_ns[rows], self.calls.end_ns[rows]

    def ranges(self, named: Callable[[str], object]) -> Table:
        """Process, begin and end of closed ranges on leading threads whose name matches."""
        ranges = self.trace.ranges
        good = np.array([*(bool(named(marker.name)) for marker in self.trace.markers), False], np.bool_)
        rows = np.flatnonzero(good[ranges["label"]] & (ranges["open"] == 0))
        rows = rows[self.leading[ranges["thread"][rows]]]
        process = self.process[ranges["thread"][rows]]
        return process, ranges["start_ns"][rows].astype(np.int64), ranges["end_ns"][rows].astype(np.int64)

    def allocations(self) -> list[AllocationCalls]:
        """Calls that allocate or free memory of a device."""
        rows = np.flatnonzero(self.named(_ALLOCATES.match) & self.launching[self.calls.thread])
        rows = rows[np.argsort(self.calls.start_ns[rows], kind="stable")]
        process, found = self.process[self.calls.thread[rows]], []
        for one in distinct_values(process).tolist():
            mine = rows[process == one]
            used, code = np.unique(self.calls.name[mine], return_inverse=True)
            names = [re.sub(r"_v\d+$", "", self.trace.strings[name]) for name in used.tolist()]
            begin, end = (times[mine].tolist() for times in (self.calls.start_ns, self.calls.end_ns))
            found.append(AllocationCalls(int(self.trace.processes["pid"][one]), begin, end, code.tolist(), names))
        return found

    def compilations(self) -> list[Compilation]:
        """Each compilation of a frame. Its number is in the first range inside it that names one."""
        ranges, names = self.trace.ranges, [marker.name for marker in self.trace.markers]
        whole, numbered = (
            np.array([*(test.search(name) is not None for name in names), False], np.bool_)
            for test in (_COMPILING_FRAME, _COMPILE_ID)
        )
        if not whole.any():
            return []
        rows = np.flatnonzero(whole[ranges["label"]] & (ranges["open"] == 0))
        thread, begin, end = (ranges[name][rows].astype(np.int64) for name in ("thread", "start_ns", "end_ns"))
        outer = union(thread, begin, end)
        told = np.flatnonzero(numbered[ranges["label"]])
        when, of_thread = ranges["start_ns"][told], ranges["thread"][told]
        found = []
        for one, since, until in zip(outer.group.tolist(), outer.start.tolist(), outer.end.tolist(), strict=True):
            inside = told[(of_thread == one) & (when >= since) & (when < until)]
            first = inside[np.argmin(ranges["start_ns"][inside])] if len(inside) else -1
            number = _COMPILE_ID.search(names[ranges["label"][first]]) if first >= 0 else None
            pid = int(self.trace.processes["pid"][self.process[one]])
            frame, attempt = ("", -1) if number is None else (number[1], int(number[2]))
            found.append(Compilation(pid, since, until, frame, attempt))
        return sorted(found, key=lambda one: (one.begin_ns, one.pid))

    def pauses(self, acts: Bools) -> tuple[list[Spans], list[Spans]]:
        """Times of at least 1 ms between moments at which one of these calls began or ended, before the first and after the
        last, by process; and the same with the begins of ops as moments too. Adjacent pauses stay two."""
        ranges, calls, of_calls, of_ops = self.trace.ranges, self.calls, list[Spans](), list[Spans]()
        is_op = np.array([*(marker.kind in _OPS for marker in self.trace.markers), False], np.bool_)[ranges["label"]]
        is_op &= self.leading[ranges["thread"]]
        for process, pid in enumerate(self.trace.processes["pid"].tolist()):
            own = np.append(self.process == process, False)
            mine = acts & own[calls.thread]
            edges = np.sort(np.concatenate([[-_FAR_NS], calls.start_ns[mine], calls.end_ns[mine], [_FAR_NS]]), kind="stable")
            long = np.flatnonzero(_is_long(edges))
            begin, end = edges[long], edges[long + 1]
            of_calls.append(Spans(pid, begin.tolist(), end.tolist()))
            # Ops matter only where calls leave a pause.
            times = ranges["start_ns"][is_op & own[ranges["thread"]]]
            at = np.searchsorted(begin, times, "right") - 1
            inside = (at >= 0) & (times < end[at])
            pause = np.concatenate([np.arange(len(begin)), at[inside], np.arange(len(begin))])
            moments = np.concatenate([begin, times[inside], end])
            order = np.lexsort((moments, pause))
            moments, pause = moments[order], pause[order]
            long = np.flatnonzero(_is_long(moments) & (pause[1:] == pause[:-1]))
            of_ops.append(Spans(pid, moments[long].tolist(), moments[long + 1].tolist()))
        return of_calls, of_ops

    @cached_property
    def loader_functions(self) -> list[str]:
        """Names of the recorded functions of a DataLoader."""
        texts = self.trace.strings.values
        used = (texts[code] for code in distinct_values(self.trace.frames["name"]).tolist())
        return [text for text in used if _LOADER_FILE.search(text)]

    def loader_calls(self) -> Table:
        """Calls of a DataLoader's functions, if Python's frames were recorded."""
        frames, strings = self.trace.frames, self.trace.strings
        good = np.array([strings.code(text) for text in self.loader_functions], np.int64)
        rows = np.flatnonzero(np.isin(frames["name"], good) & self.leading[frames["thread"]])
        return self.process[frames["thread"][rows]], frames["start_ns"][rows], frames["end_ns"][rows]

    def graph_recordings(self) -> Table:
        """From the begin to the end of each graph capture: calls in between run nothing."""
        acting = self.launching[self.calls.thread]
        process, begin, _ = self.rows(self.named(_BEGIN_RECORDING.match) & acting)
        ends = np.append(np.sort(self.rows(self.named(_END_RECORDING.match) & acting)[2]), _FAR_NS)
        end = ends[np.searchsorted(ends, begin)]
        known = end < _FAR_NS
        return process[known], begin[known], end[known]

    def recorder(self) -> list[Spans]:
        """Time that recording took, by thread: of Python's frames, and to begin, step and end."""
        trace = self.trace
        frames, strings = trace.frames, trace.strings
        named = (code for code in distinct_values(frames["name"]).tolist() if RECORDER.search(strings[code]))
        rows = np.flatnonzero(np.isin(frames["name"], np.array([*named], np.int64)))
        own, parts = tracer_time(trace), (frames[name][rows].astype(np.int64) for name in ("thread", "start_ns", "end_ns"))
        found = union(*map(np.concatenate, zip((own.group, own.start, own.end), parts, strict=True)))
        return [
            Spans(int(trace.processes["pid"][self.process[one]]), found.start[mine].tolist(), found.end[mine].tolist(),
                  int(trace.threads["tid"][one]))
            for one in distinct_values(found.group).tolist()
            for mine in [found.group == one]
        ]  # fmt: skip

    # ------------------------------------------------------------------------------------------ what it waited in

    def waits(self) -> tuple[list[Wait], list[tuple[str, str, str]]]:
        """All calls that waited, and their texts."""
        calls, trace = self.calls, self.trace
        rows = np.flatnonzero(calls.waits)
        rows = rows[np.lexsort((calls.end_ns[rows], calls.start_ns[rows], calls.thread[rows]))]
        if not len(rows):
            return [], []
        codes: dict[tuple[str, str, str], int] = {}
        places = zip(calls.name[rows].tolist(), self.origins(rows), strict=True)
        text = [codes.setdefault((trace.strings[name], *origin), len(codes)) for name, origin in places]
        thread = calls.thread[rows]
        columns = (
            trace.processes["pid"][self.process[thread]], trace.threads["tid"][thread], calls.start_ns[rows],
            calls.end_ns[rows], np.array(text), self.launching[thread],
        )  # fmt: skip
        return [*map(Wait, *(column.tolist() for column in columns), self.active(rows))], list(codes)

    def active(self, rows: Ints) -> list[list[int]]:
        """For each call the ids of the other launching threads of its process that made calls meanwhile."""
        calls, found = self.calls, [list[int]() for _ in rows]
        own = calls.thread[rows]
        for other in np.flatnonzero(self.launching & np.isin(self.process, self.process[own])).tolist():
            begun = np.sort(calls.start_ns[calls.thread == other])
            number = np.searchsorted(begun, calls.end_ns[rows], "right") - np.searchsorted(begun, calls.start_ns[rows])
            tid = int(self.trace.threads["tid"][other])
            for at in np.flatnonzero((number > 0) & (own != other) & (self.process[own] == self.process[other])).tolist():
                found[at].append(tid)
        return found

    def origins(self, rows: Ints) -> list[tuple[str, str]]:
        """For each call the op that made it, and its source line or else its layers; `-` if unknown."""
        calls, trace = self.calls, self.trace
        thread, when = calls.thread[rows], calls.start_ns[rows]
        capture = self.capture.only(_open_at(trace.ranges, thread, when))
        around = ops_around(capture)
        at = around.nested.innermost(thread, when)
        stacks = Stacks(capture.trace, capture.aside)
        chains = stacks.chains(around.nested, around.seq, at)
        codes = stacks.codes(Placed(at, np.zeros(len(rows), np.bool_), thread, when), chains)
        found = []
        for root, code in zip(around.root(at).tolist(), codes.tolist(), strict=True):
            marker = trace.markers[around.label[root]] if root >= 0 else None
            call = None if marker is None else marker.call
            lines, layers = stacks.stacks[code].trace, ":".join(stacks.stacks[code].layer)
            name = "-" if marker is None else marker.name if call is None else call.op
            found.append((name, lines[-1] if lines else layers or "-"))
        return found


def _is_long(moments: Ints) -> Bools:
    """Whether at least 1 ms lies between each moment and the next. Halves, since the difference may not fit 64 bits."""
    return np.asarray(moments[1:] // 2 - moments[:-1] // 2 >= _LONG_NS // 2)


def _open_at(ranges: TraceTable, thread: Ints, when: Ints) -> Bools:
    """Which ranges are open at one of these moments of their thread."""
    found = np.zeros(len(ranges["label"]), np.bool_)
    for one in distinct_values(thread).tolist():
        times = np.append(np.sort(when[thread == one]), np.iinfo(np.int64).max)
        rows = np.flatnonzero(ranges["thread"] == one)
        begin = ranges["start_ns"][rows]
        found[rows] = times[np.searchsorted(times, begin)] <= np.maximum(ranges["end_ns"][rows], begin)
    return found


# ---------------------------------------------------------------------------------------------- time of the recorder

# Between two events that follow one another in a Python function - a call of another, a return - lie a few bytecodes: about a
# microsecond with what recording the event takes. In a trace in which some functions show that and others each time many times
# more, the difference is the recorder's, which reads the locals of a function at each event. So it is where pauses in one call
# of a function grow from its begin to its end, as it has more and more locals. Pauses in which an op or an API call begins or
# ends are left out, long ones too, since those may be work: what is found is a lower bound.
_C_FUNCTION = ("<built-in", "<method", "<slot wrapper")
_EDGES = ("start_ns", "end_ns")
_USUAL_NS = 2_000  # at most, of the pauses of functions where recording costs least
_SLOW_NS = 5_000  # at least, of nearly all pauses of one kind to be told from what the function does itself
_MOST_NS = 200_000  # from here on a pause may be work
_BULK = 0.1  # quantile: what nearly all exceed
_LEAST = 16  # pauses of one kind
_FUNCTIONS = 3  # that have slow pauses: one alone may well compute in them
_GROWTH, _QUARTERS = 3, 4  # times as long in the last quarter of a call as in the first, longer from each quarter to the next


class _Pauses(NamedTuple):
    """thread; begin and end in ns; kind: the same for pauses of one function between events of the same kinds; function: code
    of its name; call: number of the function's call on its thread."""

    thread: Ints
    begin: Ints
    end: Ints
    kind: Ints
    function: Ints
    call: Ints


def tracer_time(trace: Trace) -> Segments:
    """When recording took the time of each thread. The groups are rows of the trace's threads."""
    nothing = union(*np.zeros((3, 0), np.int64))
    is_c = np.array([text.startswith(_C_FUNCTION) for text in trace.strings.values], np.bool_)
    parts = [_pauses(trace, thread, is_c) for thread in distinct_values(trace.frames["thread"]).tolist()]
    if not parts:
        return nothing
    pauses = _Pauses(*map(np.concatenate, zip(*parts, strict=True)))
    used, code = np.unique(pauses.kind, return_inverse=True)
    code, length = code.ravel(), pauses.end - pauses.begin
    bulk, middle = quantiles(code, length, len(used), _BULK, 0.5)
    often = np.bincount(code, minlength=len(used)) >= _LEAST
    usual = float(middle[often].min(initial=np.inf))
    slow = (often & (bulk >= _SLOW_NS))[code] & (length < _MOST_NS)
    if usual > _USUAL_NS or len(distinct_values(pauses.function[slow])) < _FUNCTIONS:
        slow[:] = False
    least = np.where(slow, 0 if np.isinf(usual) else round(usual), _grown(pauses))
    found = least >= 0
    return union(pauses.thread[found], (pauses.begin + least)[found], pauses.end[found])


def _grown(pauses: _Pauses) -> Ints:
    """For each pause of a call in which they grow the length that pauses have at the call's begin, -1 for others."""
    result, length = np.full(len(pauses.call), -1, np.int64), pauses.end - pauses.begin
    good = np.flatnonzero(length < _MOST_NS)
    call = distinct_rows(pauses.thread[good], pauses.call[good]).inverse
    good = good[np.bincount(call)[call] >= _LEAST]  # few calls are so long
    call = distinct_rows(pauses.thread[good], pauses.call[good]).inverse
    order = np.lexsort((pauses.begin[good], call))
    good, call = good[order], call[order]
    count = np.bincount(call)
    quarter = places_in_runs(np.diff(call, prepend=-1) != 0) * _QUARTERS // np.maximum(count[call], 1)
    middle = quantiles(call * _QUARTERS + quarter, length[good], len(count) * _QUARTERS, 0.5)[0].reshape(-1, _QUARTERS)
    grows = (np.diff(middle, axis=1) > 0).all(axis=1) & (middle[:, -1] >= _SLOW_NS) & (middle[:, -1] >= _GROWTH * middle[:, 0])
    mine = grows[call] & (length[good] > middle[call, 0])
    result[good[mine]] = np.ceil(middle[call[mine], 0]).astype(np.int64)
    return result


def _pauses(trace: Trace, thread: int, is_c: Bools) -> _Pauses:
    """Times between successive events of a thread's Python functions in which nothing else was recorded."""
    frames = trace.frames
    rows = np.flatnonzero(frames["thread"] == thread)
    begin, end, name = (frames[column][rows].astype(np.int64) for column in ("start_ns", "end_ns", "name"))
    order = np.lexsort((-end, begin))
    begin, end, name = begin[order], end[order], name[order]
    aside = crossing(begin, end, np.zeros(len(begin), np.bool_))
    begin, end, name = begin[~aside], end[~aside], name[~aside]
    time = np.concatenate([begin, end])
    event = np.concatenate([is_c[name], is_c[name] + 2])  # call or return, of a function in Python or in C
    order = np.argsort(time, kind="stable")
    time, event = time[order], event[order]
    first, last = time[:-1], time[1:]
    inside = nest(begin, end).innermost(first)
    function = name[inside] if len(name) else inside
    moments = [table[which][table["thread"] == thread] for table in (trace.ranges, trace.launches) for which in _EDGES]
    others = np.sort(np.concatenate(moments))
    alone = np.searchsorted(others, last) == np.searchsorted(others, first, "right")
    keep = alone & (inside >= 0) & (last > first) & ~is_c[function]
    kind = (function * 4 + event[:-1]) * 4 + event[1:]
    return _Pauses(np.full(int(keep.sum()), thread), *(column[keep] for column in (first, last, kind, function, inside)))
