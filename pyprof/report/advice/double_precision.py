"""Ops on tensors of fp64: in fp32 they move half of the bytes, and of products many GPUs do up to 64 times as many a second.

Each takes as long as its bytes and FLOPs then allow, at the share of the limits that it reaches now; half of its time where its
FLOPs are not known, or on a CPU, where a vector holds twice as many numbers. Copies and ops on other floating types as well are
left out: they may be what converts.
"""

from __future__ import annotations

import numpy as np

from pyprof.model.trace import ActivityKind
from pyprof.prof.formulas import is_copy
from pyprof.report.advice.base import Advice, counted, cut_ns, is_worth, mean_ns, named, places, told
from pyprof.report.advice.shared_products import Products
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change

_LEAST = 0.02  # of the wall time: a sum or a loss in fp64 is there on purpose
_OVERHEAD_NS = {True: 2_000, False: 10_000}  # of a kernel, or of an op on a CPU: what no type makes shorter
_DO = (
    "fp32 where nothing needs 16 digits: model.float(), and dtype=torch.float32 where a tensor is made of NumPy's float64 "
    "(torch.from_numpy, torch.tensor)"
)


def find(overview: Overview) -> Advice | None:
    """All ops whose floating tensors are of fp64 alone."""
    classes, frame = overview.frame.classes, overview.frame
    calls = overview.records.calls
    types = [{tensor.dtype for tensor in call.tensors if "float" in (tensor.dtype or "")} for call in calls]
    alone = [one == {"float64"} and not is_copy(call.name) for one, call in zip(types, calls, strict=True)]
    double = np.array([*alone, False], np.bool_)[classes.records["call"]]
    on_gpu = overview.division.on_gpu
    rows = classes.rows(double & (classes.records["kind"] == (ActivityKind.KERNEL if on_gpu else ActivityKind.CPU)))
    rows = rows[overview.inside[rows]]
    if not len(rows):
        return None
    held, code = overview.division.exclusive_ns[rows], classes.code[rows]
    share = np.full(len(rows), 0.5)  # of the time that is left
    if on_gpu:
        products = Products(overview)
        flops, moved = frame.costs.of("matmul_flops", rows), np.maximum(frame.costs.of("bytes", rows), 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            bytes_s = moved / products.dram[code]
            double_peak = np.fmax(products.peak("fp64"), products.peak("fp64_tensor"))
            now, then = (np.maximum(flops / peak[code], 0) for peak in (double_peak, products.peak("fp32")))
            known = np.maximum(bytes_s / 2, np.minimum(then, now)) / np.maximum(bytes_s, now)
        share = np.where((flops > 0) & ~np.isnan(known), known, share)
    granted = cut_ns(overview, rows, held - np.maximum(share * held, _OVERHEAD_NS[on_gpu]))
    saves, time = mean_ns(overview, granted), mean_ns(overview, held)
    if not is_worth(overview, saves, _LEAST):
        return None
    found = places(overview, rows, held)
    number = counted(len(rows), "kernel" if on_gpu else "op")
    evidence = f"{number} of fp64 tensors, {told(time)} of {told(overview.busy_ns)} busy"
    return Advice("double_precision", Change(rows=rows, cut_ns=granted), time, f"{evidence}: {named(found)}", _DO, found)
