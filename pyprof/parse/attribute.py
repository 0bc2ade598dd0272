"""Trace -> Records: kernel -> launch -> range stack -> op instance, and backward joined to forward.

The rules are those of the README's "How a kernel finds its op". Numpy over all rows; Python only over distinct stacks. No file
formats, no formulas: what must be known of ops is asked through `OpRules`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.errors import EmptyCapture
from pyprof.hardware.kernels import classify
from pyprof.markers import Kind
from pyprof.opcall import OpCall
from pyprof.parse.cpu import cpu_rows
from pyprof.parse.pairing import Side, pair
from pyprof.parse.paths import Paths
from pyprof.parse.records import COLUMNS, GpuInfo, Records
from pyprof.parse.stacks import Facts, Nested, OpRules, nest_all, top_down
from pyprof.parse.trace import ActivityKind, Trace

__all__ = ["attribute"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_COMMUNICATION = frozenset({"nccl", "symm_mem_collective", "expert_parallel_comm"})
FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, COPY = range(5)  # codes of records.PHASES


def attribute(trace: Trace, rules: OpRules) -> Records:
    """Give every activity of a capture its launch, stack, op and phase; without GPU activity, every op its time on the CPU.

    Raises EmptyCapture where there are neither activities nor op ranges.
    """
    return _Attribution(trace, rules).records()


class _Attribution:
    """One run over one Trace; positions are those of Nested, rows those of the table named."""

    def __init__(self, trace: Trace, rules: OpRules) -> None:
        self.trace = trace
        self.counts: dict[str, int] = {}
        self.facts = Facts.of(trace.markers, rules)
        self.nested: Nested = nest_all(trace, self.facts)
        self.label: Ints = trace.ranges["label"][self.nested.row].astype(np.int64)
        self.seq: Ints = trace.ranges["seq"][self.nested.row]
        self.thread: Ints = trace.ranges["thread"][self.nested.row].astype(np.int64)
        self.start: Ints = trace.ranges["start_ns"][self.nested.row]
        self._walk_down()

    def _walk_down(self) -> None:
        """For each range, what the ranges around it make of a kernel launched inside it."""
        facts, label = self.facts, self.label
        here = np.arange(len(label))
        copy, backward = facts.copy[label], facts.backward[label]
        kind = facts.kind[label]
        boundary = np.isin(kind, (Kind.BACKWARD, Kind.ENGINE))

        def root(own: Ints, inherited: Ints) -> Ints:
            of_copy = (inherited >= 0) & copy[np.maximum(inherited, 0)]
            keep = (inherited >= 0) & ~(copy[own] & ~of_copy)
            found = np.where(keep, inherited, np.where(facts.candidate[label[own]] | copy[own], own, -1))
            return np.where(boundary[own], -1, found)

        def nearest(mask: Bools, reset: Bools | None = None) -> Ints:
            def takes(own: Ints, inherited: Ints) -> Ints:
                kept = inherited if reset is None else np.where(reset[own], -1, inherited)
                return np.where(mask[own], own, kept)

            return top_down(self.nested, here, takes)

        self.formula_root = top_down(self.nested, here, root)
        self.last_op = nearest(facts.is_op[label])
        self.backward = nearest(backward, (kind == Kind.BACKWARD) & ~backward)
        self.engine = nearest(kind == Kind.ENGINE)
        self.inner = nearest(facts.inner[label])
        self.optimizer = nearest(kind == Kind.OPTIMIZER)
        self.step_range = nearest(kind == Kind.STEP)

    # ------------------------------------------------------------------ rows: GPU activities, or ops on the CPU

    def records(self) -> Records:
        activities = self.trace.activities
        if len(activities["kind"]):
            rows = self._gpu_rows()
        else:
            if not self.facts.is_op[self.label].any():
                raise EmptyCapture(
                    "the capture holds neither GPU activity nor ranges of ops",
                    "call pyprof.nvtx.init() in the program before its model is built, or run it inside "
                    "torch.autograd.profiler.emit_nvtx(), and record with `nsys profile -t cuda,nvtx`",
                )
            rows = cpu_rows(self.trace, self.nested, self.facts, self.formula_root)
        return _Assembly(self, rows).records()

    def _gpu_rows(self) -> dict[str, Any]:
        trace, activities = self.trace, self.trace.activities
        launch = self._launch_of_activity()
        has = launch >= 0
        launch_ns = np.where(has, _take(trace.launches["start_ns"], launch), -1)
        thread = np.where(has, _take(trace.launches["thread"], launch), -1).astype(np.int64)
        when, who = self._recorded_in_graph(launch_ns, thread)
        at = np.full(len(has), -1, np.int64)
        at[has] = self.nested.innermost(who[has], when[has])
        by_time = self._by_time(at, when, who, has)
        self.counts["kernels without a launch in the capture"] = int((~has & (activities["kind"] == ActivityKind.KERNEL)).sum())
        return {
            "activity": np.arange(len(has)),
            "at": at,
            "by_time": by_time,
            "launch_ns": launch_ns,
            "launch_thread": thread,
            "when": when,
            "dur_ns": activities["end_ns"] - activities["start_ns"],
        }

    def _launch_of_activity(self) -> Ints:
        """The launch with an activity's (process, correlation id); of a driver call within a runtime call the outer."""
        activities, launches = self.trace.activities, self.trace.launches
        process = _take(self.trace.threads["process"], launches["thread"])
        usable = np.flatnonzero(launches["corr"] >= 0)
        order = usable[np.lexsort((launches["start_ns"][usable], launches["corr"][usable], process[usable]))]
        keys = np.stack(
            [
                np.concatenate([process[order], activities["process"]]).astype(np.int64),
                np.concatenate([launches["corr"][order], activities["corr"]]),
            ]
        )
        code = _pair_codes(keys)
        known, wanted = code[: len(order)], code[len(order) :]
        position = np.searchsorted(known, wanted, "left")
        inside = np.minimum(position, max(len(known) - 1, 0))
        good = (activities["corr"] >= 0) & (position < len(known))
        if len(known):
            good &= known[inside] == wanted
        return np.where(good, order[inside] if len(order) else -1, -1)

    def _recorded_in_graph(self, when: Ints, thread: Ints) -> tuple[Ints, Ints]:
        """Kernels of a CUDA graph take the stack of the moment at which their node was recorded, where the capture has it."""
        nodes = self.trace.graph_nodes
        in_graph = np.flatnonzero(self.trace.activities["graph_node"] >= 0)
        if not len(in_graph):
            return when, thread
        self.counts["kernels of CUDA graphs"] = len(in_graph)
        if not len(nodes["node"]):
            return when, thread
        row_of = {int(node): row for row, node in enumerate(nodes["node"].tolist())}
        origin = nodes["origin"].tolist()
        when, thread = when.copy(), thread.copy()
        for activity in in_graph.tolist():
            row = row_of.get(int(self.trace.activities["graph_node"][activity]))
            if row is not None and origin[row] in row_of:  # nodes are cloned when the graph is instantiated
                row = row_of[origin[row]]
            if row is not None:
                when[activity], thread[activity] = nodes["start_ns"][row], nodes["thread"][row]
        return when, thread

    def _by_time(self, at: Ints, when: Ints, thread: Ints, has: Bools) -> Bools:
        """Launches on a thread without ranges take those of the user's that are open on the process's main thread."""
        threads = self.trace.threads
        bare = np.flatnonzero(has & (at < 0))
        result = np.zeros(len(at), np.bool_)
        if not len(bare):
            return result
        mains = np.flatnonzero(threads["main"] == 1)
        main_of = {int(threads["process"][row]): int(row) for row in mains[::-1]}
        process = threads["process"][thread[bare]]
        main = np.array([main_of.get(int(p), -1) for p in process.tolist()], np.int64)
        other = (main >= 0) & (main != thread[bare])
        bare, main = bare[other], main[other]
        found = self.nested.innermost(main, when[bare])
        context = top_down(
            self.nested,
            np.arange(len(self.label)),
            lambda own, inherited: np.where(self.facts.context[self.label[own]], own, inherited),
        )
        found = np.where(found >= 0, context[found] if len(context) else -1, -1)
        at[bare], result[bare] = found, found >= 0
        return result

    # ------------------------------------------------------------------ what a thread is for

    def autograd_threads(self) -> Bools:
        """Threads of the autograd engine: never the main one, they run backward functions, no Python-level range of theirs lies
        outside of those, and their own sequence counter stands still (it moves where a checkpoint runs forward again)."""
        threads = len(self.trace.threads["tid"])
        main = self.trace.threads["main"] == 1
        outside = (self.backward < 0) & (self.engine < 0)
        kind = self.facts.kind[self.label]
        runs = np.zeros(threads, np.bool_)
        runs[self.thread[self.facts.backward[self.label]]] = True
        python = np.zeros(threads, np.bool_)
        python[self.thread[outside & np.isin(kind, (Kind.OP, Kind.TRACE, Kind.LAYER))]] = True
        python[self.thread[(kind == Kind.BACKWARD) & ~self.facts.backward[self.label]]] = True
        low = np.full(threads, np.iinfo(np.int64).max)
        high = np.full(threads, -1, np.int64)
        own = (kind == Kind.DISPATCH) & (self.seq >= 0)
        np.minimum.at(low, self.thread[own], self.seq[own])
        np.maximum.at(high, self.thread[own], self.seq[own])
        return np.asarray(runs & ~main & ~python & (low >= high))

    def forward_of(self, backward: Ints, engine_threads: Bools) -> Ints:
        """For each position of a backward range the position of its forward range, -1 none."""
        kind = self.facts.kind[self.label]
        candidates = np.flatnonzero((kind == Kind.DISPATCH) & (self.seq >= 0) & ~engine_threads[self.thread])
        process = self.trace.threads["process"].astype(np.int64)
        names = [m.call.op if m.call is not None else m.name for m in self.trace.markers]
        numbered = self.seq[backward] >= 0
        asked = backward[numbered]
        sides = [
            Side(
                process[self.thread[p]], self.thread[p], self.seq[p], self.start[p], [names[i] for i in self.label[p].tolist()]
            )
            for p in (candidates, asked)
        ]
        hints = self.trace.ranges["fwd_thread"][self.nested.row[asked]].astype(np.int64)
        found = pair(sides[0], sides[1], hints)
        self.counts["backward functions whose forward thread cannot be told"] = found.ties
        self.counts["backward functions whose forward op is not in the capture"] = found.missing
        owner = np.full(len(backward), -1, np.int64)
        owner[numbered] = np.where(found.owner >= 0, candidates[found.owner] if len(candidates) else -1, -1)
        return owner

    def root(self, position: Ints) -> Ints:
        """The op instance (its outermost range) of kernels launched directly inside these ranges."""
        if not len(self.label):
            return np.full(len(position), -1, np.int64)
        inside = np.maximum(position, 0)
        found = np.where(self.formula_root[inside] >= 0, self.formula_root[inside], self.last_op[inside])
        return np.where(position >= 0, found, -1)


