"""Kernels that a program launches outside of every op, although ops were recorded with shapes -> name them."""

from __future__ import annotations

import numpy as np

from pyprof.columns.intervals import summed
from pyprof.hardware.names import short_name
from pyprof.model.records import PHASES
from pyprof.report.advice.base import Advice, kernels, places, replayed, share
from pyprof.report.time.overview import Overview

_LEAST = 0.3  # of kernel time
_DO = (
    'with torch.profiler.record_function("name"): around the call names it; torch.library.custom_op records its shapes, and '
    'pyprof.wrap(module, "function") too; @pyprof.formula gives its FLOPs and bytes (pyprof help python)'
)


def find(overview: Overview) -> Advice | None:
    """Where kernels have no op, and recording more of torch would not change that."""
    if overview.host is None or not overview.host.shapes or overview.records.source != "kineto":
        return None
    rows, records = kernels(overview), overview.records
    sent = records["phase"][rows] == PHASES.index("communication")
    bare = (records["call"][rows] < 0) & (records["launch_ns"][rows] >= 0) & ~replayed(overview, rows) & ~sent
    if (part := share(overview, rows, bare)) < _LEAST:
        return None
    rows = rows[bare]
    time_ns = np.maximum(records["dur_ns"][rows], 0).astype(np.int64)
    where = places(overview, rows, time_ns)
    used, code = np.unique(records["name"][rows], return_inverse=True)
    most = short_name(records.strings[int(used[summed(code.ravel(), time_ns, len(used)).argmax()])])
    src = next((f", called at {one.src}" for one in where if one.src), "")
    evidence = f"{len(rows):,} kernels, {part:.0%} of the kernel time, are launched outside of every op, most of it {most}{src}"
    return Advice("name_kernels", None, int(time_ns.sum()), evidence, _DO, where)
