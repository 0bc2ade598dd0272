"""Products of fp32 matrices on a device that multiplies half types, or fp32 rounded to TF32, many times as fast.

Each saves its time above the least that the new precision allows: its FLOPs at that peak, its bytes (half of them in a half
type) at the memory's bandwidth. Where its FLOPs are not known it is held to run at the same share of its peak, or, where its
grid has few tiles in one direction, as its bytes allow. Silent about what Tensor Cores multiply already, and about fp64 and
complex matrices, which somebody asked for.
"""

from __future__ import annotations

import numpy as np

from pyprof.columns.distinct import among, distinct_values
from pyprof.columns.types import Bools, Floats, Ints
from pyprof.model.records import PHASES
from pyprof.model.trace import ActivityKind
from pyprof.report.advice.base import LEAST_SHARE, Advice, cut_ns, is_worth, mean_ns, named, places
from pyprof.report.advice.shared_products import HALVES, Products, SomeProducts
from pyprof.report.time.overview import Overview
from pyprof.report.time.replay import Change
from pyprof.tables.units import human

_FULL = ("fp32", "tf32x3")  # what fp32 operands are multiplied in where nothing rounds them
_FULL_BYTES, _HALF_BYTES = 4, 0.5  # of an element, and what is left of that in a half type
_TRANSFORMS = ("winograd_transform", "conv_fft_transform")
_BY_NAMES = 0.03  # of the wall time, where no more than names tell what the device can do
_BF16 = 8  # major compute capability of the first devices that have it
_THIN = ("cublas_gemv", "cuda_core_gemm")  # of vectors and a few columns: bound by their bytes whatever multiplies


def find(overview: Overview) -> Advice | None:
    """Products that would run in a half type."""
    products = Products(overview)
    full = among(products.math, _FULL) & among(products.precision, _FULL)
    single, half = products.peak("fp32"), products.peak("bf16")
    half = np.where(np.isnan(half), products.peak("fp16"), half)
    unknown = np.isnan(single) & np.isnan(half)  # of the device the names of its kernels tell the architecture alone
    single, half = np.where(unknown, 1.0, single), np.where(unknown, products.least_faster, half)
    if not overview.division.count:
        return _without_times(overview, products, full & (half > single))
    able = products.of(full & (half > single))
    if not len(able.rows):
        return None
    left, by_names = able.exclusive_ns, bool(unknown[able.code].all())
    new = _time_ns(products, able, left, single, half, _HALF_BYTES)
    other = _transforms(overview, able.rows)
    rows = np.concatenate([able.rows, other])
    granted = cut_ns(overview, rows, np.concatenate([left - new, overview.division.exclusive_ns[other]]))
    saves = mean_ns(overview, granted)
    if not is_worth(overview, saves, _BY_NAMES if by_names else LEAST_SHARE):
        return None
    rounded = left - _time_ns(products, able, left, single, np.where(products.amd, np.nan, products.peak("tf32")), 1.0)
    tf32 = mean_ns(overview, np.minimum(np.nan_to_num(rounded).clip(0).astype(np.int64), granted[: len(able.rows)]))
    bf16 = ~np.isnan(products.peak("bf16")) | unknown & (products.major >= _BF16)
    name = "bf16" if bf16[able.code].any() else "fp16"
    held = overview.division.exclusive_ns[rows]
    time, found = mean_ns(overview, held), places(overview, rows, held)
    share = 100 * saves / max(time, 1)
    evidence = f"{_evidence(overview, products, able, len(other), time)}; {name} saves at most {share:.0f} % of that"
    if by_names:
        evidence += (
            f" on a device without a name, by its kernels' names of compute capability {products.major[able.code].max()}.x"
        )
    do = _do(overview, name, tf32 if is_worth(overview, tf32) else 0)
    return Advice("reduced_precision", Change(rows=rows, cut_ns=granted), time, f"{evidence}: {named(found)}", do, found)


