"""Weights, states or activations that travel between host and device in each step -> keep them there, or copy them ahead.

Large copies while nothing else runs on the device: to the host, or to the device again and again between the kernels of a step.
Inputs, which come in one burst per batch, are reported only if they take long (sooner from pageable memory). What a program of
torch brings in many copies before its first kernel are a model's weights, which come once.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.types import Bools, Ints
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import Advice, is_worth, mean_ns, places, together
from pyprof.report.time.division import Division
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_TO_DEVICE, _TO_HOST = 1, 2
_LEAST_BYTES = 1 << 20
_BURSTS = 8  # of copies in a step, without a kernel launched between: micro-batches of inputs at most; layers are more
_KERNELS = 64  # per burst of copies: the kernels of a layer or two; between inputs lie all of the model's
_LONG = 0.01  # of the wall time: inputs from pageable memory that hold the device so long are worth a line
_UNMARKED = 0.1  # of the wall time: with steps unmarked, less may be inputs of many steps
_WEIGHTS = 16  # copies before the first kernel: more than a batch has tensors
_EXPOSED = 0.3  # of the wall time: inputs from wherever that hold the device so long are what the program waits for
_TRAVEL = "keep on the device what every step needs, or copy it a layer ahead, pinned, with non_blocking=True on its own stream"
_RESULTS = (
    "keep it on the device, or copy only what the host reads: to pinned memory, with non_blocking=True, and wait for it later"
)
_AHEAD = "copy the next batch while this one computes: from pinned memory, non_blocking=True, on its own torch.cuda.Stream()"
_PLAIN = (
    "copy in pieces from pinned memory (cudaMallocHost) with cudaMemcpyAsync on a stream of its own, so that kernels work on "
    "one piece while the next is on its way"
)
_INPUTS = "DataLoader(..., pin_memory=True) and batch.to(device, non_blocking=True)"


def find(overview: Overview) -> Advice | None:
    """Advice on copies that the devices wait for, None if they are quick inputs or not worth a line."""
    records, division = overview.records, overview.division
    kind = records["copykind"]
    large = overview.inside & (records["kind"] == ActivityKind.MEMCPY) & (records["bytes"] >= _LEAST_BYTES)
    rows = np.setdiff1d(np.flatnonzero(large & ((kind == _TO_DEVICE) | (kind == _TO_HOST))), uploaded(overview))
    if not len(rows):
        return None
    inputs = (kind[rows] == _TO_DEVICE) & ~_scattered(overview, rows)
    travelling, wall = rows[~inputs], division.wall_ns * division.count
    marked = overview.steps is not None
    least = 0.0 if marked else _UNMARKED * wall
    if len(travelling) >= (len(overview.steps) if overview.steps else 2) and _exclusive_ns(division, travelling) >= least:
        back = _exclusive_ns(division, travelling[kind[travelling] == _TO_HOST]) * 2 > _exclusive_ns(division, travelling)
        do = _RESULTS if back else _TRAVEL
        return _advice(overview, travelling, "travel between host and device", do)
    texts = overview.frame.of_name(str)
    named_so = np.array(["Pageable" in text for text in texts.pool] + [False], np.bool_)
    pageable = rows[inputs & named_so[texts.codes[rows]]]
    if _exclusive_ns(division, pageable) >= _LONG * wall:
        return _advice(overview, pageable, "bring inputs from pageable memory", _INPUTS)
    if marked and _exclusive_ns(division, rows[inputs]) >= _EXPOSED * wall:
        return _advice(overview, rows[inputs], "bring inputs", _AHEAD)
    return None


def uploaded(overview: Overview) -> Ints:
    """The copies to devices before the first kernel that are of a model's weights, empty if they are not told from inputs."""
    records, inside = overview.records, overview.inside
    ran = np.flatnonzero(inside & among(records["kind"], (ActivityKind.KERNEL, ActivityKind.GRAPH)))
    if overview.steps is not None or not overview.uses_torch or not len(ran):
        return np.empty(0, np.int64)
    early = inside & (records["kind"] == ActivityKind.MEMCPY) & (records["start_ns"] < records["start_ns"][ran].min())
    rows = np.flatnonzero(early & (records["copykind"] == _TO_DEVICE))
    return rows if len(rows) >= _WEIGHTS * overview.division.count else rows[:0]


def _exclusive_ns(division: Division, rows: Ints) -> int:
    """How long these records hold their devices."""
    return int(division.exclusive_ns[rows].sum(dtype=np.int64))


def _advice(overview: Overview, rows: Ints, what: str, do: str) -> Advice | None:
    records, held = overview.records, overview.division.exclusive_ns[rows]
    saves = mean_ns(overview, held)
    if not is_worth(overview, saves):
        return None
    moved, time = int(records["bytes"][rows].sum(dtype=np.int64)), int(records["dur_ns"][rows].sum(dtype=np.int64))
    rate = human(moved / max(time, 1) * 1e9, "B/s")
    steps = overview.steps
    often = f" a step, {len(steps)} steps" if steps is not None and len(steps) > 1 else ""
    size = human(moved / len(steps) if steps is not None and often else moved, "B")
    evidence = f"{len(rows)} copies {what}: {size}{together(overview)}{often}, at {rate}, "
    evidence += f"while nothing else runs for {human(saves, 'ns')}"
    evidence += " on each (mean)" if overview.division.count > 1 else ""
    do = do if overview.uses_torch else _PLAIN
    return Advice("host_copy", Change(removed=rows), saves, evidence, do, places(overview, rows, held))


def _scattered(overview: Overview, rows: Ints) -> Bools:
    """Mask of copies to the device in steps where copies and kernels alternate more often than inputs would make them."""
    records = overview.records
    launched = np.flatnonzero(overview.inside & (records["launch_ns"] >= 0) & (records["kind"] != ActivityKind.MEMSET))
    launched = launched[np.lexsort((records["launch_ns"][launched], records["tid"][launched], records["pid"][launched]))]
    copies = (records["kind"][launched] == ActivityKind.MEMCPY) & (records["copykind"][launched] == _TO_DEVICE)
    first = copies & ~np.append(False, copies[:-1])
    burst = np.full(len(records), -1, np.int64)
    burst[launched] = np.cumsum(first)
    steps = overview.steps
    begins = np.empty(0, np.int64) if steps is None else steps.begin_ns
    step = np.searchsorted(begins, records["launch_ns"][rows], "right")
    group = distinct_rows(step, overview.division.device[rows]).inverse
    once = distinct_rows(group, np.where(records["copykind"][rows] == _TO_DEVICE, burst[rows], -1)).columns
    often = np.bincount(once[0][once[1] >= 0], minlength=int(group.max()) + 1)
    kernels = np.count_nonzero(records["kind"][launched] == ActivityKind.KERNEL)
    return np.asarray((often[group] > _BURSTS) & (kernels <= _KERNELS * often.sum()))
