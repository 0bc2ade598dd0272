"""Ops that do no work on data: views, allocation, bookkeeping, questions about sizes. They cost nothing.

Of some the gradient is no view: it is copied into zeros, joined or summed.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, grad, gradient, need, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, Op, op

# In torch, as methods and in the dispatcher alike; not every name exists in each. Views with a backward stand below.
_VIEWS = """
    adjoint alias as_strided as_strided_ atleast_1d atleast_2d atleast_3d conj detach detach_ dsplit flatten hsplit imag
    movedim moveaxis mH mT matrix_H numpy_T permute positive ravel real reshape reshape_as resolve_conj resolve_neg
    squeeze squeeze_ swapaxes swapaxes_ swapdims swapdims_ t t_ transpose transpose_ unflatten unsafe_chunk unsafe_split
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
    is_tensor result_type can_cast promote_types resize_as_ is_nonzero sym_sum get_device is_same_size
    expand expand_as slice unfold
"""
_METHODS = """
    size stride dim ndimension numel nelement item tolist numpy is_contiguous storage_offset data_ptr new_empty
    new_empty_strided requires_grad_ retain_grad retain_grads resize_ resize_as_ resize set_ record_stream H T slice
    mH mT is_pinned is_set_to sum_to_size_view unsafe_split unsafe_chunk is_same_size is_nonzero __len__ __iter__
    __contains__ __bool__ __float__ __int__ __index__ __format__ __repr__ __array__ __dlpack__ element_size get_device
    is_floating_point is_complex is_inference share_memory_ is_shared new_tensor
"""


def _nothing(*args: object, **more: object) -> Cost:
    return Cost(0, 0, 0)


for _prefix, _names in (("torch.", _PYTHON), ("Tensor.", _METHODS), ("aten::", _DISPATCHER)):
    op(*(_prefix + name for name in sorted({*_VIEWS.split(), *_names.split()})), kind="structural")(_nothing)


@op("narrow", "select", "diagonal", kind="structural")
@op("aten::slice", kind="structural")
def partial_view(input: TensorSpec) -> Op:
    """Backward: zeros with the incoming gradient copied in."""
    yield Cost(0, 0, 0)
    yield from grad("input", input, 0)


@op("split", "split_with_sizes", "chunk", "unbind", "tensor_split", kind="structural")
def parts(input: TensorSpec) -> Op:
    """Backward: the gradients of the parts are joined."""
    yield Cost(0, 0, 0)
    yield from grad("input", input, 0, gradient(input))


@op("Tensor.expand", "aten::expand", kind="structural")
@op("broadcast_to", kind="structural")
def expand(input: TensorSpec, *sizes: object, **more: object) -> Op:
    """Backward: the gradient is summed over what was expanded."""
    yield Cost(0, 0, 0)
    given = sizes[0] if sizes and isinstance(sizes[0], (list, tuple)) else (sizes or more.get("size", ()))
    if not isinstance(given, (list, tuple)):
        return
    numbers = [n for n in given if isinstance(n, int) and not isinstance(n, bool)]
    rank = len(numbers) - len(input.shape)
    yield from _summed(input, tuple(input.shape[i - rank] if n == -1 else n for i, n in enumerate(numbers)))


@op("expand_as", places="Ta", kind="structural")
def expand_as(input: TensorSpec, other: TensorSpec) -> Op:
    yield Cost(0, 0, 0)
    yield from _summed(input, other.shape)


def _summed(input: TensorSpec, shape: tuple[int, ...]) -> Op:
    if shape != input.shape:
        expanded = spec(shape, input.dtype)
        yield from grad("input", input, expanded.numel, expanded)


# ---------------------------------------------------------------------------------------------- diagonals


@op("diagflat")
def diagflat(input: TensorSpec, offset: object = 0) -> Op:
    size = input.numel + abs(need(offset, "offset"))
    yield copy_cost(input, spec((size, size), input.dtype))
    yield from grad("input", input, 0, gradient(input))


@op("diag")
def diag(input: TensorSpec, diagonal: object = 0) -> Op:
    """A vector on the diagonal of a new matrix, or the diagonal of a matrix as a new vector."""
    shift = need(diagonal, "diagonal")
    if len(input.shape) == 2:
        rows, columns = input.shape
        row = spec((max(0, min(rows + min(shift, 0), columns - max(shift, 0))),), input.dtype)
        yield copy_cost(row, row)
        yield from grad("input", input, 0, row)
    else:
        size = (input.shape[-1] if input.shape else 1) + abs(shift)
        yield copy_cost(input, spec((size, size), input.dtype))
        yield from grad("input", input, 0, gradient(input))


@op("diag_embed")
def diag_embed(input: TensorSpec, offset: object = 0) -> Op:
    if offset is UNKNOWN:
        yield Missing("offset not recorded")
    else:
        size = input.shape[-1] + abs(need(offset, "offset"))
        yield copy_cost(input, spec((*input.shape[:-1], size, size), input.dtype))
    yield from grad("input", input, 0, gradient(input))


@op("trace")
def trace(input: TensorSpec) -> Op:
    row, total = spec((min(input.shape),), input.dtype), spec((), input.dtype)
    yield vector(row.numel, row, total)
    yield from grad("input", input, 0, total)
