"""The gaps of a division of time and what the host did in them -> the causes of each, in ns that add up to its length.

Causes, what an expert would name first before what is left over:

    unrecorded       more than 1 ms before an activity whose launch had returned more than 1 ms before: launched before the
                     recording began, or lost
    data_loading     the host prepared inputs: in a DataLoader, or otherwise before the first launch of a step
    synchronization  the host had waited for the device, which so ran dry
    compilation      the host compiled, loaded modules or searched for the best algorithm
    allocation       the host allocated or freed memory of the device
    profiler         estimated: what recording itself added between launches
    launch           the host launched one after another, and too slowly
    host             the host did something else that is not known, or all of it on a capture without a device
    queued           what a device takes between activities that were both launched in time
    unknown          nothing is known that it waited for
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.types import Ints
from pyprof.parse.sources.trace import Trace
from pyprof.report.calls import Calls
from pyprof.report.division import Division
from pyprof.report.steps import Steps

CAUSES = (
    "data_loading", "synchronization", "compilation", "allocation", "profiler", "launch", "host", "queued", "unrecorded",
    "unknown",
)  # fmt: skip
_UNRECORDED_NS = 1_000_000
_QUEUED_NS = 20_000


def idle_causes(division: Division, trace: Trace | None, calls: Calls | None, steps: Steps | None) -> Ints:
    """(gaps, CAUSES): how long each gap of each device is for each cause. calls: of the trace, None without one."""
    gaps = division.gaps
    result = np.zeros((len(gaps), len(CAUSES)), np.int64)
    cause = np.full(len(gaps), CAUSES.index("unknown"))
    if not division.on_gpu:
        cause[:] = CAUSES.index("host")
    else:
        cause[(gaps.time_ns <= _QUEUED_NS) & (gaps.after >= 0)] = CAUSES.index("queued")
        cause[division.waits_for_host] = CAUSES.index("launch")
        cause[unrecorded(division)] = CAUSES.index("unrecorded")
        cause[gaps.after < 0] = CAUSES.index("host")
    result[np.arange(len(gaps)), cause] = gaps.time_ns
    return result


def unrecorded(division: Division) -> Ints:
    """The gaps whose next activity had been launched long before the device began it, although it had nothing else to do."""
    gaps, records = division.gaps, division.records
    launch = records["launch_ns"][gaps.after]
    returned = launch + np.maximum(records["launch_dur_ns"][gaps.after], 0)
    early = (gaps.after >= 0) & (launch >= 0) & (returned < gaps.end_ns - _UNRECORDED_NS)
    return np.flatnonzero(early & (gaps.time_ns > _UNRECORDED_NS))
