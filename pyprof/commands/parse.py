"""Read a capture and print one record a line: everything known about each kernel, as a Python dict literal and JSON at once.

FILE is an nsys export (.sqlite; a .nsys-rep if nsys is on PATH), an nvprof file, or a torch.profiler trace. With -o FOLDER any
number of files, folders and patterns: a Parquet file of each, in folders by rank. A second run continues where the first
stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyprof.errors import UsageError
from pyprof.messages import tell
from pyprof.model.records import Records
from pyprof.parse.records.locations import File, Remote, fetched, locate
from pyprof.parse.records.selection import SHOWN, add_graphs, add_kinds, choose_kinds, kind_codes
from pyprof.tables.files import check_output, is_direct, whole_file, whole_text_file

_FORMATS = (".dict", ".jsonl", ".parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof parse`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="a capture; with -o FOLDER also many, folders and patterns")
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="write there, not to standard output: .dict, .jsonl, .parquet, or a folder"
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        default=os.cpu_count() or 1,
        help="processes for many files; one capture takes one (%(default)s)",
    )
    parser.add_argument(
        "--dask",
        metavar="SCHEDULER",
        help="many files on the workers of this dask scheduler, not in processes here; one capture is parsed here",
    )
    add_kinds(parser, None, f"{SHOWN}; Parquet: all")
    add_graphs(parser)


def run(options: argparse.Namespace) -> int:
    """Read FILE, write records. Returns the exit code."""
    output = None if options.output in (None, "-") else locate(options.output)
    if options.kinds is not None:
        kind_codes(options.kinds)  # report errors before the work
    if isinstance(output, Remote):
        return _parse_many(options, output)
    # -o is a data set if its name has no suffix, or if it is a folder without a suffix of records.
    if output is not None and not is_direct(output):
        is_folder = output.is_dir() and (len(options.file) > 1 or output.suffix not in _FORMATS)
        if is_folder or not output.suffix:
            return _parse_many(options, output)
    if len(options.file) > 1:
        raise UsageError("several captures at once need a folder to write to", "pyprof parse FILE... -o FOLDER")
    source = locate(options.file[0])
    if output is not None:  # find out before the work whether it can be written
        if output.suffix not in _FORMATS and not is_direct(output):
            raise UsageError(f"{output}: unknown format of records", "give a name that ends in .dict, .jsonl or .parquet")
        check_output(output, [source] if isinstance(source, Path) else [])
    _parse(source, output, options.kinds)
    return 0


def _parse(source: File, output: Path | None, kinds: str | None) -> None:
    from pyprof.loading.load import load_capture

    with fetched(source) as capture:
        records = load_capture(capture, with_host=output is not None and output.suffix == ".parquet")
    if kinds is None:
        kinds = "all" if output is not None and output.suffix == ".parquet" else SHOWN
    shown = choose_kinds(records, kinds)
    if output is None:
        from pyprof.parse.records.netdict.write import lines

        sys.stdout.writelines(lines(shown))
    else:
        _write(shown, output)
    for message in records.messages():
        tell(f"note: {message}")


def _parse_many(options: argparse.Namespace, folder: File) -> int:
    """Write a Parquet file of each capture; returns 1 if one failed."""
    from pyprof.loading.load import load_capture
    from pyprof.parse.records.dataset import expand, parse_many

    files = expand(options.file)
    failed = done = 0
    load = partial(_load_kinds, partial(load_capture, graphs=options.graphs), "all" if options.kinds is None else options.kinds)
    for outcome in parse_many(files, folder, load, max(options.jobs, 1), options.dask):
        done += 1
        failed += outcome.target is None
        status = f"failed: {outcome.error}" if outcome.target is None else "was there" if outcome.before else "done"
        tell(f"{done}/{len(files)} {outcome.source}: {status}")
    tell(f"{folder}: {len(files) - failed} of {len(files)} captures")
    return 1 if failed else 0


def _load_kinds(load: Callable[[Path], Records], kinds: str, path: Path) -> Records:
    return choose_kinds(load(path), kinds)


def _write(records: Records, output: Path) -> None:
    if output.suffix == ".parquet":
        from pyprof.parse.records.parquet import write

        with whole_file(output) as stream:
            write(records, stream)
    else:
        from pyprof.parse.records.netdict.write import lines

        with whole_text_file(output) as text:
            text.writelines(lines(records))
