"""Devices that idle because the host launches too slowly, a CPU between small ops -> launch less often, or all at once."""

from __future__ import annotations

import numpy as np

from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import BETWEEN_OPS_NS, Advice, idle_time, mean_ns, named, places, told
from pyprof.report.advice.host_code import own_function
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change

_LEAST = 0.03  # of the wall time: with less the device is what the program waits for
_MANY = 8  # launches
_BETWEEN, _OPS = 0.2, 32  # on a CPU: of the wall time; pauses
_DO = (
    'torch.compile(model, mode="reduce-overhead") records CUDA graphs and fuses; or torch.cuda.make_graphed_callables; '
    "or a larger batch, so that each launch carries more work"
)
_PLAIN = (
    "record the launches of a loop once as a CUDA graph (cudaStreamBeginCapture, cudaGraphLaunch); or fewer, larger kernels, "
    "so that each launch carries more work"
)
_ON_CPU = "fewer, larger ops: a larger batch, or one op on a stacked tensor in place of a loop"
_COMPILE = "; or torch.compile(model), which runs many ops in one call"
_GRAPHED = "what is launched beside the graphs: record it with them, or launch fewer, larger kernels"


def find(overview: Overview) -> Advice | None:
    """Where launches are what the devices wait for."""
    if not overview.division.on_gpu:
        return _between_ops(overview)
    idle, division = idle_time(overview, "launch"), overview.division
    if len(idle.rows) < _MANY or idle.saves_ns <= _LEAST * division.wall_ns:
        return None
    records, after = overview.records, division.gaps.after[idle.rows]
    launched = division.row[records["launch_ns"][division.row] >= 0]
    time = records["dur_ns"][launched]
    where = places(overview, after, idle.own_ns)
    evidence = (
        f"the device idles {told(idle.time_ns)} because {len(idle.rows):,} of {len(launched):,} activities were launched late "
        f"(median activity {np.median(time) / 1e3:.1f} us); most before {named(where)}"
    )
    graphed = (records["kind"][launched] == ActivityKind.GRAPH) | (records["graph_node"][launched] >= 0)
    share = time[graphed].sum() / max(time.sum(), 1)
    do = _GRAPHED if share > 0.5 else _DO if overview.uses_torch else _PLAIN
    return Advice("launch_bound", idle.change, idle.time_ns, evidence, do, where)


def _between_ops(overview: Overview) -> Advice | None:
    """Where a CPU spends its time on what lies between many short ops. nsys records none of a backward pass on a CPU."""
    if overview.records.source != "kineto" or own_function(overview) is not None:
        return None
    idle, division = idle_time(overview, "host"), overview.division
    short = idle.own_ns < BETWEEN_OPS_NS
    rows, own, time_ns = idle.rows[short], idle.usual_ns[short], mean_ns(overview, idle.own_ns[short])
    if len(rows) < _OPS or time_ns <= _BETWEEN * division.wall_ns:
        return None
    ran = overview.records["dur_ns"][division.row]
    evidence = (
        f"Python and torch's dispatch take {told(time_ns)} of {told(division.wall_ns)} between {len(ran):,} ops "
        f"(median {np.median(ran) / 1e3:.1f} us)"
    )
    if overview.host is not None and overview.host.frames:
        evidence += ", with what recording Python's frames adds"
    where = places(overview, division.gaps.after[rows], own)
    evidence += f"; most before {named(where)}"
    compiled = overview.host is not None and "generated" in overview.host.work
    do = _ON_CPU + _COMPILE * (not compiled)
    return Advice("launch_bound", Change(gaps=rows, gap_ns=own, cause=idle.cause), time_ns, evidence, do, where)
