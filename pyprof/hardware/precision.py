"""Element types written in the names of kernels that multiply matrices.

Each library has its own grammar; a reader takes the match of its pattern in a normalised name and returns (precision of the
operands, accumulator), each '' if the name does not contain it. Precisions: fp64 tf32 tf32x3 fp32 bf16 fp16 fp8 fp6 fp4 int8
int4 int1. kernels.csv names the reader of each kind of kernel. Must not know devices. Patterns are texts, compiled when a name
first needs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# Tokens of CUTLASS, xmma and the SASS kernels of cuBLAS and cuDNN.
_TOKENS = {
    "f64": "fp64", "d": "fp64", "tf32": "tf32", "f32": "fp32", "fp32": "fp32", "cf32": "fp32", "cf64": "fp64", "c32": "fp32",
    "bf16": "bf16", "f16": "fp16", "fp16": "fp16", "e4m3": "fp8", "e5m2": "fp8", "ue4m3": "fp8", "f8": "fp8",
    "e2m3": "fp6", "e3m2": "fp6", "e2m1": "fp4", "f4": "fp4", "mxf4": "fp4",
    "s8": "int8", "u8": "int8", "i8": "int8", "int8": "int8", "uint8": "int8", "s4": "int4", "u4": "int4", "int4": "int4",
    "b1": "int1", "i32": "int32", "s32": "int32",
}  # fmt: skip
_ACCUMULATORS = {"s": "fp32", "h": "fp16", "i": "int32", "d": "fp64", "c": "fp32", "z": "fp64", "gc": "fp32"}
_TYPE = r"(?:tf32|bf16|fp16|fp32|f16|f32|f64|ue4m3|e4m3|e5m2|e2m3|e3m2|e2m1|u?int8|int4|[su]8|[su]4|i8|b1)"

_CUTLASS = rf"tensorop_(?:{_TYPE}_)?(?P<acc>[shdicz])(?P<shape>\d{{3,6}})(?P<inner>fastf32|tf32|bf16|f16)?(?P<verb>[a-z]+)"


def _tokens_to_tile(match: re.Match[str]) -> list[str]:
    """The words between underscores that follow a match, up to the tile size."""
    return re.split(r"\d+x\d+", match.string[match.end() :], maxsplit=1)[0].split("_")


def _cutlass(match: re.Match[str]) -> tuple[str, str]:
    """`cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_...`.

    CUTLASS's generator prints the operand type only where it differs from the accumulator's; fp32 operands of a Tensor Core
    kernel are computed in TF32 unless an inner type is named (python/cutlass_library/gemm_operation.py).
    """
    letter, inner = match["acc"], match["inner"]
    accumulator = _ACCUMULATORS[letter]
    if inner:
        return ("tf32x3" if inner == "fastf32" else _TOKENS[inner]), accumulator
    operand = next((_TOKENS[t] for t in _tokens_to_tile(match) if t in _TOKENS), "")
    if operand:
        return ("tf32" if operand == "fp32" else operand), accumulator
    if letter == "i":
        return ("int4" if match["shape"] in ("8832", "16864") else "int8"), accumulator
    return {"s": "tf32", "c": "tf32", "h": "fp16", "d": "fp64"}.get(letter, ""), accumulator


_CUTLASS3 = r"tensorop_(?:[a-z]*\d+x\d+x\d+)?(?P<verb>[a-z\d]*gemm)_"
_SCALE = r"^[a-z]+\d[a-z]\d[a-z]*x(?=[a-z])|^ue\dm\dx(?=[a-z])"


def _cutlass3(match: re.Match[str]) -> tuple[str, str]:
    """`cutlass3x_sm90_tensorop_s64x128x16gemm_A_B_accumulator_C_D_...`; block-scaled operands are `scaleXtype`."""
    types = [_TOKENS[t] for t in (re.sub(_SCALE, "", t) for t in _tokens_to_tile(match)) if t in _TOKENS]
    if len(types) < 3:
        return ("tf32" if "tf32" in match["verb"] else ""), ""
    # fp32 operands of a Tensor Core kernel are computed in TF32.
    precision = _wider(types[0], types[1])
    return ("tf32" if precision == "fp32" else precision), types[2]


_WIDTH = ("int1", "int4", "int8", "fp4", "fp6", "fp8", "fp16", "bf16", "tf32", "fp32", "fp64")


def _wider(first: str, second: str) -> str:
    """The operand type that sets the rate if both differ: the wider one; '' if either is not an operand type."""
    if first not in _WIDTH or second not in _WIDTH:
        return ""
    return max(first, second, key=_WIDTH.index)


_XMMA_TYPE = r"(?:tf32|bf16|f16|f32|f64|e4m3|e5m2|i8|u8|i32|i4|cf32|cf64)"
_XMMA = rf"_(?P<a>{_XMMA_TYPE})(?P<c>{_XMMA_TYPE}?)_(?P<b>{_XMMA_TYPE})(?P<acc>{_XMMA_TYPE}?)_(?P<d>{_XMMA_TYPE})(?=_|$)"


def _xmma(match: re.Match[str]) -> tuple[str, str]:
    """`sm80_xmma_gemm_<A><C>_<B><accumulator>_<D>_...`: bf16bf16_bf16f32_f32, tf32f32_tf32f32_f32, e4m3bf16_e4m3f32_f32."""
    precision = _wider(_TOKENS.get(match["a"], ""), _TOKENS.get(match["b"], ""))
    return precision, _TOKENS.get(match["acc"], "")


_SASS = (
    rf"(?:volta|turing|ampere|hopper)_(?:(?P<out>{_TYPE})_)?(?P<acc>[shic])(?P<shape>\d{{3,6}})(?:gemm|cudnn|fprop|dgrad|wgrad)?"
    rf"(?:_(?P<operand>{_TYPE})(?=_|$))?"
)


def _sass(match: re.Match[str]) -> tuple[str, str]:
    """`ampere_bf16_s16816gemm_bf16_128x128_...`, `turing_h1688gemm_...`: accumulator letter, operand type if it differs."""
    accumulator = _ACCUMULATORS[match["acc"]]
    named = match["operand"] or match["out"]
    if named:
        precision = _TOKENS[named]
        return ("tf32" if precision == "fp32" else precision), accumulator
    if match["acc"] == "h":
        return "fp16", accumulator
    if match["acc"] == "i":
        return "int8", accumulator
    # Only m16n8k8 of Ampere multiplies fp32 data, in TF32; m8n8k4 and m16n8k16 multiply half types.
    if match["shape"] == "1688" and "ampere" in match.string:
        return "tf32", accumulator
    return ("fp16" if match["shape"] == "884" else ""), accumulator


_SIMT = (
    rf"(?:(?P<data>{_TYPE})_)?(?P<letter>gc|[sdhczi])(?:gemm|cudnn|fprop|dgrad|wgrad)(?:_largek)?"
    rf"(?:_(?P<operand>{_TYPE})(?=_|$))?"
)


def _simt(match: re.Match[str]) -> tuple[str, str]:
    """`volta_sgemm_...`, `cutlass_80_simt_dgemm_...`, `maxwell_fp16_sgemm_fp16_...` (half data, fp32 arithmetic)."""
    accumulator = _ACCUMULATORS.get(match["letter"], "")
    named = match["operand"] or match["data"]
    if named:
        return _TOKENS[named], accumulator
    return ("int8" if match["letter"] == "i" else accumulator), accumulator


_NVJET = r"nvjet_(?:sm\d+[a-z]?_)?(?P<letters>[a-z]{3,6})_(?P<tf32>tf32_)?"
_NVJET_LETTERS = {
    "t": "bf16",
    "h": "fp16",
    "q": "fp8",
    "r": "fp8",
    "o": "fp4",
    "d": "fp64",
    "s": "tf32",
    "i": "int8",
    "b": "int8",
}
_NVJET_COMPUTE = {"s": "fp32", "h": "fp16", "d": "fp64", "i": "int32"}


def _nvjet(match: re.Match[str]) -> tuple[str, str]:
    """`nvjet_[smNN_]<A>[<B><C>]<compute><D>_`: tst is bf16 with fp32 accumulation, qqtst is fp8 to bf16, sss is TF32."""
    letters = match["letters"]
    second = letters[1] if len(letters) > 3 else letters[0]
    precision = _wider(_NVJET_LETTERS.get(letters[0], ""), _NVJET_LETTERS.get(second, ""))
    return ("tf32" if match["tf32"] else precision), _NVJET_COMPUTE.get(letters[-2], "")


# C++ types among template arguments and parameters: `gemvx::kernel<int, int, __nv_bfloat16, ...`. Narrow types first: a product
# of fp8 matrices names its bf16 or fp32 output as well.
_SPELLED: tuple[tuple[str, str], ...] = (
    ("fp4", r"float_e2m1|__nv_fp4|Float4_e2m1|e2m1|E2m1"),
    ("fp8", r"\bb?fp?8(?:_fnuz|_ocp)?_t|float_e[45]m[23]|__nv_fp8|Float8_e|e4m3|E4m3|e5m2|E5m2"),
    ("int8", r"\bsigned char|\bint8_t"),
    ("bf16", r"bfloat16|BFloat16|\bbhalf_t|\b__bf16"),
    ("fp16", r"half_t|__half|c10::Half|\bhalf\b|_Float16"),
    ("tf32", r"tfloat32|\btf32"),
    ("fp64", r"\bdouble"),
    ("fp32", r"\bfloat"),
)
# Type words within an identifier: `fmha_cutlassF_bf16_aligned`, `QkvE4m3OBfloat16`; the narrowest decides.
_WORDS: tuple[tuple[str, str], ...] = (
    ("fp4", r"(?:fp4|[eE]2m1)(?![a-z\d])|nvfp4|mxfp4"),
    ("fp8", r"fp8|f8(?![a-z\d])|f8f8|[eE]4m3|[eE]5m2|w8a8_block_fp8"),
    ("bf16", r"(?<![a-z])bf16|bfloat16|Bfloat16"),
    ("fp16", r"fp16|(?<![b\d])f16(?!\d)|Fp16|E5m10"),
    ("tf32", r"tf32"),
    ("fp32", r"(?<![ot])f32|fp32|Fp32"),
    ("int8", r"int8|_i8_"),
)


_TRTLLM = r"bmm_(?P<d>(?:Mx|Dq)?[A-Z][a-z]*\d*(?:m\d+)?)_(?P<ab>(?:(?:Mx|Dq)?[A-Z][a-z]*\d*(?:m\d+)?)+)_(?P<acc>Fp32|Fp16)"
_TRTLLM_TYPE = r"(?:Mx|Dq)?(E2m1|E4m3|E5m2|Bfloat16|Fp16|E5m10)"
_TRTLLM_TOKENS = {"E2m1": "fp4", "E4m3": "fp8", "E5m2": "fp8", "Bfloat16": "bf16", "Fp16": "fp16", "E5m10": "fp16"}


def _trtllm(match: re.Match[str]) -> tuple[str, str]:
    """`bmm_<D>_<A>[<B>]_<accumulator>_t...`; operands of two widths run at the rate of the wider."""
    types = re.findall(_TRTLLM_TYPE, match["ab"])
    if not types:
        return "", ""
    return _wider(_TRTLLM_TOKENS[types[0]], _TRTLLM_TOKENS[types[-1]]), match["acc"].lower()


_TENSILE = r"Cijk_A[a-z]{3}_B[a-z]{3}_(?P<types>[A-Z0-9]+?)_(?P<emulated>MX_)?"
_TENSILE_TYPE = r"F8N?|B8N?|I8|F6|F4|[HBSDCZI]"
_TENSILE_TYPES = {
    "H": "fp16", "B": "bf16", "S": "fp32", "D": "fp64", "C": "fp32", "Z": "fp64", "I": "int8", "I8": "int8",
    "F8": "fp8", "F8N": "fp8", "B8": "fp8", "B8N": "fp8", "F6": "fp6", "F4": "fp4",
}  # fmt: skip


def _tensile(match: re.Match[str]) -> tuple[str, str]:
    """`Cijk_Ailk_Bljk_HHS_BH_...`: letters of operand, output and accumulator; `S_MX` is fp32 that is multiplied as TF32."""
    types = re.findall(_TENSILE_TYPE, match["types"])
    precision = _TENSILE_TYPES.get(types[0], "") if types else ""
    accumulator = _TENSILE_TYPES.get(types[2], "") if len(types) == 3 else ""
    return ("tf32" if match["emulated"] and precision == "fp32" else precision), accumulator


# Operands, accumulator and output in the template arguments of a mangled name; no demangler reads the longest of them.
_CK_LETTER = r"(?:t|DF16b|DF16_|f|d|a)"
_CK_MANGLED = rf"(?<=[EI_])(?P<a>{_CK_LETTER})(?P<b>{_CK_LETTER}){_CK_LETTER}+(?=[NLES])"
_CK_TYPES = {"t": "bf16", "DF16b": "bf16", "DF16_": "fp16", "f": "fp32", "d": "fp64", "a": "int8"}


def _ck(match: re.Match[str]) -> tuple[str, str]:
    """Composable Kernel: `...cshuffleItttft...`, or types spelled out; an unsigned short is its bf16."""
    name = match[0]
    if mangled := re.search(_CK_MANGLED, name):
        return _wider(_CK_TYPES[mangled["a"]], _CK_TYPES[mangled["b"]]), ""
    spelled = next((precision for precision, pattern in _SPELLED if re.search(pattern, name)), "")
    return ("bf16" if spelled in ("", "fp32") and re.search(r"\bunsigned short|\bushort", name) else spelled), ""


_AITER = r"(?:(?P<gemm>bf16|f4|[iI]8|fp8)gemm_|(?P<pa>PA_A|pa_)|fmoe_|fmha_|mla_|gemm_|bmm_).*"
_AITER_WORDS = (
    ("fp4", r"Fp4|afp4"), ("fp8", r"Fp8|_fp8|_mxfp8"), ("int8", r"Int8"),
    ("bf16", r"_bf16|blockscaleBf16"), ("fp16", r"_fp16"),
)  # fmt: skip
_AITER_GEMM = {"bf16": "bf16", "f4": "fp4", "i8": "int8", "I8": "int8", "fp8": "fp8"}


def _aiter(match: re.Match[str]) -> tuple[str, str]:
    """`f4gemm_bf16_per1x32Fp4`, `fmoe_bf16_pertokenFp8_...`, `fmha_fwd_hd128_bf16`; paged keys of 8 bits are expanded."""
    if match["gemm"]:
        return _AITER_GEMM[match["gemm"]], ""
    words = _AITER_WORDS[3:] if match["pa"] else _AITER_WORDS
    return next((precision for precision, pattern in words if re.search(pattern, match[0])), ""), ""


_OGS = r"matmul(?:_ogs)?_[NT]{3}_[a-z]+\d+\w*?x(?P<a>(?:mx|nv)?[a-z]+\d+)x(?P<b>(?:mx|nv)?[a-z]+\d+)(?=_|$)"


def _ogs(match: re.Match[str]) -> tuple[str, str]:
    """`_matmul_ogs_NNT_<D>x<A>x<B>_...` of triton_kernels: operands of two widths are multiplied as the wider."""
    left, right = (re.sub("^(?:mx|nv)", "", match[side]) for side in "ab")
    return _wider(left, right), ""


_MATCHED: dict[str, tuple[str, Callable[[re.Match[str]], tuple[str, str]]]] = {
    "@cutlass": (_CUTLASS, _cutlass),
    "@cutlass3x": (_CUTLASS3, _cutlass3),
    "@xmma": (_XMMA, _xmma),
    "@sass": (_SASS, _sass),
    "@simt": (_SIMT, _simt),
    "@nvjet": (_NVJET, _nvjet),
    "@trtllm": (_TRTLLM, _trtllm),
    "@tensile": (_TENSILE, _tensile),
    "@ck": ("^.*$", _ck),
    "@aiter": (_AITER, _aiter),
    "@ogs": (_OGS, _ogs),
}
_LISTED = {"@template": _SPELLED, "@word": _WORDS}
READERS = frozenset({*_MATCHED, *_LISTED})


def read_precision(reads: str, name: str) -> tuple[str, str]:
    """(precision, accumulator) of a normalised name; reads: a reader's key, a fixed precision, or ''."""
    if reads in _LISTED:
        return next((precision for precision, pattern in _LISTED[reads] if re.search(pattern, name)), ""), ""
    if reads not in _MATCHED:
        return reads, ""
    pattern, reader = _MATCHED[reads]
    match = re.search(pattern, name)
    return reader(match) if match else ("", "")
