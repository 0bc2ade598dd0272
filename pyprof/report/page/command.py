"""Write one page for a browser, to look at and to send: what the summary says, where the time goes by layer, op and kernel, the
roofline, the timeline with its gaps, tables that sort and filter, what is unknown, how it was computed.

    pyprof report FILE -o report.html
    pyprof report BEFORE AFTER -o report.html    a section each, and what changed
    pyprof report DIR -o report.html             one file a rank: a section each

The page is one file that needs no network.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pyprof.errors import UsageError
from pyprof.parse.records.selection import add_window, in_window, window_given

_MOST = 16  # sections of a page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof report`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="captures or records, or folders with one for each rank")
    parser.add_argument("-o", "--output", metavar="FILE.html", required=True, help="the page")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="hold rates against this device")
    add_window(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compute, write. Returns the exit code."""
    from pyprof.hardware import gpus
    from pyprof.loading import load_with_trace
    from pyprof.prof.frame import Frame
    from pyprof.report.diff.compare import Comparison
    from pyprof.report.overview import Overview
    from pyprof.report.page.data import compared, section_of
    from pyprof.report.page.render import render
    from pyprof.report.ranks.units import files_of
    from pyprof.tables.files import check_output, whole_text_file

    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    output, inputs = Path(options.output), [*map(Path, options.file)]
    check_output(output, inputs)
    names = [str(file) for name in options.file for file in (files_of([name]) if Path(name).is_dir() else [name])]
    if len(names) > _MOST:
        raise UsageError(f"a page holds at most {_MOST} captures, not {len(names)}", "pyprof ranks compares many ranks")
    first: Overview | None = None
    sections, comparisons = [], []
    for name in names:
        records, trace = load_with_trace(name)
        chosen = in_window(records, options) if window_given(options) else None
        overview = Overview(Frame(records, gpu), trace, chosen)
        sections.append(section_of(overview, name, len(names)))
        if first is not None:
            comparisons.append(compared(Comparison(first, overview), (names[0], name)))
        first = first or (overview if len(names) > 1 else None)
    with whole_text_file(output, inputs) as stream:
        stream.write(render(sections, comparisons))
    if output.is_file():
        print(f"{output}: open it in a browser", file=sys.stderr)
    return 0
