"""Rows whose launch, range and op are known -> the columns of Records.

The second half of attribution: numbers for instances, codes for calls and stacks, phases, steps, devices, sequence numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.arrays.nesting import runs, stable_order
from pyprof.hardware.kernels import classify
from pyprof.markers import is_backward_name
from pyprof.opcall import OpCall
from pyprof.parse.attribution.capture import Whole
from pyprof.parse.attribution.launches import ranks, take
from pyprof.parse.attribution.pairing import Side, pair
from pyprof.parse.attribution.recompute import settled
from pyprof.parse.attribution.slice_results import Found
from pyprof.parse.attribution.stacks import Paths
from pyprof.parse.records.records import COLUMNS, GpuInfo, Records
from pyprof.parse.sources.trace import ActivityKind, Table, Trace

__all__ = ["Assembly"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

_COMMUNICATION = frozenset({"nccl", "symm_mem_collective", "expert_parallel_comm"})
_MEASURED = (
    "kind", "start_ns", "device", "stream", "corr", "name", "regs", "smem_bytes", "bytes", "copykind", "graph_node",
)  # fmt: skip
_ROWS = 1 << 18  # whose sequence numbers are looked at at a time
FORWARD, BACKWARD, OPTIMIZER, COMMUNICATION, COPY = range(5)  # codes of records.PHASES


class _Columns(dict[str, npt.NDArray[Any]]):
    """Columns of Records, each in its type as soon as it is put; one of a single value takes no memory."""

    def __init__(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        super().__init__()
        for name, values in columns.items():
            self[name] = values

    def __setitem__(self, name: str, values: npt.NDArray[Any]) -> None:
        values = np.asarray(values)
        if len(values) and values[0] == values[-1] and (values == values[0]).all():
            values = np.broadcast_to(values[0].astype(COLUMNS[name][0]), len(values))
        super().__setitem__(name, values.astype(COLUMNS[name][0], copy=False))


class Assembly:
    """The columns of Records, from rows whose launch and range are known.

    rows: what `launches.launched` says of them, or `cpu.cpu_rows`; found: what the slices say. Both are given up on the way.
    """

    def __init__(self, whole: Whole, rows: dict[str, Any], found: Found, paths: Paths) -> None:
        self.whole, self.trace, self.rows, self.found, self.paths = whole, whole.trace, rows, found, paths
        self.counts: dict[str, int] = {}
        self._count_rows()
        self.engine_threads = self._autograd_threads()
        thread = rows["range_thread"]  # of a graph's kernel where it was recorded, not where the graph was launched
        state = settled(found.state, thread, found.threads.constant())
        self.recomputed, again = state, state == 1
        self.on_engine = (thread >= 0) & np.append(self.engine_threads, False)[thread] & ~again
        self.is_backward = (found.function >= 0) | found.in_engine | self.on_engine
        self._join_backward()

    def _count_rows(self) -> None:
        kernels = self.trace.activities["kind"] == ActivityKind.KERNEL
        if len(kernels):
            self.counts["kernels without a launch in the capture"] = int((~self.rows["launched"] & kernels).sum())
        self.counts["kernels of CUDA graphs"] = int(self.rows["in_graph"].sum())
        self.counts |= self.paths.cut

    def _autograd_threads(self) -> Bools:
        """Threads of the autograd engine: never the main one, they run backward functions, no Python-level range of theirs lies
        outside of those, and their own sequence counter stands still (it moves where a checkpoint runs forward again)."""
        threads = self.found.threads
        main = self.trace.threads["main"] == 1
        return np.asarray(threads.runs & ~main & ~threads.python & (threads.low >= threads.high))

    def _join_backward(self) -> None:
        """For each row the forward op of its autograd function, as a place in `ops`, and the stack of that; -1 none."""
        found = self.found
        functions, forward = found.functions.whole(), found.forward.whole()
        owner = np.append(self._owners(forward, functions), -1)[found.function]
        self.fwd_root: Array = np.append(forward["root"], np.int32(-1))[owner]
        self.fwd_stack: Array = np.append(forward["stack"], np.int32(-1))[owner]
        self.ops = found.ops.whole()

    def _owners(self, forward: Table, functions: Table) -> Ints:
        """For each autograd function the place of its forward range, -1 none."""
        candidates = np.flatnonzero(~self.engine_threads[forward["thread"]])
        asked = np.flatnonzero(functions["seq"] >= 0)
        process = self.trace.threads["process"].astype(np.int64)
        names = [m.call.op if m.call is not None else m.name for m in self.trace.markers]
        sides = [
            Side(process[t["thread"][p]], t["thread"][p].astype(np.int64), t["seq"][p], t["start"][p], names, t["label"][p])
            for t, p in ((forward, candidates), (functions, asked))
        ]
        paired = pair(sides[0], sides[1], functions["hint"][asked].astype(np.int64))
        self.counts["backward functions whose forward thread cannot be told"] = paired.ties
        self.counts["backward functions whose forward op is not in the capture"] = paired.missing
        owner = np.full(len(functions["seq"]), -1, np.int64)
        owner[asked] = np.append(candidates, -1)[paired.owner]
        return owner

    def records(self) -> Records:
        trace, rows, found = self.trace, self.rows, self.found
        columns = _Columns(self._measured())
        process = self._process()
        columns["pid"] = np.where(process >= 0, take(trace.processes["pid"], process), -1)
        columns["rank"] = np.where(process >= 0, take(trace.processes["rank"], process), -1)
        columns["tid"] = self._tid()
        for name in ("dur_ns", "launch_ns", "launch_dur_ns"):
            columns[name] = rows.pop(name)
        columns["by_time"], columns["recomputed"] = found.by_time, self.recomputed
        gpus, columns["gpu"] = _gpus(trace, process, columns["device"])
        columns["step"] = found.step
        self._ops(columns)
        self._phases(columns)
        self.ops.clear()
        columns["stack"] = found.stack
        columns["scope"] = np.where(self.is_backward & (self.fwd_stack >= 0), self.fwd_stack, found.stack)
        found.forget()
        order = self._order(columns)
        trace.activities.clear()
        if (order[1:] < order[:-1]).any():
            for name, values in columns.items():
                if values.strides != (0,):  # one value for all
                    columns[name] = values[order]
        records = Records(
            {name: columns[name] for name in COLUMNS if name in columns},
            trace.strings, self.paths.stacks, self.calls, gpus, source=trace.source, notes=list(trace.notes),
            utc_ns=trace.utc_ns,
        )  # fmt: skip
        records.seq_offsets, records.seq_numbers = found.sequence_numbers(order)
        records.columns["seq"] = _sequence(records, self.on_engine[order])
        records.columns["sub"] = _running_number(records, self._thread_numbers()[order])
        records.columns = {name: records.columns[name] for name in COLUMNS}
        records.counts = {name: count for name, count in self.counts.items() if count}
        return records

    def _thread_numbers(self) -> npt.NDArray[np.int32]:
        """A number for the thread of each row; threads of one process and id are one."""
        threads = self.trace.threads
        pid = take(self.trace.processes["pid"], threads["process"])
        number = np.append(distinct_rows(pid, threads["tid"]).inverse, -1).astype(np.int32)
        found: npt.NDArray[np.int32] = number[self.rows["launch_thread"]]
        return found

    def _tid(self) -> Ints:
        thread = self.rows["launch_thread"]
        return np.where(thread >= 0, take(self.trace.threads["tid"], thread), -1)

    def _measured(self) -> dict[str, npt.NDArray[Any]]:
        """What the capture says of each row itself."""
        activities, rows = self.trace.activities, self.rows
        shape = [f"{kind}_{axis}" for axis in "xyz" for kind in ("grid", "block")]
        found = {}
        for name in (*_MEASURED, *shape):
            if len(activities["kind"]):  # each is a row
                found[name] = activities[name]
            else:
                found[name] = rows.get(name, np.full(len(rows["dur_ns"]), -1))
        return found

    def _process(self) -> Ints:
        process = self.trace.activities["process"]
        if len(process):
            return process.astype(np.int64)
        return self.whole.process(self.rows["launch_thread"])

    def _order(self, columns: _Columns) -> Ints:
        """Rows by start, process, device, stream and correlation id, then by all else, so that no order of the file shows."""
        start = np.asarray(columns["start_ns"])
        order: Ints = np.argsort(start)
        # Few begin in one nanosecond: the rest is asked of those only.
        tied, group = runs(start[order][1:] == start[order][:-1])
        keys = [group, *(np.asarray(columns[c])[order[tied]] for c in ("pid", "device", "stream", "corr"))]
        by_keys = np.lexsort(keys[::-1])
        order[tied] = order[tied][by_keys]
        still, group = runs(np.logical_and.reduce([key[by_keys][1:] == key[by_keys][:-1] for key in keys]))
        tied = tied[still]
        rows = order[tied]
        rest = ("tid", "launch_ns", "dur_ns", "kind", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
        last = ("graph_node", "regs", "smem_bytes", "bytes", "copykind", "instance", "fwd_instance")
        name = ranks([self.trace.strings[code] for code in np.asarray(columns["name"])[rows].tolist()])
        keys = [group, *(np.asarray(columns[c])[rows] for c in rest), name, *(np.asarray(columns[c])[rows] for c in last)]
        order[tied] = rows[np.lexsort(keys[::-1])]
        return order

    def _forward_replay(self, backward: Bools) -> Ints:
        """Of a forward op that CUDA graphs ran several times, the last replay begun before each backward kernel.

        A forward op without kernels has no replays: those of the backward kernel stand for them.
        """
        rows, replay, root = self.rows, self.rows["replay"], self.found.root
        own = root >= 0
        executions = distinct_rows(root[own], rows["replay_ns"][own], replay[own]).columns
        times = np.unique(executions[1])
        known = executions[0] * (len(times) + 1) + np.searchsorted(times, executions[1]) + 1
        start = self.trace.activities["start_ns"]
        wanted = self.fwd_root.astype(np.int64) * (len(times) + 1) + np.searchsorted(times, start, "right")
        at = np.searchsorted(known, wanted, "right") - 1
        found = backward & (at >= 0) & (take(executions[0], at) == self.fwd_root)
        return np.where(found, take(executions[2], at), replay)

    def _ops(self, columns: _Columns) -> None:
        """Instances numbered in order of begin; calls as codes into a pool of distinct ones."""
        found = self.found
        backward = self.is_backward & (self.fwd_root >= 0)
        forward = np.where(backward, self.fwd_root, -1)
        replayed = (self.rows["replay"] >= 0).any()
        number = self._replayed_instances if replayed else self._instances
        columns["instance"], columns["fwd_instance"] = number(found.root, forward)
        self.calls: list[OpCall] = []
        code_of_label = np.full(len(self.trace.markers) + 1, -1, np.int64)
        label_of = np.append(self.ops["label"], -1)
        wanted = {
            "call": label_of[np.where(backward, forward, found.root)],
            "own": label_of[found.root],
            "inner": found.inner,
        }
        for name, label in wanted.items():
            for distinct in np.unique(label[label >= 0]).tolist():
                if code_of_label[distinct] < 0:
                    code_of_label[distinct] = len(self.calls)
                    self.calls.append(self._call(distinct))
            columns[name] = code_of_label[label]

    def _begin_order(self, root: Ints, begin: Ints, turn: Ints) -> Ints:
        """Instances in order of begin; turn: which replay of a graph it is. Of one thread and time as their ranges nest."""
        thread, start, depth = (take(self.ops[name], root) for name in ("thread", "start", "depth"))
        pid = take(self.trace.processes["pid"], self.whole.process(thread))
        tid = take(self.trace.threads["tid"], thread)
        order: Ints = np.lexsort((turn, depth, start, thread, tid, pid, begin))
        return order

    def _instances(self, root: Array, forward: Array) -> tuple[Ints, Ints]:
        """The numbers of op instances, of those of forward ops as well."""
        used = np.zeros(len(self.ops["row"]) + 1, np.bool_)
        used[root] = used[forward] = True
        places = np.flatnonzero(used[:-1])
        order = self._begin_order(places, self.ops["start"][places], np.zeros(len(places), np.int8))
        number = np.full(len(used), -1, np.int64)
        number[places[order]] = np.arange(len(places))
        return number[root], number[forward]

    def _replayed_instances(self, root: Array, forward: Array) -> tuple[Ints, Ints]:
        """The same where CUDA graphs ran: each replay is an instance of its own."""
        replay = self.rows["replay"]
        both = np.concatenate([root, forward])
        ran = np.concatenate([replay, self._forward_replay(forward >= 0)])
        (place, turn), _, inverse = distinct_rows(both, np.where(both >= 0, ran, -1))
        replay_ns = np.full(int(replay.max()) + 1, -1, np.int64)
        replay_ns[replay[replay >= 0]] = self.rows["replay_ns"][replay >= 0]
        order = self._begin_order(place, np.where(turn >= 0, take(replay_ns, turn), take(self.ops["start"], place)), turn)
        number = np.full(len(place), -1, np.int64)
        number[order[place[order] >= 0]] = np.arange(int((place >= 0).sum()))
        own, forwards = np.split(number[inverse], 2)
        return own, forwards

    def _call(self, label: int) -> OpCall:
        marker = self.trace.markers[label]
        return marker.call or OpCall("autograd", marker.name, dispatcher=True, described=False)

    def _phases(self, columns: _Columns) -> None:
        columns["dir"] = self.is_backward.astype(np.int64)
        phase = np.where(self.is_backward, BACKWARD, FORWARD)
        phase[self.found.optimizer] = OPTIMIZER
        names = np.asarray(columns["name"])
        strings = self.trace.strings
        distinct = [code for code in np.unique(names).tolist() if code >= 0]
        communication = [code for code in distinct if classify(strings[code]).family in _COMMUNICATION]
        phase[np.isin(names, communication)] = COMMUNICATION
        phase[np.isin(columns["kind"], (ActivityKind.MEMCPY, ActivityKind.MEMSET))] = COPY
        columns["phase"] = phase


def _sequence(records: Records, on_engine: Bools) -> Ints:
    """The sequence number that counts."""
    main = np.full(len(records), -1, np.int64)
    inner = np.array([_behind_functions(stack.seq_names) for stack in records.stacks], np.int64)
    backward_at = np.array([stack.backward_at for stack in records.stacks], np.int64)
    for begin in range(0, len(records), _ROWS):
        part = slice(begin, begin + _ROWS)
        offsets = records.seq_offsets[begin : begin + _ROWS + 1]
        numbers = records.seq_numbers[offsets[0] : offsets[-1]]
        stack, again = records["stack"][part], records["recomputed"][part] == 1
        main[part] = _main_numbers(offsets - offsets[0], numbers, np.where(again, inner[stack], 0), on_engine[part])
        has = (backward_at[stack] >= 0) & ~again
        main[part][has] = records.seq_numbers[offsets[:-1][has] + backward_at[stack[has]]]
    return main


def _main_numbers(offsets: Ints, numbers: Ints, least: Ints, on_engine: Bools) -> Ints:
    """Of rows with these numbers the one that counts where no autograd function says it; least: how many do not count."""
    rows, lengths = len(offsets) - 1, np.diff(offsets)
    owner = np.repeat(np.arange(rows), lengths)
    main = np.full(rows, -1, np.int64)
    # Forward: the lowest number that is not 0, or 0 where there is no other; of an op run again none of the function around it.
    low = np.full(rows, np.iinfo(np.int64).max)
    positive = (numbers > 0) & (np.arange(len(numbers)) - offsets[owner] >= least[owner])
    np.minimum.at(low, owner[positive], numbers[positive])
    main[lengths > least] = 0
    main = np.where(low < np.iinfo(np.int64).max, low, main)
    main[on_engine] = -1  # the engine's own counter says nothing
    return main


def _behind_functions(names: tuple[str, ...]) -> int:
    """Where the names behind the last autograd function run backward begin."""
    return max((place + 1 for place, name in enumerate(names) if is_backward_name(name)), default=0)


def _running_number(records: Records, thread: Array) -> npt.NDArray[np.int32]:
    """The running number of kernels of one op and one sequence number on one thread."""
    ops: dict[tuple[tuple[str, ...], ...], int] = {}
    op_code = np.array([ops.setdefault((s.op, s.mod, s.seq_names), len(ops)) for s in records.stacks], np.int32)
    cells = [s.op[:1] == ("forward",) and s.mod[0] in ("LSTMCell", "GRUCell", "RNNCell") for s in records.stacks]
    shown = np.isin(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU))
    numbered = records.seq_offsets[1:] > records.seq_offsets[:-1]
    rows = np.flatnonzero(shown & numbered & (records["launch_ns"] >= 0))
    order = rows[stable_order(thread[rows])]  # records are in order of begin
    sub = np.zeros(len(records), np.int32)
    if not len(order):
        return sub
    stack = records["stack"][order]
    op, seq, thread = op_code[stack], records["seq"][order], thread[order]
    any_seq = np.array(cells, np.bool_)[stack]  # a cell without cuDNN runs several ops, each with a number of its own
    new = np.ones(len(order), np.bool_)
    new[1:] = (thread[1:] != thread[:-1]) | (op[1:] != op[:-1]) | ((seq[1:] != seq[:-1]) & ~any_seq[1:])
    first = np.flatnonzero(new)
    sub[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return sub


def _gpus(trace: Trace, process: Ints, device: Any) -> tuple[list[GpuInfo], Ints]:
    """Devices as told apart by (process, ordinal)."""
    table = trace.devices
    gpus: list[GpuInfo] = []
    code_of: dict[tuple[int, int], int] = {}
    pid = np.where(table["process"] >= 0, take(trace.processes["pid"], table["process"]), -1)
    facts = [table[c] for c in ("cc_major", "cc_minor", "sms", "clock_hz", "dram_bytes_per_s", "l2_bytes")]
    names = [trace.strings[code] for code in table["name"].tolist()]
    rows = sorted(range(len(names)), key=lambda r: (pid[r], table["device"][r], names[r], *(fact[r] for fact in facts)))
    for row in rows:
        major, minor = int(table["cc_major"][row]), int(table["cc_minor"][row])
        info = GpuInfo(
            trace.strings[int(table["name"][row])],
            (major, minor) if major > 0 else None,
            *(int(table[c][row]) for c in ("sms", "clock_hz", "dram_bytes_per_s", "l2_bytes")),
        )
        if info not in gpus:
            gpus.append(info)
        code_of.setdefault((int(table["process"][row]), int(table["device"][row])), gpus.index(info))
    if not gpus:
        return gpus, np.full(len(process), -1, np.int64)
    keys, _, inverse = distinct_rows(process, device)
    codes = [code_of.get((int(p), int(d)), code_of.get((-1, int(d)), -1)) for p, d in keys.T]
    return gpus, np.array(codes, np.int64)[inverse]
