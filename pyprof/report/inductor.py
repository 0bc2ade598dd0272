"""Report on a program compiled by torch.compile: time by category of kernel, and each kernel with what it fuses and moves.

    pyprof run --inductor --tool torch net.py        record one
    pyprof inductor FILE [--module fwd.py bwd.py]    FILE is a capture or records
    pyprof inductor run fwd.py                       run a generated module on inputs of its own, record it, report
    pyprof inductor bench FILE                       time each generated kernel of a file alone, in every configuration

Bytes of fused kernels are exact where the generated modules are known: those that --module names (or a folder that holds
them, as Inductor's cache), else those that the capture names. They are read, never run, as are the sources of the kernels,
whose operations are counted by the weights of the formulas. A gather counts each element as often as it is asked for. Unknown:
sizes that are symbols (dynamic shapes) unless the arguments were recorded, and modules of TORCHINDUCTOR_CPP_WRAPPER=1 (C++).

Shares are of the time of all rows (Busy) and of the wall time (Wall), which kernels that overlap can exceed; what is unknown
adds no bytes, and rates leave its time out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import distinct_rows
from pyprof.arrays.intervals import union
from pyprof.errors import PyprofError, UsageError
from pyprof.hardware import cpus, gpus
from pyprof.parse.records.records import Records
from pyprof.parse.records.selection import add_window, in_window
from pyprof.parse.sources.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.report.compiled.flow import product
from pyprof.report.compiled.fused import CATEGORIES, Launch, describe, recorded_files
from pyprof.report.compiled.module import CompiledModule, find_modules, read_module
from pyprof.tables.formats import write_aligned, write_csv, write_jsonl, write_plain
from pyprof.tables.table import Fractions, Header, Integers, Table, Texts, Values

__all__ = ["Busy", "Groups", "add_arguments", "busy", "categories", "grouped", "kernels", "run"]

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
_NO_AMOUNT = 1 << 53  # bytes or operations
_Writer = Callable[[Table, TextIO], None]
_WRITERS: dict[str, _Writer] = {"table": write_aligned, "plain": write_plain, "csv": write_csv, "jsonl": write_jsonl}


@dataclass(frozen=True)
class Groups:
    """One entry for each thing that was run: launches, time, bytes and FLOPs of them where known (-1 else), and the time of
    those whose bytes are known; peak: bytes/s of the memory (NaN unknown)."""

    launches: list[Launch]
    count: Ints
    ns: Ints
    bytes: Ints
    flops: Ints
    known_ns: Ints
    peak: Array


@dataclass(frozen=True)
class Busy:
    """Times in ns. total: of all rows; union: in which at least one ran, over each device; wall: from the first begin to the
    last end, on each device."""

    total: int
    union: int
    wall: int


def grouped(frame: Frame, rows: Ints, modules: list[CompiledModule]) -> Groups:
    """What these rows ran, most time first."""
    launches, codes = describe(frame, modules)
    code = codes[rows]
    time = np.maximum(frame.records["dur_ns"], 0)[rows]
    count, ns = np.bincount(code, minlength=len(launches)), _sums(code, time, len(launches))
    amounts = []
    for values, own in (
        (frame.costs.bytes, [launch.bytes_of(n) for launch, n in zip(launches, count.tolist(), strict=True)]),
        (frame.costs.flops, [product((launch.flops, n)) for launch, n in zip(launches, count.tolist(), strict=True)]),
    ):
        known = (values[rows] >= 0) & np.array([launch.library for launch in launches], np.bool_)[code]
        total, spent = (_sums(code[known], part[known], len(launches)) for part in (values[rows], time))
        any_known = np.bincount(code[known], minlength=len(launches)) > 0
        of_own = _whole(own)
        amounts.append((np.where(any_known, total, of_own), np.where(of_own >= 0, ns, spent)))
    (moved, known_ns), (flops, _) = amounts
    peak = _peaks(frame, code, rows, len(launches))
    names = np.array([f"{one.kernel} {one.graph} {one.category} {one.file} {one.nodes}" for one in launches], np.str_)
    order = np.lexsort((names, -ns))
    order = order[count[order] > 0]
    count, ns, moved, flops, known_ns = (column[order].astype(np.int64) for column in (count, ns, moved, flops, known_ns))
    return Groups([launches[i] for i in order.tolist()], count, ns, moved, flops, known_ns, peak[order])


def _sums(code: Ints, values: Ints, groups: int) -> Ints:
    result = np.zeros(groups, np.int64)
    np.add.at(result, code, values)
    return result


def _whole(values: Iterable[int | None]) -> Ints:
    """-1 for what is unknown, or so large that it is no real amount: what damaged or invented modules contain."""
    return np.array([-1 if value is None or value >= _NO_AMOUNT else value for value in values], np.int64)


def _peaks(frame: Frame, code: Ints, rows: Ints, groups: int) -> Array:
    """Bandwidth of the memory of each group's first row."""
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


# ---------------------------------------------------------------------------------------------- time


