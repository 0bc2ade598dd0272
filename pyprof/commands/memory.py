"""Report what holds the memory: the peak, when and where it is reached, what is in use then, what is cached and free, and what
to do about it.

    pyprof memory snapshot.pickle              torch.cuda.memory._dump_snapshot, after _record_memory_history()
    pyprof memory net.json.gz --at end         a trace of torch.profiler with profile_memory=True; --at: another moment
    pyprof memory net.sqlite --table blocks    nsys --cuda-memory-usage=true: what cudaMalloc took

peak      what is in use at the peak (or at --at) by kind, layer, op, line, phase
blocks    each block in use then
segments  each segment that the allocator holds at the end, with what is free in it
steps     each step: its peak, and what stayed

Sizes are those that the program asked for where the recording has them; `allocated` adds what the allocator rounds up to,
`reserved` is what it took from the device. The replay starts from what is in use at the end, so that memory which is older than
the recording counts.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence

from pyprof.report.memory.make import memory_of
from pyprof.report.memory.report import SCHEMA, MemoryReport
from pyprof.report.memory.tables import TABLES
from pyprof.report.summary.styled import plain
from pyprof.tables.files import text_output
from pyprof.tables.output import choice, write
from pyprof.tables.screen import add_tables, require_table, selected

_WIDTH, _LEAST_WIDTH, _MOST_WIDTH = 100, 60, 120  # a narrower terminal wraps the lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof memory`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="snapshots of torch's allocator, or captures with allocations")
    parser.add_argument(
        "--at", metavar="peak|end|TIME", default="peak", help="what is in use then; TIME: 105.2ms from the begin"
    )
    add_tables(parser, TABLES)


def run(options: argparse.Namespace) -> int:
    """Read, replay, print. Returns the exit code."""
    require_table(options, TABLES)
    if options.table is None:
        choice(options, ())  # reports wrong options before anything is read
    found = [memory_of(name, options.at) for name in options.file]
    output = options.output or ""
    if options.table is not None:
        write(selected(TABLES[options.table](found), options), options)
    elif options.format == "json" or (options.format is None and output.endswith(".json")):
        with text_output(options.output, options.file) as stream:
            print(document(found), file=stream)
    elif options.format or output:
        write([make(found).take(slice(options.top)) for make in TABLES.values()], options)
    else:
        for number, one in enumerate(found):
            _show(one, options.width, blank=number > 0)
    return 0


def document(found: Sequence[MemoryReport]) -> str:
    """The JSON of one report, or of several under `files`."""
    if len(found) == 1:
        return found[0].json()
    files = [one.to_dict() for one in found]
    return json.dumps({"schema": SCHEMA, "files": files}, ensure_ascii=False, indent=1, allow_nan=False)


def _show(report: MemoryReport, width: int | None, *, blank: bool) -> None:
    command = shlex.join(["pyprof", "memory", report.file])
    width = width and max(width, _LEAST_WIDTH)
    if not sys.stdout.isatty():
        print("\n" * blank + plain(report.lines(width or _WIDTH, command)))
        return
    import shutil

    from rich.console import Console
    from rich.text import Text

    columns = width or min(max(shutil.get_terminal_size().columns, _LEAST_WIDTH), _MOST_WIDTH)
    console = Console(width=columns, highlight=False, soft_wrap=True)
    for line in [*[[("", "")]] * blank, *report.lines(columns, command)]:
        text = Text.assemble(*line)
        text.rstrip()
        console.print(text)
