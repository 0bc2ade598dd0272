"""A copy of a capture, or of records, that can be given away: the measurements, without environment, command lines, lists of
processes, output of the program, names of people and machines. The copy gives the same tables.

A name found in a known place (a home folder, USER=, HOSTNAME=) is replaced wherever it is a whole word. Layers, ops, kernels,
their shapes, source files and lines stay, since they are what tables show: --cut-paths removes the folders of files,
--remove further words. The capture is not changed.

  pyprof scrub net.sqlite -o share.sqlite
  pyprof scrub net.json.gz -o share.json.gz --cut-paths --project ~/work/mynet --remove SecretNet
"""

from __future__ import annotations

import argparse
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from pyprof.errors import InputError, UsageError
from pyprof.loading.formats import CAPTURES, RECORDS, format_of
from pyprof.messages import stage, tell
from pyprof.parse.sources.graph_captures import beside
from pyprof.parse.sources.inputs import Input
from pyprof.parse.sources.kineto.trace_file import TraceFile
from pyprof.scrub import kineto, records
from pyprof.scrub.databases import NSYS, NVPROF, Kept, scrub_database
from pyprof.scrub.identities import Identities, Rules
from pyprof.tables.files import check_output, is_direct, whole_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof scrub`."""
    parser.add_argument(
        "file", metavar="FILE", help="capture of nsys, nvprof or torch.profiler, or records (.dict, .jsonl, .parquet)"
    )
    parser.add_argument("-o", metavar="OUT", dest="out", type=Path, required=True, help="the copy, of the same format")
    parser.add_argument("--remove", metavar="WORD", action="append", default=[], help="a word to take out too (again for more)")
    parser.add_argument(
        "--cut-paths", action="store_true", help="shorten absolute paths to the file's name, or to the part after site-packages"
    )
    parser.add_argument("--project", metavar="DIR", help="with --cut-paths: paths below DIR stay, from there on")


def run(options: argparse.Namespace) -> int:
    """Write the copy and print how many names were replaced. Raises as loading does, UsageError if the options contradict."""
    if options.project is not None and not options.cut_paths:
        raise UsageError("--project says which paths --cut-paths leaves", "add --cut-paths")
    if any(not word.strip() for word in options.remove):
        raise UsageError("--remove needs a word", "--remove NAME")
    project = os.path.abspath(os.path.expanduser(options.project)) if options.project is not None else None
    identities = Identities(Rules(tuple(options.remove), options.cut_paths, project))
    check_output(options.out, [Path(options.file)])
    with Input(options.file) as given:
        form = format_of(given, CAPTURES + RECORDS)
        if form not in _WRITERS:
            raise InputError(f"{given.name}: is a folder", "scrub its files one by one")
        with stage(f"scrubbing {given.name}"):
            _WRITERS[form](given, identities, options.out)
    users, hosts = len(identities.users), len(identities.hosts)
    tell(f"{options.out}: written; names found and replaced: {users} of users, {hosts} of hosts")
    if beside(Path(options.file)):
        tell("the traces of its graphs' capture beside it are not in the copy: scrub them too, under names that match")
    tell("check it before you share it: layers, ops, kernels and source files keep their names")
    return 0


def _database(given: Input, identities: Identities, out: Path) -> None:
    kept = NVPROF if NVPROF.strings[0] in given.tables else NSYS
    _write_database(given.file()[1], given.name, kept, identities, out)


def _report(given: Input, identities: Identities, out: Path) -> None:
    from pyprof.parse.sources.nsys_report import exported

    if out.suffix != ".sqlite":
        raise UsageError(f"{out}: the copy of a report of nsys is an SQLite export", "give -o NAME.sqlite")
    with exported(given.file()[1], given.name) as path:
        _write_database(path, given.name, NSYS, identities, out)


def _write_database(path: Path, name: str, kept: Kept, identities: Identities, out: Path) -> None:
    if is_direct(out):
        raise UsageError(f"{out}: a database can be written to a file only", "give -o NAME.sqlite")
    with whole_file(out) as stream:  # the hidden temporary file, still empty, becomes the database
        scrub_database(path, name, kept, identities, Path(os.fsdecode(stream.name)))


def _trace(given: Input, identities: Identities, out: Path) -> None:
    _, path = given.file()
    identities.find_in_file(path, "utf-8")
    with whole_file(out) as stream, path.open("rb") as source:
        if out.suffix != ".gz":
            kineto.scrub_trace(TraceFile(source, given.name), identities, stream)
            return
        with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") as packed:
            kineto.scrub_trace(TraceFile(source, given.name), identities, cast("BinaryIO", packed))


_WRITERS: dict[str, Callable[[Input, Identities, Path], None]] = {
    "nvprof database": _database,
    "nsys export": _database,
    "nsys report": _report,
    "torch.profiler trace": _trace,
    "Parquet file": records.scrub_parquet,
    "net.dict": records.scrub_lines,
}