def busy(records: Records, rows: Ints) -> Busy:
    """How long each device had work, and from when to when; on a CPU each thread counts as what it is: part of one device.

    An op on a CPU has only its own time, so the rows of a thread never overlap, and are put one after another here.
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
    return Busy(int(spent.sum()), min(int(covered.sum()), wall), wall)


# ---------------------------------------------------------------------------------------------- tables


def _column(key: str, header: str, text: str, grow: bool = False, width: int = 0) -> Header:
    return Header(key, header, text, "", max(width, len(header)), grow)


_SHARED = [
    _column("launches", "Launches", "how often they ran"),
    _column("time_us", "Time(us)", "of all of them"),
    _column("busy", "Busy(%)", "share of the time of all rows"),
    _column("wall", "Wall(%)", "share of the wall time"),
    _column("gb", "GB", "10^9 bytes read and written, where known"),
    _column("gbs", "GB/s", "rate of those whose bytes are known"),
    _column("gflop", "GFLOP", "10^9 operations, where known"),
]
_CATEGORY = [_column("category", "Category", "what kind of kernel", width=20), _column("kernels", "Kernels", "distinct ones")]
_KERNEL = [
    _column("kernel", "Kernel", "its name", True),
    _column("category", "Category", "what kind of kernel it is", width=10),
    _column("graph", "Graph", "of which compiled graph, or in which direction", width=11),
    *_SHARED[:2],
    _column("avg_us", "Avg(us)", "of one launch"),
    *_SHARED[2:4],
    _column("bytes", "Bytes", "read and written by one launch, on average"),
    *_SHARED[4:],
    _column("peak", "Peak(%)", "of the bandwidth of the memory"),
    _column("from", "From", "where the bytes come from: module, arguments, recorded, op", width=9),
    _column("nodes", "Fuses", "source nodes, or the ops in its name", True),
    _column("file", "File", "where it is defined", True),
]


def categories(groups: Groups, times: Busy) -> Table:
    """One row for each category, and their total."""
    code = np.array([CATEGORIES.index(launch.category) for launch in groups.launches], np.int64)
    used = np.unique(code)
    place = np.searchsorted(used, code)
    names = {(int(c), launch.kernel, launch.file) for c, launch in zip(code, groups.launches, strict=True)}
    distinct = [sum(name[0] == at for name in names) for at in used.tolist()]
    both = [(place, len(used)), (np.zeros(len(code), np.int64), 1)]  # the categories, and all of them

    def total(values: Ints) -> Ints:
        known = values >= 0
        return np.concatenate(
            [np.where(np.bincount(at[known], minlength=n) > 0, _sums(at[known], values[known], n), -1) for at, n in both]
        )

    sums = {name: total(getattr(groups, name)) for name in ("count", "ns", "bytes", "flops", "known_ns")}
    texts = [*(CATEGORIES[c] for c in used.tolist()), "total"]
    first: list[Values] = [
        Texts(np.arange(len(texts)), texts),
        Integers.from_zero(np.array([*distinct, sum(distinct)], np.int64)),
    ]
    return Table([*_CATEGORY, *_SHARED], [*first, *_shared(sums, times)])


def kernels(groups: Groups, times: Busy) -> Table:
    """One row for each kernel of each graph."""
    sums = {name: getattr(groups, name) for name in ("count", "ns", "bytes", "flops", "known_ns")}
    count, time, in_busy, in_wall, gb, rate, flop = _shared(sums, times)
    assert isinstance(rate, Fractions)

    def texts(of: list[str]) -> Texts:
        return Texts(np.arange(len(of)), of)

    launches = groups.launches
    each = np.where(groups.bytes >= 0, groups.bytes // np.maximum(groups.count, 1), -1)
    values: list[Values] = [
        texts([launch.kernel for launch in launches]),
        texts([launch.category for launch in launches]),
        texts([launch.graph for launch in launches]),
        count,
        time,
        Fractions.not_nan(groups.ns / np.maximum(groups.count, 1) / 1e3, 2),
        in_busy,
        in_wall,
        Integers.from_zero(each),
        gb,
        rate,
        flop,
        Fractions.not_nan(100 * rate.values * 1e9 / groups.peak, 1),
        texts(
            [launch.source or ("op" if launch.library and b >= 0 else "na") for launch, b in zip(launches, each, strict=True)]
        ),
        texts([",".join(launch.nodes) or "-" for launch in launches]),
        texts([launch.file or "-" for launch in launches]),
    ]
    return Table(_KERNEL, values)


def _shared(sums: dict[str, Ints], times: Busy) -> list[Values]:
    """The columns that both tables have."""

    def share(whole: int) -> Values:
        return Fractions.not_nan(100 * sums["ns"] / whole if whole else np.full(len(sums["ns"]), np.nan), 2)

    def scaled(values: Ints, digits: int) -> Values:
        return Fractions.not_nan(np.where(values >= 0, values / 1e9, np.nan), digits)

    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(sums["bytes"] >= 0, sums["bytes"] / sums["known_ns"], np.nan)
    rate[~np.isfinite(rate)] = np.nan
    shares = [share(times.total), share(times.wall)]
    counted: list[Values] = [Integers.from_zero(sums["count"]), Fractions.not_nan(sums["ns"] / 1e3, 1), *shares]
    return [*counted, scaled(sums["bytes"], 6), Fractions.not_nan(rate, 2), scaled(sums["flops"], 6)]


# ---------------------------------------------------------------------------------------------- command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `pyprof inductor`."""
    parser.add_argument("words", metavar="FILE", nargs="+", help="a capture or records; or: run MODULE; bench FILE")
    parser.add_argument("--module", metavar="PATH", nargs="+", default=[], help="generated modules, or folders that hold them")
    parser.add_argument("--wall-ms", metavar="MS", type=float, help="wall time; otherwise from the first begin to the last end")
    parser.add_argument("--table", choices=["both", "categories", "kernels"], default="both", help="which (default: both)")
    parser.add_argument("--gpu", metavar="NAME|FILE", help="hold rates against this device")
    parser.add_argument("--top", metavar="N", type=int, help="only the first N kernels")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated (RFC 4180), an empty line between tables")
    form.add_argument("-w", "--width", metavar="N", type=int, help="aligned in lines of N characters")
    form.add_argument("--format", choices=_WRITERS, default="table", help="(default: table)")
    parser.add_argument("--times", metavar="N", type=int, default=10, help="run: calls that are recorded (default %(default)s)")
    parser.add_argument("-o", "--output", metavar="NAME", help="run: name of the capture (default: that of the module)")
    parser.add_argument("--kernel", metavar="NAME", help="bench: only this one")
    parser.add_argument("--seconds", metavar="S", type=float, default=0.3, help="bench: for each (default %(default)s)")
    add_window(parser)


