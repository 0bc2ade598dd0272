"""Kernels of backward that no marker of a forward op reaches -> record what links them."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_rows, distinct_values
from pyprof.report.advice.base import Advice, kernels, share
from pyprof.report.time.overview import Overview

_LEAST = 0.2  # of kernel time
_EMIT = "run the model inside `with torch.autograd.profiler.emit_nvtx():`, which numbers the ops that backward refers to"


def find(overview: Overview) -> Advice | None:
    """Where kernels without an op come from another thread than those with one."""
    host = overview.host
    if host is None or overview.records.source == "kineto" or host.backward_ranges:
        return None
    rows, records = kernels(overview), overview.records
    bare = records["call"][rows] < 0
    thread = distinct_rows(records["pid"][rows], records["tid"][rows]).inverse
    marked = distinct_values(thread[~bare])
    behind = bare & ~np.isin(thread, marked) & (records["tid"][rows] >= 0)
    if not len(marked) or (part := share(overview, rows, behind)) < _LEAST:
        return None
    evidence = f"{part:.0%} of the kernel time was launched by threads that run no marked op, as autograd's backward does"
    return Advice("backward_markers", None, int(records["dur_ns"][rows[behind]].sum()), evidence, _EMIT)
