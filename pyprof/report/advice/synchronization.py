"""Devices that ran dry because the host waited for them -> which call waited, and how to do without.

Waiting alone costs nothing: only the idle time that follows counts. Freeing memory of a device waits for it as well: where that
happens again and again, the caching allocator is off or its cache is emptied.
"""

from __future__ import annotations

import re

import numpy as np

from pyprof.columns.distinct import among, distinct_rows, distinct_values
from pyprof.columns.intervals import count_before, summed
from pyprof.columns.types import Ints
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.allocation import ALLOCATES
from pyprof.report.advice.base import Advice, IdleTime, Place, counted, idle_time, told
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.report.time.waits import FEW_BYTES, TO_HOST, Waits

_LEAST = 0.03  # of the wall time
_LEAST_SERVING = 0.1  # of an engine's wall time: its scheduler waits for tokens on purpose
_SIZED = {  # ops whose result has as many elements as the data say, for which the host waits
    "nonzero", "argwhere", "masked_select", "unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave",
    "bincount", "index", "index_put_", "__getitem__", "__setitem__",
}  # fmt: skip
_FIXED = (
    "results whose size does not depend on the data need no wait: torch.where(mask, x, 0) or a sum with weights in place of "
    "x[mask], nonzero and unique; output_size= for repeat_interleave, scatter_add_ for bincount"
)
_NAMES: dict[str, str | None] = {"-": None, "_local_scalar_dense": ".item()"}
_WHOLE = r"(?:cuda|hip)DeviceSynchronize|(?:cu|hip)CtxSynchronize"
_TO_HOST = "keep the value on the device and read it once in many steps: total += loss.detach(), .item() when it is printed"
_TO_DEVICE = (
    "make the tensor on the device once, before the loop (torch.tensor(..., device=device)), or copy from pinned memory: "
    "x.pin_memory().to(device, non_blocking=True)"
)
_DEVICE = "leave torch.cuda.synchronize() out of the loop; time with torch.cuda.Event(enable_timing=True), read after it"
_FREE = (
    "keep memory in PyTorch's cache: no PYTORCH_NO_CUDA_MEMORY_CACHING, no torch.cuda.empty_cache() in the loop; where it runs "
    "full PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True or a smaller batch"
)
# For programs without PyTorch.
_PLAIN = (
    "launch it with cudaMemcpyAsync on a stream, to or from pinned memory (cudaMallocHost), and wait once where the host needs "
    "the result"
)
_PLAIN_DEVICE = (
    "leave it out of the loop: what is launched on one stream runs in order without it; wait once before the host reads, time "
    "with cudaEventRecord and cudaEventElapsedTime"
)
_PLAIN_FREE = "freeing waits for the device: free after the loop, or take memory from a pool (cudaMallocAsync, cudaFreeAsync)"
_SCHEDULE = "let the scheduler run a step ahead of the device: vllm serve --async-scheduling, SGLang's overlap schedule"


def find(overview: Overview) -> Advice | None:
    """Where calls drain the devices' queues."""
    idle, wall = idle_time(overview, "synchronization"), overview.division.wall_ns
    serves = overview.steps is not None and overview.steps.kind == "engine"
    least = (_LEAST_SERVING if serves else _LEAST) * wall
    return _drained(overview, idle, serves) if idle.saves_ns > least else None


