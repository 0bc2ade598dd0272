"""nvprof's SQLite (`nvprof -o net.sql`, also .nvvp and .nvprof) -> Trace.

Kernel names are stored mangled, API calls as callback numbers. A range is two rows with one id: the begin has the name and,
in a C union, the thread. One file is one process. nvprof knows GPUs up to compute capability 7.x and
was dropped from CUDA 13, so this reader stays small.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from pyprof.columns.distinct import Growing, distinct_places, distinct_values, map_distinct, narrowest
from pyprof.columns.types import Array, Ints
from pyprof.errors import EmptyCapture, InputError
from pyprof.hardware.names import Demangler
from pyprof.model.trace import ActivityKind, Labels, Table, Trace, concatenated, make_table
from pyprof.parse.sources.emit_texts import texts_reader
from pyprof.parse.sources.inputs import LeftOut, of_epoch
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.sqlite_pages.btree import PageBlock
from pyprof.parse.sources.sqlite_pages.reader import Batch, PackedTexts

_BY_NUMBER = "values of metrics and events are in the file by number, without names, and are not read"
_COUNTED = ("CUPTI_ACTIVITY_KIND_METRIC", "CUPTI_ACTIVITY_KIND_EVENT")
_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")  # the second with concurrency tracing off
# Columns of the trace's tables, each with its name in the file.
_ACTIVITY = {"start_ns": "start", "end_ns": "end", "device": "deviceId", "stream": "streamId", "corr": "correlationId"}
_KERNEL = {
    "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ", "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ",
    "regs": "registersPerThread", "name": "name", "smem_bytes": "staticSharedMemory", "dynamic": "dynamicSharedMemory",
}  # fmt: skip
_COPY = {"bytes": "bytes", "copykind": "copyKind"}
_LAUNCH = {
    "start_ns": "start", "end_ns": "end", "thread": "threadId", "corr": "correlationId", "name": "cbid", "pid": "processId",
}  # fmt: skip
_DEVICE = {
    "cc_major": "computeCapabilityMajor", "cc_minor": "computeCapabilityMinor", "sms": "numMultiprocessors",
    "max_warps_per_sm": "maxWarpsPerMultiprocessor", "max_blocks_per_sm": "maxBlocksPerMultiprocessor",
    "regs_per_sm": "maxRegistersPerMultiprocessor", "smem_per_sm_bytes": "maxSharedMemoryPerMultiprocessor",
    "l2_bytes": "l2CacheSize", "clock_hz": "coreClockRate", "dram_bytes_per_s": "globalMemoryBandwidth",
    "memory_bytes": "globalMemorySize", "device": "id", "name": "name",
}  # fmt: skip
# CUpti_runtime_api_trace_cbid and CUpti_driver_api_trace_cbid of the calls that start work on the device, wait for it or
# manage its memory and modules.
_API_NAMES = {
    "RUNTIME": {13: "cudaLaunch", 41: "cudaMemcpyAsync", 31: "cudaMemcpy", 51: "cudaMemsetAsync", 49: "cudaMemset",
                211: "cudaLaunchKernel", 214: "cudaLaunchKernel_ptsz", 269: "cudaLaunchCooperativeKernel",
                272: "cudaLaunchCooperativeKernelMultiDevice", 311: "cudaGraphLaunch", 430: "cudaLaunchKernelExC",
                20: "cudaMalloc", 22: "cudaFree", 25: "cudaMallocHost", 26: "cudaFreeHost", 27: "cudaHostAlloc",
                126: "cudaThreadSynchronize", 131: "cudaStreamSynchronize", 137: "cudaEventSynchronize",
                165: "cudaDeviceSynchronize"},
    "DRIVER": {307: "cuLaunchKernel", 442: "cuLaunchKernel_ptsz", 477: "cuLaunchCooperativeKernel", 514: "cuGraphLaunch",
               652: "cuLaunchKernelEx", 17: "cuCtxSynchronize", 121: "cuEventSynchronize", 126: "cuStreamSynchronize"},
}  # fmt: skip


def read(db: Database) -> Trace:
    """The whole file as a Trace.

    Raises EmptyCapture if nothing was recorded, InputError if the file is damaged or its kernels have no begins or no ends.
    """
    return _NvprofReader(db).read()


class _NvprofReader:
    """One file while it is read: its texts, rows of its threads, processes."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.trace = Trace("nvprof")
        self.names = Names(db)
        self.demangle = Demangler()
        self.thread_of: dict[int, int] = {}
        self.pids: set[int] = set()
        self.left_out = LeftOut()

    def read(self) -> Trace:
        trace = self.trace
        version = self.db.integers("Version", {"version": "version"})["version"]
        trace.version = f"nvprof database version {version[0]}" if len(version) else "nvprof"
        trace.utc_ns = 0  # times are nanoseconds since 1970 already
        trace.launches = concatenated([self._launches(api) for api in _API_NAMES])
        trace.ranges, pids = read_ranges(self.db, self.names, trace, self._thread, self.left_out)
        self.pids |= pids
        copies = [self._copies("MEMCPY", ActivityKind.MEMCPY), self._copies("MEMSET", ActivityKind.MEMSET)]
        trace.activities = concatenated([*map(self._kernels, _KERNELS), *copies])
        trace.notes += [*self.demangle.notes, *self.left_out.notes()]
        trace.threads = self._threads()
        trace.processes = make_table("processes", {"pid": np.array([min(self.pids - {-1}, default=-1)])})
        trace.devices = self._devices()
        if not len(trace.activities["start_ns"]) and not len(trace.ranges["start_ns"]):
            raise EmptyCapture(
                f"{self.db.name}: nothing was captured: no kernels, no copies and no ranges in this nvprof file",
                "check that the program reached its CUDA work (with --profile-from-start off it must call cudaProfilerStart), "
                "and note that nvprof cannot profile GPUs of compute capability 8.0 and later: use nsys there",
            )
        trace.left_out = self.left_out.activities
        counted = sum(len(self.db.integers(table, {"id": "id"})["id"]) for table in _COUNTED)
        if counted:
            trace.notes.append(
                f"{counted:,} {_BY_NUMBER}: print them with `nvprof -i FILE --csv --print-gpu-trace` of that CUDA release"
            )
        return trace

    def _string(self, string_id: int, change: Callable[[str], str] = str) -> int:
        text = self.names.get(string_id)
        return -1 if text is None else self.trace.strings.code(change(text))

    def _thread(self, tid: int) -> int:
        return self.thread_of.setdefault(tid & 0xFFFFFFFF, len(self.thread_of))

    def _activities(self, kind: int, columns: dict[str, Ints]) -> Table:
        if of_epoch(columns["start_ns"]):  # times count from 1970: 0 is none
            columns["start_ns"] = np.where(columns["start_ns"] == 0, -1, columns["start_ns"])
        columns = self.left_out.keep(columns, activities=True)
        rows = len(columns["start_ns"])
        columns["kind"], columns["process"] = (np.broadcast_to(np.int64(value), rows) for value in (kind, 0))
        return make_table("activities", columns)

    def _kernels(self, table: str) -> Table:
        if (lacks := [one for one in ("start", "end") if not self.db.has(table, one)]) and self.db.rows_in(table):
            raise InputError(f"{self.db.name}: {table} has no column {' and no column '.join(lacks)}", "copy the file again")
        columns = self.db.integers(table, _ACTIVITY | _KERNEL, narrow=True)
        static, dynamic = columns["smem_bytes"], columns.pop("dynamic")
        columns["smem_bytes"] = np.where(static < 0, -1, static.astype(np.int64) + np.maximum(dynamic, 0))
        columns["name"] = map_distinct(columns["name"], partial(self._string, change=self.demangle))
        return self._activities(ActivityKind.KERNEL, columns)

    def _copies(self, label: str, kind: int) -> Table:
        columns = self.db.integers(f"CUPTI_ACTIVITY_KIND_{label}", _ACTIVITY | _COPY)
        rows = len(columns["bytes"])
        columns["name"] = np.full(rows, self.trace.strings.code(label.capitalize()) if rows else -1)
        return self._activities(kind, columns)

    def _launches(self, api: str) -> Table:
        columns = self.left_out.keep(self.db.integers(f"CUPTI_ACTIVITY_KIND_{api}", _LAUNCH, narrow=True), activities=False)
        self.pids.update(distinct_values(columns.pop("pid")).tolist())
        columns["thread"] = map_distinct(columns["thread"], self._thread)
        names = _API_NAMES[api]
        columns["name"] = map_distinct(
            columns["name"], lambda cbid: self.trace.strings.code(names.get(cbid, f"{api.lower()} call {cbid}"))
        )
        return make_table("launches", columns)

    def _threads(self) -> Table:
        tids = np.fromiter(self.thread_of, np.int64, len(self.thread_of))
        threads = make_table("threads", {"process": np.zeros(len(tids)), "tid": tids})
        # Thread ids come from pthread_self, so the main thread can be told only by the first range.
        thread, start = self.trace.ranges["thread"], self.trace.ranges["start_ns"]
        seen = thread >= 0
        if seen.any():
            among = distinct_values(thread[seen & (start == start[seen].min())])
            threads["main"][among[np.argmin(tids[among])]] = 1
        return threads

    def _devices(self) -> Table:
        columns = self.db.integers("CUPTI_ACTIVITY_KIND_DEVICE", _DEVICE)
        columns["name"] = map_distinct(columns["name"], self._string)
        for name in ("clock_hz", "dram_bytes_per_s"):  # kHz and kB/s in the file
            columns[name] = columns[name] * 1000
        for name in _DEVICE.keys() - {"cc_minor", "device", "name", "clock_hz", "dram_bytes_per_s"}:
            columns[name] = np.where(columns[name] > 0, columns[name], -1)  # 0 means unknown
        columns["process"] = np.full(len(columns["name"]), -1)
        return make_table("devices", columns)


