"""Elementwise ops of one and two operands: arithmetic, functions, comparisons, logic.

An op is one line of a table: its weight (operations of its definition an element, where + - * / comparison, exp, log, sin and
the like are 1 each), that of its backward, and how many saved tensors the backward reads. Bytes: each operand once as stored,
broadcast ones at their own size, and the result in the dtype that torch gives it. Activations are in activation.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyprof.dtypes import lookup
from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import broadcast, gradient, opt, promote, result, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula, spellings

__all__ = ["common_shape", "elementwise", "is_reduced", "spellings", "unary_backward"]

# ---------------------------------------------------------------------------------------------- common to all


def common_shape(*operands: Any) -> tuple[int, ...]:
    """The shape that the tensors among the operands broadcast to."""
    return broadcast(*(o.shape for o in operands if isinstance(o, TensorSpec)))


def elementwise(weight: int, *operands: Any, dtype: str | None, out: Any = None) -> Cost:
    """An op of `weight` operations for each element of the broadcast shape; dtype: of the result."""
    output = result(out, common_shape(*operands), dtype)
    return vector(weight * output.numel, *operands, output)


def unary_backward(input: TensorSpec, weight: int, saved: int, dtype: str | None = None) -> tuple[Piece, ...]:
    """The one piece of an elementwise op's backward, which reads the gradient and `saved` tensors like the input."""
    if not wants(input):
        return ()
    grad = gradient(input)
    return (Piece("input", vector(weight * grad.numel, grad, *[grad] * saved, grad)),)


def is_reduced(operand: TensorSpec, shape: tuple[int, ...]) -> bool:
    """Whether the gradient of a result of that shape must be summed to the operand's."""
    return operand.shape != shape


# ---------------------------------------------------------------------------------------------- one operand


def _real(dtype: str | None) -> str | None:
    found = lookup(dtype)
    return f"float{found.bits // 2}" if found is not None and found.kind == "complex" else dtype


_DTYPE_RULES: dict[str, Callable[[Any], str | None]] = {
    "same": lambda x: x.dtype,
    "float": lambda x: promote(x, to_float=True),
    "bool": lambda x: "bool",
    "real": lambda x: _real(x.dtype),
}

