"""Ops that go by a mask or look for values: masked fill, select and scatter, nonzero, unique, indexing under a mask.

How many elements a mask selects is data: where that is the size of the result, the bytes are not known.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import broadcast, copy_cost, gradient, need, opt, spec, vector, wants
from pyprof.prof.formulas.index import selected
from pyprof.prof.formulas.pointwise import elementwise, spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []

_MASKED_FILL = (*spellings("masked_fill"), *spellings("masked_fill_", "Ta"))


@formula(*_MASKED_FILL)
def masked_fill(input: TensorSpec, mask: TensorSpec, value: Any = 0.0) -> Cost:
    return elementwise(1, input, mask, opt(value), dtype=input.dtype)


@backward(*_MASKED_FILL)
def masked_fill_backward(input: TensorSpec, mask: TensorSpec, value: Any = 0.0) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    return (Piece("input", vector(input.numel, gradient(input), mask, gradient(input))),)


@formula(*spellings("masked_select"))
def masked_select(input: TensorSpec, mask: TensorSpec, out: Any = None) -> Cost:
    """How many are selected is data: the FLOPs are known (0), the bytes are not, unless `out` says."""
    if isinstance(out, TensorSpec) and out.numel:
        return copy_cost(mask, spec(out.shape, input.dtype), out)
    return Cost(0, 0, None)


@formula(*spellings("masked_scatter"), *spellings("masked_scatter_", "Ta"))
def masked_scatter(input: TensorSpec, mask: TensorSpec, source: TensorSpec) -> Cost:
    # As many elements of the source as the mask has ones; at the most all of them are read.
    return copy_cost(input, mask, source, spec(broadcast(input.shape, mask.shape), input.dtype))


@formula(*spellings("nonzero"), *spellings("argwhere"), *spellings("nonzero_static"), "aten::nonzero_numpy")
def nonzero(input: TensorSpec, *options: Any, out: Any = None, **more: Any) -> Cost:
    """The count of the result is data; the input is read once to count and once to write."""
    return Cost(0, input.numel, None)


@formula(
    *spellings("unique", "tT"), *spellings("_unique2"), *spellings("_unique", "ta"), "torch.unique_dim", "aten::unique_dim",
    *spellings("unique_consecutive"), "aten::unique_dim_consecutive",
)  # fmt: skip
def unique(input: TensorSpec, *options: Any, **more: Any) -> Cost:
    """Sorted and compared with its neighbours; the count of the result is data."""
    return Cost(0, input.numel * (max(input.numel - 1, 0).bit_length() + 1), None)


@formula("aten::masked_select_backward")
def masked_select_backward(grad: TensorSpec, input: TensorSpec, mask: TensorSpec) -> Cost:
    # Zeros with the gradient put where the mask is.
    return copy_cost(grad, mask, spec(broadcast(input.shape, mask.shape), grad.dtype))


@formula("aten::masked_scatter_backward")
def masked_scatter_backward(grad_output: TensorSpec, mask: TensorSpec, sizes: Any) -> Cost:
    # As many elements as the mask has ones, at the most all of the source's.
    source = spec(need(sizes, "sizes"), grad_output.dtype)
    return copy_cost(mask, source, source)


@formula(*spellings("_unsafe_masked_index", "ta"))
def masked_index(input: TensorSpec, mask: TensorSpec, indices: list[TensorSpec], fill: Any = 0) -> Cost:
    # Gathered, and `fill` where the mask is not.
    shape, tensors = selected(input, indices)
    output = spec(broadcast(shape, mask.shape), input.dtype)
    return vector(output.numel, output, mask, tensors, output)


@formula(*spellings("_unsafe_masked_index_put_accumulate", "ta"))
def masked_index_put(input: TensorSpec, mask: TensorSpec, indices: list[TensorSpec], values: TensorSpec) -> Cost:
    # The values where the mask is, added into a copy of the whole.
    _, tensors = selected(input, indices)
    return vector(2 * values.numel, input, gradient(input), mask, tensors, values)


# ---------------------------------------------------------------------------------------------- backward


@backward(*spellings("masked_select"))
def masked_select_back(input: TensorSpec, mask: TensorSpec, out: Any = None) -> tuple[Piece, ...]:
    # How much was selected is data: the gradient that is read is at the most as large as the input.
    raise Missing("how many elements a mask selects is data, not recorded")


@backward(*spellings("masked_scatter"), *spellings("masked_scatter_", "Ta"))
def masked_scatter_back(input: TensorSpec, mask: TensorSpec, source: TensorSpec) -> tuple[Piece, ...]:
    # The input's is the incoming one with zeros where the mask is; the source's what it selects there, at the most all of it.
    grad = gradient(input)
    pieces = [Piece("input", vector(input.numel, grad, mask, grad))] if wants(input) else []
    if wants(source):
        pieces.append(Piece("source", copy_cost(mask, gradient(source), gradient(source))))
    return tuple(pieces)
