"""A torch.profiler (Kineto) trace, .json or .json.gz of torch 1.8 to today -> Trace.

Events are read a block at a time into columns. A GPU activity belongs to the launch with its correlation id; ops, annotations
and modules become ranges; Python frames give the source line of each op. Projections of annotations onto the GPU
(gpu_user_annotation) are not activities. Times stay relative to the trace's base time, which is `utc_ns`.
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.types import Array, Bools, Ints
from pyprof.errors import EmptyCapture, InputError, NotACapture
from pyprof.model.allocations import Listed
from pyprof.model.markers import Kind, Marker
from pyprof.model.trace import ActivityKind, Labels, Table, Trace, chosen, concatenated, make_table
from pyprof.parse.sources.inputs import of_epoch
from pyprof.parse.sources.kineto import exported
from pyprof.parse.sources.kineto.blocks import EventTables
from pyprof.parse.sources.kineto.external import join_by_external_id
from pyprof.parse.sources.kineto.facts import devices_of, group_sizes, notes_of, rank_of_file, tables_of_threads
from pyprof.parse.sources.kineto.gpu import count_blocks, number_nodes, process_of_activities
from pyprof.parse.sources.kineto.modules import Intervals, module_ranges, open_at
from pyprof.parse.sources.kineto.threads import NumberedOps, forward_threads
from pyprof.parse.sources.kineto.trace_file import TraceFile

_ANNOTATION_NS = 1000  # how long each range is that torch's annotations of graphs are made to


def read(stream: io.BufferedReader, path: Path, name: str) -> Trace:
    """The whole trace.

    stream: the file from its beginning; path: its file name may hold the rank; name: its name for people.
    Raises NotACapture if it is not a trace of torch.profiler, EmptyCapture where it holds neither GPU activity nor ops,
    InputError if it is damaged.
    """
    return _TraceReader(TraceFile(stream, name), path).read()


class _TraceReader:
    """One trace while it is read."""

    def __init__(self, file: TraceFile, path: Path) -> None:
        self.file, self.path = file, path
        self.trace = Trace("kineto")
        self.tables = EventTables(self.trace)

    def read(self) -> Trace:
        trace, tables = self.trace, self.tables
        for events in self.file.blocks():
            tables.read(events)
        tables.finish()
        facts = self.file.facts
        if (written := exported.given(facts.pyprof, self.file.name)) is not None:
            return self._restored(written)
        if (frames := tables.frames.table()) is not None:
            if (calls := module_ranges(frames, [*tables.frames.names], facts.pyprof_modules, trace.labels)) is not None:
                tables.ranges.add(calls)
            trace.frames = tables.frames.as_trace_table()
        self._join()
        trace.notes += join_by_external_id(trace, tables.activities.external(), tables.launches.external())
        _give_facts_of_collectives(trace.ranges, trace.labels)
        tables.launches.give_geometry(trace.activities)
        count_blocks(trace)
        self._check()
        if frames is not None:
            ranges = trace.ranges
            rows = np.flatnonzero(~self._of_kinds(Kind.LAYER)[ranges["label"]] & (ranges["src"] < 0))
            source = ranges["src"].copy()
            source[rows] = tables.frames.sources(ranges["thread"][rows], ranges["start_ns"][rows])
            ranges["src"] = source
            self._give_frames_to_launches()
        numbers, row = self._used_threads()
        trace.threads, trace.processes = tables_of_threads(numbers, tables.thread_names, trace)
        self._give_forward_threads(numbers, row)
        processes = len(trace.processes["pid"])
        trace.activities["process"], shared = process_of_activities(trace.activities, trace.launches, trace.threads, processes)
        number_nodes(trace)
        _give_layers(trace, tables.activities.layers(), tables.activities.qualified)
        self._leave_out_zeros()
        self._refuse_merged()
        self._give_facts(processes, shared)
        return trace

    def _join(self) -> None:
        """Give the trace the tables of its events."""
        trace, tables = self.trace, self.tables
        trace.ranges, trace.memory = tables.ranges.whole(), tables.memory.whole()
        trace.launches, trace.activities = tables.launches.table(), tables.activities.table()
        tasks, launches = tables.tasks.tables(int(trace.launches["corr"].max(initial=0)) + 1)
        trace.activities, trace.launches = concatenated([trace.activities, tasks]), concatenated([trace.launches, launches])

    def _leave_out_zeros(self) -> None:
        """Leave out what begins at 0 where everything else counts from 1970."""
        trace, lost = self.trace, self.tables.left_out
        if not any(of_epoch(table["start_ns"]) for table in (trace.ranges, trace.launches, trace.activities)):
            return
        for name in ("ranges", "launches", "activities"):
            table = getattr(trace, name)
            kept = table["start_ns"] != 0
            lost.count(int(len(kept) - kept.sum()), activities=name == "activities")
            setattr(trace, name, chosen(table, kept))

    def _refuse_merged(self) -> None:
        """Raise InputError if one process's correlation ids stand for two launches each at the same time, as where traces of
        several ranks with one process id were put into one file."""
        trace = self.trace
        activities, launches = trace.activities, trace.launches
        kernel = (activities["kind"] == ActivityKind.KERNEL) & (activities["corr"] > 0) & (activities["graph_node"] < 0)
        if not kernel.any():
            return
        (_, corr), _, of = distinct_rows(activities["process"][kernel], activities["corr"][kernel])
        several = np.bincount(of) > 1
        if 2 * int(several.sum()) <= len(several):
            return
        pairs = np.flatnonzero(np.isin(launches["corr"], corr[several]))
        order = pairs[np.lexsort((launches["start_ns"][pairs], launches["corr"][pairs]))]
        again = np.append(False, np.diff(launches["corr"][order]) == 0)
        start, end = launches["start_ns"][order], launches["end_ns"][order]
        # A call of the driver within one of the runtime is part of it; one recording after another has ids of its own.
        within = (start[1:] >= start[:-1]) & (end[1:] <= end[:-1]) & ((start[1:] != start[:-1]) | (end[1:] != end[:-1]))
        outside = again & np.append(False, ~within)
        if 2 * int(again.sum()) <= len(order) - int(again.sum()) or (again.any() and start[again].min() >= start[~again].max()):
            return
        if outside.any():
            raise InputError(
                f"{self.file.name}: several traces in one, whose processes and correlation ids are the same: what launched a "
                "kernel cannot be told",
                "give the trace of one rank, or `pyprof ranks` a folder with a file for each rank",
            )

    def _restored(self, written: exported.Exported) -> Trace:
        """The trace that `pyprof trace` wrote as a timeline: nothing is derived from events again."""
        trace = self.trace
        trace.frames, trace.samples = self.tables.frames.as_trace_table(), self.tables.counters.samples()
        self._join()
        self._check()
        try:
            written.restore(trace, list(self.tables.threads))
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
        if self.file.notes:
            raise InputError(f"{self.file.name}: {self.file.notes[0]}, none of them an op", "export or copy it again")
        raise EmptyCapture(
            f"{self.file.name}: nothing was captured: neither GPU activity nor ops",
            "check that prof.step() is called and that the schedule reaches its active steps before the program ends",
        )

    def _of_kinds(self, *kinds: Kind) -> Bools:
        """For each marker whether it is of one of these kinds."""
        return np.array([marker.kind in kinds for marker in self.trace.markers], np.bool_)

    def _give_frames_to_launches(self) -> None:
        """Add a range with nothing but source lines for each launch outside ops, as by a library that torch does not know."""
        trace, ranges, launches = self.trace, self.trace.ranges, self.trace.launches
        ops = np.flatnonzero(self._of_kinds(Kind.DISPATCH, Kind.BACKWARD)[ranges["label"]])
        within = Intervals(ranges["thread"], ranges["start_ns"], ranges["end_ns"], ranges["thread"]).take(ops)
        thread, start = launches["thread"], launches["start_ns"]
        rows = np.flatnonzero(~open_at(within, thread, start))
        source = self.tables.frames.sources(thread[rows], start[rows])
        rows, source = rows[source >= 0], source[source >= 0]
        bare = trace.labels.add(("launch", ""), Marker(Kind.TRACE, "", "launch"))
        columns = {name: launches[name][rows] for name in ("start_ns", "end_ns", "thread")}
        added = make_table("ranges", columns | {"src": source, "label": np.full(len(rows), bare)})
        trace.ranges = concatenated([ranges, added])

    def _used_threads(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Drop threads that neither ran ops nor launched. Returns the (pid, tid) of the others, which are the rows that columns
        `thread` then refer to, and the row of each thread by its former number, -1 without one.

        Frames, and so modules, on other threads are dropped: Kineto writes those of unknown threads under pid 0, tid 0.
        """
        trace, every = self.trace, list(self.tables.threads)
        thread, other = trace.ranges["thread"], ~self._of_kinds(Kind.LAYER)[trace.ranges["label"]]
        is_used = np.zeros(len(every) + 1, np.bool_)
        is_used[thread[other]] = True
        is_used[trace.launches["thread"]] = True
        used = np.flatnonzero(is_used)
        row = np.full(len(every) + 1, -1, np.int32)
        row[used] = np.arange(len(used))
        trace.ranges = chosen(trace.ranges, other | is_used[thread])
        trace.frames = chosen(trace.frames, is_used[trace.frames["thread"]])
        for table in (trace.ranges, trace.launches, trace.memory, trace.frames):
            table["thread"] = row[table["thread"]]
        return [every[i] for i in used.tolist()], row.tolist()

    def _give_forward_threads(self, numbers: list[tuple[int, int]], row: list[int]) -> None:
        """Replace torch's own thread numbers by rows of `threads`; a forward thread outside the capture gets a row of its own,
        so that no op of another thread with the same sequence number is taken for the forward one."""
        trace, ranges = self.trace, self.trace.ranges
        pids = {pid: i for i, pid in enumerate(trace.processes["pid"].tolist())}
        process = np.array([pid for pid, _ in numbers], np.int64)
        rows = np.flatnonzero(ranges["seq"] >= 0)
        thread, *others = (ranges[name][rows] for name in ("thread", "start_ns", "seq", "fwd_thread", "label"))
        ops = NumberedOps(process[thread], thread, *others)
        known = forward_threads(ops, [marker.name for marker in trace.markers], self.tables.arrows.pairs(row))
        backward = ops.logical > 0
        ids = distinct_rows(ops.process[backward], ops.logical[backward])
        absent: list[int] = []
        for pid, number in ids.columns.T.tolist():
            if (pid, number) not in known:
                known[pid, number] = len(numbers) + len(absent)
                absent.append(pids[pid])
        forward = np.full(len(ranges["seq"]), -1, np.int32)
        threads = [known[pid, number] for pid, number in ids.columns.T.tolist()]
        forward[rows[backward]] = np.array(threads, np.int32)[ids.inverse]
        ranges["fwd_thread"] = forward
        if absent:
            trace.threads = concatenated([trace.threads, make_table("threads", {"process": np.array(absent)})])

    def _give_facts(self, processes: int, shared: int) -> None:
        trace, facts, tables = self.trace, self.file.facts, self.tables
        trace.devices = devices_of(facts.deviceProperties or facts.computeProperties, trace.strings)
        trace.groups = group_sizes(facts.distributedInfo)
        if processes == 1:
            trace.processes["rank"] = np.full(1, rank_of_file(facts.distributedInfo, self.path), np.int32)
        base = facts.baseTimeNanoseconds
        names = map(trace.strings.__getitem__, trace.devices["name"].tolist())
        gpus = dict(zip(trace.devices["device"].tolist(), names, strict=True))
        trace.measured, trace.samples = self.tables.counters.measured(gpus), self.tables.counters.samples()
        trace.utc_ns = -1 if tables.far else base if isinstance(base, int) and 0 <= base < 1 << 62 else 0
        trace.version = f"Kineto schema {facts.schemaVersion}"
        # Kineto writes an event when it ends, so that none is left open: the session ends just after the last.
        ends = [table["end_ns"] for table in (trace.ranges, trace.launches, trace.activities) if len(table["end_ns"])]
        trace.session_end_ns = max((int(end.max()) for end in ends), default=-2) + 1
        sources = bool(tables.frames.names) or tables.has_stacks
        lacks = notes_of(trace, tables.ops.shapes, sources, shared)
        trace.notes = [*lacks, *trace.notes, *self.file.notes, *tables.left_out.notes()]
        trace.left_out = tables.left_out.activities
        with suppress(msgspec.ValidationError):  # written by someone else
            trace.tensors = [] if facts.pyprof_memory is None else msgspec.convert(facts.pyprof_memory, list[Listed])
        if tables.waits:
            trace.notes.append(f"{tables.waits:,} waits and marks of the device's scheduler do no work and are no rows")


