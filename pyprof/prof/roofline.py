"""Costs, times and peaks -> how long each op had to take at least, which limit that is, and the time above it.

The least time of an op instance is the largest of its matrix operations over the peak of the unit that did them, its vector
operations over the peak of the CUDA cores, and its bytes over the DRAM bandwidth (Williams, Waterman, Patterson: Roofline, CACM
2009; with one compute ceiling for each kind of unit). All over the time of all its kernels. NaN is unknown. No names of columns
and no formats here.
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
"""Texts of `Roofline.bound`: what limits the op. latency: at the roofline it would take less time than so many kernels take
at all; launch: its kernels are shorter than the calls that launched them, and the device waited for each of these; l2: it moved
its bytes faster than DRAM can, and they fit into the L2 cache; `!`: faster than the peaks allow, so a peak, a clock or a cost
is not what was assumed, or the algorithm does less than the op's definition, as Winograd convolutions do."""

COMPUTE, MEMORY, LATENCY, L2, OVER, LAUNCH = 0, 1, 2, 3, 4, 6

LEAST_KERNEL_NS = 1500.0
"""No kernel ends sooner after its begin: the shortest of captures of V100, A100, H100 and RTX 3070 Ti take 900 to 2000 ns."""


class Peaks(NamedTuple):
    """Per record: what the device can do at most. matmul: FLOP/s of the unit that multiplied; vector: FLOP/s of the cores;
    dram: bytes/s; l2_bytes: size of the cache; least_ns: the shortest a kernel takes (0 on a CPU); launch_ns: how long the call
    took that launched it, if the device waited for it. NaN unknown, or did not wait."""

    matmul: Floats
    vector: Floats
    dram: Floats
    l2_bytes: Floats
    least_ns: Floats
    launch_ns: Floats


class Terms(NamedTuple):
    """Per record, or added up over its instance: what the roofline of an instance is made of. NaN unknown.

    time_ns: its time; matmul_ns, vector_ns, memory_ns: the least time of its matrix operations, its vector operations and its
    bytes; flops, bytes; kernels_ns: the shortest that its kernels take; launch_ns: the time of the calls that launched them.
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
    """Per record, of its instance. peak: least time over time, in percent; bound: code into BOUNDS, -1 unknown; lost_ns: the
    record's part of the time above the least, -1 unknown."""

    peak: Floats
    bound: Ints
    lost_ns: Ints


def terms(dur_ns: Ints, parts: Sequence[Ints], kernels: npt.NDArray[np.bool_], peaks: Peaks) -> Terms:
    """The terms of each record by itself. parts: its matrix operations, vector operations and bytes, -1 unknown; kernels: what
    counts as a kernel (and has its least time)."""
    matmul, vector, moved = (np.where(part >= 0, part, np.nan) for part in parts)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = _time(matmul, peaks.matmul), _time(vector, peaks.vector), _time(moved, peaks.dram)
    floor, launch = (np.where(kernels, each, 0.0) for each in (peaks.least_ns, peaks.launch_ns))
    return Terms(dur_ns.astype(np.float64), *least, matmul + vector, moved, floor, launch)


class Limits(NamedTuple):
    """Per instance, whatever time it took. percent_ns: a hundred times its least time, NaN unknown; bound: code into BOUNDS of
    what limits it where it takes that long; faster: where it takes less."""

    percent_ns: Floats
    bound: Codes
    faster: Codes

    def take(self, index: npt.NDArray[Any]) -> Limits:
        """Those of some instances."""
        return Limits(self.percent_ns.take(index), self.bound.take(index), self.faster.take(index))


def limits(instance: Terms, l2_bytes: Floats) -> Limits:
    """The limits of each instance. l2_bytes: size of its cache."""
    with np.errstate(invalid="ignore"):
        compute = np.maximum(instance.matmul_ns, instance.vector_ns)
        least = np.maximum(compute, instance.memory_ns)
        limit = np.where(compute >= instance.memory_ns, COMPUTE, MEMORY)
        cached = (limit == MEMORY) & (instance.bytes <= l2_bytes)
        short = np.where(least < instance.kernels_ns, LATENCY, limit)
    return Limits(100 * least, short.astype(np.int8), np.where(cached, L2, limit + OVER).astype(np.int8))


def roofline(dur_ns: Ints, time_ns: Floats, launch_ns: Floats | None, limit: Limits) -> Roofline:
    """The roofline of every record. dur_ns: its time; the rest is of its instance: time, time of the calls that launched its
    kernels (None: the device did not wait for these), limits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = np.where(time_ns > 0, limit.percent_ns / time_ns, np.nan)
        slow = limit.bound if launch_ns is None else np.where(launch_ns > time_ns, np.int8(LAUNCH), limit.bound)
        bound = np.where(peak > 100, limit.faster, slow)
    known = ~np.isnan(peak)
    part = 1 - peak / 100
    part[~(part > 0)] = 0
    above = np.rint(dur_ns * part)  # of each record alone: no matter which are shown
    return Roofline(peak, np.where(known, bound, np.int8(-1)), np.where(known, above, -1).astype(np.int64))


def ceiling(instance: Terms) -> Floats:
    """FLOP/s that the device allows at the intensity of each instance; NaN is unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.maximum(np.maximum(instance.matmul_ns, instance.vector_ns), instance.memory_ns)
        return np.where(least > 0, instance.flops / least * 1e9, np.nan)


def _time(work: Floats, rate: Floats) -> Floats:
    """Nanoseconds; no work takes none, whatever the rate."""
    return np.where(work == 0, 0.0, work / rate * 1e9)
