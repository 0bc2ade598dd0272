"""Ops that do no work on data: views, allocation, bookkeeping, questions about sizes. Their cost is zero without looking."""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, need, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Piece, backward, formula

__all__: list[str] = []

# In torch, as methods and in the dispatcher alike; not each name exists in each of the three.
_VIEWS = """
    adjoint alias as_strided as_strided_ atleast_1d atleast_2d atleast_3d chunk conj detach detach_ diagonal dsplit expand
    expand_as flatten hsplit imag movedim moveaxis mH mT matrix_H narrow numpy_T permute positive ravel real reshape
    reshape_as resolve_conj resolve_neg select slice split split_with_sizes squeeze squeeze_ swapaxes swapaxes_ swapdims
    swapdims_ t t_ tensor_split transpose transpose_ unbind unflatten unfold unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_ view view_as view_as_complex view_as_real vsplit
"""
_DISPATCHER = """
    _conj _neg_view _reshape_alias _unsafe_view _reshape_from_tensor lift lift_fresh linalg_diagonal numpy_T sym_size
    sym_stride sym_numel sym_storage_offset size stride numel is_nonzero item _local_scalar_dense result_type is_pinned
    is_same_size is_floating_point is_complex is_inference can_cast has_same_storage_numel dim output_nr _version
    record_stream _has_compatible_shallow_copy_type _nested_tensor_size _assert_async _assert_tensor_metadata _assert_scalar
    set_ set_data resize_ resize_as_ _resize_output_ empty empty_like empty_strided empty_permuted
    empty_quantized new_empty new_empty_strided _empty_affine_quantized requires_grad_ retain_grad scalar_tensor _dim_arange
    _cudnn_init_dropout_state _use_cudnn_ctc_loss _fw_primal _make_dual _unpack_dual cudnn_is_acceptable
    _debug_has_internal_overlap _linalg_check_errors _sparse_coo_tensor_unsafe _indices _values indices values crow_indices
    col_indices ccol_indices row_indices is_coalesced _nnz sparse_dim dense_dim to_padded_tensor_size _thnn_dummy
    set_source_Tensor_storage_offset
    _fused_sdp_choice _use_miopen_ctc_loss _add_batch_dim _remove_batch_dim _ncf_unsqueeze _ncf_view
    _new_zeros_with_same_feature_meta
    _is_zerotensor _has_same_storage_numel _efficientzerotensor _empty_per_channel_affine_quantized _nested_view_from_buffer
    _nested_view_from_jagged _nested_get_values _nested_get_offsets _nested_get_lengths _nested_get_max_seqlen
    _nested_get_min_seqlen _nested_get_ragged_idx _nested_get_jagged_dummy _nested_tensor_strides _nested_tensor_storage_offsets
    _nested_compute_contiguous_strides_offsets _pack_sequence _functional_assert_async _functional_assert_scalar
    _functional_sym_constrain_range _functional_sym_constrain_range_for_size q_scale q_zero_point q_per_channel_scales
    q_per_channel_zero_points q_per_channel_axis qscheme as_tensor data element_size get_device is_conj is_contiguous
    is_distributed is_leaf is_neg is_non_overlapping_and_dense is_set_to is_signed is_strides_like_format retains_grad
    slice_inverse storage_offset sym_is_contiguous unflatten_dense_tensors _shape_as_tensor
"""
_PYTHON = """
    empty empty_like empty_strided empty_permuted scalar_tensor tensor as_tensor from_numpy asarray frombuffer numel
    is_tensor result_type can_cast promote_types resize_as_ broadcast_to is_nonzero sym_sum get_device is_same_size
"""
_METHODS = """
    size stride dim ndimension numel nelement item tolist numpy is_contiguous storage_offset data_ptr new_empty
    new_empty_strided requires_grad_ retain_grad retain_grads resize_ resize_as_ resize set_ record_stream broadcast_to H T
    mH mT is_pinned is_set_to sum_to_size_view unsafe_split unsafe_chunk is_same_size is_nonzero __len__ __iter__
    __contains__ __bool__ __float__ __int__ __index__ __format__ __repr__ __array__ __dlpack__ element_size get_device
    is_floating_point is_complex is_inference share_memory_ is_shared new_tensor
"""

formula(*(f"torch.{op}" for op in {*_VIEWS.split(), *_PYTHON.split()}), kind="structural")(lambda *args, **more: Cost(0, 0, 0))
formula(*(f"Tensor.{op}" for op in {*_VIEWS.split(), *_METHODS.split()}), kind="structural")(
    lambda *args, **more: Cost(0, 0, 0)
)
formula(*(f"aten::{op}" for op in {*_VIEWS.split(), *_DISPATCHER.split(), "broadcast_to"}), kind="structural")(
    lambda *args, **more: Cost(0, 0, 0)
)