# op: (places, operations, dtype of the result, operations of the backward, saved tensors that it reads). Backward None: no
# gradient; 0 operations and 0 saved: the gradient is passed on or is zero, and no kernel of its own need run.
_UNARY: dict[str, tuple[str, int, str, int | None, int]] = {
    "abs": ("tTa", 1, "real", 2, 1),
    "absolute": ("tTa", 1, "real", 2, 1),
    "__abs__": ("T", 1, "real", 2, 1),
    "acos": ("tTa", 1, "float", 5, 1),
    "arccos": ("tTa", 1, "float", 5, 1),
    "acosh": ("tTa", 1, "float", 4, 1),
    "arccosh": ("tTa", 1, "float", 4, 1),
    "angle": ("tTa", 1, "real", 2, 1),
    "asin": ("tTa", 1, "float", 4, 1),
    "arcsin": ("tTa", 1, "float", 4, 1),
    "asinh": ("tTa", 1, "float", 4, 1),
    "arcsinh": ("tTa", 1, "float", 4, 1),
    "atan": ("tTa", 1, "float", 3, 1),
    "arctan": ("tTa", 1, "float", 3, 1),
    "atanh": ("tTa", 1, "float", 3, 1),
    "arctanh": ("tTa", 1, "float", 3, 1),
    "bitwise_not": ("tTa", 1, "same", None, 0),
    "__invert__": ("T", 1, "same", None, 0),
    "ceil": ("tTa", 1, "same", 0, 0),
    "conj_physical": ("tTa", 1, "same", 1, 0),
    "cos": ("tTa", 1, "float", 3, 1),
    "cosh": ("tTa", 1, "float", 2, 1),
    "deg2rad": ("tTa", 1, "float", 1, 0),
    "digamma": ("tTa", 1, "float", 2, 1),
    "erf": ("tTa", 1, "float", 5, 1),
    "erfc": ("tTa", 1, "float", 5, 1),
    "erfinv": ("tTa", 1, "float", 5, 1),
    "exp": ("tTa", 1, "float", 1, 1),
    "exp2": ("tTa", 1, "float", 2, 1),
    "expm1": ("tTa", 1, "float", 2, 1),
    "fix": ("tTa", 1, "same", 0, 0),
    "floor": ("tTa", 1, "same", 0, 0),
    "frac": ("tTa", 1, "same", 0, 0),
    "i0": ("tTa", 1, "float", 2, 1),
    "isfinite": ("tTa", 1, "bool", None, 0),
    "isinf": ("tTa", 1, "bool", None, 0),
    "isnan": ("tTa", 1, "bool", None, 0),
    "isneginf": ("tTa", 1, "bool", None, 0),
    "isposinf": ("tTa", 1, "bool", None, 0),
    "isreal": ("tTa", 1, "bool", None, 0),
    "lgamma": ("tTa", 1, "float", 2, 1),
    "log": ("tTa", 1, "float", 1, 1),
    "log10": ("tTa", 1, "float", 2, 1),
    "log1p": ("tTa", 1, "float", 2, 1),
    "log2": ("tTa", 1, "float", 2, 1),
    "logical_not": ("tTa", 1, "bool", None, 0),
    "logit": ("tTa", 3, "float", 3, 1),
    "mvlgamma": ("tTa", 1, "float", 2, 1),
    "nan_to_num": ("tTa", 3, "same", 3, 1),
    "neg": ("tTa", 1, "same", 1, 0),
    "negative": ("tTa", 1, "same", 1, 0),
    "__neg__": ("T", 1, "same", 1, 0),
    "polygamma": ("", 1, "float", 2, 1),
    "rad2deg": ("tTa", 1, "float", 1, 0),
    "reciprocal": ("tTa", 1, "float", 3, 1),
    "round": ("tTa", 1, "same", 0, 0),
    "rsqrt": ("tTa", 2, "float", 4, 1),
    "sgn": ("tTa", 1, "same", 0, 0),
    "sigmoid": ("tTaF", 4, "float", 3, 1),
    "sign": ("tTa", 1, "same", 0, 0),
    "signbit": ("tTa", 1, "bool", None, 0),
    "sin": ("tTa", 1, "float", 2, 1),
    "sinc": ("tTa", 3, "float", 5, 1),
    "sinh": ("tTa", 1, "float", 2, 1),
    "sqrt": ("tTa", 1, "float", 2, 1),
    "square": ("tTa", 1, "same", 2, 1),
    "tan": ("tTa", 1, "float", 3, 1),
    "tanh": ("tTaF", 1, "float", 3, 1),
    "trunc": ("tTa", 1, "same", 0, 0),
    "positive": ("", 0, "same", 0, 0),
}
_WITHOUT_INPLACE = frozenset(
    "__abs__ __invert__ __neg__ angle isfinite isinf isnan isneginf isposinf isreal signbit fmax fmin isclose logaddexp"
    " logaddexp2 maximum minimum prelu rsub".split()
)
# torch.special has functions of its own and second names of those above.
_SPECIAL = {
    "airy_ai": 1, "bessel_j0": 1, "bessel_j1": 1, "bessel_y0": 1, "bessel_y1": 1, "entr": 3, "erfcx": 1, "i0e": 1, "i1": 1,
    "i1e": 1,
    "log_ndtr": 2, "modified_bessel_i0": 1, "modified_bessel_i1": 1, "modified_bessel_k0": 1, "modified_bessel_k1": 1,
    "ndtr": 4,
    "ndtri": 1, "scaled_modified_bessel_k0": 1, "scaled_modified_bessel_k1": 1, "spherical_bessel_j0": 1, "gammaln": 1,
    "psi": 1,
    "digamma": 1, "erf": 1, "erfc": 1, "erfinv": 1, "exp2": 1, "expm1": 1, "i0": 1, "log1p": 1, "round": 1, "sinc": 3,
    "multigammaln": 1,
}  # fmt: skip


