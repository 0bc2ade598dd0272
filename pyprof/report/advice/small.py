"""Kernels with so little work that starting them takes the time. Those of the optimizer are in optimizer.py."""

from __future__ import annotations

import numpy as np

from pyprof.parse.records.records import PHASES
from pyprof.prof.frame import Frame
from pyprof.prof.roofline import LATENCY, LAUNCH
from pyprof.report.advice.advice import Advice, kernels_of, most

__all__ = ["short_kernels"]

_MANY = 16


def short_kernels(frame: Frame) -> list[Advice]:
    """One advice for all whose bound is latency or launch; they can save at most their time above the roofline."""
    records, limits = frame.records, frame.roofline
    short = np.isin(limits.bound, (LATENCY, LAUNCH)) & (records["phase"] != PHASES.index("optimizer"))
    rows = kernels_of(frame, np.flatnonzero(short))
    saves = int(limits.lost_ns[rows].sum())
    if len(rows) < _MANY or not saves:
        return []
    time = int(records["dur_ns"][rows].sum())
    ops = most(records["call"][rows].astype(np.int64), records["dur_ns"][rows], [call.op for call in records.calls])
    title = "kernels with too little work, or shorter than their launch"
    evidence = f"{len(rows)} kernels of {time / len(rows) / 1e3:.1f} us on average: {ops}"
    return [Advice(title, "fuse them with torch.compile, or batch them", evidence, time, saves)]
