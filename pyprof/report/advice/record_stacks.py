"""Waits whose place in the program a trace does not tell -> record Python's frames once."""

from __future__ import annotations

from pyprof.report.advice import synchronization
from pyprof.report.advice.base import Advice
from pyprof.report.time.overview import Overview

_DO = "one capture more with torch.profiler.profile(with_stack=True): it names the lines, and slows the host"


def find(overview: Overview) -> Advice | None:
    """Where lines would say which call waits."""
    host = overview.host
    if host is None or overview.records.source != "kineto" or host.frames:
        return None
    waits = synchronization.find(overview)
    if waits is None or any(one.src is not None and one.src.rpartition(":")[2].isdigit() for one in waits.places):
        return None
    return Advice("record_stacks", None, None, "the trace does not say in which lines the host waited", _DO)
