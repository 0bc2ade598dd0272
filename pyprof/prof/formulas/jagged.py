"""Sequences of different lengths: packed, padded, jagged and nested tensors, and reductions over segments.

They move values; only a reduction over segments computes. How long each sequence is, is data: where no argument's shape tells
the size of the result the bytes are not known, and composites give way to the copies inside them, which were recorded.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, need, opt, spec, vector
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, formula

__all__: list[str] = []


@formula(*spellings("_pack_padded_sequence", "ta"), *spellings("_pad_packed_sequence", "ta"),
         "torch.nn.utils.rnn.pack_padded_sequence", "torch.nn.utils.rnn.pad_packed_sequence",
         composed=True)  # fmt: skip
def packed(*tensors: Any, **more: Any) -> Cost:
    raise Missing("lengths of sequences are data, not recorded")


@formula("aten::_pack_padded_sequence_backward")
def pack_padded_backward(grad: TensorSpec, input_size: Any, batch_sizes: Any = None, batch_first: Any = False) -> Cost:
    # Zeros of the padded size with the packed gradient copied in.
    return copy_cost(grad, spec(need(input_size, "input_size"), grad.dtype))


@formula("aten::pad_sequence", "torch._C._nn.pad_sequence")
def pad_sequence(
    sequences: list[TensorSpec], batch_first: Any = False, padding_value: Any = 0.0, padding_side: Any = None
) -> Cost:
    if not sequences:
        raise Missing("sequences not recorded")
    longest = max(s.shape[0] for s in sequences)
    return copy_cost(sequences, spec((len(sequences), longest, *sequences[0].shape[1:]), sequences[0].dtype))


@formula(*spellings("_jagged_to_padded_dense_forward", "ta"))
def jagged_to_padded(values: TensorSpec, offsets: list[TensorSpec], max_lengths: Any, padding_value: Any = 0.0) -> Cost:
    outer = offsets[0].numel - 1
    return copy_cost(values, offsets, spec((outer, *need(max_lengths, "max_lengths"), *values.shape[1:]), values.dtype))


@formula(*spellings("_padded_dense_to_jagged_forward", "ta"))
def padded_to_jagged(dense: TensorSpec, offsets: list[TensorSpec], total_L: Any = None) -> Cost:
    if not isinstance(total_L, int):
        return Cost(0, 0, None)
    part = spec((total_L, *dense.shape[1 + len(offsets) :]), dense.dtype)
    return copy_cost(part, offsets, part)


@formula(*spellings("_nested_tensor_from_tensor_list", "ta"), kind="copy")
def nested_from_list(list: list[TensorSpec], *options: Any, **more: Any) -> Cost:
    return copy_cost(list, [gradient(t) for t in list])


_NESTED = """
    _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor _nested_select_backward
    _nested_sum_backward _nested_tensor_from_mask _nested_tensor_softmax_with_shape nested_to_padded_tensor to_padded_tensor
    _nested_get_values_copy _nested_view_from_buffer_copy _nested_view_from_jagged_copy _nested_tensor_from_mask_left_aligned
"""


@formula(*(f"{place}{op}" for op in _NESTED.split() for place in ("torch.", "Tensor.", "aten::")))
def nested(*tensors: Any, **more: Any) -> Cost:
    raise Missing("sizes of a nested tensor are data, not recorded")


# ---------------------------------------------------------------------------------------------- segments


def _segments(data: TensorSpec, lengths: Any, offsets: Any, axis: Any) -> TensorSpec:
    """A result for each segment along the axis, in place of its elements."""
    along = need(axis, "axis")
    ends = opt(lengths) or opt(offsets)
    if ends is None or len(ends.shape) <= along:
        raise Missing("lengths not recorded")
    count = ends.shape[along] - (opt(lengths) is None)  # n + 1 offsets for n segments
    return spec((*data.shape[:along], count, *data.shape[along + 1 :]), data.dtype)


@formula(*spellings("segment_reduce", "ta"))
def segment_reduce(
    data: TensorSpec, reduce: Any, lengths: Any = None, indices: Any = None, offsets: Any = None, axis: Any = 0,
    *more: Any, **options: Any,
) -> Cost:  # fmt: skip
    # One operation an element; a mean divides each result.
    written = _segments(data, lengths, offsets, axis)
    operations = data.numel + (written.numel if reduce == "mean" else 0)
    return vector(operations, data, opt(lengths) or opt(offsets), written)


@formula("aten::_segment_reduce_backward")
def segment_reduce_backward(
    grad: TensorSpec, output: TensorSpec, data: TensorSpec, reduce: Any, lengths: Any = None, offsets: Any = None, *more: Any
) -> Cost:
    # A sum hands its gradient on, a mean divides it; the others compare each element with the result, and select.
    operations = {"sum": 0, "mean": 1}.get(need(reduce, "reduce"), 2)
    compared = (output, data) if operations == 2 else ()
    return vector(operations * data.numel, grad, compared, opt(lengths) or opt(offsets), gradient(data))
