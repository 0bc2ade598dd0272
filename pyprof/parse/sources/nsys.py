"""Nsight Systems' SQLite export of any schema from 2020 to 2026 -> Trace.

Tables and columns are detected, never assumed: any table may be absent, columns were inserted and renamed over the years, rows
come in any order. Texts are `text` or, for registered strings, StringIds[`textId`]. Nothing of META_DATA_CAPTURE or PROCESSES
is read: they hold environments and command lines.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import map_distinct
from pyprof.errors import EmptyCapture
from pyprof.parse.sources import nsys_ranges
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.trace import ActivityKind, Array, Table, Trace, concatenated, make_table

__all__ = ["read"]

Ints = npt.NDArray[np.int64]

_TID_BITS = 24
_TID_MASK = (1 << _TID_BITS) - 1
_KERNEL, _GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_MEMCPY, _MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME, _NVTX, _GPU = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "TARGET_INFO_GPU"
_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
_GEOMETRY = {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ", "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ",
    "regs": "registersPerThread",
}  # fmt: skip
_STATIC, _DYNAMIC = "staticSharedMemory", "dynamicSharedMemory"
_DEVICE = {
    "cc_major": "computeMajor", "cc_minor": "computeMinor", "sms": "smCount", "clock_hz": "clockRate",
    "dram_bytes_per_s": "memoryBandwidth", "l2_bytes": "l2CacheSize", "max_warps_per_sm": "maxWarpsPerSm",
    "max_blocks_per_sm": "maxBlocksPerSm", "regs_per_sm": "maxRegistersPerSm", "smem_per_sm_bytes": "maxShmemPerSm",
}  # fmt: skip


def read(db: Database) -> Trace:
    """The whole export as a Trace.

    Raises EmptyCapture where it holds neither GPU activity nor NVTX ranges, InputError where it is damaged.
    """
    return _ExportReader(db).read()


class _ExportReader:
    """One export while it is read: codes of its strings, rows of its threads and processes."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.trace = Trace("nsys")
        self.names: dict[int, str] = {}
        self.process_of: dict[int, int] = {}  # globalPid -> row of processes
        self.thread_of: dict[int, int] = {}  # globalTid -> row of threads

    def read(self) -> Trace:
        trace, db = self.trace, self.db
        if db.has("StringIds", "id", "value"):
            rows = db.rows("SELECT id, value FROM StringIds WHERE typeof(id) = 'integer'")
            self.names = {number: _text(value) for number, value in rows if isinstance(number, int)}
        trace.version = self._version()
        trace.session_end_ns = max(db.integers("ANALYSIS_DETAILS", ("duration",))["duration"].tolist(), default=-1)
        trace.utc_ns = next(iter(db.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"].tolist()), -1)
        trace.launches = self._launches()
        trace.ranges = self._ranges()
        trace.activities = concatenated([self._kernels(), self._graphs(), self._copies(_MEMCPY), self._copies(_MEMSET)])
        trace.graph_nodes = self._graph_nodes()
        trace.threads, trace.processes = self._threads()
        trace.devices = self._devices()
        self._check()
        return trace

    # ------------------------------------------------------------------ codes

    def _string(self, string_id: int) -> int:
        """The code of StringIds[string_id] in the trace, -1 where it is unknown."""
        text = self.names.get(string_id)
        return -1 if text is None else self.trace.strings.code(text)

    def _process(self, global_pid: int) -> int:
        return self.process_of.setdefault(global_pid & ~_TID_MASK, len(self.process_of))

    def _thread(self, global_tid: int) -> int:
        self._process(global_tid)
        return self.thread_of.setdefault(global_tid, len(self.thread_of))

    # ------------------------------------------------------------------ tables

    def _activities(self, kind: int, raw: dict[str, Ints], **columns: Array) -> Table:
        """A table of activities of one kind; raw: at least the columns _COMMON; columns: those of this kind."""
        pids = raw["globalPid"]
        if len(pids) and (pids < 0).all() and len(self.process_of) == 1:
            process = np.zeros(len(pids), np.int64)  # old exports name no process: it can only be this one
        else:
            process = np.where(pids < 0, -1, map_distinct(pids, self._process))
        node = raw["graphNodeId"]
        columns |= {
            "kind": np.full(len(pids), kind, np.int8),
            "start_ns": raw["start"],
            "end_ns": np.maximum(raw["end"], raw["start"]),
            "process": process,
            "device": raw["deviceId"],
            "stream": raw["streamId"],
            "corr": raw["correlationId"],
            "graph_node": np.where(node == 0, -1, node) if (node >= 0).any() else node,
        }
        return make_table("activities", columns)

    def _kernels(self) -> Table:
        name = "demangledName" if self.db.has(_KERNEL, "demangledName") else "shortName"
        raw = self.db.integers(_KERNEL, (*_COMMON, *_GEOMETRY.values(), name, _STATIC, _DYNAMIC), narrow=True)
        static, dynamic = raw.pop(_STATIC).astype(np.int64), raw.pop(_DYNAMIC).astype(np.int64)
        return self._activities(
            ActivityKind.KERNEL,
            raw,
            name=map_distinct(raw[name], self._string),
            smem_bytes=np.where((static < 0) | (dynamic < 0), -1, static + dynamic),
            **{ours: raw[theirs] for ours, theirs in _GEOMETRY.items()},
        )

    def _graphs(self) -> Table:
        raw = self.db.integers(_GRAPH, (*_COMMON, "graphId"))
        if len(raw["start"]):
            self.trace.notes.append(
                f"{len(raw['start'])} launches of CUDA graphs were recorded whole, without their kernels: "
                "record again with --cuda-graph-trace=node"
            )
        names = map_distinct(raw["graphId"], lambda graph: self.trace.strings.code(f"CUDA graph {graph}"))
        return self._activities(ActivityKind.GRAPH, raw, name=names)

    def _copies(self, table: str) -> Table:
        raw = self.db.integers(table, (*_COMMON, "bytes", "copyKind"))
        kind, label = (ActivityKind.MEMCPY, "Memcpy") if table == _MEMCPY else (ActivityKind.MEMSET, "Memset")
        names = np.full(len(raw["start"]), self.trace.strings.code(label) if len(raw["start"]) else -1)
        return self._activities(kind, raw, name=names, bytes=raw["bytes"], copykind=raw["copyKind"])

    def _launches(self) -> Table:
        raw = self.db.integers(_RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId"), narrow=True)
        known = raw["globalTid"] >= 0  # a call without a thread has no process either
        if not known.all():
            raw = {name: values[known] for name, values in raw.items()}
        return make_table(
            "launches",
            {
                "start_ns": raw["start"],
                "end_ns": raw["end"],
                "thread": map_distinct(raw["globalTid"], self._thread),
                "corr": raw["correlationId"],
                "name": map_distinct(raw["nameId"], self._string),
            },
        )

    def _ranges(self) -> Table:
        if not self.db.has(_NVTX, "start", "end"):
            return make_table("ranges")
        rows, kinds = self.db.about_rows(_NVTX), self.db.has(_NVTX, "eventType")
        start = partial(nsys_ranges.RangeRows, self.names, self.trace, self._thread, rows, kinds=kinds)
        collected = self.db.collect(_NVTX, nsys_ranges.COLUMNS, "text", start)
        if collected.unreadable:
            self.trace.notes.append(f"{collected.unreadable} NVTX ranges without a readable time or thread were left out")
        return collected.table()

    def _graph_nodes(self) -> Table:
        """Up to 2023.4 the table of nodes is called CUDA_GRAPH_EVENTS, later that is another table: its columns tell."""
        for table in ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"):
            if self.db.has(table, "graphNodeId", "globalTid", "start"):
                raw = self.db.integers(table, ("graphNodeId", "originalGraphNodeId", "globalTid", "start"))
                raw = {name: values[raw["globalTid"] >= 0] for name, values in raw.items()}
                origin = raw["originalGraphNodeId"]
                return make_table(
                    "graph_nodes",
                    {
                        "node": raw["graphNodeId"],
                        "origin": np.where(origin == 0, -1, origin),
                        "thread": map_distinct(raw["globalTid"], self._thread),
                        "start_ns": raw["start"],
                    },
                )
        return make_table("graph_nodes")

    def _threads(self) -> tuple[Table, Table]:
        tids = np.fromiter(self.thread_of, np.int64, len(self.thread_of))
        named = self.db.integers("ThreadNames", ("globalTid", "nameId"))
        name_of = dict(zip(named["globalTid"].tolist(), map(self._string, named["nameId"].tolist()), strict=True))
        process = map_distinct(tids, self._process)
        threads = make_table(
            "threads",
            {
                "process": process,
                "tid": tids & _TID_MASK,
                "name": np.array([name_of.get(tid, -1) for tid in self.thread_of], np.int64),
                "main": (tids & _TID_MASK) == ((tids >> _TID_BITS) & _TID_MASK),
            },
        )
        pids = np.fromiter(self.process_of, np.int64, len(self.process_of))
        return threads, make_table("processes", {"pid": (pids >> _TID_BITS) & _TID_MASK})

    def _devices(self) -> Table:
        ordinal = "cuDevice" if self.db.has(_GPU, "cuDevice") else "deviceId"
        raw = self.db.integers(_GPU, ("id", ordinal, *_DEVICE.values()))
        rows, device, process = self._seen_devices(raw["id"], raw[ordinal])
        names = self.db.rows(f'SELECT "name" FROM "{_GPU}"') if self.db.has(_GPU, "name") else [(None,)] * len(raw["id"])
        columns = {ours: raw[theirs][rows] for ours, theirs in _DEVICE.items()}
        for name, values in columns.items():
            if name != "cc_minor":
                values[values <= 0] = -1  # 0 means that it is unknown
        codes = np.array([self.trace.strings.code(_text(name)) for (name,) in names], np.int64)
        return make_table("devices", {"process": process, "device": device, "name": codes[rows], **columns})

    def _seen_devices(self, gpu: Ints, ordinal: Ints) -> tuple[Ints, Ints, Ints]:
        """(row of the GPU, ordinal, process) as each process sees the GPUs (CUDA_VISIBLE_DEVICES), where the export has it."""
        seen = self.db.integers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
        row_of = {number: row for row, number in enumerate(gpu.tolist())}
        process_of = {(key >> _TID_BITS) & _TID_MASK: row for key, row in self.process_of.items()}
        known = [
            (row_of[number], cuda, process_of[pid])
            for number, cuda, pid in zip(*(column.tolist() for column in seen.values()), strict=True)
            if number in row_of and pid in process_of
        ]
        if not known:
            return np.arange(len(gpu)), ordinal, np.full(len(gpu), -1)
        rows, device, process = np.array(known, np.int64).T
        return rows, device, process

    # ------------------------------------------------------------------ the export as a whole

    def _version(self) -> str:
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if self.db.has(table, "name", "value"):
                found = {name: _text(value) for name, value in self.db.rows(f'SELECT name, value FROM "{table}"')}
                product = found.get("EXPORT_PRODUCT_VERSION", "")
                schema = found.get("EXPORT_SCHEMA_VERSION", "")
                return f"nsys {product} schema {schema}".strip()
        return "nsys"

    def _check(self) -> None:
        trace = self.trace
        if len(trace.activities["start_ns"]) or len(trace.ranges["start_ns"]):
            return
        reported = "; ".join(self._diagnostics())
        raise EmptyCapture(
            f"{self.db.name}: the capture holds neither GPU activity nor NVTX ranges"
            + (f" (nsys reports: {reported})" if reported else ""),
            "record with `nsys profile -t cuda,nvtx ...`, and check that the program ran CUDA work while recording was on",
        )

    def _diagnostics(self) -> list[str]:
        if not self.db.has("DIAGNOSTIC_EVENT", "severity", "text"):
            return []
        rows = self.db.rows("SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3) ORDER BY text LIMIT 3")
        return [text.splitlines()[0] for row in rows if (text := _text(row[0]).strip())]


def _text(value: object) -> str:
    """A text from whatever a column of texts holds; empty where that is NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)
