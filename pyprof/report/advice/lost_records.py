"""Devices that seem idle because what they ran was not recorded -> record again."""

from __future__ import annotations

from pyprof.report.advice.base import Advice, counted, told
from pyprof.report.time.overview import Overview

_LEAST = 0.01  # of the wall time
_DO = (
    "call torch.cuda.synchronize() before recording begins, record fewer steps, and with graphs a tool that records their "
    "nodes (nsys --cuda-graph-trace=node)"
)


def find(overview: Overview) -> Advice | None:
    """Where records are missing inside of the window."""
    time = overview.parts["unrecorded"]
    if time <= _LEAST * overview.division.wall_ns or not overview.division.on_gpu:  # on a CPU it is code of torch.compile
        return None
    gaps = counted(len(overview.idle.rows_of("unrecorded")[0]), "gap")
    evidence = (
        f"{told(time)} in {gaps} before or inside of work that had been launched long ago: "
        "the device ran something that is not in the capture"
    )
    return Advice("lost_records", None, time, evidence, _DO)