# ---------------------------------------------------------------------------------------------- texts

_TABLE, _ID, _TEXT = "StringTable", "_id_", "value"
_ROWS_AT_ONCE = 65_536


class _Strings:
    """Collects the rows of the table: id and size of each text, and the bytes of all one after another."""

    def __init__(self) -> None:
        self.ids, self.sizes, self.raw = Growing(np.int64), Growing(np.int64), Growing(np.uint8)

    def add(self, batch: Batch) -> None:
        self.ids.append(batch.columns[0])
        self.sizes.append(batch.texts.size)
        self.raw.append(np.frombuffer(b"".join(batch.texts.to_bytes()), np.uint8))


class Names:
    """The texts of a file by id; only the distinct ones that are requested become Python objects."""

    def __init__(self, db: Database) -> None:
        rows = db.collect(_TABLE, (_ID,), _TEXT, _Strings)
        ids, size = rows.ids.whole(), rows.sizes.whole()
        order = np.argsort(ids, kind="stable")
        order = order[np.searchsorted(ids[order], 0) :]  # the others have no id
        self._ids, self._size, self._begin = ids[order], size[order], (np.cumsum(size) - size)[order]
        self._raw = rows.raw.whole()

    def get(self, name: int) -> str | None:
        """The text of an id, None if unknown."""
        at = int(self._find(np.array([name]))[0])
        return None if at < 0 else self._raw[self._begin[at] :][: self._size[at]].tobytes().decode("utf-8", "replace")

    def _find(self, names: Ints) -> Ints:
        """Place of the text of each id, -1 unknown."""
        at = np.searchsorted(self._ids, names)
        known = at < len(self._ids)
        known[known] = self._ids[at[known]] == names[known]
        return np.where(known, at, -1)

    def split(self, names: Array, labels: Labels) -> tuple[Array, Array, Array]:
        """Label, seq and op_id of the text of each id; an unknown text is empty."""
        rows, place = distinct_places(self._find(names), len(self._ids))
        found = np.full((3, len(rows) + 1), -1, np.int64)
        if place.min(initial=0) < 0:
            found[:, -1] = labels.split("")
        read = texts_reader(labels, len(rows))
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[first : first + _ROWS_AT_ONCE]
            found[:, first : first + len(some)] = read(self._texts(some))
        label, seq, op_id = found[:, place]
        return label, seq, op_id

    def _texts(self, rows: Ints) -> PackedTexts:
        """The texts at some places. If these lie far apart, the bytes between are left out."""
        begin, size = self._begin[rows], self._size[rows]
        low, high = int(begin.min()), int((begin + size).max())
        texts = PackedTexts(self._raw[low:high], begin - low, size)
        if high - low <= 2 * int(size.sum()):
            return texts
        ends = (begin + size).tolist()
        raw = np.concatenate([self._raw[one:end] for one, end in zip(begin.tolist(), ends, strict=True)])
        return PackedTexts(raw, np.cumsum(size) - size, size)


