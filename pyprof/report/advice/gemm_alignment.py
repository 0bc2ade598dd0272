"""Products whose rows do not begin at multiples of 16 bytes, so that their kernels load few elements at once, or fell off the
Tensor Cores altogether: padding the sizes saves what they take above the least of the padded product.

What other kernels read or write of such a product's result (its bias, a cast, the loss) has the same rows: padding saves what
they take above the least time of their bytes. Silent where a kernel's name says nothing of its loads, and about vectors, which
gain nothing by it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.columns.distinct import among, distinct_rows
from pyprof.columns.types import Floats, Ints
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.model.trace import ActivityKind
from pyprof.prof import formulas
from pyprof.report.advice.base import Advice, cut_ns, is_worth, mean_ns, named, places
from pyprof.report.advice.shared_products import HALVES, Products
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_WHOLE = {"bf16": 8, "fp16": 8, "tf32": 4}  # elements of 16 bytes: what one load of an aligned kernel takes
_SMALLEST = 16  # a product of vectors or of a few columns is bound by its bytes


def find(overview: Overview) -> Advice | None:
    """Products that padding would speed up."""
    products = Products(overview)
    whole = np.zeros(len(products.there), np.int64)
    for precision, elements in _WHOLE.items():
        whole[products.precision == precision] = elements
    align = products.of_kernel("align", 0)
    narrow = products.used & (align > 0) & (align < whole)
    off = among(products.precision, HALVES) & products.off & (products.of_kernel("family") != "cublas_gemv")
    peak = products.own_peak
    likely = products.of((narrow | off) & ~np.isnan(peak))
    likely = likely.take(likely.shaped)
    padded = _padded(overview, likely.rows, whole[likely.code])
    chosen, growth = likely.take(padded.growth > 0), padded.growth[padded.growth > 0]
    if not len(chosen.rows):
        return None
    least = chosen.least_ns(peak) * growth
    granted = cut_ns(overview, chosen.rows, chosen.exclusive_ns - least)
    others = _on_results(overview, padded.results)
    held_there = overview.division.exclusive_ns[others]
    granted = np.append(granted, cut_ns(overview, others, held_there - _least_ns(overview, others)))
    saves = mean_ns(overview, granted)
    if not is_worth(overview, saves):
        return None
    time, found = mean_ns(overview, chosen.exclusive_ns), places(overview, chosen.rows, chosen.exclusive_ns)
    there = f"; {len(others)} kernels on their results take {human(mean_ns(overview, held_there), 'ns')}" if len(others) else ""
    padded_ns = mean_ns(overview, np.minimum(least, chosen.exclusive_ns))
    evidence = (
        f"{len(chosen.rows)} products whose rows do not begin at multiples of 16 bytes take {human(time, 'ns')}, "
        f"{human(padded_ns, 'ns')} at the roofline of padded sizes{there}: {named(found)}"
    )
    do = f"pad {', '.join(padded.texts[:3])}: multiples of 16 bytes"
    return Advice(
        "gemm_alignment",
        Change(rows=np.append(chosen.rows, others), cut_ns=granted),
        time + mean_ns(overview, held_there),
        evidence,
        do,
        found,
    )


class _Padded(NamedTuple):
    """growth: how much the work of each product grows with its sizes padded, 0 where none would be; texts: the sizes in words,
    most time first; results: elements and last side of the matrices that they write, where that side is padded."""

    growth: Floats
    texts: list[str]
    results: set[tuple[int, int]]


def _padded(overview: Overview, rows: Ints, whole: Ints) -> _Padded:
    """Growth, sizes and results of these products when padded to whole loads."""
    records = overview.records
    distinct, _, inverse = distinct_rows(records["call"][rows], whole)
    growth, texts, results = np.zeros(distinct.shape[1]), [""] * distinct.shape[1], set[tuple[int, int]]()
    for at, (code, to) in enumerate(distinct.T.tolist()):
        sizes = _sizes(records.calls[code]) if code >= 0 else {}
        odd = {name: size for name, size in sizes.items() if size % to}
        if odd:
            growth[at] = np.prod([-(-size // to) * to / size for size in odd.values()])
            texts[at] = ", ".join(f"{name} {size} to {-(-size // to) * to}" for name, size in odd.items())
        cost = formulas.evaluate(records.calls[code]).cost if "N" in odd else None
        if cost is not None and cost.mnk is not None:
            results.add((cost.mnk[0] * cost.mnk[1] * cost.batch, cost.mnk[1]))
    time = np.bincount(inverse, overview.division.exclusive_ns[rows], distinct.shape[1])
    order = [texts[at] for at in np.argsort(-time, kind="stable").tolist() if texts[at]]
    return _Padded(growth[inverse], list(dict.fromkeys(order)), results)


def _on_results(overview: Overview, results: set[tuple[int, int]]) -> Ints:
    """The kernels, products aside, of ops on a matrix of one of these sizes whose bytes are known."""
    records, costs = overview.records, overview.frame.costs
    calls = [
        not formulas.matmul_class(call.name)
        and any(tensor.shape and (tensor.numel, tensor.shape[-1]) in results for tensor in call.tensors)
        for call in records.calls
    ]
    classes, on = overview.frame.classes, np.array([*calls, False], np.bool_)
    rows = classes.rows(on[classes.records["call"]] & (classes.records["kind"] == ActivityKind.KERNEL))
    return rows[overview.inside[rows] & (costs.of("bytes", rows) > 0)]


def _least_ns(overview: Overview, rows: Ints) -> Floats:
    """The least time of the bytes of each record; NaN if the device is not known."""
    frame = overview.frame
    dram = np.array([np.nan if gpu.dram_bytes_per_s is None else gpu.dram_bytes_per_s for gpu, _ in frame.gpus] + [np.nan])
    gpu = overview.records["gpu"][rows]
    least: Floats = frame.costs.of("bytes", rows) / dram[np.zeros_like(gpu) if frame.given is not None else gpu] * 1e9
    return least


def _sizes(call: OpCall) -> dict[str, int]:
    """The leading dimensions of a product's matrices; empty if unknown.

    The number of rows of a linear's input (tokens) is not one of them.
    """
    problem = formulas.evaluate(call).cost.mnk
    if problem is None or "conv" in call.op or min(problem) < _SMALLEST:
        return {}
    m, n, k = problem
    sizes = {"N": n}  # of what is written
    matrices = [tensor for tensor in call.tensors if len(tensor.shape) > 1]
    if call.op == "linear" or len(matrices) < 2:
        return sizes | {"K": k}
    left, right = matrices[-2:]
    sizes |= {"M": m} if _is_transposed(left) else {"K": k}
    return sizes | ({"K": k} if _is_transposed(right) else {})


def _is_transposed(tensor: TensorSpec) -> bool:
    """Whether the columns of its matrices, not the rows, lie in one piece; False where no strides are recorded."""
    return tensor.strides is not None and tensor.strides[-1] != 1 and tensor.strides[-2] == 1
