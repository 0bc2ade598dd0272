"""Elementwise ops of three operands: clamp, where, addcmul, addcdiv, lerp."""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import grad, gradient, opt, promote, spec, wants
from pyprof.prof.formulas.pointwise import common_shape, elementwise, given_dtype
from pyprof.prof.formulas.registry import Cost, Op, op


@op("clamp", "clip", "clamp_", "clip_")
def clamp(input: TensorSpec, min: object = None, max: object = None, out: object = None) -> Op:
    bounds = [b for b in (min, max) if b is not None and b is not UNKNOWN]
    # At least one bound is given, also where none was recorded.
    yield elementwise(len(bounds) or 1, input, *bounds, dtype=promote(input, *bounds), out=out)
    yield from grad("input", input, 2 * input.numel, gradient(input), gradient(input))


@op("where")
def where(condition: TensorSpec, input: object = None, other: object = None, out: object = None) -> Op:
    if isinstance(input, TensorSpec) and input.dtype == "bool" and condition.dtype != "bool":
        condition, input = input, condition  # Tensor.where(self, condition, other)
    if input is None and other is None:  # where(condition) is nonzero(as_tuple=True), whose size is data
        yield Cost(0, condition.numel, None)
        return
    yield elementwise(1, condition, input, other, dtype=promote(input, other), out=out)
    shape = common_shape(condition, input, other)
    made = spec(shape, promote(input, other))
    for name, x in (("other", other), ("input", input)):
        if wants(x):
            yield from grad(name, x, made.numel * (1 + (x.shape != shape)), condition, made)


@op("addcmul", "addcdiv", "addcmul_", "addcdiv_")
def addcmul(input: object, tensor1: object, tensor2: object, out: object = None) -> Op:
    # input + value * tensor1 * tensor2 (or / tensor2)
    dtype = promote(input, tensor1, tensor2)
    yield elementwise(3, input, tensor1, tensor2, dtype=dtype, out=out)
    shape = common_shape(input, tensor1, tensor2)
    made = spec(shape, dtype)
    if wants(input) and input.shape != shape:
        yield from grad("input", input, made.numel, made)
    for name, x, factor in (("tensor1", tensor1, tensor2), ("tensor2", tensor2, tensor1)):
        if wants(x):
            yield from grad(name, x, (2 + (x.shape != shape)) * made.numel, made, factor)


@op("lerp", "lerp_")
def lerp(input: object, end: object, weight: object, out: object = None) -> Op:
    yield elementwise(3, input, end, weight, dtype=given_dtype(input), out=out)
    made = spec(common_shape(input, end, weight), given_dtype(input))
    yield from grad("end", end, made.numel, made, opt(weight))
    yield from grad("input", input, 2 * made.numel, made, opt(weight))
