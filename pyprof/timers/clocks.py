"""Clocks -> ticks a second and what one reading costs. Must not know blocks or files.

No `from __future__ import annotations` here: Quadrants evaluates the annotations of its kernels.
"""

import time
from types import ModuleType

import numpy as np

from pyprof.columns.types import Ints
from pyprof.errors import ToolError, UsageError, unusable

EMPTY = int(np.iinfo(np.int64).min)  # an entry that no kernel wrote
_READINGS = 512
_TRIES = 20
_APART_S = 0.1  # between two pairs of readings: their error of about 1 us is 10 in a million of it


def wrapped(difference: Ints, bits: int) -> Ints:
    """Differences of readings that kept only their low `bits`; with 32 bits, between -2^31 and 2^31."""
    return difference if bits == 64 else (difference + (1 << 31)) % (1 << 32) - (1 << 31)


def quadrants() -> ModuleType:
    """Quadrants, initialised by the program. Raises ToolError if it is not."""
    try:
        import quadrants as module
        from quadrants.lang import impl
    except ImportError as error:
        raise unusable("this", "Quadrants", error, "pip install quadrants") from error
    if impl.get_runtime()._prog is None:
        raise ToolError("Quadrants is not initialised", "call quadrants.init(arch=...) first")
    found: ModuleType = module
    return found


def tsc() -> tuple[float, float]:
    """Ticks a second of this CPU's time-stamp counter against time.perf_counter, and the median cost of one reading in ticks.

    Quadrants reads the counter, so the cost equals a timed kernel's. Raises ToolError on other devices.
    """
    qd = quadrants()
    arch = qd.lang.impl.current_cfg().arch
    if arch not in (qd.x64, qd.arm64):
        raise ToolError(
            f"Quadrants runs on {arch.name}, whose clock is not the CPU's", "calibrate by hz=..., 'nominal' or pairs"
        )

    @qd.kernel  # type: ignore[untyped-decorator]
    def read(out: qd.types.NDArray[qd.i64, 1]) -> None:  # type: ignore[name-defined]
        qd.loop_config(serialize=True)
        for i in range(out.shape[0]):
            before = qd.clock_counter()
            out[i] = qd.clock_counter() - before
        out[0] = qd.clock_counter()

    def pair() -> tuple[float, int]:
        """The counter, and perf_counter in the middle of the shortest of several calls."""
        tries = []
        for _ in range(_TRIES):
            before = time.perf_counter()
            read(out)
            after = time.perf_counter()
            tries.append((after - before, (before + after) / 2, int(out[0])))
        return min(tries)[1:]

    out = np.zeros(_READINGS, np.int64)
    read(out)
    begin_s, begin = pair()
    time.sleep(_APART_S)
    end_s, end = pair()
    if end == begin:
        raise ToolError("this CPU's clock returns 0: unsupported", "calibrate by hz=... and give readings of another clock")
    return (end - begin) / (end_s - begin_s), float(np.median(out[1:]))


def nominal() -> float:
    """Ticks a second of the GPU's clock as Quadrants reports it; what ran may be slower. Raises ToolError elsewhere."""
    qd = quadrants()
    try:
        return float(qd.clock_freq_hz())
    except (NotImplementedError, RuntimeError) as error:
        raise ToolError(f"Quadrants reports no clock rate here: {error}", "calibrate by hz=..., 'tsc' or pairs") from error


def rate_of(pairs: Ints, bits: int) -> float:
    """Ticks a second by pairs of (clock, globaltimer in ns) at the begin and the end of a kernel, (2, 2, lanes).

    A lane's clock is only compared with itself; lanes count together, since globaltimer moves in steps. Raises UsageError if
    it did not move.
    """
    known = (pairs != EMPTY).all(axis=(0, 1))
    ticks, spent_ns = wrapped(pairs[1, 0, known] - pairs[0, 0, known], bits), pairs[1, 1, known] - pairs[0, 1, known]
    right = (ticks > 0) & (spent_ns >= 0)  # a short lane may end in the step of globaltimer in which it began
    total_ns = int(spent_ns[right].sum())
    if not total_ns:
        raise UsageError(
            "no lane has pairs of clock and globaltimer that grow", "fill them at begin and end of a longer kernel"
        )
    return float(ticks[right].sum() * 1e9 / total_ns)
