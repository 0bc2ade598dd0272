"""This machine -> the peak rates of its CPU, from a large matrix product for each dtype and a triad in memory.

The best of several calls counts, since other programs only make a call slower. Stores nothing; see hardware.cpus.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import TYPE_CHECKING

from pyprof.hardware.cpus import CpuPeak, cpu_name
from pyprof.memory import free_bytes
from pyprof.model.dtypes import lookup
from pyprof.timers.timing import cache_bytes, timeit, torch_for

if TYPE_CHECKING:
    import torch as torch_types

_DTYPES = ("float32", "float64", "bfloat16", "float16")
_SMALL, _LARGE = 256, 4096  # sides of the matrices
_GEMM_S = 0.3  # seconds that one product may take
_ARRAY_LEAST, _ARRAY_MOST = 64 << 20, 1 << 30


def measure(seconds: float = 0.3, rounds: int = 3) -> CpuPeak:
    """Measure each rate for about `seconds`, in several rounds because the machine may be busy during one.

    Raises ToolError if torch is missing.
    """
    torch = torch_for("measuring the CPU")
    rates: dict[str, float] = {}
    moved = 0.0
    for _ in range(rounds):
        for name in _DTYPES:
            rate = _gemm_tflops(torch, getattr(torch, name), seconds)
            dtype = lookup(name)
            if rate is not None and dtype is not None:
                rates[dtype.tag] = max(rate, rates.get(dtype.tag, 0.0))
        moved = max(moved, _triad_gbs(torch, seconds))
    return CpuPeak(cpu_name(), int(torch.get_num_threads()), rates, moved)


def _gemm_tflops(torch: ModuleType, dtype: torch_types.dtype, seconds: float) -> float | None:
    """10^12 FLOP/s of a product of two square matrices (2 n^3 FLOPs), the best of growing sizes; None if unsupported."""
    rate, side = 0.0, _SMALL
    while side <= _LARGE:
        try:
            left, right, out = (torch.ones(side, side, dtype=dtype) for _ in range(3))
            work = functools.partial(torch.mm, left, right, out=out)
            found = timeit(work, seconds=seconds / 3, warmup=0, flush=False, launches=False)
        except RuntimeError:
            return None
        rate = max(rate, 2 * side**3 / found.best_s)
        if 8 * found.best_s > _GEMM_S:
            break
        side *= 2
    return round(rate / 1e12, 6)


def _triad_gbs(torch: ModuleType, seconds: float) -> float:
    """10^9 bytes/s of a = b + s * c over three arrays, each several times the last cache (J. McCalpin's STREAM)."""
    size = min(max(4 * (cache_bytes() or 0), _ARRAY_LEAST), _ARRAY_MOST, max((free_bytes() or 4 * _ARRAY_MOST) // 8, 1 << 20))
    count = math.ceil(size / 4)
    a, b, c = (torch.ones(count) for _ in range(3))
    found = timeit(lambda: torch.add(b, c, alpha=0.5, out=a), seconds=seconds, warmup=0, flush=False, launches=False)
    return round(3 * 4 * count / found.best_s / 1e9, 3)
