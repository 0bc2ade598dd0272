"""Records -> before which of them the device waited for the launch: all that had begun there ended before the call returned.

A kernel that is queued behind others costs its launch nothing, however long the call took. No costs and no peaks here.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Bools
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind


def waited_for_launch(records: Records, whole: Records) -> Bools:
    """For each record whether its process's device, all streams together, was done with all before when the launch returned.

    whole: what the records were chosen from, which shows all that the device did. False where it is not known: without a launch
    of its own (the kernels of a CUDA graph have one in common), or with nothing before it on the device.
    """
    returned = records["launch_ns"].astype(np.int64) + records["launch_dur_ns"]
    known = (records["launch_ns"] >= 0) & (records["launch_dur_ns"] >= 0) & (records["graph_node"] < 0)
    ran = np.flatnonzero((whole["kind"] != ActivityKind.CPU) & (whole["start_ns"] >= 0))
    if not len(ran):
        return np.zeros(len(records), np.bool_)
    pairs = [np.concatenate([records[name], whole[name][ran]]).astype(np.int64) for name in ("pid", "device")]
    device = distinct_rows(*pairs).inverse
    mine, others = device[: len(records)], device[len(records) :]
    begin, end = whole["start_ns"][ran], whole["start_ns"][ran] + whole["dur_ns"][ran]
    result = np.zeros(len(records), np.bool_)
    for number in np.unique(mine[known]).tolist():
        there = np.flatnonzero(others == number)
        there = there[np.argsort(begin[there], kind="stable")]
        if not len(there):
            continue
        busy_until = np.maximum.accumulate(end[there])
        rows = np.flatnonzero(known & (mine == number))
        ahead = np.searchsorted(begin[there], records["start_ns"][rows], "left") - 1
        result[rows] = (ahead >= 0) & (busy_until[ahead] <= returned[rows])
    return result
