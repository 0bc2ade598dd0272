"""A kernel's name -> its class; class, op, dtype and device -> whether it used Tensor Cores.

kernels.csv holds one rule a row, tried in order; the first that matches a normalised name decides. Columns: id; regex; family;
kind (gemm, conv, attention, rnn: products of matrices; memory, copy, comm: none; unknown); role (main, or aux: work around a
product, such as split-K reductions and layout changes); unit; tensor_core (yes, no; arch: depends on device, dtype and
settings); reads (a precision, or a reader of `precision`); certainty; example (a name that this row and no earlier one
matches); note.

Must not know file formats or costs. A name that no rule matches is of family `unknown`; nothing is guessed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from pyprof.hardware.names import demangle, may_match, normalise
from pyprof.hardware.precision import read_precision
from pyprof.model.dtypes import DType, lookup

Capability = tuple[int, int]

_PRODUCTS = frozenset({"gemm", "conv", "attention", "rnn"})
_TensorCore = Literal["yes", "no", "arch"]


class KernelClass(NamedTuple):
    """Class of a kernel by its name alone.

    unit: hmma, imma, dmma, qmma, omma (mma.sync by operand type), wgmma, tcgen05, mfma; mma (a matrix instruction, which one
    depends on the device, see `verdict`); fma, dfma, hfma2 (CUDA cores); memory, copy, comm; unknown. precision, accumulator:
    '' if not in the name. align: alignment of the operands in elements, None if not in the name. min_cc: the lowest compute
    capability that the name's architecture prefix runs on; the device may be newer. rule: id of the row of kernels.csv, '' if
    none matches. is_product: whether this kernel itself multiplies matrices, and so shares its op's FLOPs.
    """

    family: str
    kind: str
    role: Literal["main", "aux"]
    unit: str
    tensor_core: _TensorCore
    precision: str
    accumulator: str
    align: int | None
    certainty: str
    min_cc: Capability | None
    rule: str
    is_product: bool


class Rule(NamedTuple):
    """One row of kernels.csv. kernel: facts about kernels that match, before details are read from their names."""

    regex: str
    reads: str
    example: str
    kernel: KernelClass


_TENSOR_CORE: dict[str, _TensorCore] = {"yes": "yes", "no": "no", "arch": "arch"}


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """The rows of kernels.csv in order."""
    text = Path(__file__).with_name("kernels.csv").read_text(encoding="utf-8")
    found = []
    for row in csv.DictReader(text.splitlines()):
        kernel = _UNKNOWN._replace(
            family=row["family"],
            kind=row["kind"],
            role="aux" if row["role"] == "aux" else "main",
            unit=row["unit"],
            tensor_core=_TENSOR_CORE[row["tensor_core"]],
            certainty=row["certainty"],
            rule=row["id"],
            is_product=row["role"] != "aux" and row["kind"] in _PRODUCTS,
        )
        found.append(Rule(row["regex"], row["reads"], row["example"], kernel))
    return tuple(found)


_UNKNOWN = KernelClass("unknown", "unknown", "main", "unknown", "arch", "", "", None, "", None, "", False)
_ALIGN = re.compile(r"align[abc]?_?(\d+)")
_TAG = re.compile(r"[sS][mM]_?(\d{2,3})(?!\d)")
_PREFIXES = (("ampere_", (8, 0)), ("turing_", (7, 5)), ("volta_", (7, 0)), ("hopper_", (9, 0)))
_SM_PREFIX = re.compile(r"(?:^|[^A-Za-z\d])(?:sm|cutlass3x_sm|nvjet_sm)(\d{2,3})(?:_|[af]_)")
_CUTLASS_TILE = re.compile(r"cutlass_(\d\d)_(?:wmma_)?(?:sp)?tensorop")
_LONGEST = 1 << 12  # characters; hardly a name is longer, and the rules can take time of the square of it


@lru_cache(maxsize=1 << 14)
def classify(name: str) -> KernelClass:
    """The class of a kernel by its name in any tool's spelling, mangled or not. Cached."""
    text = normalise(demangle(name))[:_LONGEST]
    for rule in rules():
        # Compiling all the patterns would take longer than reading a small capture; `re` keeps those that are used.
        if may_match(rule.regex, text) and re.search(rule.regex, text):
            break
    else:
        return _UNKNOWN
    precision, accumulator = read_precision(rule.reads, text)
    kernel = rule.kernel._replace(precision=precision, accumulator=accumulator)
    kernel = kernel._replace(unit=_unit(kernel, text))
    if kernel.kind in _PRODUCTS:
        align = min(map(int, _ALIGN.findall(text)), default=None)
        prefixed = next((capability for prefix, capability in _PREFIXES if prefix in text), None)
        if prefixed is None and (tag := _SM_PREFIX.search(text) or _CUTLASS_TILE.search(text)):
            prefixed = (int(tag[1][:-1]), int(tag[1][-1]))
        kernel = kernel._replace(align=align, min_cc=prefixed)
    # nvjet_sss_ without the tf32 mark has not been observed; TF32 is inferred, since the library uses it for fp32 operands.
    inferred = kernel.rule == "nvjet" and precision == "tf32" and "_tf32_" not in text
    return kernel._replace(certainty="medium") if inferred else kernel


