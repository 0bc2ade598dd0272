"""Records of a run on the CPU -> the same with the time in which gloo's own threads worked on each collective."""

from __future__ import annotations

import numpy as np

from pyprof.arrays.types import Array
from pyprof.parse.records.records import PHASES, Records
from pyprof.parse.sources.trace import Trace


def with_workers(records: Records, trace: Trace) -> tuple[Records, bool]:
    """Records of a run on the CPU with the time of each collective from its begin to its end on gloo's own threads, where the
    capture has it: the op that requests one returns before. And whether it has that of nearly all."""
    labels = {code: m.name.removeprefix("gloo:") for code, m in enumerate(trace.markers) if m.name.startswith("gloo:")}
    working = np.flatnonzero(np.isin(trace.ranges["label"], list(labels)))
    working = working[np.argsort(trace.ranges["start_ns"][working], kind="stable")]
    process = trace.threads["process"][trace.ranges["thread"][working]]
    columns: dict[str, Array] = {name: records[name].copy() for name in ("start_ns", "dur_ns")}
    asked = np.flatnonzero(records["phase"] == PHASES.index("communication"))
    asked = asked[np.argsort(records["start_ns"][asked], kind="stable")]
    lacking = 0
    for pid in np.unique(records["pid"][asked]).tolist():
        mine = working[trace.processes["pid"][process] == pid].tolist()
        for row in asked[records["pid"][asked] == pid].tolist():
            begin = int(records["start_ns"][row])
            at = next((n for n, r in enumerate(mine) if trace.ranges["start_ns"][r] >= begin), None)
            lacking += at is None
            if at is not None:
                one = mine.pop(at)
                columns["start_ns"][row] = trace.ranges["start_ns"][one]
                columns["dur_ns"][row] = trace.ranges["end_ns"][one] - trace.ranges["start_ns"][one]
    return records.with_ops(columns, records.calls), 10 * lacking <= len(asked)
