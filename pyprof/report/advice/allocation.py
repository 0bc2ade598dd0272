"""Devices that idle while the host allocates or frees their memory -> warm up, keep what was allocated, free none in a loop."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from pyprof.columns.distinct import among
from pyprof.columns.types import Ints
from pyprof.report.advice.base import Advice, IdleTime, idle_time, told
from pyprof.report.time.overview import Overview

_LEAST = 0.03  # of the wall time
_OFTEN = 8  # gaps, none of which is half of it, that make it a habit
_SHOWN = 3  # names of calls
ALLOCATES = r"(?:cuda|cu|hip)(?:Mem)?(?:Free|Malloc|Alloc)"
_HABIT = (
    "keep memory in PyTorch's cache: no PYTORCH_NO_CUDA_MEMORY_CACHING, no torch.cuda.empty_cache() in the loop; where it runs "
    "full PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or a smaller batch"
)
_ONCE = (
    "run an iteration before those that are measured: it leaves its memory in PyTorch's cache; for sizes that vary "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
_PLAIN = "allocate once before the loop and use it again, or take memory from a pool: cudaMallocAsync, cudaMemPool"


def find(overview: Overview) -> Advice | None:
    """Idle time in calls that allocate or free."""
    idle, wall = idle_time(overview, "allocation"), overview.division.wall_ns
    if not len(idle.rows) or idle.saves_ns <= _LEAST * wall:
        return None
    often = len(idle.rows) >= _OFTEN and idle.own_ns[0] * 2 <= idle.own_ns.sum()
    evidence = f"{told(idle.time_ns)} of {told(wall)} idle while the host allocated or freed memory of the device"
    if calls := _calls(overview, idle):
        evidence += f": {calls}"
    if not often and (overview.steps is None or len(overview.steps) == 1):
        evidence += ", as in a first iteration"
    do = _PLAIN if not overview.uses_torch else _HABIT if often else _ONCE
    change, waits = idle.change, overview.waits
    if waits is not None:  # memory that stays in a cache needs no wait for the device either
        texts = [code for code, (call, _, _) in enumerate(waits.texts) if re.match(ALLOCATES, call)]
        change = replace(change, waits=np.flatnonzero(among(waits.text, texts)))
    return Advice("allocation", change, idle.time_ns, evidence, do)


def _calls(overview: Overview, idle: IdleTime) -> str:
    """The calls that overlap such gaps, by name: `5 x cudaMalloc, 32.8 ms, the longest 11.6 ms`."""
    gaps, pids = overview.division.gaps, overview.division.pids
    begin, end, pid = gaps.start_ns[idle.rows], gaps.end_ns[idle.rows], pids[gaps.device[idle.rows]]
    found: dict[str, list[int]] = {}
    for calls in [] if overview.host is None else overview.host.allocations:
        since, until, code = (np.array(times, np.int64) for times in (calls.begin_ns, calls.end_ns, calls.code))
        near = _overlap(since, until, begin[pid == calls.pid], end[pid == calls.pid])
        for at in np.flatnonzero(near).tolist():
            found.setdefault(calls.names[code[at]], []).append(int(until[at] - since[at]))
    most = sorted(found.items(), key=lambda item: (-sum(item[1]), item[0]))[:_SHOWN]
    return "; ".join(f"{len(ns):,} x {name}, {told(sum(ns))}, the longest {told(max(ns))}" for name, ns in most)


def _overlap(since: Ints, until: Ints, begin: Ints, end: Ints) -> Ints:
    """Which of these times meet any of some gaps, which do not meet each other."""
    if not len(begin):
        return np.zeros(len(since), np.bool_)
    order = np.argsort(begin)
    begin, end = begin[order], np.maximum.accumulate(end[order])
    at = np.searchsorted(begin, until, "left") - 1
    return np.asarray((at >= 0) & (end[np.maximum(at, 0)] > since))
