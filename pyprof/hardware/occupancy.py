"""How many blocks of a kernel a multiprocessor holds at once, by the rules of NVIDIA's occupancy calculator.

Turns threads, registers and shared memory of a launch, and the device's limits, into active blocks, occupancy and waves. Whole
columns at a time; what is unknown (-1) comes out as NaN. Limits: CUDA programming guide, technical specifications by compute
capability; allocation rules: cuda_occupancy.h of the CUDA toolkit. Shared memory is taken at the largest carve-out, clusters
and barriers are not considered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Occupancy", "SmLimits", "active_blocks", "limits", "occupancy", "theoretical_occupancy", "waves"]

_WARP_THREADS = 32


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one multiprocessor holds.

    max_warps, max_blocks, max_threads: resident at once; registers: 32-bit registers; register_unit: registers are given to a
    warp in multiples of this; partitions: parts that warps and registers are divided among; max_registers_per_block;
    shared_bytes: largest carve-out; shared_block_bytes: largest for one block (opt-in); shared_unit_bytes: granularity;
    shared_reserved_bytes: taken by the system in every block.
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


def _sm(
    warps: int, blocks: int, shared_kb: int, block_kb: int, *, new: bool, partitions: int = 4, block_regs: int = 65536
) -> SmLimits:
    return SmLimits(
        max_warps=warps,
        max_blocks=blocks,
        max_threads=warps * _WARP_THREADS,
        registers=65536,
        max_registers_per_block=block_regs,
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
    (5, 3): _sm(64, 32, 64, 48, new=False, block_regs=32768),
    (6, 0): _sm(64, 32, 64, 48, new=False, partitions=2),
    (6, 1): _sm(64, 32, 96, 48, new=False),
    (6, 2): _sm(64, 32, 64, 48, new=False, block_regs=32768),
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
    """Limits of a compute capability; of the next lower of the same generation where it is not listed; None for a new one."""
    if cc is None:
        return None
    listed = [known for known in _LIMITS if known[0] == cc[0] and known[1] <= cc[1]]
    return _LIMITS[max(listed)] if listed else None


def active_blocks(sm: SmLimits | None, threads: Any, registers: Any, shared_bytes: Any) -> npt.NDArray[Any]:
    """Blocks that one multiprocessor holds at once.

    threads: per block; registers: per thread; shared_bytes: per block, static and dynamic together; each a number or a column
    of one length, -1 unknown. NaN where something is unknown, or where no block would fit: the kernel did run, so the limits
    are not those of its device.
    """
    import numpy as np

    block, regs, shared = np.broadcast_arrays(*(np.asarray(v, np.int64) for v in (threads, registers, shared_bytes)))
    if sm is None:
        return np.full(block.shape, np.nan)
    known = (block > 0) & (regs >= 0) & (shared >= 0)
    warps = _up(np.where(known, block, 1), _WARP_THREADS) // _WARP_THREADS
    fit = np.minimum(sm.max_blocks, sm.max_warps // warps)
    fit = np.minimum(fit, _fit_registers(sm, warps, np.where(known, regs, 0)))
    need = _up(np.where(known, shared, 0) + sm.shared_reserved_bytes, sm.shared_unit_bytes)
    fit = np.minimum(fit, np.where(need > 0, sm.shared_bytes // np.maximum(need, 1), sm.max_blocks))
    return np.where(known & (fit > 0), fit, np.nan)


def _fit_registers(sm: SmLimits, warps: npt.NDArray[Any], registers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Blocks that fit by registers: given to warps in units, from the register file of the part that the warp runs on."""
    import numpy as np

    per_warp = np.maximum(_up(registers * _WARP_THREADS, sm.register_unit), sm.register_unit)
    fit = sm.registers // sm.partitions // per_warp * sm.partitions // warps
    too_many = per_warp * _up(warps, sm.partitions) > sm.max_registers_per_block
    return np.where(too_many, 0, fit)


def _up(values: npt.NDArray[Any], unit: int) -> npt.NDArray[Any]:
    """Rounded up to a multiple of unit."""
    return -(-values // unit) * unit


def theoretical_occupancy(sm: SmLimits | None, threads: Any, active: Any) -> npt.NDArray[Any]:
    """Resident warps over the most there can be, as a fraction; active: what `active_blocks` gave."""
    import numpy as np

    blocks = np.asarray(active, np.float64)
    if sm is None:
        return np.full(blocks.shape, np.nan)
    warps = _up(np.asarray(threads, np.int64), _WARP_THREADS) // _WARP_THREADS
    return np.asarray(blocks * warps / sm.max_warps)


def waves(grid_blocks: Any, active: Any, sms: Any) -> npt.NDArray[Any]:
    """How often the device has to be filled: blocks of the grid over the blocks that all multiprocessors hold at once."""
    import numpy as np

    grid, count = np.asarray(grid_blocks, np.float64), np.asarray(sms, np.float64)
    held = np.where(count > 0, count, np.nan) * np.asarray(active, np.float64)
    return np.asarray(np.where(grid > 0, grid, np.nan) / held)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """One launch: blocks that a multiprocessor holds, its warps over the most there can be, and waves (None: unknown)."""

    active_blocks: int
    occupancy: float
    waves: float | None


def occupancy(
    cc: tuple[int, int] | None, threads: int, registers: int, shared_bytes: int, *, grid_blocks: int = -1, sms: int = -1
) -> Occupancy | None:
    """The same for a single launch; None where anything needed is unknown."""
    sm = limits(cc)
    active = active_blocks(sm, threads, registers, shared_bytes)
    if not active > 0:
        return None
    ratio = float(waves(grid_blocks, active, sms))
    return Occupancy(int(active), float(theoretical_occupancy(sm, threads, active)), ratio if ratio > 0 else None)