def _without_times(overview: Overview, products: Products, able: Bools) -> Advice | None:
    """Advice on records without times, only how long each kernel took: how much of the wall it saves is not known."""
    classes, records = overview.frame.classes, overview.records
    rows = classes.rows(able & products.there)
    kernels = np.flatnonzero(records["kind"] == ActivityKind.KERNEL)
    time, total = (int(np.maximum(records["dur_ns"][some], 0).sum()) for some in (rows, kernels))
    if not time or time <= LEAST_SHARE * total:
        return None
    bf16 = ~np.isnan(products.peak("bf16")) | (products.major >= _BF16)
    name, found = "bf16" if bf16[able].any() else "fp16", places(overview, rows, records["dur_ns"][rows])
    evidence = (
        f"{len(rows)} products of fp32 matrices take {human(time, 'ns')}, {100 * time / total:.0f} % of the kernels' time"
    )
    tf32 = ~np.isnan(products.peak("tf32")) | (products.major >= _BF16) & ~products.amd
    do = _do(overview, name, None if tf32[able].any() else 0)
    return Advice("reduced_precision", None, time, f"{evidence}: {named(found)}", do, found)


def _transforms(overview: Overview, products: Ints) -> Ints:
    """Kernels that only prepare fp32 convolutions for CUDA cores (Winograd's tiles, Fourier transforms) where these run."""
    classes, costs = overview.frame.classes, overview.frame.of_classes.costs
    transform = np.array([kernel.family in _TRANSFORMS for kernel in costs.kernels] + [False])[costs.kernel]
    name, gpu = overview.frame.of_classes.of_name(str), classes.records["gpu"]
    single = np.array(["<float" in text for text in name.pool] + [False])[name.codes]
    there = np.isin(gpu, distinct_values(gpu[classes.code[products]]))
    rows = classes.rows(transform & single & there)
    return rows[overview.inside[rows]]


def _time_ns(products: Products, some: SomeProducts, left: Ints, single: Floats, peak: Floats, share: float) -> Floats:
    """The time that some would take at a peak with this share of their bytes; left: what each takes without what others save;
    single: the peak in fp32."""
    vectors = among(products.of_kernel("family"), _THIN)
    full = np.where(products.math == "tf32x3", products.peak("tf32") / 3, single)
    moved = full / products.dram * _FULL_BYTES * share / products.reuse  # time of its bytes over time of its FLOPs now
    ratio = np.where(vectors, share, np.maximum(full / peak, np.nan_to_num(np.minimum(moved, share))))
    return np.where(some.shaped, some.least_ns(peak, share), left * np.minimum(ratio, 1)[some.code])


def _evidence(overview: Overview, products: Products, able: SomeProducts, transforms: int, time_ns: int) -> str:
    """How many they are and how long they take."""
    share = 100 * time_ns / max(overview.busy_ns, 1)
    what = f"{len(able.rows)} products of fp32 matrices" + " and their transforms" * (transforms > 0)
    text = f"{what} take {human(time_ns, 'ns')}, {share:.0f} % of the busy time"
    if not able.shaped.all():
        text += " (FLOPs not known: by their kernels' names)"
    fast = products.used & among(products.precision, HALVES)
    fast[able.code] = False
    if products.of(fast).exclusive_ns.sum() > able.exclusive_ns.sum():
        text += ", beside others that run in half precision"
    return text


def _do(overview: Overview, name: str, tf32_ns: int | None) -> str:
    """The line to write. tf32_ns: what TF32 saves, None unknown."""
    classes = overview.frame.classes
    rows = classes.rows(among(classes.records["phase"], (PHASES.index("backward"), PHASES.index("optimizer"))))
    training = (overview.inside[rows] | (overview.division.count == 0)).any()
    dtype = {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[name]
    tf32 = "TF32" + (f", at most {human(tf32_ns, 'ns')}" if tf32_ns else "")
    if not overview.uses_torch:
        tf32 = f"; or cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH): {tf32}"
        return f"matrices in {name}, sums in fp32 (cublasGemmEx), where the accuracy allows" + tf32 * (tf32_ns != 0)
    text = f'torch.autocast("cuda", dtype={dtype}) around forward and loss'
    if name == "fp16" and training:
        text += ", torch.amp.GradScaler() for backward"
    if tf32_ns != 0:
        text += f'; or torch.set_float32_matmul_precision("high"): {tf32}'
    return text
