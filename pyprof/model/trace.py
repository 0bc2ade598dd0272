"""Trace: the common form of all captures, so that nothing downstream knows a file format.

Tables are dicts of equally long numpy columns, each declared here once with its type and meaning. Times are integer nanoseconds
on one clock. Texts are codes into `strings`; range texts are codes into `markers`, one decoded object for each distinct text.
An unknown integer is -1. Rows may come in any order: nothing downstream depends on it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.columns.distinct import narrowest
from pyprof.columns.types import Array, Bools, Floats, Ints
from pyprof.model.allocations import Listed
from pyprof.model.markers import Marker, decode, split_ids

if TYPE_CHECKING:
    from pyprof.parse.sources.measured.launches import Measured


class ActivityKind:
    """Codes of `activities.kind`, and their names in order."""

    KERNEL, GRAPH, MEMCPY, MEMSET, CPU = range(5)
    NAMES = ("kernel", "graph", "memcpy", "memset", "cpu")


# CUPTI's copy kinds, the same in nsys, nvprof and (as names) Kineto.
COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD",
}  # fmt: skip


class ColumnType(NamedTuple):
    """One column of a table. default: if a source has nothing; narrow: whether a source may give fewer bits."""

    name: str
    dtype: str
    doc: str
    default: int = -1
    narrow: bool = False


_c = ColumnType
# A column of `activities` that records.py declares under the same name goes into the records as it is.
TABLES: dict[str, tuple[ColumnType, ...]] = {
    "activities": (
        _c("kind", "i1", "ActivityKind code"),
        _c("start_ns", "i8", "begin on the device (on the CPU for kind cpu)"),
        _c("end_ns", "i8", "end, never before the begin"),
        _c("process", "i4", "row of `processes`"),
        _c("device", "i4", "device ordinal as the process sees it; -1 unknown or CPU"),
        _c("stream", "i8", "stream id", narrow=True),
        _c("corr", "i8", "correlation id, unique within a process; -1 none", narrow=True),
        _c("name", "i4", "code into `strings`: the whole demangled name"),
        _c("grid_x", "i4", "blocks"),
        _c("grid_y", "i4", "blocks"),
        _c("grid_z", "i4", "blocks"),
        _c("block_x", "i4", "threads"),
        _c("block_y", "i4", "threads"),
        _c("block_z", "i4", "threads"),
        _c("regs", "i4", "registers per thread"),
        _c("smem_bytes", "i4", "shared memory per block, static and dynamic together"),
        _c("bytes", "i8", "bytes moved (memcpy) or set (memset)"),
        _c("copykind", "i1", "CUPTI copy kind, see COPY_KINDS"),
        _c("graph_node", "i8", "node of a CUDA or HIP graph; where not recorded its number in the replay; -1 no graph"),
        _c("range", "i8", "kind cpu: the row of `ranges` that this activity is"),
    ),
    "launches": (
        _c("start_ns", "i8", "begin of the API call"),
        _c("end_ns", "i8", "its end"),
        _c("thread", "i4", "row of `threads`"),
        _c("corr", "i8", "correlation id", narrow=True),
        _c("name", "i4", "code into `strings`: name of the API call"),
        _c("kernel", "i4", "code into `strings`: the kernel that it launches, where the call says it (ROCm)"),
    ),
    "ranges": (
        _c("start_ns", "i8", "push or start"),
        _c("end_ns", "i8", "pop or end; the session's end where it never came"),
        _c("thread", "i4", "row of `threads` that opened it"),
        _c("label", "i4", "row of `markers`"),
        _c("seq", "i8", "autograd sequence number; -1 none", narrow=True),
        _c("op_id", "i8", "emit_nvtx's op_id; -1 none", narrow=True),
        _c("domain", "i4", "code into `strings`: NVTX domain name; -1 the default domain", narrow=True),
        _c("open", "i1", "1: never closed in the capture", 0),
        _c("free", "i1", "1: a start/end range, outside the thread's push/pop stack", 0),
        _c("fwd_thread", "i4", "backward ranges: row of `threads` that ran forward, where the source records it"),
        _c("src", "i4", "code into `strings`: source line `file:line` of the call, where the source records it"),
    ),
    "threads": (
        _c("process", "i4", "row of `processes`"),
        _c("tid", "i8", "thread id as the tool prints it"),
        _c("name", "i4", "code into `strings`"),
        _c("main", "i1", "1: the main thread of its process", 0),
    ),
    "processes": (
        _c("pid", "i8", "process id"),
        _c("rank", "i4", "rank in a distributed job"),
    ),
    "devices": (
        _c("process", "i4", "row of `processes` whose ordinals these are; -1: of every process"),
        _c("device", "i4", "device ordinal"),
        _c("name", "i4", "code into `strings`"),
        _c("cc_major", "i4", "compute capability"),
        _c("cc_minor", "i4", "compute capability"),
        _c("sms", "i4", "multiprocessors"),
        _c("clock_hz", "i8", "core clock"),
        _c("dram_bytes_per_s", "i8", "memory bandwidth"),
        _c("l2_bytes", "i8", "L2 cache"),
        _c("memory_bytes", "i8", "its memory"),
        _c("max_warps_per_sm", "i4", "resident warps"),
        _c("max_blocks_per_sm", "i4", "resident blocks"),
        _c("regs_per_sm", "i4", "registers"),
        _c("smem_per_sm_bytes", "i8", "shared memory"),
    ),
    "memory": (
        _c("time_ns", "i8", "when memory was allocated or freed"),
        _c("thread", "i4", "row of `threads`"),
        _c("bytes", "i8", "allocated, or freed where below 0: by tensors (Kineto), by cudaMalloc (nsys)", 0),
        _c("device", "i4", "device ordinal; -1: the host's memory"),
        _c("address", "i8", "address of the block"),
        _c("allocated", "i8", "bytes of this memory that were allocated just after"),
        _c("reserved", "i8", "bytes that the allocator held just after"),
        _c("corr", "i8", "correlation id of the API call; -1 none", narrow=True),
    ),
    "frames": (
        _c("start_ns", "i8", "begin of a call of a Python function, or of a C function from Python"),
        _c("end_ns", "i8", "its end"),
        _c("thread", "i4", "row of `threads`"),
        _c("name", "i4", "code into `strings`: `file.py(117): function`, or `<built-in method linear of ...>`"),
    ),
    "graph_nodes": (
        _c("node", "i8", "node id, as in activities.graph_node"),
        _c("origin", "i8", "the node it was cloned from; -1 none"),
        _c("thread", "i4", "thread that recorded it"),
        _c("start_ns", "i8", "when it was recorded"),
    ),
}

Table = dict[str, Array]
_MOST_DIGITS = 18  # fit 62 bits; Python itself refuses to read some thousands
_LONG = ("activities", "launches", "ranges", "memory", "frames")


def integer(text: str) -> int:
    """Parse an integer; -1 (unknown) if the text is not one or has more digits than a column holds."""
    digits = text[1:] if text[:1] == "-" else text
    return int(text) if digits.isdecimal() and len(digits) <= _MOST_DIGITS else -1


def make_table(name: str, columns: Mapping[str, Array] | None = None) -> Table:
    """A table with every declared column in its declared type; columns that are not given hold their default.

    In long tables defaults take no memory and cannot be written to. Raises KeyError for a column that is not declared,
    ValueError if lengths differ.
    """
    given = dict(columns or {})
    rows = len(next(iter(given.values()))) if given else 0
    table: Table = {}
    for column in TABLES[name]:
        values = given.pop(column.name, None)
        if values is None:
            values = np.broadcast_to(np.array(column.default, column.dtype), rows)
            values = values if name in _LONG else values.copy()
        if len(values) != rows:
            raise ValueError(f"{name}.{column.name}: {len(values)} values where {rows} were expected")
        values = np.asarray(values)
        if not (column.narrow and values.dtype.kind == "i" and values.dtype.itemsize < np.dtype(column.dtype).itemsize):
            values = narrowed(values, column.dtype, column.default)
        table[column.name] = values
    if given:
        raise KeyError(f"{name} has no column {next(iter(given))!r}")
    return table


def narrowed(values: Array, dtype: str, unknown: int = -1) -> Array:
    """Integers in a smaller type; one that does not fit becomes unknown, never another number."""
    limits = np.iinfo(dtype)
    if values.dtype == dtype:
        return values
    if values.strides == (0,) and len(values):
        return np.broadcast_to(narrowed(values[:1].copy(), dtype, unknown)[0], len(values))
    if values.dtype.itemsize > np.dtype(dtype).itemsize and values.dtype.kind == "i" and len(values):
        low, high = values.min(), values.max()
        if low < limits.min or high > limits.max:
            values = np.where((values < limits.min) | (values > limits.max), unknown, values)
    return values.astype(dtype)


def concatenated(tables: list[Table]) -> Table:
    """Tables of one kind one after another; the input tables are emptied column by column."""
    filled = [table for table in tables if len(next(iter(table.values())))] or tables[:1]
    whole: Table = {}
    for name in [*filled[0]]:
        first = filled[0][name]
        same, rows, parts = len(first) > 0, 0, []
        for table in filled:
            part = table.pop(name)
            same = same and part.strides == (0,) and len(part) > 0 and part[0] == first[0]
            rows += len(part)
            parts.append(part)
        # One value for all rows takes no memory.
        whole[name] = np.broadcast_to(first[0], rows) if same else parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole


def chosen(table: Table, keep: Bools) -> Table:
    """The rows of a table in a mask: the same table if all are."""
    if keep.all():
        return table
    rows = np.flatnonzero(keep)
    return {name: column[: len(rows)] if column.strides == (0,) else column[rows] for name, column in table.items()}


class GrowingTable:
    """A table of one kind that grows. Columns that may be narrow are kept in 32 bits as long as all values fit; a column with a
    single value takes no memory and cannot be written to."""

    def __init__(self, name: str) -> None:
        self._name, self._parts = name, [make_table(name)]

    def add(self, columns: Mapping[str, Array]) -> None:
        """Add rows; columns that are not given hold their default. Raises as `make_table` does."""
        table = make_table(self._name, columns)
        for name in (column.name for column in TABLES[self._name] if column.narrow):
            values = table[name]
            table[name] = np.broadcast_to(narrowest(values[:1]), len(values)) if values.strides == (0,) else narrowest(values)
        self._parts.append(table)

    def whole(self) -> Table:
        """All rows; none can be added afterwards."""
        return concatenated(self._parts)


@dataclass(eq=False, repr=False)
class Strings:
    """Texts stored once and referred to by code."""

    values: list[str] = field(default_factory=list)
    _codes: dict[str, int] = field(default_factory=dict)

    def code(self, text: str) -> int:
        found = self._codes.get(text)
        if found is None:
            found = self._codes[text] = len(self.values)
            self.values.append(text)
        return found

    def codes(self, texts: list[str]) -> list[int]:
        try:
            return [*map(self._codes.__getitem__, texts)]
        except KeyError:
            return [*map(self.code, texts)]

    def __getitem__(self, code: int) -> str:
        return self.values[code] if code >= 0 else ""

    def __len__(self) -> int:
        return len(self.values)


@dataclass(eq=False, repr=False)
class Labels:
    """Distinct range texts, each decoded once into a Marker."""

    markers: list[Marker] = field(default_factory=list)
    _codes: dict[Hashable, int] = field(default_factory=dict)

    def code(self, text: str, *, keyed: bool = False, numbered: bool = False) -> int:
        """The code of a range text as `markers.split_ids` returns it."""
        key = (text, keyed, numbered)
        found = self._codes.get(key)
        return self.add(key, decode(text, keyed=keyed, numbered=numbered)) if found is None else found

    def split(self, text: str) -> tuple[int, int, int]:
        """Code, sequence number and op id (-1 unknown) of a range text as in NVTX."""
        bare, seq, op_id, keyed = split_ids(text)
        return self.code(bare, keyed=keyed, numbered=seq >= 0), seq, op_id

    def add(self, key: Hashable, marker: Marker) -> int:
        """The code of a marker that a source built itself; key: what makes it distinct."""
        found = self._codes.get(key)
        if found is None:
            found = self._codes[key] = len(self.markers)
            self.markers.append(marker)
        return found


class Samples(NamedTuple):
    """Counters of whole devices, one value a row, by time. metric: code into metrics; value: as in the trace."""

    time_ns: Ints
    device: Ints
    metric: Ints
    value: Floats
    metrics: list[str]

    @property
    def note(self) -> str:
        """A line for the user that they are there."""
        return f"{len(self.time_ns):,} samples of hardware counters were recorded beside the kernels: see `pyprof counters`"


@dataclass(eq=False, repr=False)
class Trace:
    """One capture.

    source: `nsys`, `nvprof` or `kineto`; session_end_ns: when recording stopped (-1 unknown); utc_ns: the difference between
    nanoseconds since 1970 and a time of the trace (-1 unknown); measured, samples: counters that were recorded with it, None
    without; watched: whether the tool says that it watched for calls of CUDA and saw none; left_out: kernels, copies and fills
    without a time that are in no table; tensors: of the model, where they are listed; groups: ranks of process groups by name,
    of the job under ""; notes: what the capture lacks and what to do about it, one line each.
    """

    source: str
    strings: Strings = field(default_factory=Strings)
    labels: Labels = field(default_factory=Labels)
    activities: Table = field(default_factory=lambda: make_table("activities"))
    launches: Table = field(default_factory=lambda: make_table("launches"))
    ranges: Table = field(default_factory=lambda: make_table("ranges"))
    threads: Table = field(default_factory=lambda: make_table("threads"))
    processes: Table = field(default_factory=lambda: make_table("processes"))
    devices: Table = field(default_factory=lambda: make_table("devices"))
    memory: Table = field(default_factory=lambda: make_table("memory"))
    frames: Table = field(default_factory=lambda: make_table("frames"))
    graph_nodes: Table = field(default_factory=lambda: make_table("graph_nodes"))
    groups: dict[str, int] = field(default_factory=dict)
    version: str = ""
    session_end_ns: int = -1
    utc_ns: int = -1
    measured: Measured | None = None
    samples: Samples | None = None
    watched: bool = False
    left_out: int = 0
    tensors: list[Listed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def markers(self) -> list[Marker]:
        return self.labels.markers

    @property
    def kinds(self) -> Ints:
        """The `markers.Kind` of each range."""
        return np.array([marker.kind for marker in self.markers], np.int64)[self.ranges["label"]]
