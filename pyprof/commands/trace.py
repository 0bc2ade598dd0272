"""Write a timeline for ui.perfetto.dev: everything on host and devices, each kernel with all that is known of it.

    pyprof trace FILE -o timeline.json.gz
    pyprof trace FILE -o timeline.json.gz --step 10:12     only some steps; --range NAME and --time A:B likewise

FILE is a capture of nsys, nvprof or torch.profiler. Records work too, but have only kernels and launches, nothing else of the
host. Open the result in ui.perfetto.dev or chrome://tracing: threads with their ranges, devices with their streams, arrows from
launches to kernels, steps, phases and layers above each stream, counters (TFLOP/s, GB/s, queue, occupancy). All commands of
pyprof read it in place of the capture.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from pyprof.columns.types import Bools, Ints
from pyprof.errors import EmptyCapture, InputError, UsageError
from pyprof.loading.load import load_with_trace, open_trace
from pyprof.messages import stage, tell
from pyprof.model.records import Records, empty
from pyprof.model.trace import Trace
from pyprof.parse.records.selection import add_graphs, add_window, in_window, window_given
from pyprof.prof.frame import Frame
from pyprof.report.time.overview import Overview
from pyprof.report.trace.document import Document, cut, extent, trace_of
from pyprof.tables.files import check_output, whole_file

LIMIT_BYTES = 300_000_000  # of uncompressed text, about as much as ui.perfetto.dev opens well
_ROOM = 0.8  # share of the limit that a proposed part may fill


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof trace`."""
    parser.add_argument("file", metavar="FILE", help="a capture, or records")
    parser.add_argument("-o", "--output", metavar="OUT", help="the file to write; compressed if it ends in .gz")
    add_window(parser)
    add_graphs(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compute, write. Returns the exit code."""
    output = None if options.output is None else Path(options.output)
    if output is None and sys.stdout.isatty():
        raise UsageError("pyprof trace needs a file to write", f"pyprof trace {options.file} -o timeline.json.gz")
    inputs = [Path(options.file)] if options.file != "-" and "://" not in options.file else []
    if output is not None:
        check_output(output, inputs)
    records, trace = _loaded(options.file)
    chosen = in_window(records, options) if window_given(options) else np.ones(len(records), np.bool_)
    with stage("computing the timeline"):
        document = _document(records, trace, chosen, cut_out=window_given(options))
        start_ns, sizes = document.moments()
    if (size := int(sizes.sum())) > LIMIT_BYTES:
        raise InputError(
            f"{options.file}: a timeline of it would have about {size / 1e6:,.0f} MB, and ui.perfetto.dev opens "
            f"{LIMIT_BYTES / 1e6:.0f} MB at most",
            f"write a part of it: {_advice(records, chosen, start_ns, sizes)}",
        )
    with stage("writing the timeline"):
        if output is None:
            document.write(sys.stdout.buffer, compressed=False)
        else:
            with whole_file(output, inputs) as stream:
                document.write(stream, compressed=output.name.endswith(".gz"))
            tell(f"{output}: written; ui.perfetto.dev opens it")
    return 0


def _loaded(name: str) -> tuple[Records, Trace | None]:
    """Records and their capture; no records if the capture holds nothing but user ranges."""
    try:
        return load_with_trace(name, whole=True)
    except EmptyCapture:
        trace = open_trace(Path(name))  # raises again if there is nothing at all
        return empty(trace.source), trace


def _document(records: Records, trace: Trace | None, chosen: Bools, *, cut_out: bool) -> Document:
    """The timeline. trace: None if the file held records; cut_out: the user asked for a part."""
    if cut_out and not chosen.any():
        raise InputError("nothing ran in this part of the capture", "choose another one with --step, --range or --time")
    frame = Frame(records)
    steps = Overview(frame).steps if len(records) else None
    if trace is None:
        tell("note: records hold nothing of the host but launches; give the capture for ranges and threads")
        trace = trace_of(records)
    if cut_out:
        first, last = extent(records, chosen)
        trace = cut(trace, first, last)
        if steps is not None:
            seen = (steps.end_ns > first) & (steps.begin_ns < last)
            steps = steps.take(seen)
    return Document(frame, trace, np.flatnonzero(chosen), steps)


def _advice(records: Records, chosen: Bools, start_ns: Ints, sizes: Ints) -> str:
    """The option for a part that fits: as many steps as possible from the first on, else as much time."""
    ends = np.append(0, np.cumsum(sizes))
    first = int(records["start_ns"].min(initial=np.iinfo(np.int64).max))

    def size(begin: int, end: int) -> int:
        low, high = np.searchsorted(start_ns, (begin, end))
        return int(ends[high] - ends[low])

    steps = np.unique(records["step"][chosen & (records["step"] >= 0)]).tolist()
    times = {step: extent(records, chosen & (records["step"] == step)) for step in steps[:100]}
    fitting = [step for step in times if size(times[steps[0]][0], times[step][1]) <= _ROOM * LIMIT_BYTES]
    if fitting:
        return f"--step {steps[0]}:{fitting[-1] + 1}"
    begin = int(records["start_ns"][chosen].min())
    last = int(np.searchsorted(ends, ends[np.searchsorted(start_ns, begin)] + _ROOM * LIMIT_BYTES)) - 1
    until = int(start_ns[min(last, len(start_ns) - 1)])
    return f"--time {(begin - first) / 1e6:.3f}ms:{(until - first) / 1e6:.3f}ms"