# ---------------------------------------------------------------------------------------------- ranges, two rows each

_MARKER, _START, _END = "CUPTI_ACTIVITY_KIND_MARKER", 2, 4
_COLUMNS = ("flags", "id", "timestamp", "name", "domain", "objectKind")
_NEEDED = ("flags", "timestamp", "id", "objectKind", "objectId", "name")
_PROCESS, _THREAD = 1, 2  # CUPTI_ACTIVITY_OBJECT_*
_UNION_BYTES = 8  # of its 12 only those of its kind are initialised: process and thread are the first 8


class _MarkerRows:
    """Collects begins and ends as columns: id and time of both, for begins also name, domain and thread; -1 unknown."""

    def __init__(self) -> None:
        self.begins = [Growing(dtype) for dtype in (np.int32, np.int64, np.int32, np.int32, np.int32)]
        self.ends = [Growing(dtype) for dtype in (np.int32, np.int64)]
        self.pids: set[int] = set()
        self.unreadable = 0  # begins without a time

    def add(self, batch: Batch) -> None:
        flags, *columns, kind = batch.columns
        texts = batch.texts
        union = PageBlock(texts.raw).gather(_UNION_BYTES, texts.begin).view("<u4").reshape(-1, 2).T.astype(np.int64)
        union[:, (texts.size < _UNION_BYTES) | ~np.isin(kind, (_PROCESS, _THREAD))] = -1
        pid, tid = union
        tid[kind != _THREAD] = -1
        marker, time = columns[:2]
        begins, ends = flags == _START, (flags == _END) & (marker >= 0) & (time >= 0)
        self.unreadable += int(np.count_nonzero(begins & (time < 0)))
        begins &= time >= 0
        self.pids.update(distinct_values(pid[begins & (pid >= 0)]).tolist())
        for column, values in zip(self.begins, (*columns, tid), strict=True):
            column.append(narrowest(values[begins]))
        for column, values in zip(self.ends, (marker, time), strict=True):
            column.append(narrowest(values[ends]))