def is_of(name: str, families: Collection[str]) -> bool:
    """Whether the kernel of this name is of one of the families; most others are told without trying all rules."""
    text = normalise(demangle(name))[:_LONGEST]
    if not any(may_match(rule.regex, text) for rule in rules() if rule.kernel.family in families):
        return False
    return classify(name).family in families


_SYNC_UNITS = {"fp64": "dmma", "int8": "imma", "int4": "imma", "int1": "imma", "fp8": "qmma", "fp6": "qmma", "fp4": "omma"}


def _unit(kernel: KernelClass, text: str) -> str:
    """The unit of a rule's kernels, made precise by the name."""
    unit = kernel.unit
    if unit == "xmma":
        unit = "wgmma" if "sm90" in text and "warpgroupsize" in text else "hmma"
    elif unit == "tag":
        tags = [int(t) for t in _TAG.findall(text)]
        # compute_attn_ws is FlashAttention 3 before it carried a tag: Hopper only.
        major = max(tags) // 10 if tags else (9 if kernel.rule == "flash_attn3" else 0)
        unit = _unit_by_major(major) if major else "mma"
    elif unit == "mma":
        tag = _SM_PREFIX.search(text)
        unit = _unit_by_major(int(tag[1]) // 10) if tag and kernel.family.startswith("nvjet") else "mma"
    if unit == "hmma":
        return _SYNC_UNITS.get(kernel.precision, "hmma")
    if unit == "fma" and kernel.precision == "fp64":
        return "dfma"
    if unit == "fma" and kernel.precision == kernel.accumulator == "fp16":
        return "hfma2"
    return unit


def _unit_by_major(major: int) -> str:
    """The matrix instruction of kernels written for a compute capability."""
    if major == 9:
        return "wgmma"
    return "tcgen05" if major in (10, 11) else "hmma"


class Verdict(NamedTuple):
    """Whether a kernel used Tensor Cores.

    tc: '1' used; '0' a matrix product without them although the device has a path for the dtype; '-' not applicable; None
    unknown. unit, math: the unit and the precision that ran ('' if none or unknown); reason: why, in a few words, '' for '1'.
    """

    tc: Literal["1", "0", "-"] | None
    unit: str
    math: str
    reason: str


# The first compute capability whose Tensor Cores multiply a type, and all of them for fp64 (which gains nothing on consumer
# parts and on 10.3). fp32 means TF32. CUDA programming guide, arithmetic instructions by compute capability.
_FIRST_PATH: dict[str, Capability] = {
    "fp16": (7, 0), "bf16": (8, 0), "fp32": (8, 0), "tf32": (8, 0), "int8": (7, 2), "int4": (7, 5), "fp8": (8, 9),
    "fp6": (10, 0), "fp4": (10, 0),
}  # fmt: skip
_FP64_PATH: frozenset[Capability] = frozenset({(8, 0), (9, 0), (10, 0)})


def has_tensor_path(dtype: str, cc: Capability) -> bool | None:
    """Whether the Tensor Cores of a device multiply matrices of a type (`bf16`, `fp32` as TF32, ...); None if unknown."""
    if dtype == "fp64":
        return cc in _FP64_PATH
    first = _FIRST_PATH.get(dtype)
    return None if first is None else cc >= first


def verdict(
    kernel: KernelClass, *, op_dtype: str | None, matmul: bool | None, cc: Capability | None, amd: bool = False
) -> Verdict:
    """Decide from the name, the op and the device together.

    op_dtype: element type of the op's operands in any spelling, None unknown; matmul: whether the op multiplies matrices, None
    unknown, as without an op or of one without a formula; cc: compute capability, None unknown (then only the name decides);
    amd: a device of AMD, on which "Tensor Cores" are the matrix cores (MFMA).
    """
    found = lookup(op_dtype)
    dtype = found.matmul if found else ""
    if matmul is False and (kernel.kind == "unknown" or kernel.rule in _BY_A_WORD) and kernel.role == "main":
        return Verdict("-", "unknown", "", "the op multiplies no matrices")
    if kernel.kind == "unknown" and kernel.role == "main":
        return Verdict(None, "unknown", "", "the name does not say")
    if not kernel.is_product:
        return Verdict("-", kernel.unit, "", "no product of matrices in this kernel")
    if amd:
        return _of_amd(kernel, dtype)
    if kernel.tensor_core == "yes":
        precision = kernel.precision or dtype
        return Verdict("1", _on_device(kernel, cc, dtype), "tf32" if precision == "fp32" else precision, "")
    if kernel.tensor_core == "no":
        return _without(kernel, dtype, cc)
    return _by_device(kernel, dtype, cc)


# Types that the matrix cores of every AMD device since gfx908 multiply; fp32 as it is, not as TF32 (CDNA instruction set).
_MFMA_TYPES = frozenset({"fp64", "fp32", "fp16", "bf16", "int8"})


def _of_amd(kernel: KernelClass, dtype: str) -> Verdict:
    """A product of matrices on a device of AMD."""
    precision = kernel.precision or dtype
    if kernel.tensor_core == "yes" or (precision in _HALVES and kernel.rule in _NARROW_MEANS_TENSOR):
        return Verdict("1", "mfma", precision, "")
    if kernel.tensor_core == "no" and precision in _MFMA_TYPES:
        return Verdict("0", kernel.unit, "fp64" if precision == "fp64" else "fp32", f"{precision} product on vector units")
    return Verdict(None, "unknown", "", "the name does not say" if precision else "the dtype is not known")


def _on_device(kernel: KernelClass, cc: Capability | None, dtype: str) -> str:
    """The unit of a Tensor Core kernel, made precise by the device."""
    if kernel.unit != "mma":
        return kernel.unit
    if cc is None:
        return "mma"
    if cc[0] == 9 and cc[1] > 0:  # gfx942 and later of AMD; NVIDIA's devices of this major number are 9.0
        return "mfma"
    unit = _unit_by_major(cc[0])
    return _SYNC_UNITS.get(kernel.precision or dtype, "hmma") if unit == "hmma" else unit


def _without(kernel: KernelClass, dtype: str, cc: Capability | None) -> Verdict:
    """A matrix product on CUDA cores: '0' if the device has a Tensor Core path for the type, else not applicable."""
    precision = kernel.precision or dtype
    # FMA units widen half types when they load them; only HFMA2 computes in them.
    math = "fp64" if precision == "fp64" else "fp16" if kernel.unit == "hfma2" else "fp32" if precision else ""
    # The name's prefix is a lower bound of the device, which is enough to know that a path exists.
    known = cc or kernel.min_cc
    path = has_tensor_path(precision, known) if known and precision else None
    if path:
        return Verdict("0", kernel.unit, math, _why_not(kernel, precision))
    if path is False and cc is not None:
        return Verdict("-", kernel.unit, math, f"this device has no Tensor Core path for {precision}")
    return Verdict(None, kernel.unit, math, "the device is not known" if cc is None else "the dtype is not known")


def _why_not(kernel: KernelClass, precision: str) -> str:
    if kernel.family == "cublas_gemv":
        return "matrix times vector or a few columns: runs on CUDA cores"
    if kernel.family in ("sass_winograd_conv", "sass_fft_conv"):
        return "Winograd or FFT algorithm on CUDA cores"
    if precision == "fp32":
        return "TF32 off"
    return f"{precision} product on CUDA cores"


# Products by a word that anybody may put into a name: an op that is known to have none knows better.
_BY_A_WORD = frozenset(
    "triton_attention triton_matmul linear_attention xla_product tensorrt_myelin_product product_other".split()
)
_HALVES = frozenset({"fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4"})
# tl.dot and the fused products of CUTLASS and cuDNN compute narrow types with matrix instructions only.
_NARROW_MEANS_TENSOR = frozenset(
    (
        "inductor_template triton_matmul triton_jagged_bmm aiter_triton_gemm triton_ogs triton_attention linear_attention "
        "cutlass_device_gemm grouped_gemm paged_attn_prefill xla_product"
    ).split()
)


def _by_device(kernel: KernelClass, dtype: str, cc: Capability | None) -> Verdict:
    """A product whose unit is not in its name: decided if dtype and device leave no choice."""
    precision = kernel.precision or dtype
    if cc is None or not precision:
        return Verdict(None, "unknown", "", "the device is not known" if cc is None else "the dtype is not known")
    path = has_tensor_path(precision, cc)
    if path is False:
        unit = "dfma" if precision == "fp64" else "fma"
        return Verdict("-", unit, precision, f"this device has no Tensor Core path for {precision}")
    if path and precision in _HALVES and kernel.rule in _NARROW_MEANS_TENSOR:
        return Verdict("1", _on_device(kernel, cc, dtype), precision, "")
    reason = "TF32 or fp32, the name does not say" if precision == "fp32" else "the name does not say"
    return Verdict(None, "unknown", "", reason)


# The element type of the tensors in a list that one kernel joined or updated, from its template arguments.
_ELEMENT = re.compile(r"\b(?:CatArrayBatchedCopy\w*|\w*(?:Op|Op\w*List\w*|OpScalar\w*|Math)Functor)<([\w:() ]+(?:<[\w:]+>)?)")
_OPAQUE = re.compile(r"OpaqueType<(\d)u?>$")
# Of elements that are only moved the name has the width alone.
_BY_WIDTH = {"1": "bits8", "2": "bits16", "4": "int32", "8": "int64"}


@cache
def element_type(name: str) -> DType | None:
    """The type of `CatArrayBatchedCopy<float, ...>` and of the functors of `multi_tensor_apply_kernel`; None for other kernels.

    `OpaqueType<2>` stands for any type of two bytes: the type that is returned has that width, and may be another.
    """
    found = _ELEMENT.search(normalise(demangle(name)))
    if found is None:
        return None
    opaque = _OPAQUE.search(found[1])
    return lookup(_BY_WIDTH.get(opaque[1]) if opaque else found[1])


def families_text() -> str:
    """One line a family of kernels: kind, role, unit, Tensor Cores, and a name that the first of its rules matches."""
    lines, seen = [], set()
    for rule in rules():
        kernel = rule.kernel
        if kernel.family not in seen:
            seen.add(kernel.family)
            about = f"{kernel.family:28} {kernel.kind:10} {kernel.role:5} {kernel.unit:8} {kernel.tensor_core:5} {rule.example}"
            lines.append(about if len(about) <= 120 else about[:117] + "...")
    return "\n".join([f"{'family':28} {'kind':10} {'role':5} {'unit':8} {'TC':5} example", *lines])
