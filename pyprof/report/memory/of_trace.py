"""Allocations that a capture recorded beside its ops (`[memory]` of torch.profiler, cudaMalloc of nsys) -> AllocationTrace.

An allocation belongs to the op, layer and line that were open on its thread at that time, as a kernel belongs to those of its
launch: for attribution the events take the place of activities.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Ints
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
    pids, devices = take(trace.processes["pid"], of_process), list[Allocations]()
    for one in wanted:
        rows = order[group[order] == one]
        size, address, allocated, reserved = (table[name][rows] for name in ("bytes", "address", "allocated", "reserved"))
        low = trace.source != "kineto"  # cudaMalloc: what an allocator holds, not what tensors do
        devices.append(
            Allocations(
                int(of_device[one]) if of_device[one] >= 0 else CPU,
                np.where(size >= 0, Action.ALLOC, Action.FREE).astype(np.int8),
                address.astype(np.uint64),
                np.abs(size),
                np.full(len(rows), -1),
                table["time_ns"][rows],
                place[rows],
                step[rows],
                places,
                pid=int(pids[one]) if len(set(of_process.tolist())) > 1 else -1,
                allocated=allocated if (allocated >= 0).all() else None,
                reserved=reserved if (reserved > 0).all() else None,
                addressed=bool((address != -1).all()),
                segments_only=low,
                optimizer_ns=optimizers,
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
    columns = [records["phase"].astype(np.int64)]
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
    back = records["corr"].astype(np.int64)
    place[back], step[back] = code, records["step"]
    return places, place, step
