"""Records: everything known about each GPU activity (without a GPU: each CPU op), as columns and pools of distinct values.

Made by `attribute` from a Trace or by `netdict` from lines; read by prof. One row a record, in order of (start, pid, device,
stream, correlation id). Unknown integers are -1. Kernel names, stacks and calls are stored once and referred to by code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pyprof.columns.distinct import distinct_rows
from pyprof.columns.types import Array, Bools, Ints
from pyprof.model.host import Host, MarkedSteps
from pyprof.model.ledger import Ledger
from pyprof.model.opcall import OpCall
from pyprof.model.scheduler_steps import EngineStep, read_together
from pyprof.model.trace import Strings

DIRECTIONS = ("fprop", "bprop")
PHASES = ("forward", "backward", "optimizer", "communication", "copy")

# Of net.parquet: another column, one less, or a change of name, type or meaning makes a new version.
SCHEMA_VERSION = 5
# name: (numpy type, meaning). To add one, declare it here; net.dict (last in a line) and Parquet then keep it. It gets its
# values in attribution's `_columns`, or from a column of the same name of trace.py's `activities`, which sources may fill. To
# show it, give it an entry in prof/columns.py and run scripts/make_schemas.py.
COLUMNS: dict[str, tuple[str, str]] = {
    "kind": ("i1", "ActivityKind code"),
    "start_ns": ("i8", "begin, in ns on the capture's clock"),
    "dur_ns": ("i8", "time on the device (kind cpu: on the CPU without ops inside), in ns"),
    "pid": ("i8", "process id"),
    "rank": ("i4", "rank in a distributed job"),
    "tid": ("i8", "launching thread"),
    "device": ("i4", "device ordinal"),
    "stream": ("i8", "stream"),
    "corr": ("i8", "correlation id"),
    "name": ("i4", "code into strings: whole name"),
    "grid_x": ("i4", "blocks in x"),
    "grid_y": ("i4", "blocks in y"),
    "grid_z": ("i4", "blocks in z"),
    "block_x": ("i4", "threads of a block in x"),
    "block_y": ("i4", "threads of a block in y"),
    "block_z": ("i4", "threads of a block in z"),
    "regs": ("i4", "registers per thread"),
    "smem_bytes": ("i4", "shared memory per block, in bytes"),
    "bytes": ("i8", "bytes copied or set (memcpy, memset)"),
    "copykind": ("i1", "CUPTI copy kind: HtoD, DtoH, ..."),
    "graph_node": ("i8", "CUDA-graph node"),
    "gpu": ("i4", "code into gpus; of an op on the CPU: the device whose work for it was not recorded"),
    "launch_ns": ("i8", "begin of the API call that launched it"),
    "launch_dur_ns": ("i8", "time of this call, of a range that is a row its whole time, in ns"),
    "instance": ("i8", "op instance, numbered from 0 in order of begin"),
    "fwd_instance": ("i8", "backward: the forward op instance"),
    "stack": ("i4", "code into stacks: the kernel's own"),
    "scope": ("i4", "code into stacks: whose layers and source lines hold (backward: its forward's)"),
    "call": ("i4", "code into calls: the op (backward: its forward's)"),
    "inner": ("i4", "code into calls: innermost dispatcher op or autograd function"),
    "own": ("i4", "code into calls: the op of the instance itself, where it is not `call`"),
    "dir": ("i1", "code into DIRECTIONS, -1 unknown"),
    "phase": ("i1", "code into PHASES, -1 unknown"),
    "step": ("i4", "number of the training step; where only a serving engine marks steps, of the engine's"),
    "engine_step": ("i4", "code into engine_steps: the serving engine's step that launched it"),
    "seq": ("i8", "the autograd sequence number that counts"),
    "sub": ("i4", "n-th kernel in a row of one op and sequence number"),
    "recomputed": ("i1", "1: a forward op that runs again inside backward; 0: not"),
    "by_time": ("i1", "1: its ranges are those open on the main thread at that time"),
    "phase_inferred": ("i1", "1: its phase is known from its kernel's name alone, from no op and no range"),
}

# Columns that are codes into the pool of that name.
POOLED = {
    "stack": "stacks", "scope": "stacks", "call": "calls", "own": "calls", "inner": "calls", "gpu": "gpus",
    "engine_step": "engine_steps",
}  # fmt: skip

# Names in prof's columns, in net.dict and in Parquet, where they are not the column's own.
KEYS = {
    "start_ns": "start", "dur_ns": "sil", "launch_ns": "launch", "launch_dur_ns": "launchdur", "smem_bytes": "smem",
    "phase_inferred": "inferred",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A device as the capture describes it: name as the driver gives it, compute capability, multiprocessors (-1 unknown)."""

    name: str = ""
    cc: tuple[int, int] | None = None
    sms: int = -1
    clock_hz: int = -1
    dram_bytes_per_s: int = -1
    l2_bytes: int = -1
    memory_bytes: int = -1


