"""Nsight Systems' SQLite export of any schema from 2020 to 2026 -> Trace.

Tables and columns are detected, never assumed: any table may be absent, columns were inserted and renamed over the years, rows
come in any order. Only the begin and the end of kernels must be there. Texts are `text` or, for registered strings,
StringIds[`textId`]. Nothing of META_DATA_CAPTURE or PROCESSES is read: they hold environments and command lines.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat

import numpy as np

from pyprof.columns.distinct import Growing, among, distinct_rows, map_distinct, narrowest
from pyprof.columns.types import Array, Ints
from pyprof.errors import EmptyCapture, InputError
from pyprof.model.trace import COPY_KINDS, ActivityKind, Samples, Table, Trace, concatenated, make_table
from pyprof.parse.sources.emit_texts import texts_reader
from pyprof.parse.sources.inputs import LeftOut
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.sqlite_pages.reader import NOT_AN_INTEGER, Batch

_TID_BITS = 24
_TID_MASK = (1 << _TID_BITS) - 1
_KERNEL, _GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_MEMCPY, _MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME, _NVTX, _GPU = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "TARGET_INFO_GPU"
# Columns of the trace's tables, each with its name in the export.
_ACTIVITY = {
    "start_ns": "start", "end_ns": "end", "process": "globalPid", "device": "deviceId", "stream": "streamId",
    "corr": "correlationId", "graph_node": "graphNodeId",
}  # fmt: skip
_GEOMETRY = {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ", "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ",
    "regs": "registersPerThread",
}  # fmt: skip
_COPY = {"bytes": "bytes", "copykind": "copyKind"}
_ENDS = {"source": "srcKind", "target": "dstKind"}
_MEMORY = ("Pageable", "Pinned", "Device", "Array", "Managed")  # nsys's numbers of these, not CUPTI's
_USAGE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
_EVENT = {
    "time_ns": "start", "process": "globalPid", "device": "deviceId", "address": "address", "bytes": "bytes", "kind": "memKind",
    "operation": "memoryOperationType", "corr": "correlationId",
}  # fmt: skip
_GIVEN_BACK, _HOST_KINDS = 1, (0, 1)  # deallocation; pageable and pinned memory
_OVERHEAD = "CUPTI_ACTIVITY_KIND_OVERHEAD"
_LOADS = (2, 6, 7)  # CUPTI's overheads that are no profiler's: compiled by the driver; a module, a function loaded lazily
_LOADING = "cuModuleLoad (lazy)"
_LAUNCH = {"start_ns": "start", "end_ns": "end", "thread": "globalTid", "corr": "correlationId", "name": "nameId"}
_NODE = {"node": "graphNodeId", "origin": "originalGraphNodeId", "thread": "globalTid", "start_ns": "start"}
_DEVICE = {
    "cc_major": "computeMajor", "cc_minor": "computeMinor", "sms": "smCount", "clock_hz": "clockRate",
    "dram_bytes_per_s": "memoryBandwidth", "l2_bytes": "l2CacheSize", "memory_bytes": "totalMemory",
    "max_warps_per_sm": "maxWarpsPerSm",
    "max_blocks_per_sm": "maxBlocksPerSm", "regs_per_sm": "maxRegistersPerSm", "smem_per_sm_bytes": "maxShmemPerSm",
}  # fmt: skip
# Columns of `ranges` in the order in which they are collected; domain: its number in the order of appearance.
_RANGE_COLUMNS = {
    "start_ns": "i8", "end_ns": "i8", "free": "?", "thread": "i4", "domain": "i4", "label": "i4", "seq": "i4", "op_id": "i4",
}  # fmt: skip
_RANGE = ("start", "end", "eventType", "globalTid", "domainId", "textId")
_PUSH_POP, _DOMAIN = (59, 70), 75
_KINDS = (59, 60, 70, 71, _DOMAIN)  # push/pop and start/end; 70 and 71 are the same imported from a text file
_METRICS = "TARGET_INFO_GPU_METRICS"
_SAMPLE = {"time_ns": "timestamp", "type": "typeId", "metric": "metricId", "value": "value"}
_PROCESS = ~_TID_MASK  # the bits of a globalTid that identify its process


def read(db: Database) -> Trace:
    """The whole export as a Trace.

    Raises EmptyCapture if it holds neither GPU activity nor NVTX ranges, InputError if it is damaged or its kernels have no
    column of begins or ends.
    """
    export = _Export(db)
    trace = export.trace
    trace.launches = export.launches()
    trace.ranges = export.ranges()
    parts = [export.kernels(), export.graphs(), export.copies(_MEMCPY), export.copies(_MEMSET)]
    trace.activities = concatenated(parts)
    trace.graph_nodes = export.graph_nodes()
    trace.memory = export.memory()
    trace.threads, trace.processes = export.threads()
    trace.devices = export.devices()
    trace.samples = export.samples()
    if not len(trace.activities["start_ns"]) and not len(trace.ranges["start_ns"]):
        raise _empty(db, trace)
    trace.notes += [*export.left_out.notes(), *([trace.samples.note] if trace.samples else [])]
    trace.left_out = export.left_out.activities
    if not len(trace.launches["corr"]) and db.has("DIAGNOSTIC_EVENT", "text"):
        said = db.rows("SELECT text FROM DIAGNOSTIC_EVENT")
        trace.watched = any("No CUDA events collected" in _text(text) for (text,) in said)
    return trace


class _Export:
    """One export while it is read: its strings, rows of its threads and processes."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.trace = Trace("nsys")
        self.names: dict[int, str] = {}  # texts by textId
        self.process_of: dict[int, int] = {}  # globalPid -> row of processes
        self.thread_of: dict[int, int] = {}  # globalTid -> row of threads
        self.left_out = LeftOut()
        self.ordinals: dict[int, set[int]] = {}  # of a GPU, by nsys's number: as CUDA numbers it
        if db.has("StringIds", "id", "value"):
            for number, value in db.rows("SELECT id, value FROM StringIds"):
                if isinstance(number, int):
                    self.names[number] = _text(value)
        version = {"EXPORT_PRODUCT_VERSION": "", "EXPORT_SCHEMA_VERSION": ""}
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT"):
            if db.has(table, "name", "value"):
                for name, value in db.rows(f'SELECT name, value FROM "{table}"'):
                    version[_text(name)] = _text(value)
        self.trace.version = "nsys {EXPORT_PRODUCT_VERSION} schema {EXPORT_SCHEMA_VERSION}".format_map(version)
        ends = db.integers("ANALYSIS_DETAILS", {"end": "duration"})["end"]
        starts = db.integers("TARGET_INFO_SESSION_START_TIME", {"start": "utcEpochNs"})["start"]
        self.trace.session_end_ns, self.trace.utc_ns = max(ends.tolist(), default=-1), next(iter(starts.tolist()), -1)

    # ------------------------------------------------------------------ codes

    def _string(self, string_id: int) -> int:
        """Code of StringIds[string_id] in the trace, -1 if unknown."""
        return self.trace.strings.code(self.names[string_id]) if string_id in self.names else -1

    def _process(self, global_pid: int) -> int:
        return self.process_of.setdefault(global_pid & ~_TID_MASK, len(self.process_of))

    def thread(self, global_tid: int) -> int:
        self._process(global_tid)
        return self.thread_of.setdefault(global_tid, len(self.thread_of))

    # ------------------------------------------------------------------ tables

    def _integers(self, table: str, columns: dict[str, str], *, narrow: bool = False) -> dict[str, Ints]:
        """Columns of a table in all its versions. Raises InputError if it is of kernels and without begins or ends."""
        tables = self.db.alike(table) or [table]
        for name in tables if table == _KERNEL else ():
            if (lacks := [one for one in ("start", "end") if not self.db.has(name, one)]) and self.db.rows_in(name):
                hint = "export the report again: nsys export --type sqlite REPORT"
                raise InputError(f"{self.db.name}: {name} has no column {' and no column '.join(lacks)}", hint)
        parts = [self.db.integers(name, columns, narrow=narrow) for name in tables]
        return parts[0] if len(parts) == 1 else {name: np.concatenate([part[name] for part in parts]) for name in columns}

    def _activities(self, kind: int, columns: dict[str, Ints]) -> Table:
        """A table of activities of one kind from at least the columns _ACTIVITY, as the export has them."""
        pids, node = columns["process"], columns["graph_node"]
        if len(pids) and (pids < 0).all() and len(self.process_of) == 1:
            columns["process"] = np.zeros(len(pids), np.int64)  # old exports name no process: it can only be this one
        else:
            columns["process"] = map_distinct(pids, lambda pid: -1 if pid < 0 else self._process(pid))
        if (node >= 0).any():
            columns["graph_node"] = np.where(node == 0, node.dtype.type(-1), node)
        columns = self.left_out.keep(columns, activities=True)
        columns["kind"] = np.broadcast_to(np.int8(kind), len(columns["start_ns"]))
        return make_table("activities", columns)

    def kernels(self) -> Table:
        named = all(self.db.has(table, "demangledName") for table in self.db.alike(_KERNEL))
        name = "demangledName" if named else "shortName"
        smem = {"static": "staticSharedMemory", "dynamic": "dynamicSharedMemory"}
        columns = self._integers(_KERNEL, _ACTIVITY | _GEOMETRY | {"name": name} | smem, narrow=True)
        static, dynamic = columns.pop("static"), columns.pop("dynamic")
        columns["smem_bytes"] = np.where((static < 0) | (dynamic < 0), -1, np.add(static, dynamic, dtype=np.int64))
        columns["name"] = map_distinct(columns["name"], self._string)
        return self._activities(ActivityKind.KERNEL, columns)

    def graphs(self) -> Table:
        columns = self._integers(_GRAPH, _ACTIVITY | {"name": "graphId"})
        if count := len(columns["name"]):
            self.trace.notes.append(
                f"{count} launches of CUDA graphs were recorded whole, without their kernels: "
                "record again with --cuda-graph-trace=node"
            )
        columns["name"] = map_distinct(columns["name"], lambda graph: self.trace.strings.code(f"CUDA graph {graph}"))
        return self._activities(ActivityKind.GRAPH, columns)

    def copies(self, table: str) -> Table:
        columns = self._integers(table, _ACTIVITY | _COPY | (_ENDS if table == _MEMCPY else {}))
        if table != _MEMCPY:
            rows = len(columns["bytes"])
            columns["name"] = np.full(rows, self.trace.strings.code("Memset") if rows else -1)
            return self._activities(ActivityKind.MEMSET, columns)
        (kinds, sources, targets), _, code = distinct_rows(columns["copykind"], columns.pop("source"), columns.pop("target"))
        names = []
        for kind, source, target in zip(kinds.tolist(), sources.tolist(), targets.tolist(), strict=True):
            name = "Memcpy"  # an export may not say from where; torch.profiler writes `Memcpy HtoD (Pageable -> Device)`
            if kind in COPY_KINDS and 0 <= source < len(_MEMORY) and 0 <= target < len(_MEMORY):
                name = f"Memcpy {COPY_KINDS[kind]} ({_MEMORY[source]} -> {_MEMORY[target]})"
            names.append(self.trace.strings.code(name))
        columns["name"] = np.array(names, np.int64)[code]
        return self._activities(ActivityKind.MEMCPY, columns)

    def launches(self) -> Table:
        columns = self._integers(_RUNTIME, _LAUNCH, narrow=True)
        if not any(self.db.has(table, "end") for table in self.db.alike(_RUNTIME)):
            columns["end_ns"] = columns["start_ns"]
        columns = self.left_out.keep(columns, activities=False)
        known = columns["thread"] >= 0  # a call without a thread has no process either
        if not known.all():
            self.left_out.count(int(np.count_nonzero(~known)), activities=False)
            columns = {name: values[known] for name, values in columns.items()}
        columns["thread"] = map_distinct(columns["thread"], self.thread)
        columns["name"] = map_distinct(columns["name"], self._string)
        # Modules and functions that calls loaded when they needed them, and code that the driver compiled, count as calls.
        loads = self.db.integers(_OVERHEAD, {**_LAUNCH, "type": "overheadType"})
        keep = among(loads.pop("type"), _LOADS) & (loads["thread"] >= 0) & (loads["end_ns"] > loads["start_ns"])
        loads = {name: values[keep] for name, values in loads.items()}
        loads["thread"] = map_distinct(loads["thread"], self.thread)
        loads["corr"][:] = -1  # what they lie in has the number of its activity
        loads["name"][:] = self.trace.strings.code(_LOADING) if keep.any() else -1
        return make_table("launches", {name: np.concatenate([columns[name], loads[name]]) for name in columns})

    def ranges(self) -> Table:
        if not self.db.has(_NVTX, "start", "end"):
            if self.db.rows_in(_NVTX):
                self.trace.notes.append("NVTX ranges were not read: their table has no column of begins or none of ends")
            return make_table("ranges")
        rows, kinds = self.db.about_rows(_NVTX), self.db.has(_NVTX, "eventType")
        start = partial(_RangeRows, self.names, self, rows, kinds=kinds)
        collected = self.db.collect(_NVTX, _RANGE, "text", start)
        self.left_out.count(collected.unreadable, activities=False)
        return collected.table()

    def graph_nodes(self) -> Table:
        """Up to 2023.4 the table of nodes is called CUDA_GRAPH_EVENTS, later that is another table: known by its columns."""
        for table in ("CUDA_GRAPH_NODE_EVENTS", "CUDA_GRAPH_EVENTS"):
            if self.db.has(table, "graphNodeId", "globalTid", "start"):
                columns = self.db.integers(table, _NODE)
                known = columns["thread"] >= 0
                columns = {name: values[known] for name, values in columns.items()}
                columns["origin"][columns["origin"] == 0] = -1
                columns["thread"] = map_distinct(columns["thread"], self.thread)
                return make_table("graph_nodes", columns)
        return make_table("graph_nodes")

    def memory(self) -> Table:
        """Memory that cudaMalloc and its like took or gave back, on the thread that called them."""
        columns = self.db.integers(_USAGE, _EVENT)
        columns["process"] = map_distinct(columns.pop("process"), self._process)
        launches = self.trace.launches
        thread_process = map_distinct(np.fromiter(self.thread_of, np.int64), self._process).astype(np.int64)
        call = (columns["process"].astype(np.int64) << 40) + columns["corr"]
        made = (thread_process[launches["thread"]] << 40) + launches["corr"]
        order = np.argsort(made, kind="stable")
        at = np.minimum(np.searchsorted(made[order], call), max(len(order) - 1, 0))
        known = (made[order][at] == call) & (columns["corr"] >= 0) if len(order) else np.zeros(len(call), np.bool_)
        main = {process: thread for thread, process in reversed([*enumerate(thread_process.tolist())])}
        columns["thread"] = np.array([main.get(one, -1) for one in columns.pop("process").tolist()], np.int64)
        if len(order):
            columns["thread"] = np.where(known, launches["thread"][order][at], columns["thread"])
        columns["bytes"] = np.where(columns.pop("operation") == _GIVEN_BACK, -columns["bytes"], columns["bytes"])
        columns["device"] = np.where(np.isin(columns.pop("kind"), _HOST_KINDS), -1, columns["device"])
        return make_table("memory", columns)

    def threads(self) -> tuple[Table, Table]:
        tids = np.fromiter(self.thread_of, np.int64, len(self.thread_of))
        pids = np.fromiter(self.process_of, np.int64, len(self.process_of))
        names = np.full(len(tids), -1)
        named = self.db.integers("ThreadNames", {"tid": "globalTid", "name": "nameId"})
        for tid, name in zip(named["tid"].tolist(), named["name"].tolist(), strict=True):
            if tid in self.thread_of:
                names[self.thread_of[tid]] = self._string(name)
        columns = {
            "process": map_distinct(tids, self._process),
            "tid": tids & _TID_MASK,
            "name": names,
            "main": (tids & _TID_MASK) == ((tids >> _TID_BITS) & _TID_MASK),
        }
        return make_table("threads", columns), make_table("processes", {"pid": (pids >> _TID_BITS) & _TID_MASK})

    def devices(self) -> Table:
        """The GPUs as each process sees them (CUDA_VISIBLE_DEVICES), if the export has that; else as they are.

        Where it does not say which ordinal each of several has, nsys's own numbers stand for them, with a note.
        """
        ordinal = "cuDevice" if self.db.has(_GPU, "cuDevice") else "deviceId"
        columns = self.db.integers(_GPU, {"id": "id", "device": ordinal} | _DEVICE)
        for name in _DEVICE.keys() - {"cc_minor"}:  # of the others 0 means unknown
            columns[name] = np.where(columns[name] > 0, columns[name], -1)
        gpus = columns.pop("id")
        columns["process"], columns["name"] = np.full(len(gpus), -1), np.full(len(gpus), -1)
        names = self.db.rows(f'SELECT "name" FROM "{_GPU}"') if self.db.has(_GPU, "name") else [(None,)] * len(gpus)
        for row, (text,) in enumerate(names):
            columns["name"][row] = self.trace.strings.code(_text(text))
        if guessed := len(gpus) > 1 and bool((columns["device"] < 0).all()):
            columns["device"] = gpus
        seen = self.db.integers("TARGET_INFO_CUDA_DEVICE", {"gpu": "gpuId", "ordinal": "cudaId", "pid": "pid"})
        pids = (np.fromiter(self.process_of, np.int64, len(self.process_of)) >> _TID_BITS) & _TID_MASK
        process_of = dict(zip(pids.tolist(), self.process_of.values(), strict=True))
        row_of = dict(zip(gpus.tolist(), range(len(gpus)), strict=True))
        self.ordinals = {gpu: {number} for gpu, number in zip(gpus.tolist(), columns["device"].tolist(), strict=True)}
        if len(seen["gpu"]):
            self.ordinals = {gpu: set() for gpu in gpus.tolist()}
        known = []
        for gpu, ordinal, pid in zip(seen["gpu"].tolist(), seen["ordinal"].tolist(), seen["pid"].tolist(), strict=True):
            if gpu in row_of and pid in process_of:
                known.append((row_of[gpu], ordinal, process_of[pid]))
                self.ordinals[gpu].add(ordinal)
        if known:
            rows, ordinals, processes = np.array(known, np.int64).T
            columns = {name: values[rows] for name, values in columns.items()} | {"device": ordinals, "process": processes}
        elif guessed and len({*columns["name"].tolist()}) > 1:
            either = ", ".join(map(self.trace.strings.__getitem__, columns["name"][np.argsort(gpus)].tolist()))
            self.trace.notes.append(f"which GPU ran is uncertain, since their order for CUDA was not recorded: one of {either}")
        return make_table("devices", columns)

    def samples(self) -> Samples | None:
        """Counters that nsys sampled on whole GPUs (--gpu-metrics-devices), of those whose number for CUDA is certain."""
        columns = self.db.integers("GPU_METRICS", _SAMPLE, narrow=True)
        keep = np.logical_and.reduce([values >= 0 for values in columns.values()])
        time, types, metrics, value = (values[keep] for values in columns.values())
        (types, metrics), _, inverse = distinct_rows(types, metrics)
        owned = [number for numbers in self.ordinals.values() for number in numbers]
        gpus = [self.ordinals.get(one & 0xFF, set()) for one in types.tolist()]
        device = np.array([min(known) if [owned.count(one) for one in known] == [1] else -1 for known in gpus], np.int64)
        if lost := len({one & 0xFF for one in types[device < 0].tolist()}):
            self.trace.notes.append(f"samples of {lost} GPU{'s' * (lost > 1)} were not read: CUDA's number of it is not known")
        name_of = {}
        if self.db.has(_METRICS, "typeId", "metricId", "metricName"):
            rows = self.db.rows(f'SELECT "typeId", "metricId", "metricName" FROM "{_METRICS}"')
            name_of = {(type_, number): _text(name) for type_, number, name in rows}
        names = [name_of.get(pair) or f"metric {pair[1]}" for pair in zip(types.tolist(), metrics.tolist(), strict=True)]
        codes = {name: code for code, name in enumerate(sorted({*names}))}
        device, metric = device[inverse], np.array([codes[name] for name in names], np.int64)[inverse]
        order = np.lexsort((value, metric, device, time))
        order = order[device[order] >= 0]
        return (
            Samples(time[order], device[order], metric[order], value[order].astype(np.float64), list(codes))
            if len(order)
            else None
        )


