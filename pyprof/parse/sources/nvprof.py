"""nvprof's SQLite (`nvprof -o net.sql`, also .nvvp and .nvprof) -> Trace.

Kernel names are stored mangled, API calls as callback numbers, a range as two rows. One file is one process. nvprof knows GPUs
up to compute capability 7.x and was dropped from CUDA 13, so this reader stays small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.arrays.distinct import map_distinct
from pyprof.errors import EmptyCapture
from pyprof.hardware.names import Demangler
from pyprof.parse.sources.nvprof_names import Names
from pyprof.parse.sources.nvprof_ranges import read_ranges
from pyprof.parse.sources.sqlite import Database
from pyprof.parse.sources.trace import ActivityKind, Table, Trace, concatenated, make_table

__all__ = ["read"]

Ints = npt.NDArray[np.int64]

_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")  # the second with concurrency tracing off
_GEOMETRY = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")
# CUpti_runtime_api_trace_cbid and CUpti_driver_api_trace_cbid of the calls that start work on the device or wait for it.
_API_NAMES = {
    "RUNTIME": {13: "cudaLaunch", 41: "cudaMemcpyAsync", 31: "cudaMemcpy", 51: "cudaMemsetAsync", 49: "cudaMemset",
                211: "cudaLaunchKernel", 214: "cudaLaunchKernel_ptsz", 269: "cudaLaunchCooperativeKernel",
                272: "cudaLaunchCooperativeKernelMultiDevice", 311: "cudaGraphLaunch", 430: "cudaLaunchKernelExC",
                22: "cudaFree", 126: "cudaThreadSynchronize", 131: "cudaStreamSynchronize", 137: "cudaEventSynchronize",
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
        version = self.db.integers("Version", ("version",))["version"]
        trace.version = f"nvprof database version {version[0]}" if len(version) else "nvprof"
        trace.utc_ns = 0  # times are nanoseconds since 1970 already
        trace.launches = self._launches()
        trace.ranges, pids = read_ranges(self.db, self.names, trace, self._thread)
        self.pids |= pids
        trace.activities = self._activities()
        trace.notes += self.demangle.notes
        trace.threads, trace.processes = self._threads()
        trace.devices = self._devices()
        if not len(trace.activities["start_ns"]) and not len(trace.ranges["start_ns"]):
            raise EmptyCapture(
                f"{self.db.name}: nothing was captured: no kernels, no copies and no ranges in this nvprof file",
                "check that the program reached its CUDA work (with --profile-from-start off it must call cudaProfilerStart), "
                "and note that nvprof cannot profile GPUs of compute capability 8.0 and later: use nsys there",
            )
        return trace

    def _string(self, string_id: int) -> int:
        text = self.names.get(string_id)
        return -1 if text is None else self.trace.strings.code(text)

    def _kernel_name(self, string_id: int) -> int:
        text = self.names.get(string_id)
        return -1 if text is None else self.trace.strings.code(self.demangle(text))

    def _thread(self, tid: int) -> int:
        return self.thread_of.setdefault(tid & 0xFFFFFFFF, len(self.thread_of))

    def _activities(self) -> Table:
        parts = [self._kernels(table) for table in _KERNELS] + [
            self._copies("CUPTI_ACTIVITY_KIND_MEMCPY", ActivityKind.MEMCPY, "Memcpy"),
            self._copies("CUPTI_ACTIVITY_KIND_MEMSET", ActivityKind.MEMSET, "Memset"),
        ]
        tables = [make_table("activities", part) for part in parts]
        return concatenated(tables)

    def _common(self, raw: dict[str, Ints], kind: int) -> dict[str, Any]:
        rows = len(raw["start"])
        return {
            "kind": np.full(rows, kind),
            "start_ns": raw["start"],
            "end_ns": np.maximum(raw["end"], raw["start"]),
            "process": np.zeros(rows, np.int64),
            "device": raw["deviceId"],
            "stream": raw["streamId"],
            "corr": raw["correlationId"],
        }

    def _kernels(self, table: str) -> dict[str, Any]:
        smem = ("staticSharedMemory", "dynamicSharedMemory")
        wanted = ("start", "end", "deviceId", "streamId", "correlationId", *_GEOMETRY, *smem, "name")
        raw = self.db.integers(table, wanted)
        columns = self._common(raw, ActivityKind.KERNEL)
        columns["name"] = map_distinct(raw["name"], self._kernel_name)
        columns |= {f"{kind}_{axis.lower()}": raw[f"{kind}{axis}"] for kind in ("grid", "block") for axis in "XYZ"}
        columns["regs"] = raw["registersPerThread"]
        columns["smem_bytes"] = np.where(raw[smem[0]] < 0, -1, raw[smem[0]] + np.maximum(raw[smem[1]], 0))
        return columns

    def _copies(self, table: str, kind: int, label: str) -> dict[str, Any]:
        raw = self.db.integers(table, ("start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind"))
        columns = self._common(raw, kind)
        columns["name"] = np.full(len(raw["start"]), self.trace.strings.code(label) if len(raw["start"]) else -1)
        columns["bytes"] = raw["bytes"]
        columns["copykind"] = raw["copyKind"]
        return columns

    def _launches(self) -> Table:
        tables = []
        for api, known in _API_NAMES.items():
            wanted = ("start", "end", "processId", "threadId", "correlationId", "cbid")
            raw = self.db.integers(f"CUPTI_ACTIVITY_KIND_{api}", wanted)
            self.pids.update(np.unique(raw.pop("processId")).tolist())
            columns = {
                "start_ns": raw["start"],
                "end_ns": raw["end"],
                "thread": map_distinct(raw["threadId"], self._thread),
                "corr": raw["correlationId"],
                "name": map_distinct(raw["cbid"], self._api_name(api, known)),
            }
            tables.append(make_table("launches", columns))
        return concatenated(tables)

    def _api_name(self, api: str, known: dict[int, str]) -> Callable[[int], int]:
        return lambda cbid: self.trace.strings.code(known.get(cbid, f"{api.lower()} call {cbid}"))

    def _threads(self) -> tuple[Table, Table]:
        tids = np.fromiter(self.thread_of, np.int64, len(self.thread_of))
        threads = make_table("threads", {"process": np.zeros(len(tids)), "tid": tids})
        # Ids are those of pthread_self: only the first range tells which is the main thread.
        ranges = self.trace.ranges
        seen = ranges["thread"] >= 0
        if seen.any():
            begun = np.unique(ranges["thread"][seen & (ranges["start_ns"] == ranges["start_ns"][seen].min())])
            threads["main"][begun[np.argmin(tids[begun])]] = 1
        return threads, make_table("processes", {"pid": np.array([min(self.pids - {-1}, default=-1)])})

    def _devices(self) -> Table:
        table = "CUPTI_ACTIVITY_KIND_DEVICE"
        wanted = {
            "cc_major": "computeCapabilityMajor",
            "cc_minor": "computeCapabilityMinor",
            "sms": "numMultiprocessors",
            "max_warps_per_sm": "maxWarpsPerMultiprocessor",
            "max_blocks_per_sm": "maxBlocksPerMultiprocessor",
            "regs_per_sm": "maxRegistersPerMultiprocessor",
            "smem_per_sm_bytes": "maxSharedMemoryPerMultiprocessor",
            "l2_bytes": "l2CacheSize",
        }
        raw = self.db.integers(table, ("id", "name", "coreClockRate", "globalMemoryBandwidth", *wanted.values()))
        if not len(raw["id"]):
            return make_table("devices")
        columns = {
            ours: raw[theirs] if ours == "cc_minor" else np.where(raw[theirs] > 0, raw[theirs], -1)
            for ours, theirs in wanted.items()
        }
        return make_table(
            "devices",
            {
                "process": np.full(len(raw["id"]), -1),
                "device": raw["id"],
                "name": map_distinct(raw["name"], self._string),
                "clock_hz": raw["coreClockRate"] * 1000,  # kHz in the file
                "dram_bytes_per_s": raw["globalMemoryBandwidth"] * 1000,  # kB/s in the file
                **columns,
            },
        )