def _give_layers(trace: Trace, layer: Array, qualified: set[int]) -> None:
    """Give the nodes of graphs the layers in which they were recorded: what torch's annotations of a captured graph
    (`torch.cuda.graph(enable_annotations=True)`) say among the args of its kernels -> `ranges` and `graph_nodes`.

    When and on which thread that was is not known: the ranges are on a thread of their own without an id, after all else.

    layer: of each of the first activities (those after them have none), code into strings of the text, -1 none; qualified:
    which of those are modules' paths from the root.
    """
    node, process = trace.activities["graph_node"], trace.activities["process"]
    node, process = node[: len(layer)], process[: len(layer)]
    rows = np.flatnonzero((layer >= 0) & (node >= 0) & (process >= 0))
    if not len(rows):
        return
    owner, number, text = distinct_rows(process[rows], node[rows], layer[rows]).columns
    new = np.ones(len(owner), np.bool_)
    new[1:] = (np.diff(owner) != 0) | (np.diff(number) != 0)  # of a node that was written twice the first
    owner, number, text = owner[new], number[new], text[new]
    (places, texts), _, at = distinct_rows(owner, text)
    owners = np.unique(places)
    thread = len(trace.threads["tid"]) + np.searchsorted(owners, places)
    ends = [int(table["end_ns"].max(initial=0)) for table in (trace.ranges, trace.launches, trace.activities)]
    start = max(ends) + _ANNOTATION_NS * (1 + 2 * np.arange(len(texts)))
    labels = []
    for code in texts.tolist():
        name, scope = trace.strings[code], "module" if code in qualified else "user"
        labels.append(trace.labels.add(("annotation", name, scope), Marker(Kind.LAYER, name, name, scope=scope)))
    ranges = make_table(
        "ranges", {"start_ns": start, "end_ns": start + _ANNOTATION_NS, "thread": thread, "label": np.array(labels)}
    )
    nodes = make_table("graph_nodes", {"node": number, "thread": thread[at], "start_ns": start[at] + 1})
    trace.threads = concatenated([trace.threads, make_table("threads", {"process": owners})])
    trace.ranges = concatenated([trace.ranges, ranges])
    trace.graph_nodes = concatenated([trace.graph_nodes, nodes])