class _Assembly:
    """The columns of Records, from rows whose launch and range are known."""

    def __init__(self, run: _Attribution, rows: dict[str, Any]) -> None:
        self.run, self.trace, self.rows = run, run.trace, rows
        self.at: Ints = rows["at"]
        self.by_time: Bools = rows["by_time"]
        self.engine_threads = run.autograd_threads()
        self.own_at = np.where(self.by_time, -1, self.at)
        self._join_backward()

    def _inside(self, values: Ints, position: Ints) -> Ints:
        if not len(values):
            return np.full(len(position), -1, np.int64)
        return np.where(position >= 0, values[np.maximum(position, 0)], -1)

    def _join_backward(self) -> None:
        run = self.run
        function = self._inside(run.backward, self.own_at)
        distinct, inverse = np.unique(function, return_inverse=True)
        owner = np.full(len(distinct), -1, np.int64)
        real = distinct >= 0
        owner[real] = run.forward_of(distinct[real], self.engine_threads)
        self.owner = owner[inverse.ravel()]
        self.root = run.root(self.own_at)
        self.fwd_root = run.root(self.owner)
        thread = self.rows["launch_thread"]
        on_engine = (thread >= 0) & _take(self.engine_threads, thread).astype(bool)
        self.on_engine = on_engine
        self.is_backward = (function >= 0) | (self._inside(run.engine, self.own_at) >= 0) | on_engine
        self.function = function

    def records(self) -> Records:
        trace, rows = self.trace, self.rows
        activity = rows["activity"]
        columns: dict[str, Any] = {}
        gpu = len(trace.activities["kind"]) > 0
        for name in (
            "kind",
            "start_ns",
            "device",
            "stream",
            "corr",
            "name",
            "regs",
            "smem_bytes",
            "bytes",
            "copykind",
            "graph_node",
        ):
            columns[name] = trace.activities[name][activity] if gpu else rows.get(name, np.full(len(activity), -1))
        for axis in "xyz":
            for kind in ("grid", "block"):
                column = f"{kind}_{axis}"
                columns[column] = trace.activities[column][activity] if gpu else np.full(len(activity), -1)
        process = trace.activities["process"][activity] if gpu else _take(trace.threads["process"], rows["launch_thread"])
        columns["pid"] = np.where(process >= 0, _take(trace.processes["pid"], process), -1)
        columns["rank"] = np.where(process >= 0, _take(trace.processes["rank"], process), -1)
        thread = rows["launch_thread"]
        columns["tid"] = np.where(thread >= 0, _take(trace.threads["tid"], thread), -1)
        columns["dur_ns"], columns["launch_ns"] = rows["dur_ns"], rows["launch_ns"]
        columns["by_time"] = self.by_time
        gpus, columns["gpu"] = _gpus(trace, process.astype(np.int64), columns["device"])
        self._ops(columns)
        self._phases(columns)
        order = np.lexsort(tuple(columns[c] for c in ("corr", "tid", "stream", "device", "pid", "start_ns")))
        paths = self._stacks(columns)
        records = Records(
            {name: np.asarray(columns[name])[order].astype(dtype) for name, (dtype, _) in COLUMNS.items() if name in columns},
            trace.strings, paths.stacks, self.calls, gpus, source=trace.source, notes=list(trace.notes),
        )  # fmt: skip
        records.seq_offsets, records.seq_numbers = paths.sequence_numbers(self.own_at[order], self.run.seq)
        records.columns["seq"], records.columns["sub"] = _sequence(records, self.on_engine[order])
        records.columns["step"] = self._steps(order)
        records.counts = {name: count for name, count in self.run.counts.items() if count}
        return records

    def _ops(self, columns: dict[str, Any]) -> None:
        """Instances numbered in order of begin; calls as codes into a pool of distinct ones."""
        run = self.run
        backward = self.is_backward & (self.fwd_root >= 0)
        roots = np.unique(np.concatenate([self.root, self.fwd_root[backward]]))
        roots = roots[roots >= 0]
        tid = _take(self.trace.threads["tid"], run.thread[roots])
        number = np.full(len(run.label) + 1, -1, np.int64)
        number[roots[np.lexsort((roots, tid, run.start[roots]))]] = np.arange(len(roots))
        columns["instance"] = number[self.root]
        columns["fwd_instance"] = np.where(backward, number[self.fwd_root], -1)
        self.calls: list[OpCall] = []
        code_of_label = np.full(len(self.trace.markers) + 1, -1, np.int64)
        op_at = np.where(backward, self.fwd_root, self.root)
        inner_at = self._inside(run.inner, self.own_at)
        for name, position in (("call", op_at), ("own", self.root), ("inner", inner_at)):
            label = np.where(position >= 0, _take(run.label, position), -1)
            for distinct in np.unique(label[label >= 0]).tolist():
                if code_of_label[distinct] < 0:
                    code_of_label[distinct] = len(self.calls)
                    self.calls.append(self._call(distinct))
            columns[name] = code_of_label[label]

    def _call(self, label: int) -> OpCall:
        marker = self.trace.markers[label]
        return marker.call or OpCall("autograd", marker.name, dispatcher=True, described=False)

    def _phases(self, columns: dict[str, Any]) -> None:
        columns["dir"] = self.is_backward.astype(np.int64)
        phase = np.where(self.is_backward, BACKWARD, FORWARD)
        phase[self._inside(self.run.optimizer, self.own_at) >= 0] = OPTIMIZER
        names = np.asarray(columns["name"])
        strings = self.trace.strings
        distinct = [code for code in np.unique(names).tolist() if code >= 0]
        communication = [code for code in distinct if classify(strings[code]).family in _COMMUNICATION]
        phase[np.isin(names, communication)] = COMMUNICATION
        phase[np.isin(columns["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET))] = COPY
        columns["phase"] = phase

    def _stacks(self, columns: dict[str, Any]) -> Paths:
        run = self.run
        paths = Paths(self.trace, run.nested, run.facts)
        thread = self.rows["launch_thread"]
        columns["stack"] = paths.codes(self.at, self.by_time, thread, self.rows["when"], run.seq)
        scope = np.array(columns["stack"])
        joined = self.is_backward & (self.owner >= 0)
        if joined.any():
            at = self.owner[joined]
            scope[joined] = paths.codes(at, np.zeros(len(at), np.bool_), run.thread[at], run.start[at], run.seq)
        columns["scope"] = scope
        return paths

    def _steps(self, order: Ints) -> Ints:
        """The step range around the launch; for other threads the one open on the main thread at that time."""
        run = self.run
        if not (run.facts.kind == Kind.STEP).any():
            return np.full(len(order), -1, np.int64)
        step_of_label = np.array([-1 if m.step is None else m.step for m in self.trace.markers], np.int64)
        at = self._inside(run.step_range, self.at)
        steps = np.flatnonzero(run.facts.kind[run.label] == Kind.STEP)
        starts = run.start[steps]
        ends = self.trace.ranges["end_ns"][run.nested.row[steps]]
        by_begin = np.argsort(starts, kind="stable")
        last = np.searchsorted(starts[by_begin], self.rows["when"], "right") - 1
        candidate = steps[by_begin][np.maximum(last, 0)]
        open_then = (last >= 0) & (ends[by_begin][np.maximum(last, 0)] > self.rows["when"])
        process = self.trace.threads["process"]
        thread = self.rows["launch_thread"]
        same = (thread >= 0) & (_take(process, thread) == process[run.thread[candidate]])
        at = np.where((at < 0) & open_then & same, candidate, at)
        return np.where(at >= 0, step_of_label[_take(run.label, at)], -1)[order]


def _sequence(records: Records, on_engine: Bools) -> tuple[Ints, Ints]:
    """The sequence number that counts, and the running number of kernels of one op and one number."""
    rows = len(records)
    lengths = np.diff(records.seq_offsets)
    owner = np.repeat(np.arange(rows), lengths)
    numbers = records.seq_numbers
    main = np.full(rows, -1, np.int64)
    # Forward: the lowest number that is not 0, or 0 where there is no other.
    low = np.full(rows, np.iinfo(np.int64).max)
    positive = numbers > 0
    np.minimum.at(low, owner[positive], numbers[positive])
    main[lengths > 0] = 0
    main = np.where(low < np.iinfo(np.int64).max, low, main)
    main[on_engine] = -1  # the engine's own counter says nothing
    at = (
        np.array([stack.backward_at for stack in records.stacks], np.int64)[records["stack"]] if rows else np.empty(0, np.int64)
    )
    has = at >= 0
    main[has] = numbers[records.seq_offsets[:-1][has] + at[has]]
    return main, _running_number(records, main, lengths)


def _running_number(records: Records, main: Ints, lengths: Ints) -> Ints:
    ops: dict[tuple[tuple[str, ...], ...], int] = {}
    op_code = np.array([ops.setdefault((s.op, s.mod, s.seq_names), len(ops)) for s in records.stacks], np.int64)
    cells = [s.op[:1] == ("forward",) and s.mod[0] in ("LSTMCell", "GRUCell", "RNNCell") for s in records.stacks]
    shown = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    rows = np.flatnonzero(shown & (lengths > 0) & (records["launch_ns"] >= 0))
    order = rows[np.lexsort((records["start_ns"][rows], records["tid"][rows], records["pid"][rows]))]
    sub = np.zeros(len(records), np.int64)
    if not len(order):
        return sub
    stack = records["stack"][order]
    op, seq = op_code[stack], main[order]
    any_seq = np.array(cells, np.bool_)[stack]  # a cell without cuDNN runs several ops, each with a number of its own
    new = np.ones(len(order), np.bool_)
    same_thread = (np.diff(records["tid"][order]) == 0) & (np.diff(records["pid"][order]) == 0)
    new[1:] = ~(same_thread & (np.diff(op) == 0) & ((np.diff(seq) == 0) | any_seq[1:]))
    first = np.flatnonzero(new)
    sub[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return sub


def _gpus(trace: Trace, process: Ints, device: Any) -> tuple[list[GpuInfo], Ints]:
    """Devices as told apart by (process, ordinal)."""
    table = trace.devices
    gpus: list[GpuInfo] = []
    code_of: dict[tuple[int, int], int] = {}
    for row in range(len(table["device"])):
        major, minor = int(table["cc_major"][row]), int(table["cc_minor"][row])
        info = GpuInfo(
            trace.strings[int(table["name"][row])],
            (major, minor) if major > 0 else None,
            *(int(table[c][row]) for c in ("sms", "clock_hz", "dram_bytes_per_s", "l2_bytes")),
        )
        if info not in gpus:
            gpus.append(info)
        code_of[(int(table["process"][row]), int(table["device"][row]))] = gpus.index(info)
    if not gpus:
        return gpus, np.full(len(process), -1, np.int64)
    keys, inverse = np.unique(np.stack([process, np.asarray(device, np.int64)]), axis=1, return_inverse=True)
    codes = [code_of.get((int(p), int(d)), code_of.get((-1, int(d)), -1)) for p, d in keys.T]
    return gpus, np.array(codes, np.int64)[inverse.ravel()]


def _take(values: npt.NDArray[Any], position: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """values[position], whatever stands where position is -1 or there are no values."""
    if not len(values):
        return np.full(len(position), -1, np.int64)
    taken: npt.NDArray[Any] = values[np.maximum(position, 0)]
    return taken


def _pair_codes(keys: Ints) -> Ints:
    """One code for each distinct column of a two-row table, ordered as (first row, second row)."""
    low = int(keys[1].min()) if keys.shape[1] else 0
    width = int(keys[1].max()) - low + 1 if keys.shape[1] else 1
    if width < 1 << 40:
        code: Ints = (keys[0] + 1) * width + (keys[1] - low)
        return code
    return np.unique(keys, axis=1, return_inverse=True)[1].ravel()
