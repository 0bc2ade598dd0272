"""Costs, times and peaks -> the least time of each op, the limit that sets it, and the time lost above it.

The least time of an op instance is the largest of its matrix operations over the peak of the unit that did them, its vector
operations over the peak of the CUDA cores, and its bytes over the DRAM bandwidth (Williams, Waterman, Patterson: Roofline, CACM
2009; with one compute ceiling for each kind of unit). It is compared with the time of all its kernels. NaN is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int8]

BOUNDS = ("compute", "memory", "latency", "l2", "compute!", "memory!", "launch")
"""Texts of `Roofline.bound`: the limit of an op. latency: its least time is below the shortest time of that many kernels;
launch: its kernels are shorter than the calls that launched them, and the device waited for each; l2: faster than DRAM allows,
and its bytes fit into the L2 cache; `!`: faster than the peaks allow, so a peak, clock or cost differs from the assumption, or
the algorithm does less than the op's definition, as Winograd convolutions do."""

COMPUTE, MEMORY, LATENCY, L2, OVER, LAUNCH = 0, 1, 2, 3, 4, 6

LEAST_KERNEL_NS = 1500.0
"""Shortest time of a kernel: in captures of V100, A100, H100 and RTX 3070 Ti the shortest take 900 to 2000 ns."""


class Peaks(NamedTuple):
    """Peaks of the device, per record. matmul: FLOP/s of the unit that multiplied; vector: FLOP/s of the CUDA cores; dram:
    bytes/s; l2_bytes: size of the L2 cache; least_ns: shortest time of a kernel (0 on a CPU); launch_ns: duration of its launch
    call if the device waited for it, else NaN. NaN is unknown."""

    matmul: Floats
    vector: Floats
    dram: Floats
    l2_bytes: Floats
    least_ns: Floats
    launch_ns: Floats


class Terms(NamedTuple):
    """Terms of the roofline, per record or summed over its instance. NaN is unknown.

    time_ns: its time; matmul_ns, vector_ns, memory_ns: the least time of its matrix operations, its vector operations and its
    bytes; flops, bytes; kernels_ns: the shortest time of its kernels; launch_ns: duration of the calls that launched them.
    """

    time_ns: Floats
    matmul_ns: Floats
    vector_ns: Floats
    memory_ns: Floats
    flops: Floats
    bytes: Floats
    kernels_ns: Floats
    launch_ns: Floats


class Roofline(NamedTuple):
    """Result per record. peak: least time over time of its instance, percent; bound: index into BOUNDS, -1 unknown; lost_ns:
    the record's part of the time above the least, -1 unknown."""

    peak: Floats
    bound: Ints
    lost_ns: Ints


def terms(
    dur_ns: Ints,
    parts: Sequence[Ints],
    kernels: npt.NDArray[np.bool_],
    peaks: Peaks,
    streaming: npt.NDArray[np.bool_] | None = None,
) -> Terms:
    """Terms of each record by itself. parts: its matrix FLOPs, vector FLOPs and bytes, -1 unknown; kernels: mask of the records
    that are kernels (and so have a shortest time); streaming: of those that are known to multiply no matrices, whose bytes
    alone set the least time where their FLOPs are unknown."""
    matmul, vector, moved = (np.where(part >= 0, part, np.nan) for part in parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        products, others = _time(matmul, peaks.matmul), _time(vector, peaks.vector)
        moving = _time(moved, peaks.dram)
    if streaming is not None:
        alone = streaming & np.isnan(matmul + vector)
        products, others = np.where(alone, 0.0, products), np.where(alone, 0.0, others)
    floor, launch = (np.where(kernels, each, 0.0) for each in (peaks.least_ns, peaks.launch_ns))
    return Terms(dur_ns.astype(np.float64), products, others, moving, matmul + vector, moved, floor, launch)


class Limits(NamedTuple):
    """Limits per instance, whatever time it took. percent_ns: 100 times its least time, NaN unknown; bound: index into BOUNDS
    if it takes at least that long; faster: if it takes less; moved_ns: where the least time is unknown, 100 times that of its
    bytes if they do not fit into the L2 cache, else NaN."""

    percent_ns: Floats
    bound: Codes
    faster: Codes
    moved_ns: Floats

    def take(self, index: npt.NDArray[Any]) -> Limits:
        """Limits of some instances."""
        percent_ns, bound, faster, moved_ns = self
        return Limits(percent_ns.take(index), bound.take(index), faster.take(index), moved_ns.take(index))


def limits(instance: Terms, l2_bytes: Floats) -> Limits:
    """Limits of each instance. l2_bytes: size of the L2 cache."""
    with np.errstate(invalid="ignore"):
        compute = np.maximum(instance.matmul_ns, instance.vector_ns)
        least = np.maximum(compute, instance.memory_ns)
        limit = np.where(compute >= instance.memory_ns, COMPUTE, MEMORY)
        cached = (limit == MEMORY) & (instance.bytes <= l2_bytes)
        short = np.where(least < instance.kernels_ns, LATENCY, limit)
        moved = np.where(np.isnan(least) & (instance.bytes > l2_bytes), instance.memory_ns, np.nan)
    return Limits(100 * least, short.astype(np.int8), np.where(cached, L2, limit + OVER).astype(np.int8), 100 * moved)


def roofline(dur_ns: Ints, time_ns: Floats, launch_ns: Floats | None, limit: Limits) -> Roofline:
    """Roofline of every record. dur_ns: its time; of its instance: time_ns; launch_ns, duration of the launch calls (None: the
    device waited for none); limit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(limit.moved_ns > 100 * time_ns, limit.moved_ns, limit.percent_ns)  # faster than DRAM, whatever else
        peak = np.where(time_ns > 0, percent / time_ns, np.nan)
        slow = limit.bound if launch_ns is None else np.where(launch_ns > time_ns, np.int8(LAUNCH), limit.bound)
        bound = np.where(peak > 100, limit.faster, slow)
    known = ~np.isnan(peak)
    part = 1 - peak / 100
    part[~(part > 0)] = 0
    above = np.rint(dur_ns * part)  # of each record alone: no matter which are shown
    return Roofline(peak, np.where(known, bound, np.int8(-1)), np.where(known, above, -1).astype(np.int64))


def ceiling(instance: Terms) -> Floats:
    """FLOP/s that the device allows at each instance's arithmetic intensity; NaN is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.maximum(np.maximum(instance.matmul_ns, instance.vector_ns), instance.memory_ns)
        return np.where(least > 0, instance.flops / least * 1e9, np.nan)


def _time(work: Floats, rate: Floats) -> Floats:
    """Time in ns; no work takes no time, whatever the rate."""
    return np.where(work == 0, 0.0, work / rate * 1e9)