def _drained(overview: Overview, idle: IdleTime, serves: bool) -> Advice:
    """Where the host waited for all that it had launched."""
    evidence = f"{told(idle.time_ns)} idle after the host had waited"
    wait, waits = overview.idle.waited[idle.rows], overview.waits
    if waits is None or not (wait >= 0).any():
        evidence += f" for a small copy to the host, {counted(len(idle.rows), 'time')}"
        return Advice("synchronization", idle.change, idle.time_ns, evidence, _TO_HOST if overview.uses_torch else _PLAIN)
    calls = distinct_values(wait[wait >= 0])
    spent = summed(np.searchsorted(calls, wait[wait >= 0]), idle.own_ns[wait >= 0], len(calls))
    where, named, most = _places(overview, waits, calls, spent)
    name = named[0]
    do, what = _FREE if re.match(ALLOCATES, name) else _DEVICE if re.match(_WHOLE, name) else _TO_HOST, name
    if do == _TO_HOST and len(copies := _copied(overview, waits, most)):
        size = np.unique(overview.records["bytes"][copies])
        if size[0] >= 0:
            what += " for a copy of " + (f"{size[0]:,} to " if len(size) > 1 else "") + counted(int(size[-1]), "byte")
        to_device = (overview.records["copykind"][copies] == 1).mean() > 0.5
        do = _TO_DEVICE if to_device else _FIXED if where[0].op in _SIZED else _TO_HOST
    texts = [
        f"{one.number:,} x {one.op or call}{f' ({one.src})' if one.src else ''}, {told(one.time_ns)}"
        for one, call in zip(where, named, strict=True)
    ]
    evidence += f" in {counted(len(calls), 'call')}, most in {what}: {'; '.join(texts)}"
    if not overview.uses_torch:
        do = _PLAIN_FREE if re.match(ALLOCATES, name) else _PLAIN if "emcpy" in name else _PLAIN_DEVICE
    do = _SCHEDULE if serves else do
    return Advice("synchronization", _without(overview, waits, calls), idle.time_ns, evidence, do, where)


def _without(overview: Overview, waits: Waits, calls: Ints) -> Change:
    """No such call waits any more, whoever made it; what it read back is not copied either."""
    rows = np.flatnonzero(among(waits.text, waits.text[calls]))
    records = overview.records
    back = (records["kind"] == ActivityKind.MEMCPY) & (records["copykind"] == TO_HOST) & (records["bytes"] <= FEW_BYTES)
    copies = np.flatnonzero(overview.inside & back & (records["launch_ns"] >= 0))
    thread, asked = np.split(
        distinct_rows(*(np.append(records[name][copies], getattr(waits, name)[rows]) for name in ("pid", "tid"))).inverse,
        [len(copies)],
    )
    order = np.lexsort((records["launch_ns"][copies], thread))
    at = count_before(thread[order], records["launch_ns"][copies[order]], asked, waits.start_ns[rows], inclusive=True) - 1
    last = copies[order][np.maximum(at, 0)] if len(copies) else copies
    if len(copies):
        ended = records["start_ns"][last] + records["dur_ns"][last]
        good = (at >= 0) & (thread[order][np.maximum(at, 0)] == asked) & (ended > waits.start_ns[rows])
        last = last[good & (ended <= waits.end_ns[rows])]
    return Change(waits=rows, removed=distinct_values(last))


def _places(overview: Overview, waits: Waits, calls: Ints, spent: Ints) -> tuple[tuple[Place, ...], list[str], Ints]:
    """(the ops and source lines that made most of these calls, the name of each one's calls, the calls of the first)."""
    origins: dict[tuple[str, str, str], int] = {}
    texts = [(re.sub(r"_v\d+$", "", call), op, src) for call, op, src in waits.texts]
    code = np.array([origins.setdefault(text, len(origins)) for text in texts], np.int64)[waits.text[calls]]
    time, number = summed(code, spent, len(origins)), np.bincount(code, minlength=len(origins))
    names, devices = list(origins), max(overview.division.count, 1)
    first = sorted(np.flatnonzero(number).tolist(), key=lambda at: (-time[at], names[at]))[:3]
    places = tuple(
        Place(None, _NAMES.get(op, op), None, None if src == "-" else src, int(number[at]), int(time[at]) // devices)
        for at, (_, op, src) in ((at, names[at]) for at in first)
    )
    return places, [names[at][0] for at in first], calls[code == first[0]]


def _copied(overview: Overview, waits: Waits, calls: Ints) -> Ints:
    """The records of the copies that the threads of waiting calls launched last, in them or before; none for other work."""
    records, found = overview.records, [np.empty(0, np.int64)]
    (pids, tids), _, thread = distinct_rows(waits.pid[calls], waits.tid[calls])
    for number, (pid, tid) in enumerate(zip(pids.tolist(), tids.tolist(), strict=True)):
        rows = np.flatnonzero((records["pid"] == pid) & (records["tid"] == tid) & (records["launch_ns"] >= 0))
        rows = rows[np.argsort(records["launch_ns"][rows], kind="stable")]
        at = np.searchsorted(records["launch_ns"][rows], waits.start_ns[calls[thread == number]], "right") - 1
        last = rows[at[at >= 0]]
        found.append(last[records["kind"][last] == ActivityKind.MEMCPY])
    return np.concatenate(found)
