"""A capture that is cold for the most part -> record warm iterations before the rest of it is judged."""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Ints
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, counted, idle_time, told
from pyprof.report.time.overview import Overview

_LEAST = 0.1  # of the wall time of one step: compilation and loading of modules
_UNMARKED = 0.3  # of that of a window without steps, which may hold many
_MOST = 0.5  # of the wall time of several steps, next to which what the warm ones show counts little
_TRIALS = 5  # kernels in a row for one convolution, each another, that are more than it takes
_TRIED = 0.2  # of the busy time
_DO = {
    True: "record later iterations: torch.profiler.schedule(wait=1, warmup=3, active=3), nsys --capture-range=cudaProfilerApi",
    False: "record later iterations: cudaProfilerStart() after the first ones, nsys --capture-range=cudaProfilerApi",
}  # whether torch runs


def find(overview: Overview) -> Advice | None:
    """Where one iteration did what only first ones do."""
    wall, cold = overview.division.wall_ns, overview.parts["compilation"]
    several = overview.steps is not None and len(overview.steps) > 1
    # Where it takes longer than all work of the device does, that is little beside it.
    least = (_LEAST if overview.steps is not None else _UNMARKED) * wall
    least = min(least, max(_LEAST * wall, overview.busy_ns))
    if several:
        idle = idle_time(overview, "compilation")
        cold = idle.time_ns - idle.saves_ns  # what the first step alone has
        if cold <= min(_MOST * wall, max(_LEAST * wall, overview.busy_ns)):
            return None
    trials, time = (0, 0) if several else _trials(overview)
    tried = time > _TRIED * overview.busy_ns
    if cold <= least and not tried:
        return None
    found = []
    if cold > least:
        found.append(f"{told(cold)} of {told(wall)} went into loading modules, compiling or recording graphs")
    if tried:
        found.append(f"{counted(trials, 'convolution')} tried out their algorithms ({told(time)})")
    return Advice(
        "warmup",
        None,
        cold + time,
        ("the first of several steps is cold: " if several else "a first iteration: ") + ", and ".join(found),
        _DO[overview.uses_torch],
    )


def _trials(overview: Overview) -> tuple[int, int]:
    """(convolutions that ran many different main kernels once each, their time)."""
    records = overview.records
    conv = np.array([*("conv" in one.op for one in records.calls), False], np.bool_)
    ran = overview.inside & (records["kind"] == ActivityKind.KERNEL)
    rows = np.flatnonzero(ran & conv[records["call"]] & (records["instance"] >= 0))
    if not len(rows):
        return 0, 0
    (instance, _), _, pair = distinct_rows(records["instance"][rows], records["name"][rows])
    once = np.bincount(pair) == 1
    (one,), _, code = distinct_rows(instance[once])
    many: Ints = one[np.bincount(code, minlength=len(one)) >= _TRIALS]
    return len(many), int(records["dur_ns"][rows[np.isin(records["instance"][rows], many)]].sum())
