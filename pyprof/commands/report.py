"""Write one page for a browser, to look at and to share: the summary, time by layer, op and kernel, the roofline, the timeline
with its gaps, tables that sort and filter, what is unknown, how it was computed.

    pyprof report FILE -o report.html
    pyprof report BEFORE AFTER -o report.html    what changed, and a section for each
    pyprof report snapshot.pickle -o report.html what holds the memory: over time, and at the moment that one clicks
    pyprof report DIR -o report.html             a job with one file per rank: ranks compared, sections of some

The page is one file that needs no network.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyprof.errors import UsageError
from pyprof.messages import tell
from pyprof.parse.records.selection import add_graphs, add_whole, add_window, in_window, window_given

if TYPE_CHECKING:
    from pyprof.hardware.devices import Gpu
    from pyprof.parse.records.locations import File
    from pyprof.report.page.data import Compared, JobsCompared, Section
    from pyprof.report.page.job import Job
    from pyprof.report.ranks.units import Choose
    from pyprof.report.time.overview import Overview

_MOST = 16  # captures and folders on a page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof report`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="captures or records, or folders with one file per rank")
    parser.add_argument("-o", "--output", metavar="FILE.html", required=True, help="the page")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="compare with this device's peaks")
    add_window(parser)
    add_whole(parser)
    add_graphs(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compute, write. Returns the exit code."""
    from pyprof.hardware import gpus
    from pyprof.loading.formats import is_snapshot
    from pyprof.report.memory.make import memory_of
    from pyprof.report.page.memory import memory_section
    from pyprof.report.page.render import render
    from pyprof.tables.files import check_output, whole_text_file

    gpu = gpus.named(options.gpu) if options.gpu is not None else None
    output, inputs = Path(options.output), [*map(Path, options.file)]
    check_output(output, inputs)
    if len(options.file) > _MOST:
        raise UsageError(f"a page holds at most {_MOST} captures, not {len(options.file)}", "pyprof ranks compares many ranks")
    choose = (lambda records: in_window(records, options)) if window_given(options) else None
    snapshots = [*filter(is_snapshot, options.file)]
    entries, comparisons = _read([name for name in options.file if name not in snapshots], gpu, choose)
    with whole_text_file(output, inputs) as stream:
        stream.write(render(entries, comparisons, [memory_section(memory_of(name)) for name in snapshots]))
    if output.is_file():
        tell(f"{output}: open it in a browser")
    return 0


def _read(
    names: Sequence[str], gpu: Gpu | None, choose: Choose | None
) -> tuple[list[Section | Job], list[Compared | JobsCompared]]:
    """(a section per capture and a job per folder; comparisons of the first with each other one of its kind)."""
    from pyprof.parse.records.locations import is_folder, locate
    from pyprof.report.diff.compare import Comparison
    from pyprof.report.page.data import compared, jobs_compared, section_of, with_memory
    from pyprof.report.page.job import job_section
    from pyprof.report.ranks.units import files_of

    read = partial(_overview, gpu=gpu, choose=choose)
    entries: list[Section | Job] = []
    comparisons: list[Compared | JobsCompared] = []
    first: Overview | None = None
    for name in names:
        folder = is_folder(locate(name))
        files: Sequence[File] = files_of([name]) if folder else [locate(name)]
        if len(files) > 1:
            entries.append(job_section(name, files, read, choose))
        else:
            overview = read(files[0])
            entries.append(with_memory(section_of(overview, str(files[0]), len(names)), str(files[0])))
            if first is not None:
                comparisons.append(compared(Comparison(first, overview), (names[0], name)))
            first = first or (overview if len(names) > 1 and name == names[0] else None)
        if folder and name != names[0] and is_folder(locate(names[0])):
            comparisons.append(jobs_compared(names[0], name, read))
    return entries, comparisons


def _overview(name: File | str, gpu: Gpu | None, choose: Choose | None) -> Overview:
    from pyprof.loading.load import load
    from pyprof.prof.frame import Frame
    from pyprof.report.time.overview import Overview

    records = load(str(name), with_host=True)
    return Overview(Frame(records, gpu), None if choose is None else choose(records))
