"""The API calls of a capture -> columns of who called when, and whether the call made the host wait for the device.

A call waits by its name (synchronisation, a plain copy, freeing memory), or because it is a copy that had run when it
returned: cudaMemcpyAsync to or from memory that is not pinned does not return before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyprof.parse.launches import launch_of_activity
from pyprof.parse.trace import ActivityKind, Strings, Trace

__all__ = ["Calls", "calls_of"]

Ints = npt.NDArray[np.int64]

_WAITS = re.compile(
    r"(cuda|cu|hip)(Device|Ctx|Stream|Event|Thread)Synchronize(_|$)"
    r"|(cuda|cu|hip)Memcpy(?!.*(Async|Batch))"
    r"|(cuda|hip)Free(_|$)|cuMemFree(_v2)?(_|$)"
)


@dataclass(frozen=True)
class Calls:
    """One row an API call. pid, tid: as records have them; name: code into strings; waits: the host waited in it."""

    pid: Ints
    tid: Ints
    start_ns: Ints
    end_ns: Ints
    name: Ints
    waits: npt.NDArray[np.bool_]
    strings: Strings


def calls_of(trace: Trace) -> Calls:
    """All API calls of a capture."""
    launches, activities = trace.launches, trace.activities
    thread = launches["thread"].astype(np.int64)
    process = trace.threads["process"][thread].astype(np.int64)
    by_name = {code: _WAITS.match(trace.strings[code]) is not None for code in np.unique(launches["name"]).tolist()}
    waits = np.array([by_name[code] for code in launches["name"].tolist()], np.bool_)
    launch = launch_of_activity(trace)
    copies = np.flatnonzero((activities["kind"] == ActivityKind.MEMCPY) & (launch >= 0))
    done = launches["end_ns"][launch[copies]] >= activities["end_ns"][copies]
    waits[launch[copies[done]]] = True
    return Calls(
        trace.processes["pid"][process],
        trace.threads["tid"][thread],
        launches["start_ns"],
        launches["end_ns"],
        launches["name"].astype(np.int64),
        waits,
        trace.strings,
    )
