"""Report on a program compiled by torch.compile: time by category of kernel, and each kernel with what it fuses and moves.

    pyprof run --inductor --tool torch net.py        record one
    pyprof inductor FILE [--module fwd.py bwd.py]    FILE is a capture or records
    pyprof inductor run fwd.py                       run a generated module on its own inputs, record it, report
    pyprof inductor bench FILE                       time each generated kernel of a file alone, in every configuration

Bytes of fused kernels are exact if the generated modules are known: those of --module (files, or folders such as Inductor's
cache), else those that the capture names. Modules and kernel sources are read, never run; operations count with the weights of
the formulas. A gather counts an element every time it is read. Unknown are symbolic sizes (dynamic shapes) without recorded
arguments, and modules of TORCHINDUCTOR_CPP_WRAPPER=1 (C++).

Busy is the share of the time of all rows, Wall the share of the wall time, which can exceed 100 % if kernels overlap. Kernels
with unknown bytes add none, and rates leave out their time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed, union
from pyprof.columns.types import Floats, Ints
from pyprof.compiled.flow import product
from pyprof.compiled.fused import CATEGORIES, LaunchedKernel, describe, recorded_files
from pyprof.compiled.kernel_source import triton_kernel
from pyprof.compiled.module import CompiledModule, find_modules, read_module
from pyprof.errors import PyprofError, UsageError
from pyprof.hardware import cpus, gpus
from pyprof.messages import tell
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind
from pyprof.parse.records.selection import add_graphs, add_window, in_window
from pyprof.prof.frame import Frame
from pyprof.tables.output import write
from pyprof.tables.screen import Cells, add_tables, joined, listed, require_table, selected
from pyprof.tables.table import AnyTable, Fractions, Header, Integers, Table, Values

if TYPE_CHECKING:
    from pyprof.timers.generated import KernelResult

_NO_AMOUNT = 1 << 53  # bytes or operations


class LaunchSums(NamedTuple):
    """Sums by group: launches, ns, bytes and FLOPs (-1 unknown), ns of launches with known bytes."""

    launches: Ints
    ns: Ints
    bytes: Ints
    flops: Ints
    known_ns: Ints


class LaunchGroups(NamedTuple):
    """One entry per distinct kernel. peak: memory bandwidth in bytes/s, NaN unknown."""

    launches: list[LaunchedKernel]
    sums: LaunchSums
    peak: Floats


class BusyTimes(NamedTuple):
    """Times in ns, summed over devices. total: of all rows; union: with at least one row running; wall: from first begin to
    last end."""

    total: int
    union: int
    wall: int


def grouped(frame: Frame, rows: Ints, modules: list[CompiledModule]) -> LaunchGroups:
    """The kernels of these rows, most time first."""
    launches, codes = describe(frame, modules)
    code = codes[rows]
    time = np.maximum(frame.records["dur_ns"], 0)[rows]
    count, ns = np.bincount(code, minlength=len(launches)), summed(code, time, len(launches))
    amounts = []
    for values, own in (
        (frame.costs.bytes, [launch.bytes_of(n) for launch, n in zip(launches, count.tolist(), strict=True)]),
        (frame.costs.flops, [product((launch.flops, n)) for launch, n in zip(launches, count.tolist(), strict=True)]),
    ):
        known = (values[rows] >= 0) & np.array([launch.library for launch in launches], np.bool_)[code]
        total, spent = (summed(code[known], part[known], len(launches)) for part in (values[rows], time))
        any_known = np.bincount(code[known], minlength=len(launches)) > 0
        of_own = _whole(own)
        amounts.append((np.where(any_known, total, of_own), np.where(of_own >= 0, ns, spent)))
    (moved, known_ns), (flops, _) = amounts
    peak = _peaks(frame, code, rows, len(launches))
    names = np.array([f"{one.kernel} {one.graph} {one.category} {one.file} {one.nodes}" for one in launches], np.str_)
    order = np.lexsort((names, -ns))
    order = order[count[order] > 0]
    sums = LaunchSums(*(column[order].astype(np.int64) for column in (count, ns, moved, flops, known_ns)))
    return LaunchGroups([launches[i] for i in order.tolist()], sums, peak[order])


def _whole(values: Iterable[int | None]) -> Ints:
    """Amounts as integers; -1 for unknown ones and for the absurd ones of damaged modules."""
    return np.array([-1 if value is None or value >= _NO_AMOUNT else value for value in values], np.int64)


def _peaks(frame: Frame, code: Ints, rows: Ints, groups: int) -> Floats:
    """Memory bandwidth for the first row of each group."""
    peaks = np.full(groups, np.nan)
    measured = cpus.peak()
    used, first = np.unique(code, return_index=True)
    for group, row in zip(used.tolist(), rows[first].tolist(), strict=True):
        gpu = int(frame.records["gpu"][row])
        if gpu >= 0:
            peaks[group] = frame.gpus[gpu][0].dram_bytes_per_s or np.nan
        elif frame.records["kind"][row] == ActivityKind.CPU and measured is not None:
            peaks[group] = measured.dram_gbs * 1e9
    return peaks


def busy(records: Records, rows: Ints) -> BusyTimes:
    """How long devices were busy, and their wall time; all threads of a CPU are one device.

    Ops on a CPU have self time, so rows of one thread never overlap and their times add up.
    """
    start, spent = records["start_ns"][rows], np.maximum(records["dur_ns"][rows], 0)
    on_cpu = records["kind"][rows] == ActivityKind.CPU
    devices, _, device = distinct_rows(records["pid"][rows], np.where(on_cpu, -1, records["device"][rows]))
    count = devices.shape[1]
    covered = union(device, start, start + spent).total(count)
    wall = 0
    for number in range(count):
        mine = device == number
        wall += int((start + spent)[mine].max()) - int(start[mine].min())
        if on_cpu[mine].all() and len(np.unique(records["tid"][rows][mine])) == 1:
            covered[number] = spent[mine].sum()
    return BusyTimes(int(spent.sum()), min(int(covered.sum()), wall), wall)


_UNITS = {"GB": "GB", "GB/s": "GB/s", "GFLOP": "GFLOP", "Bytes": "B"}  # units of columns without one behind their name


def _header(key: str, text: str, about: str, grow: bool = False, width: int = 0) -> Header:
    unit = _UNITS.get(text) or text.partition("(")[2].rstrip(")")
    share, detail = key == "busy", key in ("graph", "wall", "gb", "gflop", "from", "file")
    return Header(key, text, about, unit, max(width, len(text)), grow, "-", share=share, detail=detail)


def _amounts(sums: LaunchSums, times: BusyTimes) -> Cells:
    """The columns of both tables."""

    def share(total: int) -> Values:
        return Fractions.not_nan(100 * sums.ns / (total or np.nan), 2)

    def billions(values: Ints) -> Values:
        return Fractions(values / 1e9, values < 0, 6)

    return [
        (_header("launches", "Launches", "how often they ran"), Integers.from_zero(sums.launches)),
        (_header("time_us", "Time(us)", "of all of them"), Fractions.not_nan(sums.ns / 1e3, 1)),
        (_header("busy", "Busy(%)", "share of the time of all rows"), share(times.total)),
        (_header("wall", "Wall(%)", "share of the wall time"), share(times.wall)),
        (_header("gb", "GB", "10^9 bytes read and written, where known"), billions(sums.bytes)),
        (_header("gbs", "GB/s", "rate of those with known bytes"), Fractions.not_nan(_rate(sums), 2)),
        (_header("gflop", "GFLOP", "10^9 operations, where known"), billions(sums.flops)),
    ]


def _rate(sums: LaunchSums) -> Floats:
    """Bytes per ns, NaN unknown."""
    known = (sums.bytes >= 0) & (sums.known_ns > 0)
    return np.where(known, sums.bytes, np.nan) / np.maximum(sums.known_ns, 1)


def categories(groups: LaunchGroups, times: BusyTimes) -> Table:
    """One row per category, and the total."""
    code = np.array([CATEGORIES.index(launch.category) for launch in groups.launches], np.int64)
    used, at = np.unique(code, return_inverse=True)
    kernel_names = {(int(c), launch.kernel, launch.file) for c, launch in zip(code, groups.launches, strict=True)}
    distinct = [sum(name[0] == category for name in kernel_names) for category in used.tolist()]

    def total(values: Ints) -> Ints:
        """Sums by category, then of everything; -1 unknown."""
        known = values >= 0
        of = np.concatenate([at.ravel()[known], np.full(int(known.sum()), len(used))])
        return np.where(np.bincount(of, minlength=len(used) + 1) > 0, summed(of, np.tile(values[known], 2), len(used) + 1), -1)

    cells: Cells = [
        (_header("category", "Category", "what kind of kernel", width=20), listed([*(CATEGORIES[c] for c in used), "total"])),
        (_header("kernels", "Kernels", "distinct ones"), Integers.known(np.array([*distinct, sum(distinct)], np.int64))),
    ]
    return joined("categories", cells + _amounts(LaunchSums(*map(total, groups.sums)), times))


def kernels(groups: LaunchGroups, times: BusyTimes) -> Table:
    """One row per kernel and graph."""
    launches, sums = groups.launches, groups.sums
    launched, time, in_busy, in_wall, *moved = _amounts(sums, times)
    count = np.maximum(sums.launches, 1)
    each = np.where(sums.bytes >= 0, sums.bytes // count, -1)
    source = [
        launch.source or ("op" if launch.library and known else None) for launch, known in zip(launches, each >= 0, strict=True)
    ]
    cells: Cells = [
        (_header("kernel", "Kernel", "its name", True), listed(launch.kernel for launch in launches)),
        (_header("category", "Category", "kind of kernel", width=10), listed(launch.category for launch in launches)),
        (_header("graph", "Graph", "compiled graph, or the direction", width=11), listed(launch.graph for launch in launches)),
        launched,
        time,
        (_header("avg_us", "Avg(us)", "of one launch"), Fractions.not_nan(sums.ns / count / 1e3, 2)),
        in_busy,
        in_wall,
        (_header("bytes", "Bytes", "read and written by one launch, on average"), Integers.from_zero(each)),
        *moved,
        (_header("peak", "Peak(%)", "of the bandwidth of the memory"),
         Fractions.not_nan(100 * _rate(sums) * 1e9 / groups.peak, 1)),
        (_header("from", "From", "where the bytes come from: module, arguments, recorded, op", width=9), listed(source)),
        (_header("nodes", "Fuses", "source nodes, or the ops in its name", True),
         listed(",".join(launch.nodes) for launch in launches)),
        (_header("file", "File", "where it is defined", True), listed(launch.file for launch in launches)),
    ]  # fmt: skip
    return joined("kernels", cells)


_LIMIT_S = 600.0  # for a generated module in its own process: its kernels must be compiled
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
    from pyprof.loading import load

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
    from pyprof.timers.apart import Apart
    from pyprof.timers.generated import bench

    on_gpu = path.is_file() and triton_kernel(path.read_text(encoding="utf-8", errors="replace")) is not None
    with Apart(_LIMIT_S) as apart:
        results = apart.call(bench, path, options.kernel, options.seconds, on_cpu=not on_gpu)
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
    """The modules that the capture names; a note tells of files that are no longer modules."""
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