def _give_facts_of_collectives(ranges: Table, labels: Labels) -> None:
    """Change the labels of NCCL's annotations to calls with the facts of torch's record around them (bytes, group, ranks).

    A kernel is launched inside `nccl:all_reduce`, which names only its input; the `record_param_comms` around it has the rest.
    Without such records nothing changes.
    """
    records = [i for i, m in enumerate(labels.markers) if m.call is not None and "collective" in dict(m.call.kwargs)]
    bare = [i for i, m in enumerate(labels.markers) if m.call is not None and m.call.module == "nccl" and not m.call.kwargs]
    if not records or not bare:
        return
    label = ranges["label"]
    around, inner = (np.flatnonzero(np.isin(label, some)) for some in (records, bare))
    owner = _innermost(ranges, around, inner)
    inner, owner = inner[owner >= 0], owner[owner >= 0]
    new: dict[tuple[int, int], int] = {}
    for row, own, outer in zip(inner.tolist(), ranges["label"][inner].tolist(), ranges["label"][owner].tolist(), strict=True):
        code = new.get((own, outer))
        if code is None:
            marker, record = labels.markers[own], labels.markers[outer]
            if marker.call is None or record.call is None:
                continue
            whole = marker._replace(call=marker.call._replace(kwargs=record.call.kwargs))
            code = new[own, outer] = labels.add((marker.kind, marker.name, repr(whole.call)), whole)
        ranges["label"][row] = code


def _innermost(ranges: Table, around: Array, inner: Array) -> Ints:
    """For each row of `inner` the last one of `around` that began before it on its thread and had not ended; -1 none.

    Records of collectives do not nest, so only the last one can contain it.
    """
    found = np.full(len(inner), -1, np.int64)
    start, end, thread = ranges["start_ns"], ranges["end_ns"], ranges["thread"]
    for one in distinct_values(thread[inner]).tolist():
        here, own = around[thread[around] == one], np.flatnonzero(thread[inner] == one)
        here = here[np.argsort(start[here], kind="stable")]
        at = np.searchsorted(start[here], start[inner[own]], "right") - 1
        inside = at >= 0
        inside[inside] = end[here[at[inside]]] >= end[inner[own[inside]]]
        found[own[inside]] = here[at[inside]]
    return found
