"""Report where each GPU idles and why, how long launches take, how full the queue is, and which communication is exposed.

    pyprof gaps FILE                     the tables one after another
    pyprof gaps FILE --table ops --csv   one of them

streams   a row for each device (stream all) and each stream: busy time and idle time by cause, which add up to the window
steps     each step of the program: its activities, how long they waited, and the idle time before them by cause
ops       idle time of each device by cause and by the op, layer and source line that was launched next
gaps      each gap of each device (with --stream of each stream), longest first
latency   time from launch to begin on the device; kernels that are shorter than their launch
queue     how many activities are launched and not finished, over time
host      where the launching threads were while devices idled, by cause: self time of functions, ranges, ops and API calls
overlap   compute, communication and copies: hidden behind compute, or exposed
what-if   what goes if every launch were free, no call waited, communication were hidden, the device infinitely fast

Window, causes and sums are those of `pyprof summary` (pyprof help terms). A stream idles elsewhere while its device works on
other streams, otherwise for the causes of its device.
"""

from __future__ import annotations

import argparse

from pyprof.errors import InputError, UsageError
from pyprof.loading.load import load
from pyprof.messages import tell
from pyprof.parse.records.selection import add_graphs, add_whole, add_window, first_ns, in_window, window_given
from pyprof.prof.frame import Frame
from pyprof.report.gaps import TABLES, Report
from pyprof.report.time.causes import CAUSES
from pyprof.report.time.overview import Overview
from pyprof.tables.output import on_terminal, write
from pyprof.tables.screen import add_tables, joined, require_table, selected
from pyprof.tables.table import AnyTable, Integers, LazyTable, Table

_SCREEN = 10  # rows of steps, ops and gaps on the screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof gaps`."""
    parser.add_argument("file", metavar="FILE", help="a capture, or records of one")
    add_tables(parser, TABLES)
    parser.add_argument("--stream", action="store_true", help="in ops and gaps: gaps of each stream, not of devices")
    parser.add_argument("--bins", metavar="N", type=int, default=20, help="number of rows of table queue (20)")
    add_window(parser)
    add_whole(parser)
    add_graphs(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    require_table(options, TABLES)
    if options.bins < 1:
        raise UsageError(f"--bins takes a number from 1, not {options.bins}", "for example --bins 50")
    records = load(options.file, with_host=True)
    if records.unseen is not None:
        raise InputError(f"{options.file}: when its device worked is not known: {records.unseen.what}", records.unseen.do)
    overview = Overview(Frame(records), in_window(records, options) if window_given(options) else None)
    report = Report(overview, options.stream, options.bins)
    if overview.missing is not None:
        tell(f"note: {overview.missing}")
    since, head = first_ns(records), report.json_head
    if options.table:
        write(selected(TABLES[options.table](report), options)._replace(since=since), options, head)
        return 0
    write([_on_screen(make(report), options)._replace(since=since) for make in TABLES.values()], options, head)
    if options.output is None and options.format in (None, "table"):
        print()
    return 0


def _on_screen(table: AnyTable, options: argparse.Namespace) -> AnyTable:
    """The first rows of a table with its name as title; a terminal omits causes without time, JSON has everything."""
    limit = _SCREEN if table.name in ("steps", "ops", "gaps", "host") and options.format != "json" else None
    if on_terminal(options):  # the terminal format itself says how many rows are left out
        if isinstance(table, LazyTable):
            table = table._replace(headers=[header for header in table.headers if header.key not in CAUSES])
        table = table if options.top is None else table.first(options.top)
        if isinstance(table, Table):
            cells = zip(table.headers, table.values, strict=True)
            told = [
                (header, values)
                for header, values in cells
                if header.key not in CAUSES or (isinstance(values, Integers) and values.values.any())
            ]
            table = joined(table.name, told)
        return table._replace(most=limit or 0)
    most = options.top if options.top is not None else limit
    shown = table if most is None else table.first(most)
    count = "" if len(shown.rows) == len(table.rows) else f" ({len(shown.rows)} of {len(table.rows)})"
    return shown._replace(title=table.name + count)
