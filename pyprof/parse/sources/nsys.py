"""Nsight Systems' SQLite export of any schema from 2020 to 2026 -> Trace.

Tables and columns are detected, never assumed: any table may be absent, columns were inserted and renamed over the years, rows
come in any order. Texts are `text` or, for registered strings, StringIds[`textId`]. Nothing of META_DATA_CAPTURE or PROCESSES
is read: they hold environments and command lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.errors import EmptyCapture
from pyprof.parse.sources.nsys_ranges import DOMAIN, RANGES, RangeRows
from pyprof.parse.sources.sqlite import Database, map_distinct, to_text
from pyprof.parse.sources.trace import ActivityKind, Table, Trace, concatenated, make_table

__all__ = ["matches", "read"]

Ints = npt.NDArray[np.int64]

_TID_BITS = 24
_TID_MASK = (1 << _TID_BITS) - 1
_KERNEL, _GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_MEMCPY, _MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME, _NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_RANGE_COLUMNS = ("start", "end", "eventType", "globalTid", "domainId", "textId")
_RANGE_KINDS = (*RANGES, DOMAIN)
_COMMON = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId")
_GEOMETRY = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")


def matches(db: Database) -> bool:
    """Whether a database is an export of nsys; of its tables each may be absent."""
    ours = {"StringIds", "META_DATA_EXPORT", "ANALYSIS_DETAILS", _NVTX, _KERNEL, _GRAPH, _MEMCPY, _RUNTIME}
    return "StringTable" not in db.tables and bool(ours & db.tables)


def read(db: Database) -> Trace:
    """The whole export as a Trace.

    Raises EmptyCapture where it holds neither GPU activity nor NVTX ranges, InputError where it is damaged.
    """
    return _Reader(db).read()


class _Reader:
    """State shared while one export is read: codes of strings, threads and processes."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.trace = Trace("nsys")
        self.names: dict[int, str] = {}
        self.string_codes: dict[int, int] = {}
        self.process_of: dict[int, int] = {}  # globalPid -> row of processes
        self.thread_of: dict[int, int] = {}  # globalTid -> row of threads

    def read(self) -> Trace:
        trace = self.trace
        if self.db.has("StringIds", "id", "value"):
            self.names = {i: to_text(v) for i, v in self.db.rows("SELECT id, value FROM StringIds") if isinstance(i, int)}
        trace.version = self._version()
        trace.session_end_ns = self._session_end()
        trace.utc_ns = self._session_start()
        trace.launches = self._launches()
        trace.ranges = self._ranges()
        trace.activities = self._activities()
        trace.graph_nodes = self._graph_nodes()
        trace.threads, trace.processes = self._threads()
        trace.devices = self._devices()
        self._check()
        return trace

    # ------------------------------------------------------------------ codes

    def _string(self, string_id: int) -> int:
        """The code of StringIds[string_id] in the trace, -1 where there is none."""
        code = self.string_codes.get(string_id)
        if code is None:
            text = self.names.get(string_id)
            code = self.string_codes[string_id] = -1 if text is None else self.trace.strings.code(text)
        return code

    def _strings(self, ids: Ints) -> Ints:
        return map_distinct(ids, self._string)

    def _process(self, global_pid: int) -> int:
        key = global_pid & ~_TID_MASK
        return self.process_of.setdefault(key, len(self.process_of))

    def _thread(self, global_tid: int) -> int:
        self._process(global_tid)
        return self.thread_of.setdefault(global_tid, len(self.thread_of))

    # ------------------------------------------------------------------ tables

    def _activities(self) -> Table:
        parts = [
            self._kernels(),
            self._graphs(),
            self._copies(_MEMCPY, ActivityKind.MEMCPY),
            self._copies(_MEMSET, ActivityKind.MEMSET),
        ]
        return concatenated([make_table("activities", part) for part in parts])

    def _common(self, raw: dict[str, Ints], kind: int) -> dict[str, Any]:
        pids = raw["globalPid"]
        if len(pids) and (pids < 0).all() and len(self.process_of) == 1:
            process = np.zeros(len(pids), np.int64)  # old exports name no process: the only one it can be
        else:
            process = np.where(pids < 0, -1, map_distinct(pids, self._process))
        node = raw["graphNodeId"]
        return {
            "kind": np.full(len(pids), kind, np.int8),
            "start_ns": raw["start"],
            "end_ns": np.maximum(raw["end"], raw["start"]),
            "process": process,
            "device": raw["deviceId"],
            "stream": raw["streamId"],
            "corr": raw["correlationId"],
            "graph_node": np.where(node == 0, -1, node) if (node >= 0).any() else node,
        }

    def _kernels(self) -> dict[str, Any]:
        name = "demangledName" if self.db.has(_KERNEL, "demangledName") else "shortName"
        smem = ("staticSharedMemory", "dynamicSharedMemory")
        raw = self.db.integers(_KERNEL, (*_COMMON, *_GEOMETRY, name, *smem), narrow=True)
        static, dynamic = (raw.pop(part).astype(np.int64) for part in smem)
        columns = self._common(raw, ActivityKind.KERNEL)
        columns["name"] = self._strings(raw[name])
        columns |= {f"{kind}_{axis.lower()}": raw[f"{kind}{axis}"] for kind in ("grid", "block") for axis in "XYZ"}
        columns["regs"] = raw["registersPerThread"]
        columns["smem_bytes"] = np.where((static < 0) | (dynamic < 0), -1, static + dynamic)
        return columns

    def _graphs(self) -> dict[str, Any]:
        raw = self.db.integers(_GRAPH, (*_COMMON, "graphId"))
        if len(raw["start"]):
            self.trace.notes.append(
                f"{len(raw['start'])} launches of CUDA graphs were recorded whole, without their kernels: "
                "record again with --cuda-graph-trace=node"
            )
        columns = self._common(raw, ActivityKind.GRAPH)
        columns["name"] = map_distinct(raw["graphId"], lambda graph: self.trace.strings.code(f"CUDA graph {graph}"))
        return columns

    def _copies(self, table: str, kind: int) -> dict[str, Any]:
        raw = self.db.integers(table, (*_COMMON, "bytes", "copyKind"))
        columns = self._common(raw, kind)
        label = "Memcpy" if kind == ActivityKind.MEMCPY else "Memset"
        columns["name"] = np.full(len(raw["start"]), self.trace.strings.code(label) if len(raw["start"]) else -1)
        columns["bytes"] = raw["bytes"]
        columns["copykind"] = raw["copyKind"]
        return columns

    def _launches(self) -> Table:
        raw = self.db.integers(_RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId"), narrow=True)
        known = raw["globalTid"] >= 0  # a call of no thread is of no process either
        if not known.all():
            raw = {name: values[known] for name, values in raw.items()}
        return make_table(
            "launches",
            {
                "start_ns": raw["start"],
                "end_ns": raw["end"],
                "thread": map_distinct(raw["globalTid"], self._thread),
                "corr": raw["correlationId"],
                "name": self._strings(raw["nameId"]),
            },
        )

    def _ranges(self) -> Table:
        if not self.db.has(_NVTX, "start", "end"):
            return make_table("ranges")
        present = self.db.columns(_NVTX)
        text = "coalesce(\"text\", '')" if "text" in present else "''"
        kinds = ", ".join(map(str, _RANGE_KINDS))
        sql = self.db.select(_NVTX, _RANGE_COLUMNS, f'"eventType" IN ({kinds})' if "eventType" in present else "", also=(text,))
        collected = self._ranges_by_columns(sql, present)
        if collected is None:
            collected = self._new_rows()
            for batch in self.db.batches(sql):
                collected.add(batch)
        if collected.unreadable:
            self.trace.notes.append(f"{collected.unreadable} NVTX ranges without a readable time or thread were left out")
        return collected.table()

    def _new_rows(self) -> RangeRows:
        return RangeRows(self.names, self.trace, self._thread, self.db.about_rows(_NVTX))

    def _ranges_by_columns(self, sql: str, present: dict[str, str]) -> RangeRows | None:
        """The rows where the file is as it should be; in a column of texts, numbers are texts to SQLite as well."""
        if not any(name in present.get("text", "") for name in ("TEXT", "CHAR", "CLOB")):
            return None
        try:
            from pyprof.parse.sources.emit_texts import EmitTexts
        except ImportError:  # without pyarrow
            return None
        from pyprof.parse.sources.sqlite_pages.btree import OddFile

        for read in (self._batches_of_pages, self._batches_of_arrow):
            collected = self._new_rows()
            texts = EmitTexts(collected.decode)
            try:
                for columns, said in read(sql, "eventType" in present):
                    collected.add_columns(columns, said, texts.codes)
            except OddFile:
                continue
            return collected
        return None

    def _batches_of_pages(self, _: str, with_kind: bool) -> Iterator[tuple[list[Ints], Any]]:
        from pyprof.arrays.arrow import to_arrow

        for columns, texts in self.db.batches_with_text(_NVTX, _RANGE_COLUMNS, "text"):
            kept = np.isin(columns[_RANGE_COLUMNS.index("eventType")], _RANGE_KINDS)
            if with_kind and not kept.all():
                columns, texts = [column[kept] for column in columns], texts.filter(to_arrow(kept))
            yield columns, texts

    def _batches_of_arrow(self, sql: str, _: bool) -> Iterator[tuple[list[Ints], Any]]:
        from pyprof.arrays.arrow import to_numpy
        from pyprof.parse.sources.sqlite_pages.btree import OddFile

        if self.db.arrow is None:
            raise OddFile("small, or ADBC is not there")
        count = len(_RANGE_COLUMNS)
        for batch in self.db.arrow.batches(sql, count):
            yield [to_numpy(column) for column in batch.columns[:count]], batch.column(count)

    def _graph_nodes(self) -> Table:
        """Up to 2023.4 the table of nodes is called CUDA_GRAPH_EVENTS, later that is another table: told by its columns."""
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
        name_of = dict(zip(named["globalTid"].tolist(), self._strings(named["nameId"]).tolist(), strict=True))
        process = map_distinct(tids, self._process)
        threads = make_table(
            "threads",
            {
                "process": process,
                "tid": tids & _TID_MASK,
                "name": np.array([name_of.get(tid, -1) for tid in tids.tolist()], np.int64),
                "main": (tids & _TID_MASK) == ((tids >> _TID_BITS) & _TID_MASK),
            },
        )
        pids = np.fromiter(self.process_of, np.int64, len(self.process_of))
        return threads, make_table("processes", {"pid": (pids >> _TID_BITS) & _TID_MASK})

    def _devices(self) -> Table:
        table = "TARGET_INFO_GPU"
        ordinal = "cuDevice" if self.db.has(table, "cuDevice") else "deviceId"
        wanted = {
            "cc_major": "computeMajor",
            "cc_minor": "computeMinor",
            "sms": "smCount",
            "clock_hz": "clockRate",
            "dram_bytes_per_s": "memoryBandwidth",
            "l2_bytes": "l2CacheSize",
            "max_warps_per_sm": "maxWarpsPerSm",
            "max_blocks_per_sm": "maxBlocksPerSm",
            "regs_per_sm": "maxRegistersPerSm",
            "smem_per_sm_bytes": "maxShmemPerSm",
        }
        raw = self.db.integers(table, ("id", ordinal, *wanted.values()))
        if not len(raw["id"]):
            return make_table("devices")
        has_name = self.db.has(table, "name")
        names = [to_text(r[0]) for r in self.db.rows(f'SELECT "name" FROM "{table}"')] if has_name else [""] * len(raw["id"])
        rows = np.arange(len(names))
        process = np.full(len(names), -1)
        device = raw[ordinal]
        # Newer exports tell which GPU each process sees under which ordinal (CUDA_VISIBLE_DEVICES).
        seen = self.db.integers("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))
        if len(seen["pid"]):
            row_of = {gpu: row for row, gpu in enumerate(raw["id"].tolist())}
            process_of = {(key >> _TID_BITS) & _TID_MASK: row for key, row in self.process_of.items()}
            known = [
                (row_of[gpu], cuda, process_of[pid])
                for gpu, cuda, pid in zip(*(seen[c].tolist() for c in ("gpuId", "cudaId", "pid")), strict=True)
                if gpu in row_of and pid in process_of
            ]
            if known:
                rows = np.array([k[0] for k in known])
                device = np.array([k[1] for k in known])
                process = np.array([k[2] for k in known])
        code = np.array([self.trace.strings.code(name) for name in names], np.int64)
        columns = {ours: _known(raw[theirs][rows], ours) for ours, theirs in wanted.items()}
        return make_table("devices", {"process": process, "device": device, "name": code[rows], **columns})

    # ------------------------------------------------------------------ about the whole

    def _version(self) -> str:
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if self.db.has(table, "name", "value"):
                found = dict(self.db.rows(f'SELECT name, value FROM "{table}"'))
                product = found.get("EXPORT_PRODUCT_VERSION", "")
                schema = found.get("EXPORT_SCHEMA_VERSION", "")
                return f"nsys {product} schema {schema}".strip()
        return "nsys"

    def _session_end(self) -> int:
        durations = self.db.integers("ANALYSIS_DETAILS", ("duration",))["duration"]
        return int(durations.max()) if len(durations) else -1

    def _session_start(self) -> int:
        starts = self.db.integers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))["utcEpochNs"]
        return int(starts[0]) if len(starts) else -1

    def _check(self) -> None:
        trace = self.trace
        if len(trace.activities["start_ns"]) or len(trace.ranges["start_ns"]):
            return
        said = "; ".join(self._diagnostics())
        raise EmptyCapture(
            f"{self.db.path}: the capture holds neither GPU activity nor NVTX ranges"
            + (f" (nsys says: {said})" if said else ""),
            "record with `nsys profile -t cuda,nvtx ...`, and check that the program ran CUDA work while recording was on",
        )

    def _diagnostics(self) -> list[str]:
        if not self.db.has("DIAGNOSTIC_EVENT", "severity", "text"):
            return []
        rows = self.db.rows("SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3) ORDER BY text LIMIT 3")
        return [text.splitlines()[0] for row in rows if (text := to_text(row[0]).strip())]


def _known(values: Ints, column: str) -> Ints:
    """A property of a device, where 0 stands for unknown but for the minor compute capability."""
    return values if column == "cc_minor" else np.where(values > 0, values, -1)
