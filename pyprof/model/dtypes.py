"""One table of element types: the name that pyprof prints, every spelling that a tool or a framework uses, and the size.

Turns any spelling (`torch.bfloat16`, `c10::BFloat16`, `bfloat16`, `bf16`) into one `DType`. No torch here.
"""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """One element type.

    name: torch's own name (`bfloat16`); tag: the short name printed in columns and markers (`bf16`);
    bits: stored bits of one element as torch counts elements (float4_e2m1fn_x2 packs two values in its 8 bits);
    kind: float, complex, int, uint, bool or quantized; matmul: the precision of its matrix products in `hardware` (`bf16`),
    empty if no GPU multiplies matrices of it; aliases: the spellings of tools and frameworks.
    """

    name: str
    tag: str
    bits: int
    kind: str
    matmul: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def bytes(self) -> float:
        """Stored size of one element in bytes (a fraction only for packed sub-byte types)."""
        return self.bits / 8


DTYPES: tuple[DType, ...] = (
    DType("float64", "fp64", 64, "float", "fp64", ("double", "f64")),
    DType("float32", "fp32", 32, "float", "fp32", ("float", "f32")),
    DType("float16", "fp16", 16, "float", "fp16", ("half", "Half", "__half", "f16", "half_t")),
    DType("bfloat16", "bf16", 16, "float", "bf16", ("BFloat16", "__nv_bfloat16", "bfloat16_t")),
    DType("float8_e4m3fn", "fp8e4m3", 8, "float", "fp8", ("Float8_e4m3fn", "float_e4m3_t")),
    DType("float8_e5m2", "fp8e5m2", 8, "float", "fp8", ("Float8_e5m2", "float_e5m2_t")),
    DType("float8_e4m3fnuz", "fp8e4m3fnuz", 8, "float", "fp8", ("Float8_e4m3fnuz",)),
    DType("float8_e5m2fnuz", "fp8e5m2fnuz", 8, "float", "fp8", ("Float8_e5m2fnuz",)),
    DType("float8_e8m0fnu", "fp8e8m0", 8, "float", "", ("Float8_e8m0fnu",)),
    DType("float4_e2m1fn_x2", "fp4x2", 8, "float", "fp4", ("Float4_e2m1fn_x2",)),
    DType("complex32", "c32", 32, "complex", "fp16", ("chalf", "ComplexHalf", "complex<Half>")),
    DType("complex64", "c64", 64, "complex", "fp32", ("cfloat", "ComplexFloat", "complex<float>")),
    DType("complex128", "c128", 128, "complex", "fp64", ("cdouble", "ComplexDouble", "complex<double>")),
    DType("bool", "bool", 8, "bool"),
    DType("uint8", "uint8", 8, "uint", "int8", ("byte", "unsigned char", "u8")),
    DType("int8", "int8", 8, "int", "int8", ("char", "signed char", "i8")),
    DType("int16", "int16", 16, "int", "", ("short", "short int", "i16")),
    DType("uint16", "uint16", 16, "uint", "", ("unsigned short", "unsigned short int", "u16")),
    DType("int32", "int32", 32, "int", "", ("int", "i32")),
    DType("uint32", "uint32", 32, "uint", "", ("unsigned int", "u32")),
    DType("int64", "int64", 64, "int", "", ("long", "long int", "long long", "i64")),
    DType("uint64", "uint64", 64, "uint", "", ("unsigned long", "unsigned long int", "unsigned long long", "u64")),
    DType("qint8", "qint8", 8, "quantized", "int8"),
    DType("quint8", "quint8", 8, "quantized", "int8"),
    DType("qint32", "qint32", 32, "quantized"),
    DType("quint4x2", "quint4x2", 4, "quantized"),
    DType("quint2x4", "quint2x4", 2, "quantized"),
    DType("bits8", "bits8", 8, "uint"),
    DType("bits16", "bits16", 16, "uint"),
    *(DType(f"int{n}", f"int{n}", n, "int") for n in range(1, 8)),
    *(DType(f"uint{n}", f"uint{n}", n, "uint") for n in range(1, 8)),
)

_BY_NAME = {spelling: dtype for dtype in DTYPES for spelling in (dtype.name, dtype.tag, *dtype.aliases)}
_PREFIXES = ("torch.", "c10::", "at::", "cutlass::", "numpy.")


def lookup(spelling: str | None) -> DType | None:
    """The element type that a tool calls `spelling`; None if it is not one (`Scalar`, `TensorList`, '')."""
    if not spelling:
        return None
    found = _BY_NAME.get(spelling)
    if found is not None:
        return found
    for prefix in _PREFIXES:
        if spelling.startswith(prefix):
            return lookup(spelling[len(prefix) :].replace("c10::", ""))
    return None
