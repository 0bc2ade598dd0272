"""Kernels, copies, fills and the API calls that launched them, of a torch.profiler trace -> `activities` and `launches`.

Knows the args that CUPTI and ROCm activities carry. Columns are filled block by block; the two meet only by correlation id.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
import numpy.typing as npt

from pyprof.arrays.columns import distinct_rows, distinct_values
from pyprof.parse.sources.digits import integer
from pyprof.parse.sources.kineto.events import Event, Int, decode_args, nanoseconds
from pyprof.parse.sources.kineto.exported import ActivityCodes
from pyprof.parse.sources.trace import COPY_KINDS, ActivityKind, Strings, Table, Trace, concatenated, make_table

Ints = npt.NDArray[np.int64]

_INT32 = (1 << 31) - 1
_COPY_CODE = {name: code for code, name in COPY_KINDS.items()} | {
    "HostToDevice": 1, "DeviceToHost": 2, "DeviceToDevice": 8, "HostToHost": 9, "PeerToPeer": 10,
    "M2D": 1, "H2D": 1, "D2M": 2, "D2H": 2, "D2D": 8, "M2M": 9, "H2H": 9, "M2H": 9, "H2M": 9,  # Intel: M, H: the host
}  # fmt: skip
_GRAPH_LAUNCH = re.compile(r"^(?:cuda|cu|hip)GraphLaunch")
_COPY = re.compile(r"\b(UVM )?([HDAP]to[HDAP]|(?:Host|Device|Peer)To(?:Host|Device|Peer)|[MHD]2[MHD])(?![A-Za-z])")


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
    return np.array([v if 0 <= v <= _INT32 else -1 for v in values], np.int64)


def _number(value: int | str) -> int:
    """A device or stream from pid or tid, for events whose args lack it: 7, `7`, `stream 7`."""
    found = re.search(r"\d+$", str(value))
    return integer(found[0]) if found else -1


class Activities:
    """The rows of `activities` so far."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._parts: list[Table] = []
        self._layers: list[Ints] = []
        self.qualified: set[int] = set()

    def add(self, kind: int, events: list[Event]) -> None:
        """More kernels, copies or fills."""
        args = decode_args(_ActivityArgs, events)
        start, end = times(events)
        names = [self._strings.code(e.name) for e in events]
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
        self._parts.append(make_table("activities", columns))
        self._layers.append(np.array([self._layer(a) for a in args], np.int32))

    def _layer(self, args: _ActivityArgs) -> int:
        """The code of the layer in which a graph's node was recorded, -1 unknown."""
        if args.graph_node <= 0 or not (args.module_fqn or args.name):
            return -1
        code = self._strings.code(args.module_fqn or args.name)
        self.qualified |= {code} if args.module_fqn else set()
        return code

    def layers(self) -> Ints:
        """Of all rows the code of the layer that torch's annotations of graphs say, -1 none."""
        return np.concatenate([np.empty(0, np.int32), *self._layers])

    def table(self) -> Table:
        """All rows."""
        return concatenated(self._parts or [make_table("activities")])


class Launches:
    """The rows of `launches` so far."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._parts: list[Table] = []
        self._geometry: dict[int, tuple[list[int], list[int]]] = {}

    def add(self, events: list[Event], threads: Ints) -> None:
        """More API calls; threads: the row of `threads` of each."""
        args = decode_args(_LaunchArgs, events)
        start, end = times(events)
        self._geometry |= {a.correlation: (a.grid, a.block) for a in args if a.grid and a.correlation >= 0}
        columns = {
            "start_ns": start,
            "end_ns": end,
            "thread": threads,
            # 0 is what a call has that started nothing.
            "corr": np.array([a.correlation or -1 for a in args], np.int64),
            "name": np.array([self._strings.code(e.name) for e in events], np.int64),
            "kernel": np.array([self._strings.code(a.kernel) if a.kernel else -1 for a in args], np.int64),
        }
        self._parts.append(make_table("launches", columns))

    def table(self) -> Table:
        """All rows."""
        return concatenated(self._parts or [make_table("launches")])

    def give_geometry(self, activities: Table) -> None:
        """Give kernels without a grid the one of their launch, where that has one."""
        bare = np.flatnonzero((activities["kind"] == ActivityKind.KERNEL) & (activities["grid_x"] < 0))
        found = [self._geometry.get(corr, ([], [])) for corr in activities["corr"][bare].tolist()] if self._geometry else []
        if found:
            for name, values in _geometry(found).items():
                activities[name][bare] = values


def number_nodes(trace: Trace) -> None:
    """Give what one call replayed of a graph numbers from 1 in order of begin as nodes, where their own were not recorded."""
    activities, launches = trace.activities, trace.launches
    graphs = [name for name in distinct_values(launches["name"]).tolist() if _GRAPH_LAUNCH.match(trace.strings[name])]
    calls = np.flatnonzero(np.isin(launches["name"], graphs) & (launches["corr"] >= 0))
    process = trace.threads["process"][launches["thread"][calls]].astype(np.int64)
    count = len(trace.processes["pid"]) + 1
    call = activities["corr"].astype(np.int64) * count + activities["process"]
    known = launches["corr"][calls].astype(np.int64) * count + process
    rows = np.flatnonzero(np.isin(call, known) & (activities["graph_node"] < 0)) if len(calls) else calls
    if not len(rows):
        return
    order = np.lexsort((*(activities[name][rows] for name in ("stream", "end_ns", "start_ns")), call[rows]))
    new = np.ones(len(rows), np.bool_)
    new[1:] = np.diff(call[rows][order]) != 0
    first = np.flatnonzero(new)
    nodes = activities["graph_node"].copy()
    nodes[rows[order]] = 1 + np.arange(len(rows)) - np.repeat(first, np.diff(np.append(first, len(rows))))
    activities["graph_node"] = nodes


def _geometry(pairs: list[tuple[list[int], list[int]]]) -> dict[str, Ints]:
    """Columns from (grid, block); those of fewer than three dimensions stay unknown."""
    columns = {}
    for at, name in enumerate(("grid", "block")):
        for axis, letter in enumerate("xyz"):
            columns[f"{name}_{letter}"] = _small([pair[at][axis] if len(pair[at]) == 3 else -1 for pair in pairs])
    return columns


def _copy_kind(name: str) -> int:
    found = _COPY.search(name)
    return -1 if found is None else _COPY_CODE.get((found[1] or "") + found[2], -1)


def process_of_activities(activities: Table, launches: Table, threads: Table, processes: int) -> tuple[Ints, int]:
    """The row of `processes` of each activity: its launch's, or the only one; -1 unknown. And of how many it is unknown since
    several processes used their correlation id."""
    wanted = activities["corr"]
    if processes <= 1:
        return np.full(len(wanted), processes - 1, np.int64), 0
    corr, process = launches["corr"], threads["process"][launches["thread"]].astype(np.int64)
    known, owner = distinct_rows(corr[corr >= 0], process[corr >= 0]).columns
    if not len(known):
        return np.full(len(wanted), -1, np.int64), 0
    first, last = np.searchsorted(known, wanted, "left"), np.searchsorted(known, wanted, "right")
    return np.where(last - first == 1, np.append(owner, -1)[first], -1), int((last - first > 1).sum())
