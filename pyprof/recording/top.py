"""Records -> the ops that took most time, a line for each op with its direction, shapes and dtypes. No files, no torch."""

from __future__ import annotations

from typing import TextIO

import numpy as np

from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.columns import HEADERS
from pyprof.prof.frame import Frame
from pyprof.prof.group import group_by
from pyprof.tables.table import choose, printed

__all__ = ["print_top"]

_KINDS = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)


def print_top(records: Records, stream: TextIO, count: int, width: int) -> None:
    """Print the `count` ops whose kernels took most time in total (without a GPU: the ops' own time on the CPU).

    Calls: executions of the op; Share: of the time of all rows. Lines are cut at `width` characters.
    """
    frame = Frame(records.select(np.isin(records["kind"], _KINDS)))
    groups = group_by(frame, np.arange(len(frame.records)), choose("dir,op,params", HEADERS))
    stream.write(f"{'Time(ms)':>11} {'Share':>6} {'Calls':>7} {'Direc':5} {'Op':20} Params\n")
    keys = ("time", "share", "calls", "dir", "op", "params")
    cells = [printed(groups.of(key).take(groups.order[:count])) for key in keys]
    for time, share, calls, direction, op, params in zip(*cells, strict=True):
        line = f"{int(time) / 1e6:11.3f} {share:>5}% {calls:>7} {direction:5} {op:20} {params}"
        stream.write(line[:width].rstrip() + "\n")
