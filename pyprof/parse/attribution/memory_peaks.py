"""The allocations of a capture -> the peak of each GPU (without one, of the CPU), and the ranges open at that moment."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.model.host import MemoryPeak
from pyprof.model.markers import Kind
from pyprof.model.trace import Trace
from pyprof.parse.attribution.launches import take
from pyprof.parse.attribution.stacks import layers_of

_PHASES = {Kind.BACKWARD: "backward", Kind.ENGINE: "backward", Kind.OPTIMIZER: "optimizer"}


def memory_peaks(trace: Trace) -> list[MemoryPeak]:
    """Peaks of what tensors hold, by process and device. Empty where no totals were recorded."""
    table = trace.memory
    rows = np.flatnonzero(table["allocated"] >= 0) if trace.source == "kineto" else np.empty(0, np.int64)
    on_gpu = table["device"][rows] >= 0
    rows = rows[on_gpu] if on_gpu.any() else rows
    process = take(trace.threads["process"], table["thread"][rows])
    (processes, devices), _, group = distinct_rows(process, table["device"][rows])
    found = []
    for number, (of, device) in enumerate(zip(processes.tolist(), devices.tolist(), strict=True)):
        own = rows[group == number]
        own = own[np.argsort(table["time_ns"][own], kind="stable")]
        row = int(own[int(table["allocated"][own].argmax())])
        reserved = int(table["reserved"][row])
        pid = int(trace.processes["pid"][of]) if of >= 0 else -1
        at = _ranges_at(trace, int(table["thread"][row]), int(table["time_ns"][row]))
        allocated = int(table["allocated"][row])
        found.append(MemoryPeak(pid, device, allocated, reserved if reserved > 0 else None, int(table["time_ns"][row]), *at))
    return found


def _ranges_at(trace: Trace, thread: int, time_ns: int) -> tuple[str | None, str | None, str | None, str | None]:
    """Phase, op, layer and source line of what was open on a thread at a time: the outermost op, the innermost layer."""
    ranges = trace.ranges
    opened = np.flatnonzero((ranges["thread"] == thread) & (ranges["start_ns"] <= time_ns) & (ranges["end_ns"] > time_ns))
    opened = opened[np.lexsort((-ranges["end_ns"][opened], ranges["start_ns"][opened]))]
    markers = [trace.markers[label] for label in ranges["label"][opened].tolist()]
    ops = [one.call.op if one.call is not None else one.name for one in markers if one.kind in (Kind.OP, Kind.DISPATCH)]
    layers = layers_of([one for one in markers if one.kind == Kind.LAYER])
    phase = next((_PHASES[one.kind] for one in reversed(markers) if one.kind in _PHASES), "forward" if ops else None)
    sources = [trace.strings[code] for code in ranges["src"][opened].tolist() if code >= 0]
    return phase, next(iter(ops), None), next(reversed(layers), None), next(reversed(sources), None)
