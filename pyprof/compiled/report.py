"""Kernels of a compiled program -> tables of `pyprof inductor`: time by category, each kernel with what it fuses and moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.intervals import summed, union
from pyprof.columns.types import Floats, Ints
from pyprof.compiled.flow import product
from pyprof.compiled.fused import CATEGORIES, LaunchedKernel, describe
from pyprof.compiled.module import CompiledModule
from pyprof.hardware import cpus
from pyprof.model.records import Records
from pyprof.model.trace import ActivityKind
from pyprof.prof.frame import Frame
from pyprof.prof.sums import is_enough, sums_of
from pyprof.tables.screen import Cells, joined, listed
from pyprof.tables.table import Fractions, Header, Integers, Table, Values

if TYPE_CHECKING:
    pass

_NO_AMOUNT = 1 << 53  # bytes or operations


class LaunchSums(NamedTuple):
    """Sums by group: launches, ns, bytes and FLOPs (-1 unknown), ns of launches with known bytes, and with known FLOPs."""

    launches: Ints
    ns: Ints
    bytes: Ints
    flops: Ints
    known_ns: Ints
    flop_ns: Ints


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
        (
            frame.costs.sure_flops_of(slice(None)),
            [product((launch.flops, n)) for launch, n in zip(launches, count.tolist(), strict=True)],
        ),
    ):
        costed = [launch.library or launch.category == "memcpy" for launch in launches]  # as the op or copy that they are
        known = (values[rows] >= 0) & np.array(costed, np.bool_)[code]
        total, spent = (summed(code[known], part[known], len(launches)) for part in (values[rows], time))
        number = np.bincount(code[known], minlength=len(launches))
        of_own = _whole(own)
        of_rows = np.where(is_enough(spent, ns, number, count), total, -1)
        amounts.append((np.where(number > 0, of_rows, of_own), np.where((of_own >= 0) & (number == 0), ns, spent)))
    (moved, known_ns), (flops, flop_ns) = amounts
    known_ns = np.where(np.bincount(code, frame.host_times[rows], len(launches)) > 0, 0, known_ns)  # no rate follows
    peak = _peaks(frame, code, rows, len(launches))
    names = np.array([f"{one.kernel} {one.graph} {one.category} {one.file} {one.nodes}" for one in launches], np.str_)
    order = np.lexsort((names, -ns))
    order = order[count[order] > 0]
    sums = LaunchSums(*(column[order].astype(np.int64) for column in (count, ns, moved, flops, known_ns, flop_ns)))
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
    share, detail = key == "busy", key in ("graph", "wall", "gb", "gflop", "known", "from", "file")
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
        (_header("gb", "GB", "10^9 bytes read and written"), billions(sums.bytes)),
        (_header("gbs", "GB/s", "rate of those with known bytes"), Fractions.not_nan(_rate(sums), 2)),
        (_header("gflop", "GFLOP", "10^9 operations"), billions(sums.flops)),
        (_header("known", "Known(%)", "share of the time whose FLOPs are known"),
         Fractions.not_nan(100 * sums.flop_ns / np.where(sums.ns > 0, sums.ns, np.nan), 2)),
    ]  # fmt: skip


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

    of = np.concatenate([at.ravel(), np.full(len(at.ravel()), len(used))])
    ns = np.tile(groups.sums.ns, 2)

    def total(values: Ints) -> Ints:
        """Sums by category, then of everything; -1 unknown."""
        found = sums_of(np.tile(values, 2), ns, of, len(used) + 1)
        return np.where(found.enough, found.total, -1).astype(np.int64)

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
