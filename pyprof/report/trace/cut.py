"""A capture or its records, and the part of it that the user asked for -> the Trace and the records that a timeline shows.

Cut to a part, it shows the activities chosen, the calls that launched them, and whatever ran on the host meanwhile, whole where
it began before or ended after. How anything is drawn is not known here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Bools, Ints
from pyprof.parse.records.records import GPU_NUMBERS, Records
from pyprof.parse.sources.kineto.counters import Samples
from pyprof.parse.sources.trace import ActivityKind, Table, Trace, make_table


def extent(records: Records, chosen: Bools) -> tuple[int, int]:
    """From the first launch to the last end of the records chosen."""
    start, launch = records["start_ns"][chosen], records["launch_ns"][chosen]
    end = start + np.maximum(records["dur_ns"][chosen], 0)
    first = int(np.where(launch >= 0, np.minimum(launch, start), start).min(initial=np.iinfo(np.int64).max))
    return first, int(end.max(initial=np.iinfo(np.int64).min))


def cut(trace: Trace, first: int, last: int) -> Trace:
    """What of a trace lies between two times."""
    ranges, launches, frames = (
        _rows(table, (table["start_ns"] <= last) & (table["end_ns"] >= first))
        for table in (trace.ranges, trace.launches, trace.frames)
    )
    time, samples = trace.memory["time_ns"], trace.samples
    memory = _rows(trace.memory, (time >= first) & (time <= last))
    if samples is not None:
        inside = (samples.time_ns >= first) & (samples.time_ns <= last)
        time, device, metric, value, metrics = samples
        samples = Samples(time[inside], device[inside], metric[inside], value[inside], metrics)
    return replace(trace, ranges=ranges, launches=launches, frames=frames, memory=memory, samples=samples)


def _rows(table: Table, keep: Bools) -> Table:
    return {name: values[keep] for name, values in table.items()}


def trace_of(records: Records) -> Trace:
    """As much of a Trace as records hold: processes, threads, devices and the calls that launched; no ranges."""
    trace = Trace(records.source, strings=records.strings, utc_ns=records.utc_ns)
    known = records["pid"] >= 0
    processes = distinct_rows(records["pid"][known], records["rank"][known])
    trace.processes = make_table("processes", dict(zip(("pid", "rank"), processes.columns, strict=True)))
    process = np.full(len(records), -1, np.int64)
    process[known] = processes.inverse
    run = records["tid"] >= 0
    threads = distinct_rows(process[run], records["tid"][run])
    trace.threads = make_table("threads", dict(zip(("process", "tid"), threads.columns, strict=True)))
    thread = np.full(len(records), -1, np.int64)
    thread[run] = threads.inverse
    trace.launches = _launches(records, trace, thread)
    trace.devices = _devices(records, trace, process)
    return trace


def _launches(records: Records, trace: Trace, thread: Ints) -> Table:
    rows = np.flatnonzero((records["launch_ns"] >= 0) & (thread >= 0) & (records["kind"] != ActivityKind.CPU))
    start, took, corr = (records[name][rows].astype(np.int64) for name in ("launch_ns", "launch_dur_ns", "corr"))
    distinct = distinct_rows(start, np.maximum(took, 0), thread[rows], corr).columns
    columns = dict(zip(("start_ns", "end_ns", "thread", "corr"), distinct, strict=True))
    columns["end_ns"] = columns["start_ns"] + columns["end_ns"]
    columns["name"] = np.full(len(columns["corr"]), trace.strings.code("launch"))
    return make_table("launches", columns)


def _devices(records: Records, trace: Trace, process: Ints) -> Table:
    known = records["gpu"] >= 0
    found = distinct_rows(process[known], records["device"][known], records["gpu"][known]).columns
    columns = dict(zip(("process", "device"), found, strict=False))
    infos = [records.gpus[code] for code in found[2].tolist()]
    numbers = [(*(info.cc or (-1, -1)), *(getattr(info, name) for name in GPU_NUMBERS)) for info in infos]
    names = ("cc_major", "cc_minor", *GPU_NUMBERS)
    columns |= dict(zip(names, np.array(numbers, np.int64).reshape(-1, len(names)).T, strict=True))
    columns["name"] = np.array([trace.strings.code(info.name) for info in infos], np.int64)
    return make_table("devices", columns)
