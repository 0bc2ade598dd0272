"""Matrix products that ran without Tensor Cores although the device has them for the dtype, or on them with narrow loads.

A change can save at most their time less the least time that the same product takes on Tensor Cores.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.dtypes import lookup
from pyprof.prof.frame import Frame, operand_tag
from pyprof.report.advice.advice import Advice, where

__all__ = ["products"]

_LOAD_BYTES = 16  # what one load of a Tensor Core kernel takes where operands are aligned to it


def products(frame: Frame) -> list[Advice]:
    """One advice for each (problem, kernel, dtype, device)."""
    records, costs = frame.records, frame.costs
    codes, verdicts = frame.verdicts
    off, used = where(lambda verdict: verdict.tc == "0", verdicts, codes), where(lambda v: v.tc == "1", verdicts, codes)
    aligned = where(lambda kernel: kernel.align is not None, costs.kernels, costs.kernel)
    candidate = (off | used & aligned) & (costs.matmul_flops > 0) & (costs.bytes >= 0) & (costs.problem >= 0)
    rows = np.flatnonzero(candidate & (records["call"] >= 0))
    names = frame.short_names
    # Convolutions have other sizes and switches: no advice on them.
    tags = [None if "conv" in call.op else operand_tag(call) for call in records.calls]
    pool = sorted({tag for tag in tags if tag})
    tag = np.array([pool.index(t) if t else -1 for t in tags], np.int64)[records["call"][rows]]
    distinct, first, inverse = distinct_rows(costs.problem[rows], names.codes[rows], tag, records["gpu"][rows])
    changes: dict[int, tuple[str, str]] = {}
    peaks, drams = (np.full(distinct.shape[1], np.nan) for _ in range(2))
    for number, (problem, name, kind, gpu) in enumerate(distinct.T.tolist()):
        if kind < 0 or name < 0 or not 0 <= gpu < len(frame.gpus):
            continue
        device, dtype, one = frame.gpus[gpu][0], pool[kind], rows[first[number]]
        align = costs.kernels[costs.kernel[one]].align if used[one] else None
        change = _change(dtype, costs.problems[problem], align)
        peak, dram = device.peaks.get("tf32" if dtype == "fp32" else dtype), device.dram_bytes_per_s
        if change is not None and peak and dram:
            changes[number], peaks[number], drams[number] = change, peak, dram
    least = np.maximum(costs.matmul_flops[rows] / peaks[inverse], costs.bytes[rows] / drams[inverse]) * 1e9
    time, size = records["dur_ns"][rows], distinct.shape[1]
    saves, spent = (np.bincount(inverse, values, size) for values in (np.maximum(time - least, 0), time))
    count = np.bincount(inverse, minlength=size)
    found = []
    for number, change in changes.items():
        problem, name, kind, _ = distinct[:, number].tolist()
        m, n, k, batch = costs.problems[problem]
        evidence = f"{count[number]} x {names.pool[name]}, {pool[kind]} m={m} n={n} k={k} batch={batch}"
        if int(saves[number]) > 0:
            found.append(Advice(*change, evidence, int(spent[number]), int(saves[number])))
    return found


def _change(dtype: str, problem: tuple[int, int, int, int], align: int | None) -> tuple[str, str] | None:
    """(title, change), naming only sizes that are not multiples; None where nothing can be advised.

    align: elements that one load of a kernel on Tensor Cores takes, None without Tensor Cores.
    """
    if dtype not in ("fp16", "bf16", "fp32"):
        return None
    if align is None and dtype == "fp32":
        return "fp32 product without Tensor Cores", 'allow TF32: torch.set_float32_matmul_precision("high")'
    found = lookup(dtype)
    aligned = _LOAD_BYTES * 8 // found.bits if found is not None else 1
    if align is not None and align >= aligned:
        return None
    odd = [(axis, size, -(-size // aligned) * aligned) for axis, size in zip("mnk", problem, strict=False) if size % aligned]
    title = f"{dtype} product without Tensor Cores"
    if align is not None:
        title = f"{dtype} product with loads of {align} element{'s' * (align > 1)} at once"
    if not odd:
        return title, f"sizes are multiples of {aligned}: look at strides and alignment"
    return title, "pad " + ", ".join(f"{axis} {size} to {to}" for axis, size, to in odd)
