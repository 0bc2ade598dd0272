"""Kernels, copies, fills and the API calls that launched them, in a torch.profiler trace -> `activities` and `launches`.

Knows the args of CUPTI's and ROCm's activities. Columns are filled block by block; the two tables meet only by correlation id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter

import msgspec
import numpy as np

from pyprof.columns.distinct import Growing, narrowest
from pyprof.columns.sorting import matching_rows, places_in_runs
from pyprof.columns.types import Array, Ints
from pyprof.model.trace import COPY_KINDS, ActivityKind, GrowingTable, Strings, Table, Trace, integer
from pyprof.parse.sources.kineto.events import Codes, Event, Int, Span, decode_args, whole_numbers
from pyprof.parse.sources.kineto.exported import ActivityCodes

_INT32 = (1 << 31) - 1
_UNKNOWN = [-1, -1, -1]
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
    regs: Int = msgspec.field(default=-1, name="registers per thread")
    smem_bytes: Int = msgspec.field(default=-1, name="shared memory")
    bytes: Int = -1
    grid: list[Int] | None = None
    block: list[Int] | None = None
    graph_node: Int = msgspec.field(default=-1, name="graph node id")
    external: Int = msgspec.field(default=-1, name="External id")
    codes: ActivityCodes | None = msgspec.field(default=None, name="pyprof")
    name: str = ""  # these two as torch's annotations of graphs say them
    module_fqn: str = ""


class _LaunchArgs(msgspec.Struct, gc=False):
    correlation: Int = -1
    grid: list[Int] | None = None  # ROCm writes these on the call and not always on the kernel
    block: list[Int] | None = None
    grid_dim: list[Int] | None = msgspec.field(default=None, name="grid dim")  # ROCm of 2024
    block_dim: list[Int] | None = msgspec.field(default=None, name="block dim")
    kernel: str = ""
    external: Int = msgspec.field(default=-1, name="External id")


_NAME, _GRID, _BLOCK, _KERNEL, _CODES, _GRID_DIM = (
    attrgetter(name) for name in ("name", "grid", "block", "kernel", "codes", "grid_dim")
)


def activity_columns(events: list[Event], kind: int, span: Span, texts: Codes[str], layers: Codes[tuple[str, bool]]) -> Table:
    """Columns of `activities`; `external`: External id; and `layer`: code of the layer in which a graph's node was recorded, -1
    unknown; a layer is a text and whether that is a module's path from the root. texts: codes of names."""
    args = decode_args(_ActivityArgs, events)
    node = whole_numbers(args, "graph_node")
    columns = {
        "kind": np.full(len(events), kind, np.int8),
        **span.columns(),
        "device": _small(_or_numbers(whole_numbers(args, "device"), events, "pid")),
        "stream": _or_numbers(whole_numbers(args, "stream"), events, "tid"),
        "corr": whole_numbers(args, "correlation"),
        "name": texts.of(map(_NAME, events), len(events)),
        "regs": _small(whole_numbers(args, "regs")),
        "smem_bytes": _small(whole_numbers(args, "smem_bytes")),
        "bytes": whole_numbers(args, "bytes"),
        "graph_node": np.where(node == 0, -1, node),
        "external": whole_numbers(args, "external"),
        **_geometry(args),
    }
    named = [row for row in np.flatnonzero(node > 0).tolist() if args[row].module_fqn or args[row].name]
    if named:
        columns["layer"] = np.full(len(args), -1, np.int32)
        keys = [(args[row].module_fqn or args[row].name, bool(args[row].module_fqn)) for row in named]
        columns["layer"][named] = layers.of(keys, len(keys))
    written = [*filter(None, map(_CODES, args))]
    if len(written) == len(args):
        columns["process"], columns["copykind"] = whole_numbers(written, "process"), whole_numbers(written, "copykind")
    return columns


