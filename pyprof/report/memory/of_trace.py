"""Allocations that a capture recorded beside its ops (`[memory]` of torch.profiler, cudaMalloc of nsys) -> AllocationTrace.

An allocation belongs to the op, layer and line that were open on its thread at that time, as a kernel belongs to those of its
launch: for attribution the events take the place of activities.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.columns.intervals import summed
from pyprof.columns.types import Bools, Ints
from pyprof.errors import InputError
from pyprof.model.allocations import CPU, Action, Allocations, AllocationSite, AllocationTrace
from pyprof.model.markers import Kind
from pyprof.model.opcall import OpRules
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind, Trace, make_table
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.attribution.launches import take
from pyprof.parse.attribution.marked_steps import HostRanges
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import Frame
from pyprof.tables.table import Texts

_FROM_HOST = ("to", "_to_copy", "cuda")
_MAKES_SEED = re.compile(r"torch[/\\]autograd[/\\]__init__\.py\(\d+\): _make_grads$")
_HINT = "record them: pyprof run --memory net.py, profile_memory=True of torch.profiler, nsys --cuda-memory-usage=true"


def allocations_of(trace: Trace, rules: OpRules, name: str) -> AllocationTrace:
    """The allocations of a capture, by process and device; the CPU last. Raises InputError if there are none."""
    table = trace.memory
    count = len(table["bytes"])
    if not count:
        raise InputError(f"{name}: no allocations were recorded", _HINT)
    process = take(trace.threads["process"], table["thread"])
    places, place, step = _places(trace, process, rules)
    order = np.argsort(table["time_ns"], kind="stable")
    (of_process, of_device), _, group = distinct_rows(process, table["device"])
    wanted = sorted(range(len(of_process)), key=lambda one: (of_process[one], of_device[one] < 0, of_device[one]))
    optimizers = np.sort(HostRanges.of(trace, (Kind.OPTIMIZER,)).start_ns)
    forward_ns = _forward_ns(trace, rules) if any(one.phase == "backward" for one in places) else {}
    pids, devices = take(trace.processes["pid"], of_process), list[Allocations]()
    for one in wanted:
        rows = order[group[order] == one]
        size, address, allocated, reserved = (table[name][rows] for name in ("bytes", "address", "allocated", "reserved"))
        on_cpu = of_device[one] < 0
        low = trace.source != "kineto"  # cudaMalloc: what an allocator holds, not what tensors do
        devices.append(
            Allocations(
                CPU if on_cpu else int(of_device[one]),
                np.where(size >= 0, Action.ALLOC, Action.FREE).astype(np.int8),
                address.astype(np.uint64),
                np.abs(size),
                np.full(len(rows), -1),
                table["time_ns"][rows],
                place[rows],
                step[rows],
                places,
                pid=int(pids[one]) if len(set(of_process.tolist())) > 1 else -1,
                # Of the CPU torch counts what it allocated since recording began.
                allocated=allocated if (allocated >= 0).all() and not (on_cpu and trace.tensors) else None,
                reserved=reserved if (reserved > 0).all() else None,
                addressed=bool((address != -1).all()),
                segments_only=low,
                relative=on_cpu and not trace.tensors,
                optimizer_ns=optimizers,
                forward_ns=forward_ns,
                listed=[tensor for tensor in trace.tensors if tensor.device == of_device[one]],
            )
        )
    return AllocationTrace(trace.source, devices)


def _places(trace: Trace, process: Ints, rules: OpRules) -> tuple[list[AllocationSite], Ints, Ints]:
    """Distinct places; and of each event its place (-1 unknown) and step."""
    table = trace.memory
    number = np.arange(len(process))
    time, thread = table["time_ns"], table["thread"]
    graph = np.full(len(process), ActivityKind.GRAPH, np.int8)  # nothing is concluded from its neighbours
    activities = {"kind": graph, "start_ns": time, "end_ns": time, "process": process, "corr": number}
    launches = {"start_ns": time, "end_ns": time, "thread": thread, "corr": number}
    stand_in = replace(
        trace, activities=make_table("activities", activities), launches=make_table("launches", launches),
        graph_nodes=make_table("graph_nodes"), notes=[],
    )  # fmt: skip
    records = attribute(stand_in, rules)
    shown = RecordTable(Frame(records))
    back = records["corr"].astype(np.int64)
    phase = records["phase"].astype(np.int64)
    phase[_seeds(trace)[back]] = PHASES.index("backward")
    columns = [phase]
    pools: list[list[str | None]] = [[*PHASES, None]]
    for key in ("layer", "op", "src"):
        texts = shown.of(key)
        if isinstance(texts, Texts):
            columns.append(texts.codes.astype(np.int64))
            pools.append([*(text or None for text in texts.pool), None])
    distinct, _, code = distinct_rows(*columns)
    places = []
    for row in distinct.T.tolist():
        phase, layer, op, line = (pool[at] for pool, at in zip(pools, row, strict=True))
        places.append(AllocationSite(phase, layer, op, line, layer is None and op in _FROM_HOST))
    place, step = np.full((2, len(process)), -1)
    place[back], step[back] = code, records["step"]
    return places, place, step


def _forward_ns(trace: Trace, rules: OpRules) -> dict[str, int]:
    """Time of what ran in the forward pass by layer, of one step."""
    records = attribute(trace, rules)
    layers = RecordTable(Frame(records)).of("layer")
    if not isinstance(layers, Texts):
        return {}
    rows = np.flatnonzero((records["phase"] == PHASES.index("forward")) & (layers.codes >= 0))
    sums = summed(layers.codes[rows].astype(np.int64), np.maximum(records["dur_ns"][rows], 0), len(layers.pool))
    steps = max(len(distinct_values(records["step"][records["step"] >= 0])), 1)
    return {text: int(ns) // steps for text, ns in zip(layers.pool, sums.tolist(), strict=True) if text and ns}


def _seeds(trace: Trace) -> Bools:
    """Which events are of the gradient of the loss, which Python makes before autograd's engine begins."""
    table, frames = trace.memory, trace.frames
    found = np.zeros(len(table["time_ns"]), np.bool_)
    makes = np.array([*(_MAKES_SEED.search(text) is not None for text in trace.strings.values), False], np.bool_)
    for row in np.flatnonzero(makes[frames["name"]]).tolist():
        time, thread = table["time_ns"], frames["thread"][row]
        found |= (table["thread"] == thread) & (time >= frames["start_ns"][row]) & (time < frames["end_ns"][row])
    return found
