"""Ops that go by a mask or look for values: masked fill, select and scatter, nonzero, unique, indexing under a mask.

How many elements a mask selects is data: where that is the size of the result, the bytes are not known.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import broadcast, copy_cost, gathered, grad, gradient, need, opt, spec, vector
from pyprof.prof.formulas.index import selected
from pyprof.prof.formulas.pointwise import elementwise
from pyprof.prof.formulas.registry import Cost, Missing, Op, op


@op("masked_fill", "Tensor.masked_fill_", "aten::masked_fill_")
def masked_fill(input: TensorSpec, mask: TensorSpec, value: object = 0.0) -> Op:
    yield elementwise(1, input, mask, opt(value), dtype=input.dtype)
    yield from grad("input", input, input.numel, gradient(input), mask)


@op("masked_select")
def masked_select(input: TensorSpec, mask: TensorSpec, out: object = None) -> Op:
    """How many elements are selected is data: the FLOPs are known (0), the bytes only where `out` has that size."""
    if isinstance(out, TensorSpec) and out.numel:
        yield copy_cost(mask, spec(out.shape, input.dtype), out)
    else:
        yield Cost(0, 0, None)
    raise Missing("how many elements a mask selects is data, not recorded")


@op("masked_scatter", "Tensor.masked_scatter_", "aten::masked_scatter_")
def masked_scatter(input: TensorSpec, mask: TensorSpec, source: TensorSpec) -> Op:
    # As many elements of the source as the mask has ones; at the most all of them are read.
    yield copy_cost(input, mask, source, spec(broadcast(input.shape, mask.shape), input.dtype))
    # The input's gradient is the incoming one with zeros under the mask; the source's the values there, at most all of them.
    yield from grad("input", input, input.numel, gradient(input), mask)
    yield from grad("source", source, 0, mask, gradient(source))


@op("nonzero", "argwhere", "nonzero_static", "aten::nonzero_numpy", order="input ...")
def nonzero(input: TensorSpec, **options: object) -> Cost:
    """The count of the result is data; the input is read once to count and once to write."""
    return Cost(0, input.numel, None)


@op("unique", places="tT", order="input ...")
@op("_unique", "unique_dim", places="ta", order="input ...")
@op("_unique2", "unique_consecutive", "aten::unique_dim_consecutive", order="input ...")
def unique(input: TensorSpec, **options: object) -> Cost:
    """Sorted and compared with its neighbours; the count of the result is data."""
    return Cost(0, input.numel * (max(input.numel - 1, 0).bit_length() + 1), None)


@op("aten::masked_select_backward")
def masked_select_backward(grad: TensorSpec, input: TensorSpec, mask: TensorSpec) -> Cost:
    # Zeros with the gradient put where the mask is.
    return copy_cost(grad, mask, spec(broadcast(input.shape, mask.shape), grad.dtype))


@op("aten::masked_scatter_backward")
def masked_scatter_backward(grad_output: TensorSpec, mask: TensorSpec, sizes: object) -> Cost:
    # As many elements as the mask has ones, at the most all of the source's.
    source = spec(need(sizes, "sizes"), grad_output.dtype)
    return copy_cost(mask, source, source)


@op("_unsafe_masked_index", places="ta")
def masked_index(input: TensorSpec, mask: TensorSpec, indices: list[TensorSpec]) -> Cost:
    # Gathered, and `fill` where the mask is not.
    shape, tensors = selected(input, indices)
    output = spec(broadcast(shape, mask.shape), input.dtype)
    return vector(output.numel, gathered(input, output.shape), mask, tensors, output)


@op("_unsafe_masked_index_put_accumulate", places="ta")
def masked_index_put(input: TensorSpec, mask: TensorSpec, indices: list[TensorSpec], values: TensorSpec) -> Cost:
    # The values where the mask is, added into a copy of the whole.
    _, tensors = selected(input, indices)
    return vector(2 * values.numel, input, gradient(input), mask, tensors, values)
