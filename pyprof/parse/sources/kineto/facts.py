"""The top level of a torch.profiler trace, and its threads -> `devices`, `threads`, `processes`, rank and notes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from pyprof.model.markers import Kind
from pyprof.model.trace import Strings, Table, Trace, integer, make_table

_RANK = r"(?i)(?:rank|worker)[-_.]?(\d+)"
_LIMITS = {
    "cc_major": "computeMajor", "cc_minor": "computeMinor", "sms": "numSms", "regs_per_sm": "regsPerMultiprocessor",
    "smem_per_sm_bytes": "sharedMemPerMultiprocessor",
}  # fmt: skip


def _natural(value: object, bits: int = 31) -> int:
    return value if type(value) is int and 0 <= value < 1 << bits else -1


def devices_of(properties: object, strings: Strings) -> Table:
    """The table from `deviceProperties` (2021: `computeProperties`), which hold for every process and tell no clocks."""
    given = [d for d in properties if isinstance(d, dict)] if isinstance(properties, list) else []
    columns: dict[str, list[int]] = {name: [_natural(d.get(key)) for d in given] for name, key in _LIMITS.items()}
    columns["device"] = [_natural(d.get("id")) for d in given]
    names = [d.get("name") for d in given]
    columns["name"] = [strings.code(name) if isinstance(name, str) and name else -1 for name in names]
    columns["memory_bytes"] = [_natural(d.get("totalGlobalMem"), 63) for d in given]
    threads = [_natural(d.get("maxThreadsPerMultiprocessor")) for d in given]
    warps = [_natural(d.get("warpSize")) for d in given]
    columns["max_warps_per_sm"] = [t // w if t > 0 and w > 0 else -1 for t, w in zip(threads, warps, strict=True)]
    return make_table("devices", {name: np.array(values, np.int64) for name, values in columns.items()})


def rank_of_file(distributed: object, path: Path) -> int:
    """The rank from `distributedInfo`, else from a file name with rankN or workerN in it; -1 unknown."""
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    if isinstance(rank, str):
        rank = integer(rank)
    if _natural(rank) >= 0:
        return _natural(rank)
    found = re.search(_RANK, path.name)
    return _natural(integer(found[1])) if found else -1


def group_sizes(distributed: object) -> dict[str, int]:
    """Ranks of the process groups in `distributedInfo`, by their names; of the whole job under ""."""
    facts = distributed if isinstance(distributed, dict) else {}
    groups = facts.get("pg_config")
    found = {"": facts.get("world_size")}
    for one in groups if isinstance(groups, list) else ():
        if isinstance(one, dict) and isinstance(one.get("pg_name"), str) and one["pg_name"]:
            found[one["pg_name"]] = one.get("pg_size")
    sizes = {name: _natural(integer(size) if isinstance(size, str) else size) for name, size in found.items()}
    return {name: size for name, size in sizes.items() if size > 0}


def tables_of_threads(numbers: list[tuple[int, int]], names: dict[tuple[int, int], str], trace: Trace) -> tuple[Table, Table]:
    """(`threads`, `processes`) from the (pid, tid) of each thread.

    The main thread is the one whose tid is the pid; in a process without one, the thread with most user ranges.
    """
    pids = sorted({pid for pid, _ in numbers})
    process = np.array([pids.index(pid) for pid, _ in numbers], np.int64)
    main = np.array([pid == tid for pid, tid in numbers], np.bool_)
    of_user = np.array([marker.kind in (Kind.USER, Kind.STEP) for marker in trace.markers], np.bool_)
    ranges = np.bincount(trace.ranges["thread"][of_user[trace.ranges["label"]]], minlength=len(numbers))
    for row in range(len(pids)):
        own = np.flatnonzero(process == row)
        if not main[own].any():
            main[own[np.argmax(ranges[own])]] = True
    name = [names.get(number, "") for number in numbers]
    threads = {
        "process": process,
        "tid": np.array([tid for _, tid in numbers], np.int64),
        "name": np.array([trace.strings.code(text) if text else -1 for text in name], np.int64),
        "main": main,
    }
    return make_table("threads", threads), make_table("processes", {"pid": np.array(pids, np.int64)})


def notes_of(trace: Trace, shapes: bool, sources: bool, shared: int) -> list[str]:
    """Notes on what the capture lacks, and what to do about it, one line each.

    shared: number of activities whose process is unknown since several used their correlation id.
    """
    ops = any(marker.kind in (Kind.DISPATCH, Kind.BACKWARD) for marker in trace.markers)
    notes = []
    if not ops and not sources:
        notes.append("no ops were recorded: add ProfilerActivity.CPU to the activities of torch.profiler.profile")
    if ops and not shapes:
        notes.append(
            "shapes were not recorded, so FLOPs and bytes are unknown: pass record_shapes=True to torch.profiler.profile"
        )
    if ops and not sources:
        notes.append("no source lines or modules were recorded: pass with_stack=True to torch.profiler.profile")
    if trace.measured is not None:
        count = len(trace.measured)
        notes.append(f"{count} ranges of measured counters were recorded in place of kernels: see `pyprof counters`")
    elif trace.samples is not None:
        notes.append(trace.samples.note)
    if shared:
        what = f"{shared} of the kernels, copies and fills"
        notes.append(f"process unknown, since several in the file used the same correlation ids: {what}")
    return notes
