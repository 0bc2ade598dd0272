"""Records -> the ops that took most time, a line for each op with its phase, shapes and dtypes. No torch.

`python -m pyprof.recording.top TRACE TABLE COUNT` writes such a table of a trace to a text file. `pyprof.capture` starts it for
each cycle, so that reading the trace takes neither time nor memory of the measured program.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import IO

import numpy as np

from pyprof.errors import PyprofError
from pyprof.loading import load_capture
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.columns import HEADERS
from pyprof.prof.frame import Frame
from pyprof.prof.group import group_by
from pyprof.tables.files import whole_text_file
from pyprof.tables.table import choose, printed

_WIDTH = 150
_KINDS = (ActivityKind.KERNEL, ActivityKind.GRAPH, ActivityKind.CPU)


def print_top(records: Records, stream: IO[str], count: int, width: int) -> None:
    """Print the `count` ops whose kernels took most time in total (without a GPU: the ops' own time on the CPU).

    Calls: executions of the op; Share: of the time of all rows. Lines are cut at `width` characters.
    """
    frame = Frame(records.select(np.isin(records["kind"], _KINDS)))
    groups = group_by(frame, np.arange(len(frame.records)), choose("phase,op,params", HEADERS))
    stream.write(f"{'Time(ms)':>11} {'Share':>6} {'Calls':>7} {'Phase':13} {'Op':20} Params\n")
    keys = ("time", "share", "calls", "phase", "op", "params")
    cells = [printed(groups.of(key).take(groups.order[:count])) for key in keys]
    for time, share, calls, phase, op, params in zip(*cells, strict=True):
        line = f"{int(time) / 1e6:11.3f} {share:>5}% {calls:>7} {phase:13} {op:20} {params}"
        stream.write(line[:width].rstrip() + "\n")


def main() -> None:
    """Write the table, or one line with the reason why there is none."""
    trace, table, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    os.nice(10)
    with whole_text_file(table) as stream:
        try:
            print_top(load_capture(trace), stream, count, _WIDTH)
            stream.write(f"every row: python -m pyprof.prof -w {_WIDTH} {shlex.quote(str(trace))}\n")
        except PyprofError as error:
            stream.write(f"no table: {error}\n")


if __name__ == "__main__":
    main()
