"""Elementwise ops of three operands: clamp, where, addcmul, addcdiv, lerp."""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import gradient, opt, promote, spec, vector, wants
from pyprof.prof.formulas.pointwise import common_shape, elementwise, is_reduced, spellings, unary_backward
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula

__all__: list[str] = []


def _dtype(value: Any) -> str | None:
    return value.dtype if isinstance(value, TensorSpec) else None


@formula(*spellings("clamp"), *spellings("clip"))
def clamp(input: TensorSpec, min: Any = None, max: Any = None, out: Any = None) -> Cost:
    bounds = [b for b in (min, max) if b is not None and b is not UNKNOWN]
    # A bound that was not recorded may be one: at least one is given.
    return elementwise(len(bounds) or 1, input, *bounds, dtype=promote(input, *bounds), out=out)


@formula(*spellings("clamp_"), *spellings("clip_"))
def clamp_(input: TensorSpec, min: Any = None, max: Any = None) -> Cost:
    return clamp(input, min, max, out=input)


@backward(*spellings("clamp"), *spellings("clip"), *spellings("clamp_"), *spellings("clip_"))
def clamp_backward(input: TensorSpec, min: Any = None, max: Any = None, out: Any = None) -> tuple[Piece, ...]:
    return unary_backward(input, 2, 1)


@formula(*spellings("where"))
def where(condition: TensorSpec, input: Any = None, other: Any = None, out: Any = None) -> Cost:
    if input is None and other is None:  # where(condition) is nonzero(as_tuple=True), whose size is not known here
        return Cost(0, condition.numel, None)
    if (
        isinstance(condition, TensorSpec)
        and isinstance(input, TensorSpec)
        and input.dtype == "bool"
        and condition.dtype != "bool"
    ):
        condition, input = input, condition  # Tensor.where(self, condition, other)
    return elementwise(1, condition, input, other, dtype=promote(input, other), out=out)


@backward(*spellings("where"))
def where_backward(condition: TensorSpec, input: Any = None, other: Any = None, out: Any = None) -> tuple[Piece, ...]:
    if isinstance(input, TensorSpec) and input.dtype == "bool" and condition.dtype != "bool":
        condition, input = input, condition
    shape = common_shape(condition, input, other)
    grad = spec(shape, promote(input, other))
    return tuple(
        Piece(name, vector(grad.numel * (2 if is_reduced(x, shape) else 1), condition, grad, gradient(x)))
        for name, x in (("other", other), ("input", input))
        if wants(x)
    )


_ADDC = tuple(name for op in ("addcmul", "addcdiv") for name in spellings(op))
_ADDC_ = tuple(f"{name}_" for name in _ADDC)


@formula(*_ADDC)
def addcmul(input: Any, tensor1: Any, tensor2: Any, value: Any = 1, out: Any = None) -> Cost:
    # input + value * tensor1 * tensor2 (or / tensor2)
    return elementwise(3, input, tensor1, tensor2, dtype=promote(input, tensor1, tensor2), out=out)


@formula(*_ADDC_)
def addcmul_(input: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Cost:
    return elementwise(3, input, tensor1, tensor2, dtype=_dtype(input), out=input)


@backward(*_ADDC, *_ADDC_)
def addcmul_backward(input: Any, tensor1: Any, tensor2: Any, value: Any = 1, out: Any = None) -> tuple[Piece, ...]:
    shape = common_shape(input, tensor1, tensor2)
    grad = spec(shape, promote(input, tensor1, tensor2))
    pieces = []
    if wants(input) and is_reduced(input, shape):
        pieces.append(Piece("input", vector(grad.numel, grad, gradient(input))))
    for name, x, other in (("tensor1", tensor1, tensor2), ("tensor2", tensor2, tensor1)):
        if wants(x):
            pieces.append(Piece(name, vector((3 if is_reduced(x, shape) else 2) * grad.numel, grad, other, gradient(x))))
    return tuple(pieces)


@formula(*spellings("lerp"))
def lerp(input: Any, end: Any, weight: Any, out: Any = None) -> Cost:
    return elementwise(3, input, end, weight, dtype=_dtype(input), out=out)


@formula(*spellings("lerp_"))
def lerp_(input: Any, end: Any, weight: Any) -> Cost:
    return elementwise(3, input, end, weight, dtype=_dtype(input), out=input)


@backward(*spellings("lerp"), *spellings("lerp_"))
def lerp_backward(input: Any, end: Any, weight: Any, out: Any = None) -> tuple[Piece, ...]:
    grad = spec(common_shape(input, end, weight), _dtype(input))
    return tuple(
        Piece(name, vector(operations * grad.numel, grad, opt(weight), gradient(x)))
        for name, x, operations in (("end", end, 1), ("input", input, 2))
        if wants(x)
    )