def _register_unary(op: str, places: str, weight: int, rule: str, back: int | None, saved: int) -> None:
    kind = _DTYPE_RULES[rule]

    def forward(input: Any, *options: Any, out: Any = None, **more: Any) -> Cost:
        dtype = kind(input) if isinstance(input, TensorSpec) else None
        return elementwise(weight, input, dtype=dtype, out=out)

    def forward_(input: Any, *options: Any, out: Any = None, **more: Any) -> Cost:
        return elementwise(weight, input, dtype=input.dtype, out=out)

    def back_(input: Any, *options: Any, out: Any = None, **more: Any) -> tuple[Piece, ...]:
        if not weight_back and not saved:
            return ()
        return unary_backward(input, weight_back, saved)

    forward.__name__ = forward.__qualname__ = op
    forward_.__name__ = forward_.__qualname__ = f"{op}_"
    inplace = () if op in _WITHOUT_INPLACE else spellings(f"{op}_", places.replace("F", "").replace("s", "").replace("A", ""))
    formula(*spellings(op, places))(forward)
    formula(*inplace)(forward_)
    if back is not None:
        weight_back = back
        backward(*spellings(op, places), *inplace)(back_)


# The n-th polynomial of a family is a recurrence; it is one function here, as polygamma is.
_POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h"
    " hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t"
    " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
).split()

for _op, _row in _UNARY.items():
    _register_unary(_op, *_row)
for _op, _weight in _SPECIAL.items():
    _register_unary(_op, "sA", _weight, "float", 2, 1)


@formula(*spellings("logit", "sA"))
def special_logit(input: TensorSpec, eps: Any = None, out: Any = None) -> Cost:
    return elementwise(3, input, dtype=promote(input, to_float=True), out=out)


@formula("torch.special.expit", "aten::special_expit")
def special_expit(input: TensorSpec, out: Any = None) -> Cost:
    return elementwise(4, input, dtype=promote(input, to_float=True), out=out)


@formula(*spellings("polygamma"), *spellings("polygamma", "sA"))
def polygamma(n: Any, input: Any, out: Any = None) -> Cost:
    # Tensor.polygamma has the tensor first.
    x = input if isinstance(input, TensorSpec) else n
    return elementwise(1, x, dtype=promote(x, to_float=True), out=out)


# ---------------------------------------------------------------------------------------------- two operands

