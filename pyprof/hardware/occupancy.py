"""How many blocks of a kernel a multiprocessor holds at once, by the rules of NVIDIA's occupancy calculator.

architectures.csv holds one compute capability a row: the fields of SmLimits; then dense operations a clock and multiprocessor,
2 for a fused multiply-add, of half precision on CUDA cores (half_vector) and by precision, as `gpus` uses them.

Turns columns of threads, registers and shared memory of launches, and the device's limits, into active blocks, occupancy and
waves; unknown (-1) becomes NaN. Limits: CUDA programming guide, technical specifications by compute capability; allocation
rules: cuda_occupancy.h of the CUDA toolkit. Assumes the largest shared-memory carve-out and ignores clusters and barriers.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyprof.columns.types import Floats, Ints

_WARP_THREADS = 32
_REGISTERS = 65536  # 32-bit registers of a multiprocessor
_REGISTER_UNIT = 256  # registers are allocated to a warp in multiples of this


class SmLimits(NamedTuple):
    """The resources of one multiprocessor.

    max_warps, max_blocks: resident at once; shared_bytes: largest carve-out of shared memory; shared_unit_bytes: granularity;
    shared_reserved_bytes: taken by the system in every block; partitions: parts that share out warps and registers.
    """

    max_warps: int
    max_blocks: int
    shared_bytes: int
    shared_unit_bytes: int
    shared_reserved_bytes: int
    partitions: int
    max_registers_per_block: int


@lru_cache(maxsize=1)
def architectures() -> dict[str, dict[str, int]]:
    """The rows of architectures.csv by compute capability as text, or AMD's gfx name; what is unknown is absent."""
    text = Path(__file__).with_name("architectures.csv").read_text(encoding="utf-8")
    return {row.pop("arch"): {key: int(cell) for key, cell in row.items() if cell} for row in csv.DictReader(text.splitlines())}


def limits(cc: tuple[int, int] | None) -> SmLimits | None:
    """Limits of a compute capability, or of the next lower one of its generation if it is not listed; None if unknown."""
    if cc is None:
        return None
    of_major = (arch.partition(".")[2] for arch in architectures() if arch.startswith(f"{cc[0]}."))
    minor = max((minor for minor in map(int, of_major) if minor <= cc[1]), default=None)
    if minor is None:
        return None
    row = architectures()[f"{cc[0]}.{minor}"]
    return SmLimits(*(row[field] for field in SmLimits._fields))


def active_blocks(sm: SmLimits | None, threads: npt.ArrayLike, registers: npt.ArrayLike, shared_bytes: npt.ArrayLike) -> Floats:
    """Blocks that one multiprocessor holds at once.

    threads: per block; registers: per thread; shared_bytes: per block, static and dynamic together; each a number or a column
    of one length, -1 unknown. NaN if one of them is unknown, or if no block would fit: the kernel did run, so these limits must
    belong to another device.
    """
    import numpy as np

    block, regs, shared = np.broadcast_arrays(*(np.asarray(v, np.int64) for v in (threads, registers, shared_bytes)))
    if sm is None:
        return np.full(block.shape, np.nan)
    known = (block > 0) & (regs >= 0) & (shared >= 0)
    warps = _round_up(np.where(known, block, 1), _WARP_THREADS) // _WARP_THREADS
    fit = np.minimum(sm.max_blocks, sm.max_warps // warps)
    # Each warp gets its registers in units, from the register file of the partition that it runs on.
    per_warp = np.maximum(_round_up(np.where(known, regs, 0) * _WARP_THREADS, _REGISTER_UNIT), _REGISTER_UNIT)
    too_many = per_warp * _round_up(warps, sm.partitions) > sm.max_registers_per_block
    fit = np.minimum(fit, np.where(too_many, 0, _REGISTERS // sm.partitions // per_warp * sm.partitions // warps))
    need = _round_up(np.where(known, shared, 0) + sm.shared_reserved_bytes, sm.shared_unit_bytes)
    fit = np.minimum(fit, np.where(need > 0, sm.shared_bytes // np.maximum(need, 1), sm.max_blocks))
    return np.where(known & (fit > 0), fit, np.nan)


def _round_up(values: Ints, unit: int) -> Ints:
    return -(-values // unit) * unit


def theoretical_occupancy(sm: SmLimits | None, threads: npt.ArrayLike, active: npt.ArrayLike) -> Floats:
    """Resident warps over the maximum, as a fraction. threads: per block; active: the result of `active_blocks`."""
    import numpy as np

    blocks = np.asarray(active, np.float64)
    if sm is None:
        return np.full(blocks.shape, np.nan)
    warps = _round_up(np.asarray(threads, np.int64), _WARP_THREADS) // _WARP_THREADS
    return np.asarray(blocks * warps / sm.max_warps)


def waves(grid_blocks: npt.ArrayLike, active: npt.ArrayLike, sms: npt.ArrayLike) -> Floats:
    """Blocks of the grid over the blocks that all multiprocessors together hold at once. NaN if unknown."""
    import numpy as np

    grid, count = np.asarray(grid_blocks, np.float64), np.asarray(sms, np.float64)
    held = np.where(count > 0, count, np.nan) * np.asarray(active, np.float64)
    return np.asarray(np.where(grid > 0, grid, np.nan) / held)