@formula(*spellings("diagflat"))
def diagflat(input: TensorSpec, offset: Any = 0) -> Cost:
    size = input.numel + abs(offset)
    return copy_cost(input, TensorSpec((size, size), input.dtype))


@formula(*spellings("diag"))
def diag(input: TensorSpec, diagonal: Any = 0, out: Any = None) -> Cost:
    """A vector on the diagonal of a new matrix, or the diagonal of a matrix as a new vector."""
    shift = need(diagonal, "diagonal")
    if len(input.shape) == 2:
        rows, columns = input.shape
        row = spec((max(0, min(rows + min(shift, 0), columns - max(shift, 0))),), input.dtype)
        return copy_cost(row, row)
    size = (input.shape[-1] if input.shape else 1) + abs(shift)
    return copy_cost(input, spec((size, size), input.dtype))


@formula(*spellings("diag_embed"))
def diag_embed(input: TensorSpec, offset: Any = 0, dim1: Any = -2, dim2: Any = -1) -> Cost:
    size = input.shape[-1] + abs(offset)
    return copy_cost(input, TensorSpec((*input.shape[:-1], size, size), input.dtype))


@formula("torch.trace", "Tensor.trace", "aten::trace")
def trace(input: TensorSpec) -> Cost:
    row = min(input.shape)
    size = TensorSpec((row,), input.dtype).nbytes
    last = TensorSpec((), input.dtype).nbytes
    return Cost(0, row, None if size is None or last is None else size + last)


# Views whose gradient is not one: zeros with the incoming gradient copied in.
@backward(*spellings("narrow"), *spellings("select"), "aten::slice", *spellings("diagonal"))
def partial_view_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    if not wants(input):
        return ()
    return (Piece("input", copy_cost(gradient(input))),)


# The parts are joined again.
@backward(*(name for op in ("split", "split_with_sizes", "chunk", "unbind", "tensor_split") for name in spellings(op)))
def parts_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()


@backward("Tensor.expand", "aten::expand", "torch.broadcast_to", "Tensor.broadcast_to", "aten::broadcast_to")
def expand_backward(input: TensorSpec, *sizes: Any, **more: Any) -> tuple[Piece, ...]:
    given = sizes[0] if sizes and isinstance(sizes[0], (list, tuple)) else (sizes or more.get("size", ()))
    if not wants(input) or not isinstance(given, (list, tuple)):
        return ()
    numbers = [n for n in given if isinstance(n, int) and not isinstance(n, bool)]
    rank = len(numbers) - len(input.shape)
    shape = tuple(input.shape[i - rank] if n == -1 else n for i, n in enumerate(numbers))
    grad = TensorSpec(shape, input.dtype)
    return (Piece("input", vector(grad.numel, grad, gradient(input))),) if shape != input.shape else ()


# ---------------------------------------------------------------------------------------------- backward


@backward(*spellings("diag_embed"), *spellings("diagflat"))
def diag_embed_backward(input: TensorSpec, *options: Any, **more: Any) -> tuple[Piece, ...]:
    return (Piece("input", copy_cost(gradient(input), gradient(input))),) if wants(input) else ()


@backward(*spellings("diag"))
def diag_backward(input: TensorSpec, diagonal: Any = 0, out: Any = None) -> tuple[Piece, ...]:
    if len(input.shape) != 2:
        return diag_embed_backward(input)
    (rows, columns), shift = input.shape, need(diagonal, "diagonal")
    part = spec((max(0, min(rows + min(shift, 0), columns - max(shift, 0))),), input.dtype)
    return (Piece("input", copy_cost(part, gradient(input))),) if wants(input) else ()


@backward(*spellings("trace"))
def trace_back(input: TensorSpec) -> tuple[Piece, ...]:
    return (Piece("input", vector(0, spec((), input.dtype), gradient(input))),) if wants(input) else ()


@backward("Tensor.unfold", "aten::unfold", *spellings("unfold_copy", "ta"))
def unfold_view_backward(input: TensorSpec, dimension: Any, size: Any, step: Any) -> tuple[Piece, ...]:
    # The elements of overlapping windows are added into zeros.
    if not wants(input) or not input.shape:
        return ()
    length, window = input.shape[need(dimension, "dimension")], need(size, "size")
    count = (length - window) // need(step, "step") + 1
    grad = spec((input.numel // max(length, 1) * count * window,), input.dtype)
    return (Piece("input", vector(grad.numel, grad, gradient(input))),)


@backward("Tensor.expand_as", "aten::expand_as")
def expand_as_backward(input: TensorSpec, other: TensorSpec) -> tuple[Piece, ...]:
    if not wants(input) or input.shape == other.shape:
        return ()
    grad = spec(other.shape, input.dtype)
    return (Piece("input", vector(grad.numel, grad, gradient(input))),)