# op: (operations, dtype of the result, operations of the gradient of the first and of the second operand, what each of these
# reads besides the incoming gradient: i the first operand, o the second, r the result). None: no gradient. "" with 0
# operations: the gradient is passed on, and only a broadcast operand costs a sum.
_B = tuple[int, str, "int | None", "int | None", str, str]
_BINARY: dict[str, _B] = {
    "add": (1, "promote", 0, 0, "", ""),
    "sub": (1, "promote", 0, 1, "", ""),
    "subtract": (1, "promote", 0, 1, "", ""),
    "rsub": (1, "promote", 1, 0, "", ""),
    "mul": (1, "promote", 1, 1, "o", "i"),
    "multiply": (1, "promote", 1, 1, "o", "i"),
    "div": (1, "float", 1, 4, "o", "io"),
    "divide": (1, "float", 1, 4, "o", "io"),
    "true_divide": (1, "float", 1, 4, "o", "io"),
    "floor_divide": (2, "promote", None, None, "", ""),
    "remainder": (1, "promote", 0, 3, "", "io"),
    "fmod": (1, "promote", 0, 3, "", "io"),
    "pow": (1, "promote", 4, 3, "io", "ir"),
    "float_power": (1, "double", 4, 3, "io", "ir"),
    "atan2": (1, "float", 5, 5, "io", "io"),
    "arctan2": (1, "float", 5, 5, "io", "io"),
    "copysign": (1, "float", 2, None, "ir", ""),
    "fmax": (1, "promote", 2, 2, "io", "io"),
    "fmin": (1, "promote", 2, 2, "io", "io"),
    "maximum": (1, "promote", 2, 2, "io", "io"),
    "minimum": (1, "promote", 2, 2, "io", "io"),
    "gcd": (1, "promote", None, None, "", ""),
    "lcm": (1, "promote", None, None, "", ""),
    "heaviside": (1, "promote", None, None, "", ""),
    "hypot": (4, "float", 2, 2, "ir", "or"),
    "ldexp": (2, "float", 1, 3, "o", "ir"),
    "logaddexp": (5, "float", 3, 3, "ir", "or"),
    "logaddexp2": (5, "float", 3, 3, "ir", "or"),
    "nextafter": (1, "promote", None, None, "", ""),
    "xlogy": (2, "float", 2, 2, "o", "io"),
    "igamma": (1, "float", None, 3, "", "io"),
    "igammac": (1, "float", None, 3, "", "io"),
    "bitwise_and": (1, "promote", None, None, "", ""),
    "bitwise_or": (1, "promote", None, None, "", ""),
    "bitwise_xor": (1, "promote", None, None, "", ""),
    "bitwise_left_shift": (1, "promote", None, None, "", ""),
    "bitwise_right_shift": (1, "promote", None, None, "", ""),
    "logical_and": (1, "bool", None, None, "", ""),
    "logical_or": (1, "bool", None, None, "", ""),
    "logical_xor": (1, "bool", None, None, "", ""),
    "eq": (1, "bool", None, None, "", ""),
    "ne": (1, "bool", None, None, "", ""),
    "not_equal": (1, "bool", None, None, "", ""),
    "lt": (1, "bool", None, None, "", ""),
    "less": (1, "bool", None, None, "", ""),
    "le": (1, "bool", None, None, "", ""),
    "less_equal": (1, "bool", None, None, "", ""),
    "gt": (1, "bool", None, None, "", ""),
    "greater": (1, "bool", None, None, "", ""),
    "ge": (1, "bool", None, None, "", ""),
    "greater_equal": (1, "bool", None, None, "", ""),
    "isclose": (4, "bool", None, None, "", ""),
    "clamp_min": (1, "promote", 1, 1, "io", "io"),
    "clamp_max": (1, "promote", 1, 1, "io", "io"),
    "prelu": (2, "promote", 2, 2, "io", "io"),
}
# method of an operator: the op it is
_OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul",
    "__div__": "div", "__truediv__": "div", "__floordiv__": "floor_divide", "__mod__": "remainder", "__pow__": "pow",
    "__and__": "bitwise_and", "__rand__": "bitwise_and", "__or__": "bitwise_or", "__ror__": "bitwise_or",
    "__xor__": "bitwise_xor", "__rxor__": "bitwise_xor", "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt",
    "__ge__": "ge",
}  # fmt: skip
_INPLACE_OPERATORS = {
    "__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__idiv__": "div", "__itruediv__": "div",
    "__ifloordiv__": "floor_divide", "__imod__": "remainder", "__ipow__": "pow", "__iand__": "bitwise_and",
    "__ior__": "bitwise_or", "__ixor__": "bitwise_xor", "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
}  # fmt: skip
_SWAPPED = {"__rdiv__": "div", "__rtruediv__": "div", "__rfloordiv__": "floor_divide", "__rmod__": "remainder",
    "__rpow__": "pow",
            "__rlshift__": "bitwise_left_shift", "__rrshift__": "bitwise_right_shift"}  # fmt: skip


def _result_dtype(rule: str, *operands: Any) -> str | None:
    if rule == "bool":
        return "bool"
    if rule == "double":
        found = lookup(promote(*operands, to_float=True))
        return "complex128" if found is not None and found.kind == "complex" else "float64"
    return promote(*operands, to_float=rule == "float")


def _binary_forward(weight: int, rule: str, a: Any, b: Any, scaled: bool, out: Any) -> Cost:
    return elementwise(weight + scaled, a, b, dtype=_result_dtype(rule, a, b), out=out)


def _binary_backward(op: _B, a: Any, b: Any) -> tuple[Piece, ...]:
    _, _, first, second, first_reads, second_reads = op
    shape = common_shape(a, b)
    grad = spec(shape, promote(a, b, to_float=True))
    reads = {"i": opt(a), "o": opt(b), "r": grad}
    pieces = []
    # Autograd goes by the alphabetical order of the argument names: other, self.
    for name, x, weight, saved in (("other", b, second, second_reads), ("input", a, first, first_reads)):
        if weight is None or not wants(x):
            continue
        operations = weight * grad.numel + (grad.numel if is_reduced(x, shape) else 0)
        if operations:
            pieces.append(Piece(name, vector(operations, grad, *(reads[s] for s in saved), gradient(x))))
    return tuple(pieces)


def _is_scaled(alpha: Any) -> bool:
    return alpha is not UNKNOWN and alpha != 1


