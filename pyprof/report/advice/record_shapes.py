"""Kernels whose ops were recorded without arguments, or not at all -> record them, so that FLOPs and bytes are known."""

from __future__ import annotations

import numpy as np

from pyprof.report.advice.base import Advice, kernels, replayed, share
from pyprof.report.time.overview import Overview

_LEAST = 0.3  # of kernel time
_PROFILER = "torch.profiler.profile(activities=[CPU, CUDA], record_shapes=True)"
_EMIT = "with torch.autograd.profiler.emit_nvtx(record_shapes=True):"
_MARKERS = "import pyprof; pyprof.init() before the model is built, recorded with nsys -t cuda,nvtx (or: pyprof run PROGRAM)"

_RANGES = (
    "NVTX ranges around the program's phases (nvtxRangePushA; the nvtx package of Python), recorded with nsys -t cuda,nvtx: "
    "kernels, idle time and steps are told by them"
)


def find(overview: Overview) -> Advice | None:
    """Where shapes would say more."""
    if overview.host is None:
        return None
    on_gpu, source = overview.division.on_gpu, overview.records.source
    rows, time = (kernels(overview), "kernel time") if on_gpu else (np.flatnonzero(overview.inside), "time")
    described = np.array([*(call.described for call in overview.records.calls), True], np.bool_)
    silent = ~described[overview.records["call"][rows]]
    if (part := share(overview, rows, silent)) >= _LEAST:
        evidence = f"the ops of {part:.0%} of the {time} are known without shapes, so that their FLOPs and bytes are not"
        return Advice("record_shapes", None, None, evidence, _PROFILER if source == "kineto" else _EMIT)
    bare = (overview.records["call"][rows] < 0) & ~replayed(overview, rows)
    if not on_gpu or (overview.host.shapes and source == "kineto"):  # the ops that there are have theirs
        return None
    if (part := share(overview, rows, bare)) < 1 - _LEAST:
        return None
    if not overview.uses_torch:
        named = np.array([*(bool(stack.layer) for stack in overview.records.stacks), False], np.bool_)
        if share(overview, rows, ~named[overview.records["scope"][rows]]) < _LEAST:
            return None
        evidence = f"no ranges are recorded around {part:.0%} of the kernel time: only names and times of kernels speak"
        return Advice("record_shapes", None, None, evidence, _RANGES)
    evidence = f"no ops are recorded for {part:.0%} of the kernel time: only names and times of kernels speak"
    return Advice("record_shapes", None, None, evidence, _PROFILER if source == "kineto" else _MARKERS)
