"""Products of fp32 matrices on a device that multiplies half types, or fp32 rounded to TF32, many times as fast.

Each saves its time above the least that the new precision allows: its FLOPs at that peak, its bytes (half of them in a half
type) at the memory's bandwidth. Where its FLOPs are not known it is held to run at the same share of its peak. Silent about
what Tensor Cores multiply already, and about fp64 and complex matrices, which somebody asked for.
"""

from __future__ import annotations

import numpy as np

from pyprof.arrays.types import Bools, Floats, Ints
from pyprof.parse.records.records import PHASES
from pyprof.report.advice.base import Advice, Budget, is_worth, named, places
from pyprof.report.advice.products import HALVES, Products
from pyprof.report.overview import Overview
from pyprof.tables.units import human

_FULL = ("fp32", "tf32x3")  # what fp32 operands are multiplied in where nothing rounds them
_HALF_BYTES = 0.5
_THIN = ("cublas_gemv", "cuda_core_gemm")  # of vectors and a few columns: bound by their bytes whatever multiplies


def find(overview: Overview, budget: Budget) -> Advice | None:
    """Products that would run in a half type."""
    products = Products(overview)
    full = np.isin(products.math, _FULL) & np.isin(products.precision, _FULL)
    half = np.where(np.isnan(products.peak("bf16")), products.peak("fp16"), products.peak("bf16"))
    able = full & (half > products.peak("fp32"))
    if not able.any():
        return None
    left = budget.left_ns(products.rows)
    new = _time_ns(products, left, half, _HALF_BYTES)
    granted = budget.take(products.rows[able], (left - new)[able])
    saves = budget.wall_ns(granted)
    if not is_worth(overview, saves):
        return None
    rounded = left - _time_ns(products, left, np.where(products.amd, np.nan, products.peak("tf32")), 1.0)
    tf32 = budget.wall_ns(np.minimum(np.nan_to_num(rounded[able]).clip(0).astype(np.int64), granted))
    name = "bf16" if (~np.isnan(products.peak("bf16"))[able]).any() else "fp16"
    time = int(products.held_ns[able].sum())
    found = places(overview, products.rows[able], products.held_ns[able])
    evidence = _evidence(overview, products, able, name, granted.sum() / max(time, 1)) + f": {named(found)}"
    do = _do(overview, name, tf32 if is_worth(overview, tf32) else 0)
    return Advice("reduced_precision", saves, budget.wall_ns(products.held_ns[able]), evidence, do, found)


def _time_ns(products: Products, left: Ints, peak: Floats, share: float) -> Floats:
    """The time that each would take at a peak with this share of its bytes; left: what it takes without what others save."""
    vectors = np.isin(products.of_kernel("family").astype(np.str_), _THIN)
    ratio = np.where(vectors, share, products.peak("fp32") / peak)
    return np.where(products.shaped, products.least_ns(peak, share), left * np.minimum(ratio, 1))


def _evidence(overview: Overview, products: Products, able: Bools, name: str, share: float) -> str:
    time = int(products.held_ns[able].sum()) // max(overview.division.count, 1)
    whole = max(overview.busy_ns, 1)
    text = f"{int(able.sum())} products of fp32 matrices take {human(time, 'ns')}, {100 * time / whole:.0f} % of the busy time"
    if not products.shaped[able].all():
        text += " (FLOPs not known: by their kernels' names)"
    other = ~able & products.used & np.isin(products.precision, HALVES)
    if products.held_ns[other].sum() > products.held_ns[able].sum():
        text += ", beside others that run in half precision"
    return f"{text}; {name} saves at most {100 * share:.0f} % of that"


def _do(overview: Overview, name: str, tf32_ns: int) -> str:
    """The line to write."""
    phase = overview.records["phase"][overview.inside]
    training = np.isin(phase, (PHASES.index("backward"), PHASES.index("optimizer"))).any()
    dtype = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[name]
    text = f'torch.autocast("cuda", dtype={dtype}) around forward and loss'
    if name == "fp16" and training:
        text += ", torch.amp.GradScaler() for backward"
    if tf32_ns:
        text += f'; or torch.set_float32_matmul_precision("high"): TF32, at most {human(tf32_ns, "ns")}'
    return text
