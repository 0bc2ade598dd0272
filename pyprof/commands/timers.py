"""Report on timers inside a kernel: each block's time, its share of the kernel, how evenly its lanes work.

    pyprof timers timers.npz                       the table of blocks; pyprof.timers.Buffer.save writes such a file
    pyprof timers timers.npz --table lanes         each lane of each block, the fastest first
    pyprof timers timers.npz --hz 1.98e9           ticks a second, if the file does not know them
    pyprof timers proton.chrome_trace              scopes of Triton's Proton, their times corrected
    pyprof timers FILE --chrome out.json           a timeline, one track a lane, for ui.perfetto.dev
    pyprof timers FILE --chrome out.json --into net.json    the same inside a trace of torch.profiler

The timer's own cost is subtracted from durations. removed?: half of the block's readings take at most twice as long as reading
the clock, so the compiler may have removed its work. unsupported: the clock of this device returns 0. backwards: negative
readings were left out; if the kernel kept only the low 32 bits of its clock, pass --bits 32.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pyprof.errors import InputError, UsageError
from pyprof.messages import tell
from pyprof.parse.sources.inputs import Input
from pyprof.tables.output import write
from pyprof.tables.screen import add_tables, selected
from pyprof.timers import proton, timeline
from pyprof.timers.buffer import load
from pyprof.timers.readings import Readings, blocks, lanes, readings_of

TABLES = {"blocks": blocks, "lanes": lanes}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof timers`."""
    parser.add_argument("file", metavar="FILE", help="block timers (.npz), or a trace of Proton (.chrome_trace)")
    add_tables(parser, TABLES)
    parser.add_argument("--hz", metavar="N", type=float, help="ticks of the clock a second, for example 1.98e9")
    parser.add_argument("--bits", type=int, choices=(32, 64), help="bits of the clock that the kernel kept")
    parser.add_argument("--kernel", metavar="NAME", help="the kernel's name, if the file lacks it")
    parser.add_argument("--chrome", metavar="OUT", help="write a timeline as Chrome JSON instead")
    parser.add_argument(
        "--into", metavar="TRACE", help="with --chrome: add it to this trace, at the kernel's first launch there"
    )


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    if options.into and not options.chrome:
        raise UsageError("--into needs --chrome", "name the file to write: --chrome OUT")
    if options.hz is not None and not 0 < options.hz < np.inf:
        raise UsageError(f"--hz takes ticks a second, not {options.hz}", "for example --hz 1.98e9")
    readings = _read(options)
    if options.chrome:
        timeline.write(readings, Path(options.chrome), Path(options.into) if options.into else None)
        _note(timeline.notes(readings))
        return 0
    _note(readings.notes)
    if not options.table:
        options.table = "blocks"
    write(selected(TABLES[options.table](readings), options), options)
    return 0


def _read(options: argparse.Namespace) -> Readings:
    with Input(options.file) as given:
        if given.folder:
            raise InputError(f"{given.name}: is a directory", "give block timers (.npz) or a trace of Proton")
        path = given.path if given.is_file else given.file()[1]
        if not given.head.startswith(b"PK"):
            return proton.read(path, options.hz)
        buffer = load(path)
    buffer.bits = options.bits or buffer.bits
    buffer.hz = options.hz or buffer.hz
    buffer.kernel = options.kernel or buffer.kernel
    return readings_of(buffer)


def _note(notes: list[str]) -> None:
    for note in notes:
        tell(f"note: {note}")
