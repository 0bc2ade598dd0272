"""How many blocks of a kernel a multiprocessor holds at once, by the rules of NVIDIA's occupancy calculator.

Turns columns of threads, registers and shared memory of launches, and the device's limits, into active blocks, occupancy and
waves; unknown (-1) becomes NaN. Limits: CUDA programming guide, technical specifications by compute capability; allocation
rules: cuda_occupancy.h of the CUDA toolkit. Assumes the largest shared-memory carve-out and ignores clusters and barriers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

    from pyprof.arrays.types import Floats, Ints

__all__ = ["SmLimits", "active_blocks", "limits", "theoretical_occupancy", "waves"]

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
    shared_unit_bytes: int = 128
    shared_reserved_bytes: int = 1024
    partitions: int = 4
    max_registers_per_block: int = _REGISTERS


def _before_ampere(warps: int, blocks: int, shared_kb: int) -> SmLimits:
    return SmLimits(warps, blocks, shared_kb << 10, shared_unit_bytes=256, shared_reserved_bytes=0)


_LIMITS: dict[tuple[int, int], SmLimits] = {
    (5, 0): _before_ampere(64, 32, 64),
    (5, 2): _before_ampere(64, 32, 96),
    (5, 3): _before_ampere(64, 32, 64)._replace(max_registers_per_block=32768),
    (6, 0): _before_ampere(64, 32, 64)._replace(partitions=2),
    (6, 1): _before_ampere(64, 32, 96),
    (6, 2): _before_ampere(64, 32, 64)._replace(max_registers_per_block=32768),
    (7, 0): _before_ampere(64, 32, 96),
    (7, 2): _before_ampere(64, 32, 96),
    (7, 5): _before_ampere(32, 16, 64),
    (8, 0): SmLimits(64, 32, 164 << 10),
    (8, 6): SmLimits(48, 16, 100 << 10),
    (8, 7): SmLimits(48, 16, 164 << 10),
    (8, 9): SmLimits(48, 24, 100 << 10),
    (9, 0): SmLimits(64, 32, 228 << 10),
    (10, 0): SmLimits(64, 32, 228 << 10),
    (10, 1): SmLimits(48, 24, 228 << 10),
    (10, 3): SmLimits(64, 32, 228 << 10),
    (11, 0): SmLimits(48, 24, 228 << 10),
    (12, 0): SmLimits(48, 24, 100 << 10),
    (12, 1): SmLimits(48, 24, 100 << 10),
}


def limits(cc: tuple[int, int] | None) -> SmLimits | None:
    """Limits of a compute capability, or of the next lower one of its generation if it is not listed; None if unknown."""
    if cc is None:
        return None
    listed = [known for known in _LIMITS if known[0] == cc[0] and known[1] <= cc[1]]
    return _LIMITS[max(listed)] if listed else None


def active_blocks(sm: SmLimits | None, threads: npt.ArrayLike, registers: npt.ArrayLike, shared_bytes: npt.ArrayLike) -> Floats:
    """Blocks that one multiprocessor holds at once.

    threads: per block; registers: per thread; shared_bytes: per block, static and dynamic together; each a number or a column
    of one length, -1 unknown. NaN if one of them is unknown, or if no block would fit: since the kernel did run, the limits
    are not those of its device.
    """
    import numpy as np

    block, regs, shared = np.broadcast_arrays(*(np.asarray(v, np.int64) for v in (threads, registers, shared_bytes)))
    if sm is None:
        return np.full(block.shape, np.nan)
    known = (block > 0) & (regs >= 0) & (shared >= 0)
    warps = _round_up(np.where(known, block, 1), _WARP_THREADS) // _WARP_THREADS
    fit = np.minimum(sm.max_blocks, sm.max_warps // warps)
    fit = np.minimum(fit, _fit_registers(sm, warps, np.where(known, regs, 0)))
    need = _round_up(np.where(known, shared, 0) + sm.shared_reserved_bytes, sm.shared_unit_bytes)
    fit = np.minimum(fit, np.where(need > 0, sm.shared_bytes // np.maximum(need, 1), sm.max_blocks))
    return np.where(known & (fit > 0), fit, np.nan)


def _fit_registers(sm: SmLimits, warps: Ints, registers: Ints) -> Ints:
    """Blocks whose registers fit: each warp gets them in units, from the register file of the partition that it runs on."""
    import numpy as np

    per_warp = np.maximum(_round_up(registers * _WARP_THREADS, _REGISTER_UNIT), _REGISTER_UNIT)
    fit = _REGISTERS // sm.partitions // per_warp * sm.partitions // warps
    too_many = per_warp * _round_up(warps, sm.partitions) > sm.max_registers_per_block
    return np.where(too_many, 0, fit)


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
