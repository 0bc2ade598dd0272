"""Products whose rows do not begin at multiples of 16 bytes, so that their kernels load few elements at once, or fell off the
Tensor Cores altogether: padding the sizes saves what they take above the least of the padded product.

Silent where a kernel's name says nothing of its loads, and about vectors, which gain nothing by it.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.columns import distinct_rows
from pyprof.arrays.types import Floats, Ints
from pyprof.opcall import OpCall, TensorSpec
from pyprof.prof import formulas
from pyprof.report.advice.base import Advice, Budget, is_worth, named, places
from pyprof.report.advice.products import HALVES, Products
from pyprof.report.overview import Overview
from pyprof.tables.units import human

_WHOLE = {"bf16": 8, "fp16": 8, "tf32": 4}  # elements of 16 bytes: what one load of an aligned kernel takes
_SMALLEST = 16  # a product of vectors or of a few columns is bound by its bytes


def find(overview: Overview, budget: Budget) -> Advice | None:
    """Products that padding would speed up."""
    products = Products(overview)
    whole = np.array([_WHOLE.get(name, 0) for name in products.precision.tolist()], np.int64)
    align = np.array([0 if one is None else one for one in products.of_kernel("align").tolist()], np.int64)
    narrow = products.used & (align > 0) & (align < whole)
    off = np.isin(products.precision, HALVES) & products.off & (products.of_kernel("family") != "cublas_gemv")
    peak = products.own_peak
    likely = np.flatnonzero((narrow | off) & products.shaped & ~np.isnan(peak))
    growth, texts = _padded(overview, products.rows[likely], whole[likely])
    chosen, growth = likely[growth > 0], growth[growth > 0]
    if not len(chosen):
        return None
    held = products.held_ns[chosen]
    left = budget.left_ns(products.rows[chosen])
    least = products.least_ns(peak)[chosen] * growth
    granted = budget.take(products.rows[chosen], left - least)
    saves = budget.wall_ns(granted)
    if not is_worth(overview, saves):
        return None
    time, found = budget.wall_ns(held), places(overview, products.rows[chosen], held)
    evidence = (
        f"{len(chosen)} products whose rows do not begin at multiples of 16 bytes take {human(time, 'ns')}, "
        f"{human(budget.wall_ns(np.minimum(least, held)), 'ns')} at the roofline of padded sizes: {named(found)}"
    )
    return Advice("gemm_alignment", saves, time, evidence, f"pad {', '.join(texts[:3])}: multiples of 16 bytes", found)


def _padded(overview: Overview, rows: Ints, whole: Ints) -> tuple[Floats, list[str]]:
    """By how much the work of each grows with its sizes padded, 0 where none would be; the sizes in words, most time first."""
    records = overview.records
    distinct, _, inverse = distinct_rows(records["call"][rows], whole)
    growth, texts = np.zeros(distinct.shape[1]), [""] * distinct.shape[1]
    for at, (code, to) in enumerate(distinct.T.tolist()):
        sizes = _sizes(records.calls[code]) if code >= 0 else {}
        odd = {name: size for name, size in sizes.items() if size % to}
        if odd:
            growth[at] = np.prod([-(-size // to) * to / size for size in odd.values()])
            texts[at] = ", ".join(f"{name} {size} to {-(-size // to) * to}" for name, size in odd.items())
    time = np.bincount(inverse, overview.division.held_ns[rows], distinct.shape[1])
    order = [texts[at] for at in np.argsort(-time, kind="stable").tolist() if texts[at]]
    return growth[inverse], list(dict.fromkeys(order))


def _sizes(call: OpCall) -> dict[str, int]:
    """The sizes by which the rows of a product's matrices follow each other in memory; empty where that is not known.

    The number of rows of a linear's input (tokens) is none of them.
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
