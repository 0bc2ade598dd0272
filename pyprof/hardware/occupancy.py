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


class SmLimits(NamedTuple):
    """The resources of one multiprocessor.

    max_warps, max_blocks, max_threads: resident at once; registers: 32-bit registers; register_unit: registers are allocated to
    a warp in multiples of this; partitions: parts that share out warps and registers; shared_bytes: largest carve-out of shared
    memory; shared_block_bytes: largest for one block (opt-in); shared_unit_bytes: granularity; shared_reserved_bytes: taken by
    the system in every block.
    """

    max_warps: int
    max_blocks: int
    max_threads: int
    registers: int
    max_registers_per_block: int
    register_unit: int
    partitions: int
    shared_bytes: int
    shared_block_bytes: int
    shared_unit_bytes: int
    shared_reserved_bytes: int


def _sm(warps: int, blocks: int, shared_kb: int, block_kb: int, *, new: bool, partitions: int = 4) -> SmLimits:
    return SmLimits(
        max_warps=warps,
        max_blocks=blocks,
        max_threads=warps * _WARP_THREADS,
        registers=65536,
        max_registers_per_block=65536,
        register_unit=256,
        partitions=partitions,
        shared_bytes=shared_kb << 10,
        shared_block_bytes=block_kb << 10,
        shared_unit_bytes=128 if new else 256,
        shared_reserved_bytes=1024 if new else 0,
    )


_LIMITS: dict[tuple[int, int], SmLimits] = {
    (5, 0): _sm(64, 32, 64, 48, new=False),
    (5, 2): _sm(64, 32, 96, 48, new=False),
    (5, 3): _sm(64, 32, 64, 48, new=False)._replace(max_registers_per_block=32768),
    (6, 0): _sm(64, 32, 64, 48, new=False, partitions=2),
    (6, 1): _sm(64, 32, 96, 48, new=False),
    (6, 2): _sm(64, 32, 64, 48, new=False)._replace(max_registers_per_block=32768),
    (7, 0): _sm(64, 32, 96, 96, new=False),
    (7, 2): _sm(64, 32, 96, 96, new=False),
    (7, 5): _sm(32, 16, 64, 64, new=False),
    (8, 0): _sm(64, 32, 164, 163, new=True),
    (8, 6): _sm(48, 16, 100, 99, new=True),
    (8, 7): _sm(48, 16, 164, 163, new=True),
    (8, 9): _sm(48, 24, 100, 99, new=True),
    (9, 0): _sm(64, 32, 228, 227, new=True),
    (10, 0): _sm(64, 32, 228, 227, new=True),
    (10, 1): _sm(48, 24, 228, 227, new=True),
    (10, 3): _sm(64, 32, 228, 227, new=True),
    (11, 0): _sm(48, 24, 228, 227, new=True),
    (12, 0): _sm(48, 24, 100, 99, new=True),
    (12, 1): _sm(48, 24, 100, 99, new=True),
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

    per_warp = np.maximum(_round_up(registers * _WARP_THREADS, sm.register_unit), sm.register_unit)
    fit = sm.registers // sm.partitions // per_warp * sm.partitions // warps
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
