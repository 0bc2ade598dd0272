"""Trace -> Records: kernel -> launch -> stack of ranges -> op instance, and backward joined to forward.

The steps of `attribute` are the rules of `pyprof help attribution` in their order. A table `rows` has one row a
kernel (without a GPU one an op): each step adds columns to it and takes those that nothing after it needs. Rules 2 and 3 work
slice by slice of the capture's time, the others on the whole. Numpy over all rows; Python only over distinct stacks. No file
formats, no formulas: `OpRules` answers what must be known of ops.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from pyprof.arrays.columns import Columns, distinct_places, distinct_rows, distinct_values
from pyprof.arrays.nesting import runs
from pyprof.arrays.sorting import Groups, ascending, cuts_of, order_of, parts_of, same_as_before
from pyprof.arrays.spool import PIECE_ROWS, computed, full, is_constant, kept, pieces, release, taken
from pyprof.arrays.types import Array, Bools, Ints, Places, Positions, Rows
from pyprof.markers import Kind
from pyprof.opcall import OpCall, OpRules
from pyprof.parse.attribution.derived import telling_text, with_steps
from pyprof.parse.attribution.engine_steps import find_engine_steps
from pyprof.parse.attribution.in_slices import add_slice, attribute_slices, no_results
from pyprof.parse.attribution.launches import gather, gpus, launched, ranks, take
from pyprof.parse.attribution.ops import (
    OpsAround,
    OpTable,
    Replays,
    Side,
    instances,
    op_after,
    op_table,
    owners,
    settled,
    with_none,
)
from pyprof.parse.attribution.phases import find_phases
from pyprof.parse.attribution.ranges import NEVER, CaptureFacts, nest_all
from pyprof.parse.attribution.slices import MOST_KERNELS, Slice, SliceResults, ThreadFacts, add_columns
from pyprof.parse.attribution.stacks import Placed, main_numbers, running_numbers
from pyprof.parse.records.records import COLUMNS, GpuInfo, MarkedStep, Records
from pyprof.parse.sources.trace import TABLES, ActivityKind, Trace

# A name that activities and records share is the same number in both, without exception.
_MEASURED = tuple(column.name for column in TABLES["activities"] if column.name in COLUMNS)


def attribute(trace: Trace, rules: OpRules, most: int = MOST_KERNELS) -> Records:
    """Give every activity of a capture its launch, stack, op and phase; without GPU activity, every op its time on the CPU.

    most: how many kernels are attributed at a time, about; the result does not depend on it.
    Raises EmptyCapture where there are neither activities nor op ranges.
    """
    capture = CaptureFacts(trace, rules)
    del trace  # columns are freed on the way, where the caller keeps none
    if len(capture.activities["kind"]):
        rows = launched(capture.trace, capture.activities, capture.launches)  # rule 1
        results = attribute_slices(capture, rows, most)  # rules 2 and 3
    else:
        rows, results = _attribute_cpu(capture)
    engine = _find_directions(capture, rows, results.threads)  # rule 4
    unpaired = _join_forward(capture, rows, results, engine)
    engine_steps = _find_steps(capture, rows)  # rule 5
    ops = _find_ops(capture.trace, capture.ranges, rows, results)
    columns, devices = _measured(capture, capture.activities, rows)
    inferred = find_phases(capture, rows, columns, ops, results.stacks.stacks)
    texts = [telling_text(step.texts) for step in engine_steps]
    calls = _number_instances(capture, rows, columns, ops, texts)  # rule 6
    counts = _count_rows(rows, columns) | inferred | results.stacks.cut | unpaired  # rule 7
    records = _records(capture.trace, rows, results, columns, counts)
    records.calls, records.gpus, records.engine_steps = calls, devices, engine_steps
    return records


def innermost_ranges(trace: Trace, rules: OpRules) -> tuple[Bools, Rows]:
    """For each activity whether it has a launch, and the row of the innermost range that it was launched in, -1 none."""
    capture = CaptureFacts(trace, rules)
    rows = launched(capture.trace, capture.activities, capture.launches)
    attribute_slices(capture, rows, MOST_KERNELS)
    return rows["launched"], Rows(rows["range_row"])


def ops_around(capture: CaptureFacts) -> OpsAround:
    """Rules 2 and 3 for all ranges of a capture at once, for those who need more than kernels."""
    nested, crossed = nest_all(capture.trace, capture.labels, Rows(np.flatnonzero(capture.kept)))
    if len(crossed):
        capture.set_aside(crossed)
    return OpsAround(capture, nested)


# ---------------------------------------------------------------------------------------------- without a GPU


def _attribute_cpu(capture: CaptureFacts) -> tuple[Columns, SliceResults]:
    """Rows of ops in place of activities, and rules 2 and 3 for them."""
    from pyprof.parse.attribution.cpu import cpu_rows

    around = ops_around(capture)
    rows = cpu_rows(capture, around)
    results = no_results(capture)
    add_columns(rows)
    at, thread, when = Positions(rows.take("at")), rows["range_thread"], rows["when"]
    everything = Slice(0, -1 - NEVER, NEVER, around.nested.row, np.arange(len(at)))
    add_slice(capture, rows, results, around, everything, Placed(at, np.zeros(len(at), np.bool_), thread, when))
    return rows, results


# ---------------------------------------------------------------------------------------------- rules 4 and 5, all rows


def _find_directions(capture: CaptureFacts, rows: Columns, threads: ThreadFacts) -> Bools:
    """Rule 4: which rows are backward, which ran again; returns which threads are those of autograd's engine.

    Adds recomputed, on_engine (launched on such a thread) and is_backward; takes state and in_engine.
    """
    # Never the main thread, they run backward functions, no Python-level range of theirs lies outside of those, and their own
    # sequence counter does not move (it moves where a checkpoint runs forward again).
    engine = threads.runs & ~threads.python & (capture.trace.threads["main"] != 1) & (threads.own.low >= threads.own.high)
    thread = rows["range_thread"]  # of a graph's kernel where it was recorded, not where the graph was launched
    constant = (threads.again.count > 1) & (threads.again.low == threads.again.high)
    count, state, function, in_engine = len(thread), rows.take("state"), rows["function_row"], rows.take("in_engine")
    rows["recomputed"] = again = computed(count, state.dtype, lambda part: settled(state[part], thread[part], constant))
    runs_on = np.append(engine, False)
    rows["on_engine"] = on_engine = computed(count, np.bool_, lambda part: runs_on[thread[part]] & (again[part] != 1))
    rows["is_backward"] = computed(count, np.bool_, lambda part: (function[part] >= 0) | in_engine[part] | on_engine[part])
    return np.asarray(engine)


def _join_forward(capture: CaptureFacts, rows: Columns, results: SliceResults, engine: Bools) -> dict[str, int]:
    """Rule 4: the op and the stack of the forward range of each row's autograd function; returns what stays unknown, counted.

    Adds forward_row (its op's in ranges) and forward_stack; takes function_row.
    """
    ranges, function = capture.ranges, rows.take("function_row")
    count, seq = len(function), ranges["seq"]
    numbered = computed(count, np.int32, lambda part: np.where(take(seq, function[part]) >= 0, function[part], -1))
    functions, of_kernel = distinct_places(numbered, len(ranges["label"]))
    forward, forward_op, forward_stack = results.forward.take()
    apart = computed(len(forward), np.bool_, lambda part: ~engine[ranges["thread"][forward[part]]])
    owner, ties, missing = _owners(capture, forward, np.flatnonzero(apart), functions)
    bare = np.flatnonzero((owner >= 0) & (take(forward_op, owner) < 0))
    if len(bare):
        bare = distinct_values(owner[bare])
        forward_op[bare] = op_after(capture, Rows(forward[bare]))
    of_owner, stack_of_owner, backward = take(forward_op, owner), take(forward_stack, owner), rows["is_backward"]
    rows["forward_row"] = computed(count, np.int32, lambda part: np.where(backward[part], take(of_owner, of_kernel[part]), -1))
    rows["forward_stack"] = computed(count, np.int32, lambda part: take(stack_of_owner, of_kernel[part]))
    return {
        "backward functions whose forward thread is unknown": ties,
        "backward functions whose forward op is not in the capture": missing,
    }


def _owners(capture: CaptureFacts, forward: Array, candidates: Ints, functions: Ints) -> tuple[Places, int, int]:
    """The place in forward of each function's forward range, as `owners` finds it, the numbers of some size at a time.

    forward, functions: rows of ranges; candidates: places in forward.
    """
    ranges = capture.ranges
    seq = [taken(ranges["seq"], rows) for rows in (taken(forward, candidates), functions)]
    cuts = cuts_of(seq[0], PIECE_ROWS // 4)  # ten columns and more are made of each
    mine, theirs = (Groups(parts_of(numbers, cuts), len(cuts) + 1) for numbers in seq)
    result, ties, missing = full(len(functions), -1, np.int64), 0, 0
    for number in range(len(mine)):
        places, own = candidates[mine[number]], theirs[number]
        sides = _side(capture, forward[places]), _side(capture, functions[own])
        owner, tied, lost = owners(sides[0], sides[1], ranges["fwd_thread"][functions[own]], capture.trace.markers)
        result[own] = take(places, owner)
        ties, missing = ties + tied, missing + lost
        release()
    return Places(result), ties, missing


def _side(capture: CaptureFacts, rows: Array) -> Side:
    thread, seq, start, label = gather(capture.ranges, rows, "thread", "seq", "start_ns", "label")
    return Side(capture.process[thread], thread, seq, start, label)


def _find_steps(capture: CaptureFacts, rows: Columns) -> list[MarkedStep]:
    """Rule 5: the step of each row, and optimizers whose ranges are set aside; adds step, engine_step; gives its pool."""
    launched = rows["launch_thread"], rows["launch_ns"]
    rows["step"] = capture.steps(*launched)
    engine_steps, rows["engine_step"] = find_engine_steps(capture, *launched)
    if engine_steps and not (capture.labels.kind == Kind.STEP).any():
        rows["step"] = np.array([*(step.number for step in engine_steps), -1], np.int64)[rows["engine_step"]]
    by_time, thread, when, optimizer = (rows[name] for name in ("by_time", "range_thread", "when", "optimizer"))
    for part in pieces(len(thread)):
        on = np.where(by_time[part], -1, thread[part])
        optimizer[part] |= capture.aside_at(Kind.OPTIMIZER, on, when[part], leaks=False) >= 0
    return engine_steps


def _find_ops(trace: Trace, ranges: Columns, rows: Columns, results: SliceResults) -> OpTable:
    """The distinct ops, and in rows the places in them as op and forward_op; takes op_row, forward_row and all ranges."""
    op_row, forward_row = Rows(rows.take("op_row")), Rows(rows.take("forward_row"))
    ran, label = results.retyped.take()
    ops, rows["op"], rows["forward_op"] = op_table(trace, op_row, forward_row, (Rows(ran), label))
    for name in ("range_row", "range_thread", "when"):
        rows.take(name)
    ranges.clear()
    return ops


class _RecordColumns(Columns):
    """Columns of Records, each in its type as soon as it is put; one of a single value takes no memory."""

    def __setitem__(self, name: str, values: Array) -> None:
        dtype = np.dtype(COLUMNS[name][0])
        if is_constant(values):
            values = np.broadcast_to(values[0].astype(dtype), len(values))
        elif values.dtype != dtype:
            given = values
            values = computed(len(given), dtype, lambda part: given[part])
        super().__setitem__(name, values)


def _measured(capture: CaptureFacts, activities: Columns, rows: Columns) -> tuple[_RecordColumns, list[GpuInfo]]:
    """The columns that the capture has of each row itself, from activities or, without a GPU, from rows; and the devices."""
    trace, columns, thread = capture.trace, _RecordColumns(), rows["launch_thread"]
    source = activities if len(activities["kind"]) else rows
    process = activities.take("process") if source is activities else capture.process[thread]
    unknown = np.broadcast_to(np.int64(-1), len(thread))
    for name in _MEASURED:
        columns[name] = source.take(name) if name in source else unknown
    activities.clear()
    for name in ("dur_ns", "launch_ns", "launch_dur_ns", "step", "engine_step", "by_time", "recomputed"):
        columns[name] = rows.take(name)
    processes, tids = trace.processes, trace.threads["tid"]
    for name, values, of in (("pid", processes["pid"], process), ("rank", processes["rank"], process), ("tid", tids, thread)):
        columns[name] = computed(len(thread), values.dtype, partial(_taken_part, values, of))
    devices, columns["gpu"] = gpus(trace, process, columns["device"])
    return columns, devices


def _taken_part(values: Array, index: Array, part: slice) -> Array:
    return take(values, index[part])


# ---------------------------------------------------------------------------------------------- rules 6 and 7, all rows


def _number_instances(capture: CaptureFacts, rows: Columns, columns: Columns, ops: OpTable, texts: list[str]) -> list[OpCall]:
    """Rule 6: instances numbered in order of begin, and calls as codes into the pool of distinct ones that is returned.

    texts: of each of an engine's steps. Takes op, forward_op, inner, replay and replay_ns.
    """
    op, forward = Places(rows.take("op")), Places(rows.take("forward_op"))
    replays = Replays(rows.take("replay"), rows.take("replay_ns"), columns["start_ns"])
    columns["instance"], columns["fwd_instance"] = instances(capture, ops, op, forward, replays)
    count, of_op = len(op), ops.label
    wanted = {
        "call": computed(count, np.int32, lambda part: of_op[np.where(forward[part] >= 0, forward[part], op[part])]),
        "own": computed(count, np.int32, lambda part: of_op[op[part]]),
    }
    if texts and capture.labels.asks_step.any():
        wanted = {name: with_steps(capture, label, columns["engine_step"], texts) for name, label in wanted.items()}
    wanted["inner"] = rows.take("inner")
    calls: list[OpCall] = []
    code_of_label = np.full(len(capture.trace.markers) + 1, -1, np.int64)
    for name, label in wanted.items():
        used = np.zeros(len(code_of_label), np.bool_)
        for part in pieces(count):
            used[label[part]] = True
        for code in np.flatnonzero(used[:-1] & (code_of_label[:-1] < 0)).tolist():
            marker = capture.trace.markers[code]
            code_of_label[code] = len(calls)
            calls.append(marker.call or OpCall("autograd", marker.name, dispatcher=True, described=False))
        columns[name] = computed(count, np.int32, partial(_taken_part, code_of_label, label))
    return calls


def _count_rows(rows: Columns, columns: Columns) -> dict[str, int]:
    """Rule 7: kernels of which something is not in the capture."""
    kind, launched, bare = columns["kind"], rows["launched"], rows["bare_node"]
    counts = {"kernels without a launch in the capture": 0, "kernels of graphs whose capture is not known": 0}
    for part in pieces(len(kind)):
        kernel = kind[part] == ActivityKind.KERNEL
        for name, mask in zip(counts, (~launched[part], bare[part]), strict=True):
            counts[name] += int((kernel & mask).sum())
    return counts


def _records(trace: Trace, rows: Columns, results: SliceResults, columns: Columns, counts: dict[str, int]) -> Records:
    """Rule 7: every row, in an order that does not depend on the file's. Takes all of rows and of the numbers of results."""
    stack, forward_stack = rows.take("stack"), rows.take("forward_stack")
    backward = rows["is_backward"]
    columns["stack"], columns["scope"] = (
        stack,
        computed(
            len(stack),
            np.int32,
            lambda part: np.where(backward[part] & (forward_stack[part] >= 0), forward_stack[part], stack[part]),
        ),
    )
    order = _order(columns, trace)
    if not ascending(order):
        for name in list(columns):
            if columns[name].strides != (0,):  # one value for all
                columns[name] = taken(columns[name], order)
    records = Records(
        dict(columns), trace.strings, results.stacks.stacks, source=trace.source, notes=list(trace.notes), utc_ns=trace.utc_ns
    )
    records.seq_offsets, records.seq_numbers = results.take_numbers(order)
    records.columns["seq"] = main_numbers(records, taken(rows.take("on_engine"), order))
    pid = take(trace.processes["pid"], trace.threads["process"])
    thread = distinct_rows(pid, trace.threads["tid"]).inverse.astype(np.int32)  # threads of one process and id are one
    launch_thread = rows.take("launch_thread")
    thread = kept(with_none(thread))
    records.columns["sub"] = running_numbers(
        records, computed(len(order), np.int32, lambda part: thread[launch_thread[order[part]]])
    )
    records.columns = {name: records.columns[name] for name in COLUMNS}
    records.counts = {name: count for name, count in counts.items() if count}
    return records


def _order(columns: Columns, trace: Trace) -> Array:
    """Rows by start, process, device, stream and correlation id, then by all else, so that no order of the file shows."""
    start = columns["start_ns"]
    order = order_of(start)
    # Few begin in one nanosecond: only those are sorted by the rest.
    tied, group = runs(same_as_before(start, order))
    keys = [group, *gather(columns, order[tied], "pid", "device", "stream", "corr")]
    by_keys = np.lexsort(keys[::-1])
    order[tied] = order[tied][by_keys]
    same = np.ones(max(len(tied) - 1, 0), np.bool_)
    for key in keys:
        same &= np.diff(key[by_keys]) == 0
    still, group = runs(same)
    tied = tied[still]
    rows = order[tied]
    rest = ("tid", "launch_ns", "dur_ns", "kind", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
    last = ("graph_node", "regs", "smem_bytes", "bytes", "copykind", "instance", "fwd_instance")
    name = ranks([*map(trace.strings.__getitem__, columns["name"][rows].tolist())])
    keys = [group, *gather(columns, rows, *rest), name, *gather(columns, rows, *last)]
    order[tied] = rows[np.lexsort(keys[::-1])]
    return order
