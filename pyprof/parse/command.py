"""Read a capture and print one record a line: everything known of each kernel, as a Python dict literal and JSON at once.

FILE is an nsys export (.sqlite; a .nsys-rep where nsys is on PATH), an nvprof file, or a torch.profiler trace. With -o FOLDER
any number of files, folders and patterns: a Parquet file of each, in folders by rank. Run again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from pyprof.errors import InputError, UsageError
from pyprof.parse.records.locations import File
from pyprof.parse.records.netdict.write import lines
from pyprof.parse.records.records import Records
from pyprof.parse.sources.trace import ActivityKind

__all__ = ["add_arguments", "choose_kinds", "run"]

SHOWN = "kernel,graph,cpu"
_FORMS = (".dict", ".jsonl", ".parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof parse`."""
    parser.add_argument("file", metavar="FILE", nargs="+", help="a capture; with -o FOLDER also many, folders and patterns")
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="write there, not to standard output: .dict, .jsonl, .parquet, or a folder"
    )
    parser.add_argument(
        "--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="processes for many files (%(default)s)"
    )
    parser.add_argument(
        "--dask", metavar="SCHEDULER", help="many files on the workers of this dask scheduler, not in processes here"
    )
    add_kinds(parser, None, f"{SHOWN}; Parquet: all")


def add_kinds(parser: argparse.ArgumentParser, default: str | None = SHOWN, shown: str = SHOWN) -> None:
    """The option that parse and prof share."""
    names = ", ".join(ActivityKind.NAMES)
    parser.add_argument("--kinds", default=default, metavar="LIST", help=f"rows to show, or all: {names} (default {shown})")


def choose_kinds(records: Records, text: str) -> Records:
    """The records of the kinds named in a comma list, or of all."""
    wanted = ActivityKind.NAMES if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    for name in wanted:
        if name not in ActivityKind.NAMES:
            raise UsageError(f"there is no kind {name!r}", f"kinds: {', '.join(ActivityKind.NAMES)}, all")
    return records.select(np.isin(records["kind"], [ActivityKind.NAMES.index(name) for name in wanted]))


def report(records: Records) -> None:
    """What the capture lacks, what attribution could not settle, and how much it did; on standard error."""
    for note in records.notes:
        print(f"note: {note}", file=sys.stderr)
    for what, count in sorted(records.counts.items()):
        text = what.replace("kernels", "kernel", 1).replace("functions", "function", 1) if count == 1 else what
        print(f"note: {count} {text}", file=sys.stderr)


def run(options: argparse.Namespace) -> int:
    """Read FILE, write records. Returns the exit code."""
    from pyprof.loading import load_capture
    from pyprof.parse.records.locations import Remote, fetched, place

    target = None if options.output is None else place(options.output)
    if isinstance(target, Remote) or (target is not None and _is_folder(target, len(options.file))):
        return _run_many(options, target)
    output = target
    if len(options.file) > 1:
        raise UsageError("several captures at once need a folder to write to", "pyprof parse FILE... -o FOLDER")
    if options.dask is not None:
        raise UsageError("--dask is for many files", "pyprof parse FILE... -o FOLDER --dask SCHEDULER")
    if output is not None:
        _check_output(output)
    with fetched(place(options.file[0])) as capture:
        records = load_capture(capture)
    shown = choose_kinds(records, options.kinds or ("all" if output is not None and output.suffix == ".parquet" else SHOWN))
    if output is None:
        sys.stdout.writelines(lines(shown))
    else:
        _write_file(shown, output)
    report(records)
    return 0


def _is_folder(target: Path, files: int) -> bool:
    """Whether -o means a data set: a name without a suffix, or a folder that is there and is not named as records are."""
    return not target.suffix or (target.is_dir() and (files > 1 or target.suffix not in _FORMS))


def _run_many(options: argparse.Namespace, folder: File) -> int:
    """A Parquet file of each capture; 1 where one failed."""
    from pyprof.loading import load_capture
    from pyprof.parse.records.dataset import expand, parse_many

    files = expand(options.file)
    failed = done = 0
    load = partial(_load_kinds, load_capture, options.kinds or "all")
    for outcome in parse_many(files, folder, load, max(options.jobs, 1), options.dask):
        done += 1
        failed += outcome.target is None
        said = f"failed: {outcome.error}" if outcome.target is None else "was there" if outcome.before else "done"
        print(f"{done}/{len(files)} {outcome.source}: {said}", file=sys.stderr)
    print(f"{folder}: {len(files) - failed} of {len(files)} captures", file=sys.stderr)
    return 1 if failed else 0


def _load_kinds(load: Callable[[Path], Records], kinds: str, path: Path) -> Records:
    return choose_kinds(load(path), kinds)


def _check_output(path: Path) -> None:
    """What can be told of the target before the work is done."""
    if path.suffix not in _FORMS:
        raise UsageError(f"{path}: no such form of records", "give a name that ends in .dict, .jsonl or .parquet")
    if path.is_dir():
        raise InputError(f"{path}: cannot be written: it is a directory", "choose another name with -o")
    if not path.parent.is_dir():
        raise InputError(f"{path}: cannot be written: there is no directory {path.parent}", "choose another place with -o")


def _write_parquet(records: Records, path: Path) -> None:
    from pyprof.parse.records.parquet import write

    write(records, path)


def _write_file(records: Records, path: Path) -> None:
    """Write beside the target and rename, so that the file appears whole or not at all."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8") as stream:
            try:
                if path.suffix == ".parquet":
                    _write_parquet(records, Path(stream.name))
                else:
                    stream.writelines(lines(records))
                stream.close()
                os.chmod(stream.name, 0o644)
                os.replace(stream.name, path)
            except BaseException:
                os.unlink(stream.name)
                raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}", "choose another place with -o") from error
