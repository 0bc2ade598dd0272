"""Kernels, copies, fills and the API calls that launched them, of a torch.profiler trace -> `activities` and `launches`.

Knows the args that CUPTI and ROCm activities carry. Columns are filled block by block; the two meet only by correlation id.
"""

from __future__ import annotations

import re
from functools import partial

import msgspec
import numpy as np

from pyprof.arrays.columns import Growing
from pyprof.arrays.joining import copied, first_rows, last_rows, rows_where
from pyprof.arrays.sorting import Groups, cuts_of, parts_of
from pyprof.arrays.spool import PIECE_ROWS, computed, full, pieces, taken
from pyprof.arrays.types import Array, Ints
from pyprof.parse.sources.digits import integer
from pyprof.parse.sources.kineto.events import Event, Int, decode_args, nanoseconds
from pyprof.parse.sources.kineto.exported import ActivityCodes
from pyprof.parse.sources.trace import COPY_KINDS, ActivityKind, GrowingTable, Strings, Table, Trace

_INT32 = (1 << 31) - 1
_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_COPY_CODE = {name: code for code, name in COPY_KINDS.items()} | {
    "HostToDevice": 1, "DeviceToHost": 2, "DeviceToDevice": 8, "HostToHost": 9, "PeerToPeer": 10,
    "M2D": 1, "H2D": 1, "D2M": 2, "D2H": 2, "D2D": 8, "M2M": 9, "H2H": 9, "M2H": 9, "H2M": 9,  # Intel: M, H: the host
}  # fmt: skip
_GRAPH_LAUNCH = r"^(?:cuda|cu|hip)GraphLaunch"
_COPY = r"\b(UVM )?([HDAP]to[HDAP]|(?:Host|Device|Peer)To(?:Host|Device|Peer)|[MHD]2[MHD])(?![A-Za-z])"


class _ActivityArgs(msgspec.Struct, gc=False):
    device: Int = -1
    stream: Int = -1
    correlation: Int = -1
    grid: list[Int] = []
    block: list[Int] = []
    regs: Int = msgspec.field(default=-1, name="registers per thread")
    smem_bytes: Int = msgspec.field(default=-1, name="shared memory")
    bytes: Int = -1
    graph_node: Int = msgspec.field(default=-1, name="graph node id")
    codes: ActivityCodes | None = msgspec.field(default=None, name="pyprof")
    name: str = ""  # these two as torch's annotations of graphs say them
    module_fqn: str = ""


class _LaunchArgs(msgspec.Struct, gc=False):
    correlation: Int = -1
    grid: list[Int] = []  # ROCm writes these on the call and not always on the kernel
    block: list[Int] = []
    kernel: str = ""


def times(events: list[Event]) -> tuple[Ints, Ints]:
    """Begin and end of each event, in nanoseconds; an end is never before its begin."""
    start, dur = nanoseconds([e.ts for e in events]), nanoseconds([e.dur for e in events])
    return start, start + np.maximum(dur, 0)


def _small(values: list[int]) -> Ints:
    found = np.array(values, np.int64)
    found[(found < 0) | (found > _INT32)] = -1
    return found


def _number(value: int | str) -> int:
    """A device or stream from pid or tid, for events whose args lack it: 7, `7`, `stream 7`."""
    found = re.search(r"\d+$", str(value))
    return integer(found[0]) if found else -1


class Activities:
    """The rows of `activities` so far."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._table, self._layers = GrowingTable("activities"), Growing(np.int32)
        self.qualified: set[int] = set()

    def add(self, kind: int, events: list[Event]) -> None:
        """More kernels, copies or fills."""
        args = decode_args(_ActivityArgs, events)
        start, end = times(events)
        names = self._strings.codes([e.name for e in events])
        columns = {
            "kind": np.full(len(events), kind),
            "start_ns": start,
            "end_ns": end,
            "device": _small([a.device if a.device >= 0 else _number(e.pid) for a, e in zip(args, events, strict=True)]),
            "stream": np.array(
                [a.stream if a.stream >= 0 else _number(e.tid) for a, e in zip(args, events, strict=True)], np.int64
            ),
            "corr": np.array([a.correlation for a in args], np.int64),
            "name": np.array(names, np.int64),
            "regs": _small([a.regs for a in args]),
            "smem_bytes": _small([a.smem_bytes for a in args]),
            "bytes": np.array([a.bytes for a in args], np.int64),
            "graph_node": np.array([a.graph_node or -1 for a in args], np.int64),
        }
        columns |= _geometry([(a.grid, a.block) for a in args])
        if kind == ActivityKind.MEMCPY:
            code = {name: _copy_kind(self._strings[name]) for name in set(names)}
            columns["copykind"] = np.array([code[name] for name in names])
        known = [a.codes for a in args if a.codes is not None]
        if len(known) == len(args):
            columns["process"] = np.array([one.process for one in known], np.int64)
            columns["copykind"] = np.array([one.copykind for one in known], np.int64)
        self._table.add(columns)
        self._layers.append(np.array([self._layer(a) for a in args], np.int32))

    def _layer(self, args: _ActivityArgs) -> int:
        """The code of the layer in which a graph's node was recorded, -1 unknown."""
        if args.graph_node <= 0 or not (args.module_fqn or args.name):
            return -1
        code = self._strings.code(args.module_fqn or args.name)
        self.qualified |= {code} if args.module_fqn else set()
        return code

    def layers(self) -> Array:
        """Of all rows the code of the layer that torch's annotations of graphs say, -1 none; once, after all were added."""
        return self._layers.whole()

    def table(self) -> Table:
        """All rows, once."""
        return self._table.whole()


