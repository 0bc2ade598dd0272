"""Sequences of different lengths: packed, padded, jagged and nested tensors, and reductions over segments.

They move values; only a reduction over segments computes. How long each sequence is, is data: where no argument's shape gives
the size of the result the bytes are not known, and composites give way to the copies inside them, which were recorded.
Of fbgemm_gpu (github.com/pytorch/FBGEMM, fbgemm_gpu/src) the permutations, offsets and checks; its look-ups are embeddings.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, need, opt, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, op


@op("_pack_padded_sequence", "_pad_packed_sequence", places="ta", composed=True)
@op("torch.nn.utils.rnn.pack_padded_sequence", "torch.nn.utils.rnn.pad_packed_sequence", composed=True)
def packed(*tensors: object, **more: object) -> Cost:
    raise Missing("lengths of sequences are data, not recorded")


@op("aten::_pack_padded_sequence_backward")
def pack_padded_backward(grad: TensorSpec, input_size: object, batch_sizes: object = None) -> Cost:
    """Zeros of the padded size with the packed gradient copied in."""
    return copy_cost(grad, spec(need(input_size, "input_size"), grad.dtype))


@op("aten::pad_sequence", "torch._C._nn.pad_sequence")
def pad_sequence(sequences: list[TensorSpec]) -> Cost:
    if not sequences:
        raise Missing("sequences not recorded")
    longest = max(s.shape[0] for s in sequences)
    return copy_cost(sequences, spec((len(sequences), longest, *sequences[0].shape[1:]), sequences[0].dtype))


@op("_jagged_to_padded_dense_forward", places="ta")
def jagged_to_padded(values: TensorSpec, offsets: list[TensorSpec], max_lengths: object) -> Cost:
    padded = (offsets[0].numel - 1, *need(max_lengths, "max_lengths"), *values.shape[1:])
    return copy_cost(values, offsets, spec(padded, values.dtype))


@op("_padded_dense_to_jagged_forward", places="ta")
def padded_to_jagged(dense: TensorSpec, offsets: list[TensorSpec], total_L: object = None) -> Cost:
    if not isinstance(total_L, int):
        return Cost(0, 0, None)
    part = spec((total_L, *dense.shape[1 + len(offsets) :]), dense.dtype)
    return copy_cost(part, offsets, part)


@op("_nested_from_padded", "_nested_from_padded_and_nested_example", "_nested_from_padded_tensor", "_nested_select_backward",
    "_nested_sum_backward", "_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned",
    "_nested_tensor_softmax_with_shape", "nested_to_padded_tensor", "to_padded_tensor", "_nested_get_values_copy",
    "_nested_view_from_buffer_copy", "_nested_view_from_jagged_copy")  # fmt: skip
def nested(*tensors: object, **more: object) -> Cost:
    raise Missing("sizes of a nested tensor are data, not recorded")


# ---------------------------------------------------------------------------------------------- segments


@op("segment_reduce", places="ta")
def segment_reduce(data: TensorSpec, reduce: object, lengths: object = None, offsets: object = None, axis: object = 0) -> Cost:
    """One operation an element; a mean divides each result. The result has a value for each segment along the axis."""
    along = need(axis, "axis")
    ends = opt(lengths) or opt(offsets)
    if ends is None or len(ends.shape) <= along:
        raise Missing("lengths not recorded")
    count = ends.shape[along] - (opt(lengths) is None)  # n + 1 offsets for n segments
    written = spec((*data.shape[:along], count, *data.shape[along + 1 :]), data.dtype)
    return vector(data.numel + (written.numel if reduce == "mean" else 0), data, ends, written)


@op("aten::_segment_reduce_backward")
def segment_reduce_backward(
    grad: TensorSpec, output: TensorSpec, data: TensorSpec, reduce: object, lengths: object = None, offsets: object = None
) -> Cost:
    """A sum hands its gradient on, a mean divides it; the others compare each element with the result, and select."""
    operations = {"sum": 0, "mean": 1}.get(need(reduce, "reduce"), 2)
    compared = (output, data) if operations == 2 else ()
    return vector(operations * data.numel, grad, compared, opt(lengths) or opt(offsets), gradient(data))


# ---------------------------------------------------------------------------------------------- fbgemm_gpu

# Values are moved, not computed; the running sums that turn lengths into offsets count one operation a length.


@op("fbgemm::permute_sparse_features", "fbgemm::permute_2D_sparse_data", "fbgemm::permute_1D_sparse_data",
    "torch.ops.fbgemm.permute_2D_sparse_data")  # fmt: skip
def permute_sparse(
    permute: TensorSpec, lengths: TensorSpec, indices: TensorSpec, weights: object = None, total: object = None
) -> Cost:
    """Lengths become offsets before and after, then each feature's values are copied to their new place."""
    batch = lengths.numel // max(lengths.shape[0], 1)
    moved = spec((permute.numel * batch,), lengths.dtype)
    operations = lengths.numel + moved.numel
    if isinstance(total, int) and not isinstance(total, bool):
        kept = total
    elif permute.numel == lengths.shape[0]:
        kept = indices.numel
    else:  # features are dropped or repeated: how many values come out is data
        return Cost(0, operations, None)
    values = [t for t in (indices, opt(weights)) if t is not None]
    return vector(operations, permute, lengths, moved, [(t, spec((kept,), t.dtype)) for t in values])


@op("fbgemm::asynchronous_complete_cumsum", "fb::asynchronous_complete_cumsum")
def complete_cumsum(t_in: TensorSpec) -> Cost:
    """n lengths give n + 1 offsets, the first 0."""
    rows = t_in.numel // max(t_in.shape[-1], 1)
    return vector(t_in.numel, t_in, spec((t_in.numel + rows,), t_in.dtype))


@op("fbgemm::asynchronous_inclusive_cumsum", "fbgemm::asynchronous_exclusive_cumsum")
def same_cumsum(t_in: TensorSpec) -> Cost:
    return vector(t_in.numel, t_in, gradient(t_in))


@op("fbgemm::bounds_check_indices", order="rows_per_table indices offsets ...")
def bounds_check(rows_per_table: TensorSpec, indices: TensorSpec, offsets: TensorSpec) -> Cost:
    """Each index is compared with 0 and the rows of its table; nothing is written where all are within."""
    return vector(2 * indices.numel, rows_per_table, indices, offsets)


@op("fbgemm::permute_pooled_embs", "fbgemm::permute_pooled_embs_auto_grad",
    "fbgemm::recat_embedding_grad_output_mixed_D_batch", "fbgemm::recat_embedding_grad_output_mixed_D",
    "autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >")  # fmt: skip
def permute_pooled(pooled: TensorSpec, *places: object) -> Cost:
    """Every element to another place; `places` are offsets of features, read too."""
    return copy_cost(pooled, gradient(pooled), [opt(p) for p in places])
