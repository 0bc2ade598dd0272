"""Measured counters of each launch beside what the algorithm needs: FLOPs, bytes, intensity, Tensor Cores.

    pyprof counters net.csv                        ncu --csv, or a report (.ncu-rep)
    pyprof counters net.csv --trace net.sqlite     with ops, layers, times and needed FLOPs from a capture of the same program
    pyprof counters trace.json                     counters that torch.profiler recorded
    pyprof counters net.sqlite                     what nsys sampled (`pyprof run --metrics all`), by step, layer and op
    pyprof counters proton.hatchet                 kernels and scopes of Triton's Proton, also as .chrome_trace
    pyprof counters --metrics A100                 the command line of ncu that records what is used here

ncu repeats every launch alone with fixed clocks, so its times are not the program's: times come from the capture only. Each row
says how it was matched: exact (as many launches of this kernel and size on both sides), nvtx (as many inside its ranges), order
(measured without a gap, and fits at one place only, or keeps its order in one way only), ambiguous (several places: what they
have in common is shown), none.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from pyprof.counters.counted import command_line
from pyprof.counters.joined import counter_table
from pyprof.counters.match import HOW
from pyprof.counters.roofline import draw
from pyprof.counters.table import HEADERS, CounterTable, sample_table
from pyprof.errors import GateError, UsageError
from pyprof.hardware import gpus
from pyprof.loading.load import attributed, load_counters
from pyprof.messages import tell
from pyprof.parse.records.selection import add_graphs
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import Frame
from pyprof.tables.output import add_output, arranged, choice, conditions_of, matching, write
from pyprof.tables.screen import selected

DEFAULT = "idx,kernel,op_stack,top_op,bottom_op,flops_meas,flops_model,ratio,bytes_meas,bytes_model,ai,tc,match"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof counters`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="*",
        help="what ncu wrote (--csv, .ncu-rep), a torch.profiler trace, or a profile of Proton",
    )
    parser.add_argument("--trace", metavar="CAPTURE", help="a capture of the same program: ops, times, needed FLOPs")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="compare with this device's peaks")
    add_graphs(parser)
    parser.add_argument("--min-match", metavar="PERCENT", type=float, help="exit with 3 where less of the time was matched")
    parser.add_argument("--metrics", metavar="GPU", nargs="?", const="", help="print ncu's command line for a device, and exit")
    parser.add_argument("--roofline", metavar="FILE", help="draw the measured roofline: FILE.html, or FILE.png (matplotlib)")
    add_output(parser, columns=DEFAULT)
    described = "  {0.key:15} {0.text:15} {0.help}".format
    parser.epilog = "\n".join(["columns, and every metric of the file by its own name:", *map(described, HEADERS)])


def run(options: argparse.Namespace) -> int:
    """Read, match, print. Returns the exit code."""
    if options.metrics is not None:
        print(command_line(options.metrics))
        return 0
    if not options.file:
        raise UsageError("no file was given", "pyprof counters net.csv [--trace net.sqlite]")
    if options.min_match is not None and options.trace is None:
        raise UsageError("--min-match needs a capture to match", "--trace net.sqlite")
    if options.min_match is not None and not 0 <= options.min_match <= 100:
        raise UsageError("--min-match is a percentage", "--min-match 90")
    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    loaded = [load_counters(file) for file in options.file]
    traces = [trace for _, trace in loaded if trace is not None]
    if not any(len(found) for found, _ in loaded):
        if len(traces) != 1 or options.trace is not None:
            raise UsageError("samples are of one trace, which holds the timeline too", "give that FILE alone")
        samples = traces[0].samples
        assert samples is not None  # else it held no counters
        records = attributed(traces[0], options.file[0])
        write(selected(sample_table(samples, RecordTable(Frame(records))), options), options)
        return 0
    table = counter_table(loaded, options.trace, gpu)
    chosen = choice(options, table.headers, DEFAULT)
    write(arranged(table, matching(table, table.rows, conditions_of(options, table.headers)), chosen), options)
    sys.stdout.flush()
    if options.roofline is not None:
        draw(table, Path(options.roofline))
    return _matched(table, options.min_match)


def _matched(table: CounterTable, least: float | None) -> int:
    """Print how launches were matched, and the share of the capture's time; returns the exit code."""
    count, found = f"{len(table.measured)} measured launch{'es' * (len(table.measured) != 1)}", table.ops.match
    if found is None:
        tell(f"{count}; --trace CAPTURE adds their ops, times and needed FLOPs")
        return 0
    counts = np.bincount(found.how, minlength=len(HOW))
    how = ", ".join(f"{number} {name}" for name, number in zip(HOW, counts.tolist(), strict=True) if number)
    if table.ops.records is None or not table.ops.has_times:
        tell(f"{count}: {how}; their times are not real")
        return 0
    time = table.ops.records.frame.records["dur_ns"].astype(np.float64)
    share = 100 * time[np.unique(found.settled)].sum() / max(time.sum(), 1)
    tell(f"{count}: {how}; {share:.1f} % of the capture's kernel time is matched")
    if least is not None and share < least:
        hint = "record the same program with both tools"
        raise GateError(f"{share:.1f} % of the kernel time is matched, less than {least:g} %", hint)
    return 0