def launch_columns(events: list[Event], span: Span, thread: Array, texts: Codes[str]) -> tuple[Table, Table]:
    """Columns of `launches`, and `external`: External id; and correlation id, grid and block of the calls that have them.

    texts: codes of the names of calls and kernels.
    """
    args = decode_args(_LaunchArgs, events)
    for one in args if any(map(_GRID_DIM, args)) else ():
        one.grid, one.block = one.grid or one.grid_dim, one.block or one.block_dim
    corr = whole_numbers(args, "correlation")
    columns = {
        **span.columns(),
        "thread": thread,
        "corr": np.where(corr == 0, -1, corr),  # 0 is what a call has that started nothing
        "name": texts.of(map(_NAME, events), len(events)),
        "external": whole_numbers(args, "external"),
    }
    if any(map(_KERNEL, args)):
        columns["kernel"] = np.array([texts[one.kernel] if one.kernel else -1 for one in args], np.int32)
    sized = [one for one in args if one.grid and one.correlation >= 0] if any(map(_GRID, args)) else []
    return columns, {"corr": whole_numbers(sized, "correlation"), **_geometry(sized)}


def _small(found: Ints) -> Ints:
    return np.where((found < 0) | (found > _INT32), -1, found)


def _or_numbers(found: Ints, events: list[Event], name: str) -> Ints:
    """Devices or streams; if args lack one, from pid or tid."""
    for row in np.flatnonzero(found < 0).tolist():
        number = re.search(r"\d+$", str(getattr(events[row], name)))  # 7, `7`, `stream 7`
        found[row] = integer(number[0]) if number else -1
    return found


