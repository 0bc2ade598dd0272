"""Devices that idle because the host launches too slowly -> launch less often, or all at once."""

from __future__ import annotations

import numpy as np

from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, idle_time, named, places, told
from pyprof.report.time.overview import Overview

_LEAST = 0.03  # of the wall time: with less the device is what the program waits for
_MANY = 8  # launches
_DO = (
    'torch.compile(model, mode="reduce-overhead") records CUDA graphs and fuses; or torch.cuda.make_graphed_callables; '
    "or a larger batch, so that each launch carries more work"
)
_PLAIN = (
    "record the launches of a loop once as a CUDA graph (cudaStreamBeginCapture, cudaGraphLaunch); or fewer, larger kernels, "
    "so that each launch carries more work"
)
_GRAPHED = "what is launched beside the graphs: record it with them, or launch fewer, larger kernels"


def find(overview: Overview) -> Advice | None:
    """Where launches are what the devices wait for."""
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
