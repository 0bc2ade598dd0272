"""Launches that came late while Python's frames were recorded -> record without them to know how late they really come."""

from __future__ import annotations

import numpy as np

from pyprof.report.advice.base import Advice, counted, told
from pyprof.report.time.overview import Overview

_LEAST = 0.2  # of the wall time: idle because the host is late
_DO = "torch.profiler.profile(with_stack=False, profile_memory=False): then see what of it remains"
_COST_NS = 1_000, 3_500  # of recording one call: measured with torch 2.13, and what older releases took
_MOST_NS = 100_000  # late for each call: recording one takes a microsecond or a few, so that more is not the recorder's


def find(overview: Overview) -> Advice | None:
    """Where recording slows a host that is what the devices wait for."""
    host, wall = overview.host, overview.division.wall_ns
    if host is None or not overview.division.on_gpu or not host.frames:
        return None
    own = overview.parts["profiler"]
    late = own + overview.parts["launch"] + overview.parts["synchronization"] + overview.parts["host"]
    if late <= _LEAST * wall:
        return None
    first, last = np.searchsorted(host.frame_ns, [overview.division.begin_ns, overview.division.end_ns])
    number = round(int(last - first) / len(host.frame_ns) * host.frames)
    if not own and late > _MOST_NS * number:
        return None
    about = "" if host.frames == len(host.frame_ns) else "about "  # of many only some are known by their begin
    evidence = f"the devices waited {told(late)} for a host that recorded {about}{counted(number, 'call')} of Python functions"
    if own:
        evidence += f": at least {told(own)} are the recorder's"
    else:
        costs = " to ".join(told(number * cost) for cost in _COST_NS)
        evidence += f", {late / number / 1e3:.1f} us each: to record them takes {costs}, which the trace does not show"
    return Advice("profiler_overhead", None, own or None, evidence, _DO)


def is_most(overview: Overview) -> bool:
    """Whether what is proven to be the recorder's is more than half of the time in which launches came late."""
    own = overview.parts["profiler"]
    return own > overview.parts["launch"] + overview.parts["host"]
