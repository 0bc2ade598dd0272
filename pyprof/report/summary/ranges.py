"""Records of ranges alone, as of a program on a GPU whose CUDA was not traced -> how often each range ran, and how long."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import spans, summed
from pyprof.report.summary.breakdown import Kernels
from pyprof.report.summary.model import RangeTimes


def ranges_of(kernels: Kernels) -> tuple[RangeTimes, ...]:
    """One for each range with the ranges around it, most time first; empty where ops or kernels are known."""
    records, rows = kernels.frame.records, kernels.rows
    took = records["launch_dur_ns"][rows].astype(np.int64)
    if not len(rows) or not kernels.frame.host_times[rows].all() or (records["call"][rows] >= 0).any() or (took < 0).any():
        return ()
    names: dict[str, int] = {}
    codes = [names.setdefault(":".join(stack.layer), len(names)) for stack in records.stacks]
    (name,), _, group = distinct_rows(np.array([*codes, -1], np.int64)[records["scope"][rows]])
    count, texts = len(name), [*names, ""]
    columns = np.bincount(group, minlength=count), summed(group, took, count), *spans(group, took, took, count)
    found = [
        RangeTimes(texts[code] or None, *each)
        for code, *each in zip(name.tolist(), *(c.tolist() for c in columns), strict=True)
    ]
    return tuple(sorted(found, key=lambda one: (-one.time_ns, one.name or "")))
