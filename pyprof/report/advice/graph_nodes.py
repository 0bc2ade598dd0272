"""Graphs that were recorded as wholes, or whose nodes nothing names -> how to record them."""

from __future__ import annotations

from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, kernels, replayed, share
from pyprof.report.time.overview import Overview

_LEAST = 0.1  # of kernel time
_NODES = "nsys profile --cuda-graph-trace=node: a graph's kernels one by one"
_RECORDING = {
    "kineto": "--graphs FILE|DIR: the trace of the graph's capture, which torch.profiler around it records, and engines write "
    "into capture_traces/ (pyprof help graphs)",
    "nsys": "begin nsys before the graph is captured, so that its kernels are known by the ops that recorded them",
}


def find(overview: Overview) -> Advice | None:
    """Where graphs hide what they run."""
    rows = kernels(overview)
    records, time_ns = overview.records, overview.records["dur_ns"][rows]
    whole = records["kind"][rows] == ActivityKind.GRAPH
    if (part := share(overview, rows, whole)) >= _LEAST:
        evidence = f"{part:.0%} of the kernel time is in {int(whole.sum()):,} replays of graphs recorded as wholes"
        return Advice("graph_nodes", None, int(time_ns[whole].sum()), evidence, _NODES)
    if overview.host is None:
        return None
    unknown = replayed(overview, rows) & (records["call"][rows] < 0)
    if (part := share(overview, rows, unknown)) < _LEAST:
        return None
    evidence = f"{int(unknown.sum()):,} kernels, {part:.0%} of the kernel time, ran in graphs, and nothing says of which ops"
    do = _RECORDING["kineto" if records.source == "kineto" else "nsys"]
    return Advice("graph_nodes", None, int(time_ns[unknown].sum()), evidence, do)
