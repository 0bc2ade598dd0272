"""Costs, verdicts and the device -> what would make the program faster, each with its evidence and the most that it can save.

Only what was measured speaks: matrix products that ran without Tensor Cores although the device has them for the type. What
they can save at most is their time less the least time that the same product takes there. No text is laid out here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.parse.distinct import distinct_rows
from pyprof.prof.frame import Frame, operand_tag

__all__ = ["Advice", "advise"]

_HALF = ("fp16", "bf16")
_MULTIPLE = 8  # elements of 16 bits in the 16 bytes that a load of a Tensor Core kernel takes at once


@dataclass(frozen=True)
class Advice:
    """One piece. title: what was found; change: what to do; evidence: kernel, problem and counts; time_ns: what these kernels
    took; saves_ns: the most that the change can save."""

    title: str
    change: str
    evidence: str
    time_ns: int
    saves_ns: int


def advise(frame: Frame) -> list[Advice]:
    """All advice on a frame, that which can save most first; one piece for each (problem, kernel, type, device)."""
    records, costs = frame.records, frame.costs
    codes, verdicts = frame.verdicts
    off = np.array([v.tc == "0" for v in verdicts] + [False])[codes]
    rows = np.flatnonzero(off & (costs.matmul_flops > 0) & (costs.bytes >= 0) & (costs.problem >= 0) & (records["call"] >= 0))
    names = frame.short_names
    # The sizes and switches of convolutions are others: nothing is said of them.
    tags = [None if "conv" in call.op else operand_tag(call) for call in records.calls]
    pool = sorted({tag for tag in tags if tag})
    tag = np.array([pool.index(t) if t else -1 for t in tags], np.int64)[records["call"][rows]]
    distinct, _, inverse = distinct_rows(costs.problem[rows], names.codes[rows], tag, records["gpu"][rows])
    found = []
    for number, (problem, name, kind, gpu) in enumerate(distinct.T.tolist()):
        if kind < 0 or name < 0 or not 0 <= gpu < len(frame.gpus):
            continue
        device, dtype = frame.gpus[gpu][0], pool[kind]
        peak, dram = device.peaks.get("tf32" if dtype == "fp32" else dtype), device.dram_bytes_per_s
        if dtype not in (*_HALF, "fp32") or not peak or not dram:
            continue
        mine = rows[inverse == number]
        least = np.maximum(costs.matmul_flops[mine] / peak, costs.bytes[mine] / dram) * 1e9
        time = records["dur_ns"][mine]
        saves = int(np.maximum(time - least, 0).sum())
        title, change = _change(dtype, costs.problems[problem])
        m, n, k, batch = costs.problems[problem]
        evidence = f"{len(mine)} x {names.pool[name]}, {dtype} m={m} n={n} k={k} batch={batch}"
        if saves > 0:
            found.append(Advice(title, change, evidence, int(time.sum()), saves))
    return sorted(found, key=lambda a: (-a.saves_ns, a.evidence))


def _change(dtype: str, problem: tuple[int, int, int, int]) -> tuple[str, str]:
    """What to do; sizes are named only where they are not multiples."""
    if dtype == "fp32":
        return "fp32 product without Tensor Cores", "allow TF32: torch.backends.cuda.matmul.allow_tf32 = True"
    title = f"{dtype} product without Tensor Cores"
    odd = [
        (axis, size, -(-size // _MULTIPLE) * _MULTIPLE) for axis, size in zip("mnk", problem, strict=False) if size % _MULTIPLE
    ]
    if not odd:
        return title, f"sizes are multiples of {_MULTIPLE}: look at strides and alignment"
    return title, "pad " + ", ".join(f"{axis} {size} to {to}" for axis, size, to in odd)