def _empty(db: Database, trace: Trace) -> EmptyCapture:
    """The error for an export without activity, with what nsys itself reports about the recording."""
    reported: list[str] = []
    if db.has("DIAGNOSTIC_EVENT", "severity", "text"):
        rows = db.rows("SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity IN (2, 3) ORDER BY text LIMIT 3")
        reported = [f"nsys reports: {text.splitlines()[0]}" for (value,) in rows if (text := _text(value).strip())]
    named = np.array(["Launch" in text for text in trace.strings.values] + [False], np.bool_)
    if launched := int(named[trace.launches["name"]].sum()):
        reported.insert(0, f"{launched:,} calls launched kernels, and none was recorded")
    return EmptyCapture(
        f"{db.name}: the capture holds neither GPU activity nor NVTX ranges"
        + (f" ({'; '.join(reported)})" if reported else ""),
        "record with `nsys profile -t cuda,nvtx ...`, and check that the program ran CUDA work while recording was on",
    )


def _text(value: object) -> str:
    """A cell of a column of texts as text; empty for NULL."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


class _RangeRows:
    """Collects rows of NVTX_EVENTS with their texts, batch by batch; only distinct texts stay in memory.

    names: registered texts by textId; export: gives threads their rows; rows: expected number; kinds: whether the column
    eventType exists.
    """

    def __init__(self, names: dict[int, str], export: _Export, rows: int, *, kinds: bool) -> None:
        self.names, self.trace, self.export, self.thread = names, export.trace, export, export.thread
        self.kinds = _KINDS if kinds else (-1,)
        self.codes = texts_reader(self.trace.labels, rows)
        growing = map(partial(Growing, rows=rows), _RANGE_COLUMNS.values())
        self.columns = dict(zip(_RANGE_COLUMNS, growing, strict=True))
        self.domains: dict[tuple[int, int], int] = {}  # (globalPid, domainId) -> its number in the column of domains
        self.domain_names: dict[tuple[int, int], str] = {}
        self.unreadable = 0  # rows without a time or a thread

    def add(self, batch: Batch) -> None:
        start, end, event, tid, _, _ = batch.columns
        kept = np.isin(event, self.kinds)
        none = (-1, NOT_AN_INTEGER)
        readable = ~np.isin(start, none) & (np.isin(end, none) | (end >= start)) & (tid != NOT_AN_INTEGER)
        readable |= event == _DOMAIN
        self.unreadable += int(np.count_nonzero(kept & ~readable))
        kept &= readable
        if (event == _DOMAIN).any():
            columns, texts = batch.take(kept & (event == _DOMAIN))
            tids, domains, text_ids = (columns[at].tolist() for at in (3, 4, 5))
            for one, domain, text_id, text in zip(tids, domains, text_ids, texts.to_bytes(), strict=True):
                name, key = text.decode("utf-8", "replace") or self.names.get(text_id, ""), (one & _PROCESS, domain)
                self.domain_names[key] = min(name, self.domain_names.get(key, name))  # registered twice: the same in any order
            kept &= event != _DOMAIN
        if not kept.any():
            return
        (start, end, event, tid, domain, text_id), texts = batch if kept.all() else batch.take(kept)
        label, seq, op_id = self.codes(texts)
        empty = np.flatnonzero(texts.size == 0)
        if len(empty):  # these are registered
            distinct, inverse = np.unique(text_id[empty], return_inverse=True)
            names = map(self.names.get, distinct.tolist(), repeat(""))
            registered = np.array(list(map(self.trace.labels.split, names)), np.int64)
            label[empty], seq[empty], op_id[empty] = registered[inverse.ravel()].T
        end = np.where(end == NOT_AN_INTEGER, -1, end)
        free = ~np.isin(event, (*_PUSH_POP, -1))
        thread = map_distinct(tid, self.thread).astype(np.int32)
        domain_number = np.full(len(domain), -1, np.int64)
        named = np.flatnonzero(domain > 0)
        if len(named):
            keys, _, inverse = distinct_rows(tid[named] & _PROCESS, domain[named])
            known = [self.domains.setdefault((process, one), len(self.domains)) for process, one in keys.T.tolist()]
            domain_number[named] = np.array(known)[inverse]
        numbers = map(narrowest, (domain_number, label, seq, op_id))
        for column, piece in zip(self.columns.values(), (start, end, free, thread, *numbers), strict=True):
            column.append(piece)

    def table(self) -> Table:
        columns: dict[str, Array] = dict(zip(self.columns, map(Growing.whole, self.columns.values()), strict=True))
        columns["open"] = columns["end_ns"] == -1
        codes = np.full(len(self.domains) + 1, -1, np.int32)  # the last entry is for number -1
        for key, number in self.domains.items():
            codes[number] = self.trace.strings.code(self.domain_names.get(key, "(domain without a name)"))
        codes = codes.astype(np.int16 if codes.max() < 1 << 15 else np.int32)
        domain = columns["domain"]
        columns["domain"] = codes[domain] if self.domains else np.broadcast_to(codes[-1], len(domain))
        return make_table("ranges", columns)