class Activities:
    """The rows of `activities` so far."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._table, self._layers, self._external = GrowingTable("activities"), Growing(np.int32), Growing(np.int32)
        self.qualified: set[int] = set()

    def layer(self, key: tuple[str, bool]) -> int:
        """Code of a layer."""
        code = self._strings.code(key[0])
        self.qualified |= {code} if key[1] else set()
        return code

    def add(self, columns: Table) -> None:
        """Add a table of `activity_columns`."""
        layer = columns.pop("layer", None)
        self._external.append(narrowest(columns.pop("external")))
        if columns["kind"][0] == ActivityKind.MEMCPY and "copykind" not in columns:
            name = columns["name"]
            code = {}
            for one in set(name.tolist()):
                found = re.search(_COPY, self._strings[one])
                code[one] = -1 if found is None else _COPY_CODE.get((found[1] or "") + found[2], -1)
            columns["copykind"] = np.array([code[one] for one in name.tolist()])
        self._table.add(columns)
        self._layers.append(np.full(len(columns["kind"]), -1, np.int32) if layer is None else layer)

    def layers(self) -> Array:
        """For all rows the code of the layer in torch's annotations of graphs, -1 none. To be called once, after the last
        `add`."""
        return self._layers.whole()

    def external(self) -> Array:
        """The External id of each row, -1 none. To be called once."""
        return self._external.whole()

    def table(self) -> Table:
        return self._table.whole()


class Launches:
    """The rows of `launches` so far."""

    def __init__(self) -> None:
        self._table, self._external = GrowingTable("launches"), Growing(np.int32)
        self._geometry = dict(zip(("corr", *_SIZES), [Growing(np.int64), *(Growing(np.int32) for _ in _SIZES)], strict=True))

    def add(self, columns: Table, sizes: Table) -> None:
        """Add the tables of `launch_columns`."""
        self._external.append(narrowest(columns.pop("external")))
        self._table.add(columns)
        for name, values in sizes.items():
            self._geometry[name].append(values)

    def external(self) -> Array:
        """The External id of each row, -1 none. To be called once."""
        return self._external.whole()

    def table(self) -> Table:
        return self._table.whole()

    def give_geometry(self, activities: Table) -> None:
        """Give kernels without a grid the one of their launch, if that has one."""
        known = {name: column.whole() for name, column in self._geometry.items()}
        if not len(known["corr"]):
            return
        row = matching_rows(known.pop("corr"), activities["corr"], last=True)
        given = (row >= 0) & (activities["kind"] == ActivityKind.KERNEL) & (activities["grid_x"] < 0)
        for name, values in known.items():
            activities[name] = np.where(given, values[row], activities[name])


def count_blocks(trace: Trace) -> None:
    """Give kernels that hipExtModuleLaunchKernel launched their grid in blocks: that call takes work items, and so they are
    written."""
    activities, launches = trace.activities, trace.launches
    calls = [code for code, name in enumerate(trace.strings.values) if name == "hipExtModuleLaunchKernel"]
    items = launches["corr"][np.isin(launches["name"], calls) & (launches["corr"] >= 0)] if calls else launches["corr"][:0]
    if not len(items):
        return
    given = np.isin(activities["corr"], items) & (activities["kind"] == ActivityKind.KERNEL)
    for axis in "xyz":
        grid, block = activities[f"grid_{axis}"], activities[f"block_{axis}"]
        known = given & (grid > 0) & (block > 0)
        activities[f"grid_{axis}"] = np.where(known, -(-grid // np.maximum(block, 1)), grid)


def number_nodes(trace: Trace) -> None:
    """Number the kernels that one call replayed of a graph from 1 in order of begin, if their nodes were not recorded."""
    activities, launches = trace.activities, trace.launches
    graphs = [code for code, name in enumerate(trace.strings.values) if re.match(_GRAPH_LAUNCH, name)]
    calls = np.flatnonzero(np.isin(launches["name"], graphs) & (launches["corr"] >= 0))
    if not len(calls):
        return
    count = len(trace.processes["pid"]) + 1
    known = launches["corr"][calls].astype(np.int64) * count + trace.threads["process"][launches["thread"][calls]]
    call = matching_rows(known, activities["corr"].astype(np.int64) * count + activities["process"], last=True)
    rows = np.flatnonzero((call >= 0) & (activities["graph_node"] < 0))
    if not len(rows):
        return
    order = rows[np.lexsort((*(activities[name][rows] for name in ("stream", "end_ns", "start_ns")), call[rows]))]
    nodes = activities["graph_node"].copy()
    nodes[order] = 1 + places_in_runs(np.append(True, np.diff(call[order]) != 0))
    activities["graph_node"] = nodes


def _geometry(args: Sequence[_ActivityArgs | _LaunchArgs]) -> Table:
    """Columns from grids and blocks; unknown with fewer than three dimensions."""
    return {**_sizes([*map(_GRID, args)], _SIZES[:3]), **_sizes([*map(_BLOCK, args)], _SIZES[3:])}


def _sizes(found: list[list[int] | None], names: Sequence[str]) -> Table:
    if not any(found):
        return dict.fromkeys(names, np.broadcast_to(np.int32(-1), len(found)))
    rows = [one if one is not None and len(one) == len(names) else _UNKNOWN for one in found]
    values = _small(np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(names)))
    return dict(zip(names, values.astype(np.int32).reshape(-1, len(names)).T, strict=True))


def process_of_activities(activities: Table, launches: Table, threads: Table, processes: int) -> tuple[Array, int]:
    """The row of `processes` of each activity: its launch's, or the only one; -1 unknown. And the number of activities for
    which it is unknown since several processes used their correlation id."""
    wanted, corr, thread = activities["corr"], launches["corr"], launches["thread"]
    if processes <= 1:
        return np.broadcast_to(np.int32(processes - 1), len(wanted)), 0
    process, first = threads["process"], matching_rows(corr, corr)
    shared = np.zeros(len(corr), np.bool_)  # of the first launch with an id: whether another process used it too
    shared[first[process[thread] != process[thread[first]]]] = True
    launch = matching_rows(corr, wanted)
    rows = np.flatnonzero((launch >= 0) & (wanted >= 0))
    many = shared[launch[rows]]
    owner = np.full(len(wanted), -1, np.int32)
    owner[rows] = np.where(many, -1, process[thread[launch[rows]]])
    return owner, int(many.sum())