GPU_NUMBERS = tuple(one.name for one in fields(GpuInfo))[2:]
"""The fields of GpuInfo that are numbers, -1 unknown, and columns of a trace's `devices`."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One distinct stack of ranges, each list outermost first.

    mod, op, marker: Python-level calls and their texts; layer: named layers, or where none was named the user's ranges; trace:
    source lines; reprs: printed modules; seq_names: names of the ranges that carry a sequence number, backward_at: which of
    them is the autograd function that counts (-1 none); ranges: the user's ranges with their domains; open: some of those were
    never closed.
    """

    mod: tuple[str, ...] = ()
    op: tuple[str, ...] = ()
    marker: tuple[str, ...] = ()
    layer: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    reprs: tuple[str, ...] = ()
    seq_names: tuple[str, ...] = ()
    backward_at: int = -1
    ranges: tuple[str, ...] = ()
    open: bool = False


@dataclass(frozen=True, slots=True)
class MarkedStep:
    """One step that a serving engine made. pid: its process; number: from 0 in order of begin in its process; begin_ns,
    end_ns: from the begin of its first annotation to the end of its last; texts: of these, the outermost and first before."""

    pid: int
    number: int
    begin_ns: int
    end_ns: int
    texts: tuple[str, ...]

    @property
    def says(self) -> EngineStep:
        """Its annotations, read together."""
        return read_together(self.texts)


def engine_rows(steps: Sequence[MarkedStep], after_ns: int = -1) -> list[int]:
    """Indices, ordered by begin, of the steps that begin at `after_ns` or later; only of the process with most steps."""
    pids = np.array([step.pid for step in steps if step.begin_ns >= after_ns], np.int64)
    found, counts = np.unique(pids, return_counts=True)
    pid = int(found[counts.argmax()]) if len(found) else -1
    rows = [at for at, step in enumerate(steps) if step.pid == pid and step.begin_ns >= after_ns]
    return sorted(rows, key=lambda at: steps[at].begin_ns)


class Unseen(NamedTuple):
    """Why records do not show the device's work as a whole, so that its busy and idle time are not known. what: a sentence with
    numbers; do: how to record it."""

    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}: {self.do}"


@dataclass(eq=False, repr=False)
class Records:
    """All records of one capture, or of several one after another.

    seq_offsets, seq_numbers: the sequence numbers of record i are seq_numbers[seq_offsets[i]:seq_offsets[i + 1]], one for each
    name in its stack's seq_names. counts: cases that attribution could not settle, by name. notes: for people. utc_ns: add it
    to a time to get nanoseconds since 1970, -1 unknown (also for several captures together). unseen: what hides most of the
    device's work, None: nothing. steps, host: the capture's steps
    and its host's work, None if the file has records alone (or they were not requested). ledger: all steps of the run that was
    recorded, None where none is beside the file.
    """

    columns: dict[str, Array]
    strings: Strings = field(default_factory=Strings)
    stacks: list[Stack] = field(default_factory=list)
    calls: list[OpCall] = field(default_factory=list)
    gpus: list[GpuInfo] = field(default_factory=list)
    engine_steps: list[MarkedStep] = field(default_factory=list)
    seq_offsets: npt.NDArray[np.int64] = field(default_factory=partial(np.zeros, 1, np.int64))  # type: ignore[arg-type]
    seq_numbers: npt.NDArray[np.int64] = field(default_factory=partial(np.zeros, 0, np.int64))  # type: ignore[arg-type]
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    source: str = ""
    utc_ns: int = -1
    unseen: Unseen | None = None
    steps: MarkedSteps | None = None
    host: Host | None = None
    ledger: Ledger | None = None

    def __len__(self) -> int:
        return len(self.columns["kind"])

    def __getitem__(self, name: str) -> Array:
        """A column; unknown in every record where it was not filled."""
        try:
            return self.columns[name]  # perhaps of a file that is read now
        except KeyError:
            return np.broadcast_to(np.dtype(COLUMNS[name][0]).type(-1), len(self))

    def within(self, name: str, least: int, beyond: int) -> Bools:
        """Whether each record's column is at least `least` and below `beyond`; a file skips row groups that cannot hold it."""
        values = self[name]
        return np.asarray((values >= least) & (values < beyond))

    def of_rows(self, name: str, rows: slice | Array) -> Array:
        """A column at these rows; of a file only the row groups that hold them are read."""
        values: Array = self[name][rows]
        return values

    def select(self, rows: Array) -> Records:
        """The records at these positions (or where a mask is true), sharing the pools; itself where that is all."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        offsets, numbers = chosen_numbers(self.seq_offsets, self.seq_numbers, positions)
        columns = {name: values[positions] for name, values in self.columns.items()}
        return replace(self, columns=columns, seq_offsets=offsets, seq_numbers=numbers)

    def forget(self, keep: Collection[str]) -> None:
        """Free columns that can be read again, all but these."""

    def with_ops(self, columns: dict[str, Array], calls: list[OpCall]) -> Records:
        """Records with these columns and this pool of calls in place of their own."""
        return replace(self, columns={**self.columns, **columns}, calls=calls)

    def messages(self) -> list[str]:
        """Notes for a person, one line each: gaps in the capture, cases that attribution could not settle."""
        counted = []
        for what, count in sorted(self.counts.items()):
            text = what
            for one in ("kernel", "function", "launch") if count == 1 else ():
                text = text.replace(f"{one}es" if one == "launch" else f"{one}s", one, 1)
            counted.append(f"{count} {text}")
        return [*([] if self.unseen is None else [str(self.unseen)]), *self.notes, *counted]

    def numbers(self, row: int) -> list[int]:
        """The sequence numbers of one record, in the order of its stack's seq_names."""
        numbers: list[int] = self.seq_numbers[self.seq_offsets[row] : self.seq_offsets[row + 1]].tolist()
        return numbers