def read_ranges(
    db: Database, names: Names, trace: Trace, thread: Callable[[int], int], left_out: LeftOut
) -> tuple[Table, set[int]]:
    """All ranges, left open if they have no end, and the processes that they name.

    thread: gives the row of `threads` of a thread id; left_out: counts those without a time.
    """
    if not db.has(_MARKER, *_NEEDED):
        return make_table("ranges"), set()
    rows = db.collect(_MARKER, _COLUMNS, "objectId", _MarkerRows, blobs=True)
    left_out.count(rows.unreadable, activities=False)
    marker, begin, name, domain, tid = (column.whole() for column in rows.begins)
    ids, times = (column.whole() for column in rows.ends)
    end = _ends(ids, times, marker, begin)
    label, seq, op_id = names.split(name, trace.labels)

    def code_of_domain(name: int) -> int:
        text = names.get(name) if name > 0 else None
        return trace.strings.code(text) if text else -1

    columns = {
        "start_ns": begin,
        "end_ns": end,
        "thread": map_distinct(tid, lambda number: thread(number) if number >= 0 else -1),
        "label": label,
        "seq": seq,
        "op_id": op_id,
        "domain": map_distinct(domain, code_of_domain),
        "open": end < 0,
    }
    good = (end < 0) | (end >= begin)
    left_out.count(int(np.count_nonzero(~good)), activities=False)
    return make_table("ranges", columns if good.all() else {name: values[good] for name, values in columns.items()}), rows.pids


def _ends(ids: Array, times: Array, marker: Array, begin: Array) -> Array:
    """The end of each range, -1 unknown: if an id has several ends, the first after its begin, else the last."""
    if not len(ids):
        return np.full(len(marker), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    ids, times = ids[order], times[order]
    if (ids[1:] == ids[:-1]).any():
        order = np.lexsort((times, ids))
        ids, times = ids[order], times[order]
        at = _first_after(ids, times, marker, begin)
    else:
        at = np.minimum(np.searchsorted(ids, marker), len(ids) - 1)
    return np.where(ids[at] == marker, times[at], -1)


def _first_after(ids: Ints, times: Ints, marker: Ints, begin: Ints) -> Ints:
    """For each (marker, begin) the place in the sorted (ids, times) of the first of its id not before it, else of its last."""
    order = np.lexsort((np.repeat([1, 0], [len(ids), len(marker)]), np.append(times, begin), np.append(ids, marker)))
    is_end = order < len(ids)
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(is_end)  # ends in order before each row
    at = np.minimum(before[len(ids) :], len(ids) - 1)
    return np.where(ids[at] == marker, at, np.maximum(before[len(ids) :] - 1, 0))
