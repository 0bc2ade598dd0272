"""Ops on sparse tensors. How many values are stored is data that no shape shows, so most costs are unknown, with that reason.

A product with a sparse matrix is not one of its dense size: `torch.sparse.mm` of 1 % non-zeros would be counted a hundred times
over. Only what works on the index and value tensors themselves, whose sizes are recorded, has numbers. Constructors and
changes of the flags cost nothing: they keep the tensors that they are given.
"""

from __future__ import annotations

from pyprof.model.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dtype_of, gradient, need, spec, vector
from pyprof.prof.formulas.registry import Cost, Missing, op, spellings

_PRODUCTS = (
    "torch.sparse.mm", *spellings("smm"), "torch.sparse.addmm", *spellings("sspaddmm"), *spellings("hspmm", "ta"),
    "torch.sparse.sampled_addmm", "aten::sparse_sampled_addmm", "torch.sparse._sparse_addmm", "torch.sparse._sparse_mm",
    "aten::_sparse_mm_reduce_impl_backward", "aten::_spsolve", "torch.sparse.spsolve",
    *(name for op in ("_sparse_addmm", "_sparse_mm", "_sparse_mm_reduce_impl", "_sparse_sparse_matmul")
      for name in spellings(op, "ta")),
)  # fmt: skip
_ON_VALUES = (
    "torch.sparse.sum", "torch.sparse.softmax", "torch.sparse.log_softmax", "torch.sparse.spdiags", "aten::_spdiags",
    *(name for op in ("_sparse_sum", "_sparse_softmax", "_sparse_log_softmax", "_sparse_csr_sum", "_sparse_csr_prod",
                      "native_norm")
      for name in spellings(op, "ta")),
    "aten::_sparse_sum_backward", "aten::_sparse_softmax_backward_data", "aten::_sparse_log_softmax_backward_data",
    "aten::copy_sparse_to_sparse_", "aten::copy_sparse_to_sparse", "aten::_gather_sparse_backward",
)  # fmt: skip
# Composites of searches, gathers and sorts that have formulas and were recorded with the sizes that they found.
_CONVERSIONS = (
    *(name for op in ("to_sparse", "to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc", "coalesce")
      for name in (*spellings(op, "Ta"), *spellings(f"_{op}", "Ta"))),
    *spellings("sparse_mask", "Ta"), "aten::_sparse_mask_projection", "aten::to_dense_backward",
    *(name for op in ("indices_copy", "_indices_copy", "values_copy", "_values_copy", "crow_indices_copy",
                      "col_indices_copy", "ccol_indices_copy", "row_indices_copy", "_rowwise_prune")
      for name in spellings(op, "ta")),
)  # fmt: skip


@op(*_PRODUCTS, kind="matmul")
@op(*_ON_VALUES)
@op(*_CONVERSIONS, composed=True)
def of_non_zeros(*tensors: object, **more: object) -> Cost:
    raise Missing("the number of non-zeros is data, not recorded")


@op("_convert_indices_from_coo_to_csr", places="ta")
def coo_to_csr(input: TensorSpec, size: object, out_int32: object = False) -> Cost:
    # Each of the sorted row indices is compared with the next; size + 1 beginnings are written.
    return vector(input.numel, input, spec((need(size, "size") + 1,), "int32" if out_int32 is True else "int64"))


@op("_convert_indices_from_csr_to_coo", places="ta")
def csr_to_coo(crow_indices: TensorSpec, col_indices: TensorSpec, out_int32: object = False) -> Cost:
    written = "int32" if out_int32 is True else "int64"
    return vector(0, crow_indices, col_indices, spec((2, col_indices.numel), written))


_CONSTRUCTORS = """
    sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor
    _sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_with_dims _sparse_csr_tensor_unsafe _sparse_csc_tensor_unsafe
    _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe _sparse_compressed_tensor_unsafe sparse_resize_ sparse_resize_and_clear_
    sparse_resize sparse_resize_and_clear resize_as_sparse_ resize_as_sparse _coalesced_ _coalesced _dimI _dimV
    _sparse_broadcast_to _sparse_broadcast_to_copy
"""


@op(*_CONSTRUCTORS.split(), places="ta", kind="structural")
def constructor(*tensors: object, **more: object) -> Cost:
    return Cost(0, 0, 0)


# ---------------------------------------------------------------------------------------------- oneDNN's own layout


@op("to_mkldnn", places="Ta", kind="copy")
def to_mkldnn(input: TensorSpec, dtype: object = None) -> Cost:
    return copy_cost(input, spec(input.shape, dtype_of(dtype) or input.dtype))


@op("aten::to_mkldnn_backward", kind="copy")
def to_mkldnn_backward(grad: TensorSpec, input: TensorSpec) -> Cost:
    return copy_cost(grad, gradient(input))
