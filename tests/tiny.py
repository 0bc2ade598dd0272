"""Hand-written captures whose whole truth fits on a screen: an nsys export built row by row."""

import random
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

from pyprof.model.opcall import OpRules

SESSION_END = 1_000_000

SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, "
    "textId INTEGER, domainId INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, "
    "streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, "
    "gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, "
    "registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, "
    "globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER",
    "CUDA_GRAPH_NODE_EVENTS": "start INTEGER, end INTEGER, globalTid INTEGER, graphNodeId INTEGER, originalGraphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
    "correlationId INTEGER, globalPid INTEGER, graphId INTEGER",
    "ANALYSIS_DETAILS": "duration INTEGER NOT NULL",
    "TARGET_INFO_GPU": "id INTEGER, name TEXT, cuDevice INTEGER, smCount INTEGER, computeMajor INTEGER, computeMinor INTEGER",
}


def tid(pid: int = 7, thread: int | None = None) -> int:
    """nsys's globalTid of a thread; the main one has its process's number."""
    return (1 << 48) | (pid << 24) | (pid if thread is None else thread)


class Nsys:
    """Rows of one export; times in ns, processes and threads by plain numbers."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in SCHEMA}
        self.strings: dict[str, int] = {}
        self.rows["ANALYSIS_DETAILS"].append((SESSION_END,))
        self.corr = 0

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def range(self, text: str, start: int, end: int | None, *, pid: int = 7, thread: int | None = None, registered: bool = False,
              event: int = 59, domain: int = 0) -> None:  # fmt: skip
        text_id = self.string(text) if registered else None
        row = (start, end, event, None if registered else text, tid(pid, thread), text_id, domain)
        self.rows["NVTX_EVENTS"].append(row)

    def kernel(self, name: str, launch: int | None, start: int, end: int, *, pid: int = 7, thread: int | None = None,
               corr: int | None = None, node: int | None = None, device: int = 0, stream: int = 7,
               grid: tuple[int, int, int] = (1, 1, 1), block: tuple[int, int, int] = (128, 1, 1)) -> int:  # fmt: skip
        self.corr += 1
        corr = self.corr if corr is None else corr
        if launch is not None:
            self.api(launch, corr, pid=pid, thread=thread)
        self.rows["CUPTI_ACTIVITY_KIND_KERNEL"].append(
            (start, end, device, stream, corr, tid(pid) & ~0xFFFFFF, self.string(name), *grid, *block, 32, 0, 0, node)
        )
        return corr

    def copy(self, kind: int, launch: int, start: int, end: int, bytes: int = 4,
             memory: tuple[int | None, int | None] = (None, None), device: int = 0) -> None:  # fmt: skip
        """kind: CUDA's number, 1 to the device, 2 to the host, 8 within it; memory: nsys's numbers of its source and target."""
        self.corr += 1
        self.api(launch, self.corr, name="cudaMemcpyAsync_v3020")
        self.rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append(
            (start, end, device, 7, self.corr, tid() & ~0xFFFFFF, bytes, kind, *memory)
        )

    def api(self, start: int, corr: int, *, pid: int = 7, thread: int | None = None, name: str = "cudaLaunchKernel_v7000",
            took: int = 5) -> None:  # fmt: skip
        self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((start, start + took, tid(pid, thread), corr, self.string(name)))

    def write(self, path: Path, *, drop: Iterable[str] = (), shuffle: int | None = None) -> Path:
        """Write the export; drop: tables to leave out; shuffle: seed of a random order of all rows."""
        path.unlink(missing_ok=True)
        db = sqlite3.connect(path)
        self.rows["StringIds"] = [(code, text) for text, code in self.strings.items()]
        for table, columns in SCHEMA.items():
            rows = list(self.rows[table])
            if table in drop or not rows:
                continue
            if shuffle is not None:
                random.Random(shuffle).shuffle(rows)
            db.execute(f"CREATE TABLE {table} ({columns})")
            db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(rows[0]))})", rows)
        db.commit()
        db.close()
        return path


def rules(known: Iterable[str], copies: Iterable[str] = (), structural: Iterable[str] = ()) -> OpRules:
    """Rules of ops for one test."""

    def among(names: Iterable[str]) -> Callable[[str], bool]:
        return frozenset(names).__contains__

    return OpRules(among(known), among(copies), among(structural), lambda call: False, lambda call: call.name in copies)
