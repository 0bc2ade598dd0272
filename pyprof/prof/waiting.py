"""Records -> before which of them the device waited for the launch: all that had begun there ended before the call returned.

A kernel that is queued behind others costs its launch nothing, however long the call took. No costs, no peaks.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.sorting import ascending
from pyprof.arrays.types import Bools
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind

_NEVER = np.iinfo(np.int64).min


def waited_for_launch(records: Records, ran: Records) -> Bools:
    """For each record whether its process's device, all streams together, was done with all before when the launch returned.

    ran: what the records were chosen from, which shows all that the device did. False where it is not known: without a launch
    of its own (the kernels of a CUDA graph have one in common), or with nothing before it on the device.
    """
    result = np.zeros(len(records), np.bool_)
    known = (records["launch_ns"] >= 0) & (records["launch_dur_ns"] >= 0) & (records["graph_node"] < 0)
    on_device = (ran["kind"] != ActivityKind.CPU) & (ran["start_ns"] >= 0)
    for pid, device in distinct_rows(ran["pid"][on_device], ran["device"][on_device]).columns.T.tolist():
        there = np.flatnonzero(on_device & (ran["pid"] == pid) & (ran["device"] == device))
        if not ascending(begin := ran["start_ns"][there]):  # of several captures in one table
            there = there[np.argsort(begin, kind="stable")]
            begin = ran["start_ns"][there]
        # For each place among what began here, when all before it had ended.
        ended = np.maximum.accumulate(np.append(_NEVER, begin + ran["dur_ns"][there]))
        rows = np.flatnonzero(known & (records["pid"] == pid) & (records["device"] == device))
        until = ended[np.searchsorted(begin, records["start_ns"][rows], "left")]
        returned = records["launch_ns"][rows] + records["launch_dur_ns"][rows]
        result[rows] = (until != _NEVER) & (until <= returned)
    return result