class Launches:
    """The rows of `launches` so far."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._table = GrowingTable("launches")
        self._geometry = dict(zip(("corr", *_SIZES), [Growing(np.int64), *(Growing(np.int32) for _ in _SIZES)], strict=True))

    def add(self, events: list[Event], threads: Ints) -> None:
        """More API calls; threads: the row of `threads` of each."""
        args = decode_args(_LaunchArgs, events)
        start, end = times(events)
        self._add_geometry([a for a in args if a.grid and a.correlation >= 0])
        columns = {
            "start_ns": start,
            "end_ns": end,
            "thread": threads,
            # 0 is what a call has that started nothing.
            "corr": np.array([a.correlation or -1 for a in args], np.int64),
            "name": np.array(self._strings.codes([e.name for e in events]), np.int64),
            "kernel": np.array([self._strings.code(a.kernel) if a.kernel else -1 for a in args], np.int64),
        }
        self._table.add(columns)

    def _add_geometry(self, args: list[_LaunchArgs]) -> None:
        columns = {"corr": np.array([a.correlation for a in args], np.int64), **_geometry([(a.grid, a.block) for a in args])}
        for name, values in columns.items():
            self._geometry[name].append(values.astype(np.int32) if name in _SIZES else values)

    def table(self) -> Table:
        """All rows, once."""
        return self._table.whole()

    def give_geometry(self, activities: Table) -> None:
        """Give kernels without a grid the one of their launch, where that has one."""
        known = {name: column.whole() for name, column in self._geometry.items()}
        if not len(known["corr"]):
            return
        kind, grid = activities["kind"], activities["grid_x"]
        bare = computed(len(kind), np.bool_, lambda part: (kind[part] == ActivityKind.KERNEL) & (grid[part] < 0))
        row = last_rows(known.pop("corr"), activities["corr"])
        for name, values in known.items():
            given = computed(len(row), np.int32, partial(_taken, values, row))
            activities[name] = copied(activities[name])
            for part in pieces(len(row)):
                np.copyto(activities[name][part], given[part], where=bare[part])


def _taken(values: Array, row: Array, part: slice) -> Array:
    """values[row] for a part of the rows, -1 where the row is -1."""
    return np.where(row[part] >= 0, values[row[part]], -1)


def number_nodes(trace: Trace) -> None:
    """Give what one call replayed of a graph numbers from 1 in order of begin as nodes, where their own were not recorded."""
    activities, launches = trace.activities, trace.launches
    graphs = [code for code, name in enumerate(trace.strings.values) if re.match(_GRAPH_LAUNCH, name)]
    calls = rows_where(len(launches["name"]), lambda p: np.isin(launches["name"][p], graphs) & (launches["corr"][p] >= 0))
    if not len(calls):
        return
    count = len(trace.processes["pid"]) + 1
    process = trace.threads["process"]
    known = computed(
        len(calls),
        np.int64,
        lambda p: launches["corr"][calls[p]].astype(np.int64) * count + process[launches["thread"][calls[p]]],
    )
    wanted = computed(
        len(activities["corr"]),
        np.int64,
        lambda p: activities["corr"][p].astype(np.int64) * count + activities["process"][p],
    )
    call = last_rows(known, wanted)
    own = activities["graph_node"]
    rows = rows_where(len(call), lambda p: (call[p] >= 0) & (own[p] < 0))
    if not len(rows):
        return
    nodes = copied(own)
    of_call = taken(call, rows)
    cuts = cuts_of(of_call, PIECE_ROWS)
    groups = Groups(parts_of(of_call, cuts), len(cuts) + 1)
    for number in range(len(groups)):
        group = rows[groups[number]]
        keys = [activities[name][group] for name in ("stream", "end_ns", "start_ns")]
        order = np.lexsort((*keys, call[group]))
        new = np.ones(len(group), np.bool_)
        new[1:] = np.diff(call[group][order]) != 0
        first = np.flatnonzero(new)
        nodes[group[order]] = 1 + np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    activities["graph_node"] = nodes


def _geometry(pairs: list[tuple[list[int], list[int]]]) -> dict[str, Ints]:
    """Columns from (grid, block); those of fewer than three dimensions stay unknown."""
    unknown = [-1, -1, -1]
    rows = [(grid if len(grid) == 3 else unknown) + (block if len(block) == 3 else unknown) for grid, block in pairs]
    values = np.array(rows, np.int64).reshape(-1, len(_SIZES))
    values[(values < 0) | (values > _INT32)] = -1
    return dict(zip(_SIZES, values.T, strict=True))


def _copy_kind(name: str) -> int:
    found = re.search(_COPY, name)
    return -1 if found is None else _COPY_CODE.get((found[1] or "") + found[2], -1)


def process_of_activities(activities: Table, launches: Table, threads: Table, processes: int) -> tuple[Array, int]:
    """The row of `processes` of each activity: its launch's, or the only one; -1 unknown. And of how many it is unknown since
    several processes used their correlation id."""
    wanted, corr, thread = activities["corr"], launches["corr"], launches["thread"]
    if processes <= 1:
        return np.broadcast_to(np.int32(processes - 1), len(wanted)), 0
    process, first = threads["process"], first_rows(corr, corr)
    shared = full(len(corr), False, np.bool_)  # of the first launch with an id: whether another process used it too
    for part in pieces(len(corr)):
        other = process[thread[part]] != process[thread[first[part]]]
        shared[first[part][other]] = True
    launch = first_rows(corr, wanted)
    known = rows_where(len(wanted), lambda part: (launch[part] >= 0) & (wanted[part] >= 0))
    owner = full(len(wanted), -1, np.int32)
    several = 0
    for part in pieces(len(known)):
        rows = known[part]
        many = shared[launch[rows]]
        owner[rows] = np.where(many, -1, process[thread[launch[rows]]])
        several += int(many.sum())
    return owner, several