def _register_binary(op: str, row: _B) -> None:
    weight, rule = row[:2]

    def forward(input: Any, other: Any, alpha: Any = 1, rounding_mode: Any = None, out: Any = None, **more: Any) -> Cost:
        # Division to a rounded quotient keeps integers.
        kind = "promote" if isinstance(rounding_mode, str) else rule
        return _binary_forward(weight, kind, input, other, op in _WITH_ALPHA and _is_scaled(alpha), out)

    def forward_(input: Any, other: Any, alpha: Any = 1, rounding_mode: Any = None, out: Any = None, **more: Any) -> Cost:
        return elementwise(weight + (op in _WITH_ALPHA and _is_scaled(alpha)), input, other, dtype=_dtype(input), out=input)

    def swapped(input: Any, other: Any) -> Cost:
        return _binary_forward(weight, rule, other, input, False, None)

    def back(
        input: Any, other: Any, alpha: Any = 1, rounding_mode: Any = None, out: Any = None, **more: Any
    ) -> tuple[Piece, ...]:
        return () if isinstance(rounding_mode, str) else _binary_backward(row, input, other)

    def back_swapped(input: Any, other: Any) -> tuple[Piece, ...]:
        return tuple(Piece("input", piece.cost) for piece in _binary_backward(row, other, input))

    for function, name in ((forward, op), (forward_, f"{op}_"), (swapped, f"r{op}")):
        function.__name__ = function.__qualname__ = name
    plain = (*spellings(op, "tTaF" if op == "prelu" else "tTa"), *(f"Tensor.{m}" for m, of in _OPERATORS.items() if of == op))
    inplace = (
        *(() if op in _WITHOUT_INPLACE else spellings(f"{op}_")),
        *(f"Tensor.{m}" for m, of in _INPLACE_OPERATORS.items() if of == op),
    )
    reflected = tuple(f"Tensor.{m}" for m, of in _SWAPPED.items() if of == op)
    # The dispatcher has a few of the operators too, as aten::__and__.
    plain += tuple(f"aten::{m}" for m in _DISPATCHED if _OPERATORS.get(m) == op)
    inplace += tuple(f"aten::{m}" for m in _DISPATCHED if _INPLACE_OPERATORS.get(m) == op)
    formula(*plain)(forward)
    formula(*inplace)(forward_)
    formula(*reflected)(swapped)
    if row[2] is not None or row[3] is not None:
        backward(*plain, *inplace)(back)
        backward(*reflected)(back_swapped)


_WITH_ALPHA = frozenset(("add", "sub", "subtract", "rsub"))
_DISPATCHED = (
    "__and__", "__or__", "__xor__", "__lshift__", "__rshift__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__",
)  # fmt: skip


def _dtype(value: Any) -> str | None:
    return value.dtype if isinstance(value, TensorSpec) else None


for _op, _binary_row in _BINARY.items():
    _register_binary(_op, _binary_row)
for _op, _weight in {
    **dict.fromkeys(_POLYNOMIALS, 1),
    "xlog1py": 3,
    "zeta": 1,
    "xlogy": 2,
    "gammainc": 1,
    "gammaincc": 1,
}.items():

    def _special_binary(input: Any, other: Any, out: Any = None, weight: int = _weight) -> Cost:
        return elementwise(weight, input, other, dtype=promote(input, other, to_float=True), out=out)

    formula(*spellings(_op, "sA"))(_special_binary)


@formula(*spellings("polygamma_", "Ta"))
def polygamma_(input: TensorSpec, n: Any) -> Cost:
    return elementwise(1, input, dtype=input.dtype, out=input)


@formula(*spellings("_add_relu", "ta"))
def add_relu(input: Any, other: Any, alpha: Any = 1, out: Any = None) -> Cost:
    return elementwise(2 + _is_scaled(alpha), input, other, dtype=promote(input, other), out=out)


@formula(*spellings("_add_relu_", "ta"))
def add_relu_(input: TensorSpec, other: Any, alpha: Any = 1) -> Cost:
    return elementwise(2 + _is_scaled(alpha), input, other, dtype=input.dtype, out=input)


@formula(*spellings("frexp"))
def frexp(input: TensorSpec, out: Any = None) -> Cost:
    return vector(input.numel, input, gradient(input), spec(input.shape, "int32"))


@formula("aten::_conj_physical", "torch._conj_physical")
def conj_physical(input: TensorSpec) -> Cost:
    return elementwise(1, input, dtype=input.dtype)
