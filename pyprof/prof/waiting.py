"""Records -> before which of them the device waited for the launch: all that had begun there ended before the call returned.

A kernel that is queued behind others costs its launch nothing, however long the call took. No costs and no peaks here.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Bools
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind
from pyprof.tables.table import PART_ROWS


def waited_for_launch(records: Records, whole: Records) -> Bools:
    """For each record whether its process's device, all streams together, was done with all before when the launch returned.

    whole: what the records were chosen from, which shows all that the device did. False where it is not known: without a launch
    of its own (the kernels of a CUDA graph have one in common), or with nothing before it on the device.
    """
    known = (records["launch_ns"] >= 0) & (records["launch_dur_ns"] >= 0) & (records["graph_node"] < 0)
    ran = (whole["kind"] != ActivityKind.CPU) & (whole["start_ns"] >= 0)
    result = np.zeros(len(records), np.bool_)
    for pid, device in distinct_rows(records["pid"][known], records["device"][known]).columns.T.tolist():
        there = ran & (whole["pid"] == pid) & (whole["device"] == device)
        begin, busy_until = whole["start_ns"][there], whole["dur_ns"][there]
        busy_until += begin
        if (begin[1:] < begin[:-1]).any():  # several captures in one table
            order = np.argsort(begin, kind="stable")
            begin, busy_until = begin[order], busy_until[order]
        np.maximum.accumulate(busy_until, out=busy_until)
        mine = np.flatnonzero(known & (records["pid"] == pid) & (records["device"] == device))
        for at in range(0, len(mine), PART_ROWS):
            rows = mine[at : at + PART_ROWS]
            ahead = np.searchsorted(begin, records["start_ns"][rows], "left") - 1
            rows, ahead = rows[ahead >= 0], ahead[ahead >= 0]
            result[rows] = busy_until[ahead] <= records["launch_ns"][rows] + records["launch_dur_ns"][rows]
    return result
