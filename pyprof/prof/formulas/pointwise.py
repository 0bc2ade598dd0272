"""Elementwise ops of one and two operands: arithmetic, functions, comparisons, logic.

One line declares the ops that cost the same: their weight (operations of the definition for each element, where + - * /
comparison, exp, log, sin and the like are 1 each), the weight of the backward, and the saved tensors that the backward reads.
Bytes: each operand once as stored, broadcast ones at their own size, and the result in the dtype that torch gives it.
Activations are in activation.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import broadcast, grad, gradient, opt, promote, result, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Op, Piece, op


def common_shape(*operands: object) -> tuple[int, ...]:
    """The shape that the tensors among the operands broadcast to."""
    return broadcast(*(o.shape for o in operands if isinstance(o, TensorSpec)))


def elementwise(weight: int, *operands: object, dtype: str | None, out: object = None) -> Cost:
    """An op of `weight` operations for each element of the broadcast shape; dtype: of the result."""
    output = result(out, common_shape(*operands), dtype)
    return vector(weight * output.numel, *operands, output)


def given_dtype(value: object) -> str | None:
    """The dtype of a tensor; None for a number."""
    return value.dtype if isinstance(value, TensorSpec) else None


def _result_dtype(rule: str, *operands: object) -> str | None:
    """The dtype of a result.

    bool; same: the operand's; real: the operand's, or of its real part if it is complex; promote: torch.result_type;
    float: as promote, with float32 for integers; double: as promote, but 64 bits a number.
    """
    if rule == "bool":
        return "bool"
    if rule == "promote":
        return promote(*operands)
    if rule == "float":
        return promote(*operands, to_float=True)
    dtype = promote(*operands, to_float=True) if rule == "double" else given_dtype(operands[0])
    found = lookup(dtype)
    is_complex = found is not None and found.kind == "complex"
    if rule == "double":
        return "complex128" if is_complex else "float64"
    return f"float{found.bits // 2}" if rule == "real" and found is not None and is_complex else dtype


def _forms(text: str) -> tuple[list[str], list[str]]:
    """Names of ops, and those with swapped operands.

    `neg_` is neg and its in-place form neg_; `__add__` is an operator of Tensor, `__iadd__` one in place, and `~__rpow__` one
    whose first operand comes second.
    """
    names: list[str] = []
    swapped: list[str] = []
    for name in text.split():
        if name.startswith("~"):
            swapped.append(f"Tensor.{name[1:]}")
        elif name.endswith("__"):
            names.append(name if "::" in name else f"Tensor.{name}")
        else:
            names += dict.fromkeys((name, name.removesuffix("_")))
    return names, swapped


# ---------------------------------------------------------------------------------------------- one operand


def _unary(text: str, weight: int, rule: str, back: int | None = None, saved: int = 0, places: str = "tTa") -> None:
    """Declare ops of one operand. text: their names, see `_forms`; weight: operations for each element; rule: see
    `_result_dtype`; back, saved: of the backward, operations and tensors read besides the gradient.

    Without `back` there is no gradient; if both are 0 the gradient is passed on or is zero, and no kernel runs for it.
    """
    names, _ = _forms(text)

    @op(*names, places=places, order="input ...", backward=back is not None)
    def unary(input: object, out: object = None, **options: object) -> Op:
        dtype = _result_dtype(rule, input) if isinstance(input, TensorSpec) else None
        yield elementwise(weight, input, dtype=dtype, out=out)
        if (back or saved) and wants(input):
            yield from grad("input", input, (back or 0) * input.numel, *[gradient(input)] * (1 + saved))


_unary("abs_ absolute_ __abs__ angle", 1, "real", 2, 1)
_unary("exp_ log_", 1, "float", 1, 1)
_unary("cosh_ digamma_ exp2_ expm1_ i0_ lgamma_ log10_ log1p_ log2_ mvlgamma_ sin_ sinh_ sqrt_", 1, "float", 2, 1)
_unary("arctan_ arctanh_ atan_ atanh_ cos_ reciprocal_ tan_ tanh_ torch.nn.functional.tanh", 1, "float", 3, 1)
_unary("acosh_ arccosh_ arcsin_ arcsinh_ asin_ asinh_", 1, "float", 4, 1)
_unary("acos_ arccos_ erf_ erfc_ erfinv_", 1, "float", 5, 1)
_unary("deg2rad_ rad2deg_", 1, "float", 1)
_unary("rsqrt_", 2, "float", 4, 1)
_unary("logit_", 3, "float", 3, 1)
_unary("sinc_", 3, "float", 5, 1)
_unary("sigmoid_ torch.nn.functional.sigmoid", 4, "float", 3, 1)
_unary("ceil_ fix_ floor_ frac_ round_ sgn_ sign_ trunc_", 1, "same", 0)
_unary("conj_physical_ neg_ negative_ __neg__", 1, "same", 1)
_unary("square_", 1, "same", 2, 1)
_unary("nan_to_num_", 3, "same", 3, 1)
_unary("bitwise_not_ __invert__ torch._conj_physical aten::_conj_physical", 1, "same")
_unary("isfinite isinf isnan isneginf isposinf isreal logical_not_ signbit", 1, "bool")

# torch.special has functions of its own and second names of those above.
_unary(
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma erf erfc erfcx erfinv exp2 expm1 gammaln i0 i0e i1 i1e log1p"
    " modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 multigammaln ndtri psi round"
    " scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0",
    1, "float", 2, 1, places="sA",
)  # fmt: skip
_unary("log_ndtr", 2, "float", 2, 1, places="sA")
_unary("entr sinc", 3, "float", 2, 1, places="sA")
_unary("ndtr", 4, "float", 2, 1, places="sA")
_unary("logit", 3, "float", places="sA")
_unary("expit", 4, "float", places="sA")


@op("polygamma_", places="Ta", order="input n")
@op("polygamma", places="tTasA", order="n input out")
def polygamma(input: object, n: object = None, out: object = None) -> Cost:
    x = input if isinstance(input, TensorSpec) else n  # Tensor.polygamma has the tensor first
    return elementwise(1, x, dtype=promote(x, to_float=True), out=out)


@op("frexp", order="input ...")
def frexp(input: TensorSpec) -> Cost:
    return vector(input.numel, input, gradient(input), spec(input.shape, "int32"))


# ---------------------------------------------------------------------------------------------- two operands


def _binary(
    text: str, weight: int = 1, rule: str = "promote", back: tuple[int | None, int | None] | None = None,
    reads: tuple[str, str] = ("", ""), has_alpha: bool = False, second: str = "other",
) -> None:  # fmt: skip
    """Declare ops of two operands. text, weight, rule: as for `_unary`.

    back: operations of the gradients of the first and of the second operand, None if an operand has none; with 0 operations
    the gradient is passed on, and only a broadcast operand costs a sum. reads: what each gradient reads besides the incoming
    one: i the first operand, o the second, r the result. has_alpha: whether the op has a factor of the second operand.
    second: what the op calls that operand.
    """
    names, swapped = _forms(text)
    order = f"input {second} {'alpha' if has_alpha else 'rounding_mode'} ..."

    @op(*names, kind="", places="tTa", composed=False, order=order, backward=back is not None, **{second: "other"})
    def binary(
        input: object, other: object, alpha: object = 1, rounding_mode: object = None, out: object = None, **options: object
    ) -> Op:
        scaled = has_alpha and _is_scaled(alpha)
        rounded = isinstance(rounding_mode, str)  # a quotient rounded to an integer keeps integers, and has no gradient
        yield elementwise(
            weight + scaled, input, other, dtype=_result_dtype("promote" if rounded else rule, input, other), out=out
        )
        if back and not rounded:
            yield from _gradients(input, other, back, reads)

    @op(*swapped, order="input other", backward=back is not None)
    def swapped_binary(input: object, other: object) -> Op:
        for made in binary(other, input):
            yield made._replace(name="input") if isinstance(made, Piece) else made


def _is_scaled(alpha: object) -> bool:
    return alpha is not UNKNOWN and alpha != 1


def _gradients(input: object, other: object, back: tuple[int | None, int | None], reads: tuple[str, str]) -> Iterator[Piece]:
    shape = common_shape(input, other)
    made = spec(shape, promote(input, other, to_float=True))
    saved = {"i": opt(input), "o": opt(other), "r": made}
    # Autograd goes by the alphabetical order of the argument names: other, self.
    for name, x, weight, read in (("other", other, back[1], reads[1]), ("input", input, back[0], reads[0])):
        if weight is not None and wants(x) and (operations := (weight + (x.shape != shape)) * made.numel):
            yield from grad(name, x, operations, made, *(saved[s] for s in read))


_binary("add_ __add__ __radd__ __iadd__", back=(0, 0), has_alpha=True)
_binary("sub_ subtract_ __sub__ __isub__", back=(0, 1), has_alpha=True)
_binary("rsub __rsub__", back=(1, 0), has_alpha=True)
_binary("mul_ multiply_ __mul__ __rmul__ __imul__", back=(1, 1), reads=("o", "i"))
_binary(
    "div_ divide_ true_divide_ __div__ __truediv__ __idiv__ __itruediv__ ~__rdiv__ ~__rtruediv__",
    1, "float", (1, 4), ("o", "io"),
)  # fmt: skip
_binary("floor_divide_ __floordiv__ __ifloordiv__ ~__rfloordiv__", 2)
_binary("remainder_ fmod_ __mod__ __imod__ ~__rmod__", back=(0, 3), reads=("", "io"))
_binary("pow_ __pow__ __ipow__ ~__rpow__", back=(4, 3), reads=("io", "ir"), second="exponent")
_binary("float_power_", 1, "double", (4, 3), ("io", "ir"), second="exponent")
_binary("arctan2_ atan2_", 1, "float", (5, 5), ("io", "io"))
_binary("copysign_", 1, "float", (2, None), ("ir", ""))
_binary("fmax fmin maximum minimum", back=(2, 2), reads=("io", "io"))
_binary("clamp_max_", back=(1, 1), reads=("io", "io"), second="max")
_binary("clamp_min_", back=(1, 1), reads=("io", "io"), second="min")
_binary("hypot_", 4, "float", (2, 2), ("ir", "or"))
_binary("ldexp_", 2, "float", (1, 3), ("o", "ir"))
_binary("logaddexp logaddexp2", 5, "float", (3, 3), ("ir", "or"))
_binary("xlogy_", 2, "float", (2, 2), ("o", "io"))
_binary("igamma_ igammac_", 1, "float", (None, 3), ("", "io"))
_binary("gcd_ lcm_ nextafter_")
_binary("heaviside_", second="values")
_binary(
    "bitwise_and_ __and__ __rand__ __iand__ aten::__and__ aten::__iand__ bitwise_or_ __or__ __ror__ __ior__ aten::__or__"
    " aten::__ior__ bitwise_xor_ __xor__ __rxor__ __ixor__ aten::__xor__ aten::__ixor__ bitwise_left_shift_ __lshift__"
    " __ilshift__ aten::__lshift__ aten::__ilshift__ ~__rlshift__ bitwise_right_shift_ __rshift__ __irshift__ aten::__rshift__"
    " aten::__irshift__ ~__rrshift__"
)
_binary(
    "logical_and_ logical_or_ logical_xor_ eq_ __eq__ ne_ not_equal_ __ne__ lt_ less_ __lt__ le_ less_equal_ __le__ gt_"
    " greater_ __gt__ ge_ greater_equal_ __ge__",
    1, "bool",
)  # fmt: skip
_binary("isclose", 4, "bool")


def _special_binary(text: str, weight: int) -> None:
    @op(*text.split(), places="sA", order="input other out")
    def special(input: object, other: object, out: object = None) -> Cost:
        return elementwise(weight, input, other, dtype=promote(input, other, to_float=True), out=out)


# The n-th polynomial of a family is a recurrence; it is one function here, as polygamma is.
_special_binary(
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h"
    " hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t"
    " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w gammainc gammaincc zeta",
    1,
)
_special_binary("xlogy", 2)
_special_binary("xlog1py", 3)


@op("_add_relu", "_add_relu_", places="ta")
def add_relu(input: object, other: object, alpha: object = 1, out: object = None) -> Cost:
    return elementwise(2 + _is_scaled(alpha), input, other, dtype=promote(input, other), out=out)
