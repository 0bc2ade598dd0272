"""Report on a program compiled by torch.compile: time by category of kernel, and each kernel with what it fuses and moves.

    pyprof run --inductor --tool torch net.py        record one
    pyprof inductor FILE [--module fwd.py bwd.py]    FILE is a capture or records
    pyprof inductor run fwd.py                       run a generated module on its own inputs, record it, report
    pyprof inductor bench FILE                       time each generated kernel of a file alone, in every configuration

Bytes of fused kernels are exact if the generated modules are known: those of --module (files, or folders such as Inductor's
cache), else those that the capture names. Modules and kernel sources are read, never run; operations count with the weights of
the formulas. A gather counts an element every time it is read. Symbolic sizes (dynamic shapes) without recorded
arguments and modules of TORCHINDUCTOR_CPP_WRAPPER=1 (C++) are unknown.

Busy is the share of the time of all rows, Wall the share of the wall time, which can exceed 100 % if kernels overlap. Kernels
with unknown bytes add none, and rates leave out their time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyprof.compiled.fused import recorded_files
from pyprof.compiled.kernel_source import triton_kernel
from pyprof.compiled.module import CompiledModule, find_modules, read_module
from pyprof.errors import PyprofError, UsageError
from pyprof.hardware import gpus
from pyprof.messages import tell
from pyprof.model.records import Records
from pyprof.parse.records.selection import add_graphs, add_window, in_window
from pyprof.prof.frame import Frame
from pyprof.tables.output import write
from pyprof.tables.screen import add_tables, joined, listed, require_table, selected
from pyprof.tables.table import AnyTable, Fractions, Integers, Table, Values

if TYPE_CHECKING:
    from pyprof.timers.generated import KernelResult

from pyprof.compiled.report import BusyTimes, LaunchGroups, _header, _whole, busy, categories, grouped, kernels

_LIMIT_S = 600.0  # for a generated module in its own process, compilation included
_TABLES = {"categories": categories, "kernels": kernels}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof inductor`."""
    parser.add_argument("words", metavar="FILE", nargs="+", help="a capture or records; or: run MODULE; bench FILE")
    parser.add_argument("--module", metavar="PATH", nargs="+", default=[], help="generated modules, or folders that hold them")
    parser.add_argument("--wall-ms", metavar="MS", type=float, help="wall time; otherwise from the first begin to the last end")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="compare with this device's peaks")
    add_tables(parser, ("both", *_TABLES), file=False)
    parser.add_argument("--times", metavar="N", type=int, default=10, help="run: calls that are recorded (default %(default)s)")
    parser.add_argument("-o", "--output", metavar="NAME", help="write to this file; run: name of the capture")
    parser.add_argument("--kernel", metavar="NAME", help="bench: only this one")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.3, help="bench: for each (default %(default)s)")
    add_window(parser)
    add_graphs(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    for name in ("wall_ms", "times", "seconds"):
        if (value := getattr(options, name)) is not None and not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be positive", "see pyprof inductor --help")
    first, *others = options.words
    if len(others) != (first in ("run", "bench")):
        raise UsageError(
            "one FILE is needed", "pyprof inductor FILE, pyprof inductor run MODULE, or pyprof inductor bench FILE"
        )
    if first == "bench":
        return _bench(Path(others[0]), options)
    require_table(options, _TABLES, ("parquet",))
    file = first
    if first == "run":
        from pyprof.recording.generated import record_module

        file, options.output = str(record_module(Path(others[0]), options.output, options.times)), None
        tell(f"pyprof: the capture is {file}")
        options.module = [others[0], *options.module]
    return _report(file, options)


def _report(file: str, options: argparse.Namespace) -> int:
    from pyprof.loading.load import load

    given = [read_module(path) for path in find_modules([Path(p) for p in options.module])] if options.module else []
    records = load(file)
    frame = Frame(records, gpus.named(options.gpu) if options.gpu is not None else None)
    rows = np.flatnonzero(in_window(records, options))
    groups = grouped(frame, rows, given or _recorded(records))
    times = busy(records, rows)
    if options.wall_ms is not None:
        times = times._replace(wall=round(options.wall_ms * 1e6))
    if options.table in _TABLES:
        tables: list[AnyTable] = [selected(_TABLES[options.table](groups, times), options)]
    else:
        tables = [categories(groups, times), selected(kernels(groups, times), options)]
    write(tables, options)
    sys.stdout.flush()
    _note(groups, times, records)
    return 0


def _bench(path: Path, options: argparse.Namespace) -> int:
    from pyprof.timers.generated import bench
    from pyprof.timers.isolated import Isolated

    on_gpu = path.is_file() and triton_kernel(path.read_text(encoding="utf-8", errors="replace")) is not None
    with Isolated(_LIMIT_S) as isolated:
        results = isolated.call(bench, path, options.kernel, options.seconds, on_cpu=not on_gpu)
    write(selected(bench_table(results), options), options)
    return 0


def bench_table(results: Sequence[KernelResult]) -> Table:
    """One row for each kernel that was timed alone."""
    from pyprof.timers.generated import KernelResult

    def values(name: str, digits: int | None) -> Values:
        found = [getattr(result, name) for result in results]
        if digits is None:
            return listed(found)
        return Fractions.not_nan(np.array(found, np.float64), digits) if digits else Integers.from_zero(_whole(found))

    columns = [(field.name, *field.metadata.values()) for field in fields(KernelResult)]
    cells = [(_header(name, text, about, digits is None), values(name, digits)) for name, text, about, digits in columns]
    return joined("bench", cells)


def _recorded(records: Records) -> list[CompiledModule]:
    """The modules that the capture names; notes tell which of the files cannot be read."""
    found = []
    for path in recorded_files(records):
        try:
            found.append(read_module(path))
        except PyprofError as error:
            tell(f"note: {error}")
    return found


def _note(groups: LaunchGroups, times: BusyTimes, records: Records) -> None:
    if times.wall:
        tell(
            f"busy {100 * times.union / times.wall:.1f} % of {times.wall / 1e6:.3f} ms wall (union of intervals); "
            f"sum over wall {100 * times.total / times.wall:.1f} %",
        )
    counts = groups.sums.launches.tolist()
    fused = [(launch, n) for launch, n in zip(groups.launches, counts, strict=True) if not launch.library]
    unknown = sum(launch.bytes_of(n) is None for launch, n in fused)
    if not fused:
        tell("note: no fused kernels; on a CPU record with `pyprof run --inductor --tool torch`")
    elif unknown:
        tell(f"note: {unknown} of {len(fused)} fused kernels without bytes: name their modules with --module")
    for note in records.notes:
        tell(f"note: {note}")
