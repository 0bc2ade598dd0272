"""nvprof's SQLite (`nvprof -o net.sql`, also .nvvp and .nvprof) -> Trace.

Kernel names are stored mangled, API calls as callback numbers, a range as two rows. One file is one process. nvprof knows GPUs
up to compute capability 7.x and was dropped from CUDA 13, so this reader stays small.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from pyprof.arrays.columns import distinct_values, map_distinct
from pyprof.arrays.types import Ints
from pyprof.errors import EmptyCapture
from pyprof.hardware.names import Demangler
from pyprof.parse.sources.nvprof_names import Names
from pyprof.parse.sources.nvprof_ranges import read_ranges
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.trace import ActivityKind, Table, Trace, concatenated, make_table

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

    Raises EmptyCapture where nothing was recorded, InputError where the file is damaged.
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

    def read(self) -> Trace:
        trace = self.trace
        version = self.db.integers("Version", {"version": "version"})["version"]
        trace.version = f"nvprof database version {version[0]}" if len(version) else "nvprof"
        trace.utc_ns = 0  # times are nanoseconds since 1970 already
        trace.launches = concatenated([self._launches(api) for api in _API_NAMES])
        trace.ranges, pids = read_ranges(self.db, self.names, trace, self._thread)
        self.pids |= pids
        copies = [self._copies("MEMCPY", ActivityKind.MEMCPY), self._copies("MEMSET", ActivityKind.MEMSET)]
        trace.activities = concatenated([*map(self._kernels, _KERNELS), *copies])
        trace.notes += self.demangle.notes
        trace.threads = self._threads()
        trace.processes = make_table("processes", {"pid": np.array([min(self.pids - {-1}, default=-1)])})
        trace.devices = self._devices()
        if not len(trace.activities["start_ns"]) and not len(trace.ranges["start_ns"]):
            raise EmptyCapture(
                f"{self.db.name}: nothing was captured: no kernels, no copies and no ranges in this nvprof file",
                "check that the program reached its CUDA work (with --profile-from-start off it must call cudaProfilerStart), "
                "and note that nvprof cannot profile GPUs of compute capability 8.0 and later: use nsys there",
            )
        return trace

    def _string(self, string_id: int, change: Callable[[str], str] = str) -> int:
        text = self.names.get(string_id)
        return -1 if text is None else self.trace.strings.code(change(text))

    def _thread(self, tid: int) -> int:
        return self.thread_of.setdefault(tid & 0xFFFFFFFF, len(self.thread_of))

    def _activities(self, kind: int, columns: dict[str, Ints]) -> Table:
        rows = len(columns["start_ns"])
        columns["kind"], columns["process"] = (np.broadcast_to(np.int64(value), rows) for value in (kind, 0))
        columns["end_ns"] = np.maximum(columns["end_ns"], columns["start_ns"])
        return make_table("activities", columns)

    def _kernels(self, table: str) -> Table:
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
        columns = self.db.integers(f"CUPTI_ACTIVITY_KIND_{api}", _LAUNCH, narrow=True)
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
        # Ids are those of pthread_self: the main thread is known from the first range alone.
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