def chosen_numbers(offsets: Ints, numbers: Ints, rows: Array) -> tuple[Ints, Ints]:
    """seq_offsets and seq_numbers of some rows."""
    first = offsets[rows]
    lengths = offsets[rows + 1] - first
    chosen = np.concatenate([[0], np.cumsum(lengths)])
    return chosen, numbers[np.repeat(first - chosen[:-1], lengths) + np.arange(chosen[-1])]


def empty(source: str) -> Records:
    """No records at all."""
    return Records({name: np.empty(0, dtype) for name, (dtype, _) in COLUMNS.items()}, source=source)


def concatenate(parts: list[Records]) -> Records:
    """Records of several files one after another; instances of different files stay different."""
    if len(parts) == 1:
        return parts[0]
    whole = Records({}, notes=[note for part in parts for note in part.notes])
    whole.unseen = next((part.unseen for part in parts if part.unseen is not None), None)
    columns: dict[str, list[Array]] = {name: [] for name in COLUMNS}
    instances = 0
    for part in parts:
        names = np.array([whole.strings.code(text) for text in part.strings.values] + [-1], np.int64)
        for name, (dtype, _) in COLUMNS.items():
            values = part.columns[name].astype(np.int64)
            if name == "name":
                values = names[values]
            elif name in POOLED:
                values = np.where(values >= 0, values + len(getattr(whole, POOLED[name])), -1)
            elif name in ("instance", "fwd_instance"):
                values = np.where(values >= 0, values + instances, -1)
            columns[name].append(values.astype(dtype))
        instances += int(max(part["instance"].max(initial=-1), part["fwd_instance"].max(initial=-1))) + 1
        whole.stacks += part.stacks
        whole.calls += part.calls
        whole.gpus += part.gpus
        whole.engine_steps += part.engine_steps
        whole.counts = {key: whole.counts.get(key, 0) + part.counts.get(key, 0) for key in {**whole.counts, **part.counts}}
    whole.columns = {name: np.concatenate(values) for name, values in columns.items()}
    lengths = np.concatenate([np.diff(part.seq_offsets) for part in parts])
    whole.seq_offsets = np.concatenate([[0], np.cumsum(lengths)])
    whole.seq_numbers = np.concatenate([part.seq_numbers for part in parts])
    whole.source = parts[0].source
    return whole


ALIKE = (
    "kind", "gpu", "phase", "copykind", "recomputed", "pid", "rank", "device", "stream", "call", "own", "inner", "name",
    "scope", "grid_z", "grid_y", "block_x", "grid_x",
)  # fmt: skip
"""Columns in which the records of a group are equal; they also all have a forward instance, or none has."""


class Classes(NamedTuple):
    """code: group number of each record; first: position of each group's first record; records: one row per group, with the
    columns in ALIKE; linked: whether the group's records have a forward instance."""

    code: Array
    first: Ints
    records: Records
    linked: Bools

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, which: Bools) -> Ints:
        """Positions of the records of the groups in a mask, ascending."""
        return np.flatnonzero(which.take(self.code))

    def of(self, values: Array) -> Array:
        """A column of records from one value per group."""
        return values.take(self.code)


def classes_of(records: Records) -> Classes:
    """Group records that differ only in times and in numbers of single executions: a million form a few thousand groups, and
    what depends on kernel, op, shapes, layer, phase and device alone is worked out once for each. Groups ascend by `linked`,
    then by the columns of ALIKE in their order."""
    alike = (records.of_rows(name, slice(None)) for name in ALIKE)  # of a file not kept: most are needed here only
    found = distinct_rows(records["fwd_instance"] >= 0, *alike)
    linked, *values = found.columns
    columns = {name: own.astype(COLUMNS[name][0]) for name, own in zip(ALIKE, values, strict=True)}
    pools = records.strings, records.stacks, records.calls, records.gpus, records.engine_steps
    firsts = Records(columns, *pools, np.zeros(len(found.first) + 1, np.int64))
    return Classes(found.inverse.astype(np.int32), found.first, firsts, linked != 0)
