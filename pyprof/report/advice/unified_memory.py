"""Pages of unified memory that migrate when they are touched -> move them ahead, or say where they belong."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import among
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, is_worth, mean_ns, together, told
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_WAYS = {11: "to the device", 12: "back to the host", 13: "between devices"}  # CUPTI's copy kinds of migrations
_DO = (
    "cudaMemPrefetchAsync(pointer, bytes, device, stream) ahead of the kernel that touches them, and to the host before it "
    "reads; cudaMemAdvise for what both read; or cudaMalloc and one cudaMemcpyAsync"
)


def find(overview: Overview) -> Advice | None:
    """Where migrations take time of their own, or go on while kernels run, which wait for them."""
    records = overview.records
    moved = overview.inside & (records["kind"] == ActivityKind.MEMCPY) & among(records["copykind"], tuple(_WAYS))
    rows = np.flatnonzero(moved)
    time_ns = np.maximum(records["dur_ns"][rows], 0).astype(np.int64)
    if not is_worth(overview, mean_ns(overview, time_ns)):
        return None
    parts = []
    for kind, way in _WAYS.items():
        mine = records["copykind"][rows] == kind
        if mine.any():
            size = np.maximum(records["bytes"][rows[mine]], 0).sum()
            parts.append(f"{int(mine.sum()):,} {way} ({human(int(size), 'B')}, {told(int(time_ns[mine].sum()))})")
    parts[-1] += together(overview)
    change, gaps = Change(rows=rows, cut_ns=time_ns), overview.division.gaps
    between = (gaps.before >= 0) & (gaps.after >= 0) & moved[gaps.before] & moved[gaps.after]
    idle_ns = mean_ns(overview, gaps.time_ns[between])
    evidence = f"migrations of unified memory, page by page as they are touched: {', '.join(parts)}"
    if is_worth(overview, idle_ns):
        evidence += f"; between two of them the device idles, {told(idle_ns)} in all"
    return Advice("unified_memory", change, mean_ns(overview, time_ns), evidence, _DO)
