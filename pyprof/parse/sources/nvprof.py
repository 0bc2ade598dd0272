"""nvprof's SQLite (`nvprof -o net.sql`, also .nvvp and .nvprof) -> Trace.

Kernel names are stored mangled, API calls as callback numbers, a range as two rows. One file is one process. nvprof knows GPUs
up to compute capability 7.x and left CUDA with 13, so this reader stays small.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pyprof.errors import EmptyCapture
from pyprof.hardware.names import Demangler
from pyprof.markers import split_ids
from pyprof.parse.sources.sqlite import Database, map_distinct, to_integer, to_text
from pyprof.parse.trace import ActivityKind, Table, Trace, make_table

__all__ = ["matches", "read"]

Ints = npt.NDArray[np.int64]

_KERNELS = ("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL")  # the second with concurrency tracing off
_MARKER, _START, _END = "CUPTI_ACTIVITY_KIND_MARKER", 2, 4
_PROCESS, _THREAD = 1, 2  # CUPTI_ACTIVITY_OBJECT_*
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


def matches(db: Database) -> bool:
    """Whether a database was written by nvprof or the Visual Profiler."""
    return "StringTable" in db.tables


def read(db: Database) -> Trace:
    """The whole file as a Trace.

    Raises EmptyCapture where nothing was recorded, InputError where the file is damaged.
    """
    return _Reader(db).read()


class _Reader:
    """State shared while one file is read."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.trace = Trace("nvprof")
        self.names: dict[int, str] = {}
        self.demangle = Demangler()
        self.thread_of: dict[int, int] = {}
        self.pids: set[int] = set()

    def read(self) -> Trace:
        trace = self.trace
        if self.db.has("StringTable", "_id_", "value"):
            self.names = {to_integer(i): to_text(v) for i, v in self.db.rows("SELECT _id_, value FROM StringTable")}
        version = self.db.integers("Version", ("version",))["version"]
        trace.version = f"nvprof database version {version[0]}" if len(version) else "nvprof"
        trace.utc_ns = 0  # times are nanoseconds since 1970 already
        trace.launches = self._launches()
        trace.ranges = self._ranges()
        trace.activities = self._activities()
        trace.notes += self.demangle.notes
        trace.threads, trace.processes = self._threads()
        trace.devices = self._devices()
        if not len(trace.activities["start_ns"]) and not len(trace.ranges["start_ns"]):
            raise EmptyCapture(
                f"{self.db.path}: nothing was captured: no kernels, no copies and no ranges in this nvprof file",
                "check that the program reached its CUDA work (with --profile-from-start off it must call cudaProfilerStart), "
                "and note that nvprof cannot profile GPUs of compute capability 8.0 and later: use nsys there",
            )
        return trace

    def _string(self, string_id: int) -> int:
        text = self.names.get(string_id)
        return -1 if text is None else self.trace.strings.code(text)

    def _thread(self, tid: int) -> int:
        return self.thread_of.setdefault(tid & 0xFFFFFFFF, len(self.thread_of))

    def _activities(self) -> Table:
        parts = [self._kernels(table) for table in _KERNELS] + [
            self._copies("CUPTI_ACTIVITY_KIND_MEMCPY", ActivityKind.MEMCPY, "Memcpy"),
            self._copies("CUPTI_ACTIVITY_KIND_MEMSET", ActivityKind.MEMSET, "Memset"),
        ]
        tables = [make_table("activities", part) for part in parts]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

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
        columns["name"] = map_distinct(
            raw["name"], lambda i: self.trace.strings.code(self.demangle(self.names[i])) if i in self.names else -1
        )
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
            self.pids.update(np.unique(raw["processId"]).tolist())
            columns = {
                "start_ns": raw["start"],
                "end_ns": raw["end"],
                "thread": map_distinct(raw["threadId"], self._thread),
                "corr": raw["correlationId"],
                "name": map_distinct(raw["cbid"], self._api_name(api, known)),
            }
            tables.append(make_table("launches", columns))
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def _api_name(self, api: str, known: dict[int, str]) -> Callable[[int], int]:
        return lambda cbid: self.trace.strings.code(known.get(cbid, f"{api.lower()} call {cbid}"))

    def _ranges(self) -> Table:
        """Join the start and end rows of each range; a start without an end stays open."""
        if not self.db.has(_MARKER, "flags", "timestamp", "id", "objectKind", "objectId", "name"):
            return make_table("ranges")
        domain = '"domain"' if "domain" in self.db.columns(_MARKER) else "0"
        sql = f'SELECT id, timestamp, objectKind, objectId, name, {domain} FROM "{_MARKER}" WHERE flags = {_START}'
        ends = self.db.integers(_MARKER, ("id", "timestamp"), f"flags = {_END}")
        end_of = dict(zip(ends["id"].tolist(), ends["timestamp"].tolist(), strict=True))
        rows: list[tuple[int, ...]] = []
        of_name: dict[int, tuple[int, int, int]] = {}
        unreadable = 0
        for batch in self.db.batches(sql):
            for marker, begin, kind, blob, name, domain_name in batch:
                start = to_integer(begin)
                if start < 0:
                    unreadable += 1
                    continue
                if name not in of_name:
                    of_name[name] = self._label(self.names.get(name, ""))
                label, seq, op_id = of_name[name]
                in_domain = self._string(domain_name) if domain_name and self.names.get(domain_name) else -1
                end = end_of.get(marker, -1)
                rows.append((start, end, self._object_thread(kind, blob), label, seq, op_id, in_domain, end < 0))
        if unreadable:
            self.trace.notes.append(f"{unreadable} NVTX ranges without a readable time were left out")
        if not rows:
            return make_table("ranges")
        keys = ("start_ns", "end_ns", "thread", "label", "seq", "op_id", "domain", "open")
        return make_table("ranges", dict(zip(keys, np.array(rows, np.int64).T, strict=True)))

    def _object_thread(self, kind: int, blob: Any) -> int:
        """The thread in the C union `objectId`; of its 12 bytes only those of its kind are initialised."""
        if kind not in (_PROCESS, _THREAD) or not isinstance(blob, bytes) or len(blob) < 8:
            return -1
        pid, tid = struct.unpack_from("<II", blob)
        self.pids.add(pid)
        return self._thread(tid) if kind == _THREAD else -1

    def _label(self, text: str) -> tuple[int, int, int]:
        bare, seq, op_id, keyed = split_ids(text)
        return self.trace.labels.code(bare, keyed=keyed, numbered=seq >= 0), seq, op_id

    def _threads(self) -> tuple[Table, Table]:
        tids = np.fromiter(self.thread_of, np.int64, len(self.thread_of))
        threads = make_table("threads", {"process": np.zeros(len(tids)), "tid": tids})
        # Ids are those of pthread_self: no telling which is the main one but by who opened the first range.
        ranges = self.trace.ranges
        seen = ranges["thread"] >= 0
        if seen.any():
            first = np.flatnonzero(seen)[np.argmin(ranges["start_ns"][seen])]
            threads["main"][ranges["thread"][first]] = 1
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