def run(options: argparse.Namespace) -> int:
    """Read, compute, print. Returns the exit code."""
    for name in ("wall_ms", "times", "seconds"):
        if (value := getattr(options, name)) is not None and not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be positive", "see pyprof inductor --help")
    if options.top is not None and options.top < 0:
        raise UsageError("--top must not be negative", "for example --top 10")
    first, *others = options.words
    if len(others) != (first in ("run", "bench")):
        raise UsageError(
            "one FILE is needed", "pyprof inductor FILE, pyprof inductor run MODULE, or pyprof inductor bench FILE"
        )
    if first == "bench":
        return _bench(Path(others[0]), options)
    file = first
    if first == "run":
        from pyprof.recording.generated import record_module

        file = str(record_module(Path(others[0]), options.output, options.times))
        print(f"pyprof: the capture is {file}", file=sys.stderr)
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
        times = Busy(times.total, times.union, round(options.wall_ms * 1e6))
    _print(_tables(groups, times, options), options)
    sys.stdout.flush()
    _say(groups, times, records)
    return 0


def _bench(path: Path, options: argparse.Namespace) -> int:
    from pyprof.timers.generated import COLUMNS, bench

    results = bench(path, options.kernel, options.seconds)

    def values(name: str, digits: int | None) -> Values:
        found = [getattr(result, name) for result in results]
        if digits is None:
            return Texts(np.arange(len(found)), found)
        if not digits:
            return Integers.from_zero(_whole(found))
        return Fractions.not_nan(np.array([np.nan if value is None else value for value in found], np.float64), digits)

    columns = [_column(name, header, text, digits is None) for name, header, text, digits in COLUMNS]
    _print([Table(columns, [values(name, digits) for name, _, _, digits in COLUMNS])], options)
    return 0


def _recorded(records: Records) -> list[CompiledModule]:
    """The modules that the capture names; one that is no module any more says nothing."""
    found = []
    for path in recorded_files(records):
        try:
            found.append(read_module(path))
        except PyprofError as error:
            print(f"note: {error}", file=sys.stderr)
    return found


def _tables(groups: Groups, times: Busy, options: argparse.Namespace) -> list[Table]:
    tables = []
    if options.table != "kernels":
        tables.append(categories(groups, times))
    if options.table != "categories":
        table = kernels(groups, times)
        tables.append(table.take(table.rows[: options.top]))
    return tables


def _print(tables: list[Table], options: argparse.Namespace) -> None:
    write = _WRITERS["csv" if options.csv else options.format]
    for number, table in enumerate(tables):
        if number and options.format != "jsonl":
            print()
        if options.width is not None:
            write_aligned(table, sys.stdout, options.width)
        else:
            write(table, sys.stdout)


def _say(groups: Groups, times: Busy, records: Records) -> None:
    if times.wall:
        print(
            f"busy {100 * times.union / times.wall:.1f} % of {times.wall / 1e6:.3f} ms wall (union of intervals); "
            f"sum over wall {100 * times.total / times.wall:.1f} %",
            file=sys.stderr,
        )
    fused = [(launch, n) for launch, n in zip(groups.launches, groups.count.tolist(), strict=True) if not launch.library]
    unknown = sum(launch.bytes_of(n) is None for launch, n in fused)
    if not fused:
        print("note: no fused kernels; on a CPU record with `pyprof run --inductor --tool torch`", file=sys.stderr)
    elif unknown:
        print(f"note: {unknown} of {len(fused)} fused kernels without bytes: name their modules with --module", file=sys.stderr)
    for note in records.notes:
        print(f"note: {note}", file=sys.stderr)
