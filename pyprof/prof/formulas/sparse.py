"""Ops on sparse tensors. How many values are stored is data that no shape tells, so most costs are not known, and that is said.

A product with a sparse matrix is not one of its dense size: `torch.sparse.mm` of 1 % non-zeros would be counted a hundred times
over. Only what works on the index and value tensors themselves, whose sizes are recorded, has numbers. Constructors and
changes of the flags cost nothing: they take hold of the tensors that they are given.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, dtype_of, gradient, need, spec, vector
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, formula

__all__: list[str] = []

_PRODUCTS = (
    "torch.sparse.mm", *spellings("smm"), "torch.sparse.addmm", *spellings("sspaddmm"), *spellings("hspmm", "ta"),
    "torch.sparse.sampled_addmm", "aten::sparse_sampled_addmm", "torch._sparse_addmm", "torch.sparse._sparse_addmm",
    "aten::_sparse_addmm", "torch._sparse_mm", "torch.sparse._sparse_mm", "aten::_sparse_mm", "aten::_sparse_mm_reduce_impl",
    "torch._sparse_mm_reduce_impl", "aten::_sparse_mm_reduce_impl_backward", "aten::_sparse_sparse_matmul",
    "torch._sparse_sparse_matmul", "aten::_spsolve", "torch.sparse.spsolve",
)  # fmt: skip


@formula(*_PRODUCTS, kind="matmul")
def sparse_product(*tensors: Any, **more: Any) -> Cost:
    raise Missing("the number of non-zeros is data, not recorded")


_ON_VALUES = (
    "torch.sparse.sum", "torch._sparse_sum", "aten::_sparse_sum", "aten::_sparse_sum_backward", "torch.sparse.softmax",
    "torch._sparse_softmax", "aten::_sparse_softmax", "aten::_sparse_softmax_backward_data", "torch.sparse.log_softmax",
    "torch._sparse_log_softmax", "aten::_sparse_log_softmax", "aten::_sparse_log_softmax_backward_data",
    "torch._sparse_csr_sum", "aten::_sparse_csr_sum", "torch._sparse_csr_prod", "aten::_sparse_csr_prod", "aten::native_norm",
    "torch.native_norm", "aten::copy_sparse_to_sparse_", "aten::copy_sparse_to_sparse", "torch.sparse.spdiags",
    "aten::_spdiags", "aten::_gather_sparse_backward",
)  # fmt: skip


@formula(*_ON_VALUES)
def on_values(*tensors: Any, **more: Any) -> Cost:
    raise Missing("the number of non-zeros is data, not recorded")


# Composites of searches, gathers and sorts that have formulas and were recorded with the sizes that they found.
_CONVERSIONS = (
    *(name for op in ("to_sparse", "_to_sparse", "to_sparse_csr", "_to_sparse_csr", "to_sparse_csc", "_to_sparse_csc",
                      "to_sparse_bsr", "_to_sparse_bsr", "to_sparse_bsc", "_to_sparse_bsc", "coalesce", "_coalesce",
                      "sparse_mask")
      for name in (f"Tensor.{op}", f"aten::{op}")),
    "aten::_sparse_mask_projection", "aten::to_dense_backward", "aten::_rowwise_prune", "torch._rowwise_prune",
    *(f"{place}{op}" for op in ("indices_copy", "_indices_copy", "values_copy", "_values_copy", "crow_indices_copy",
                                "col_indices_copy", "ccol_indices_copy", "row_indices_copy")
      for place in ("torch.", "aten::")),
)  # fmt: skip


@formula(*_CONVERSIONS, composed=True)
def conversion(*tensors: Any, **more: Any) -> Cost:
    raise Missing("the number of non-zeros is data, not recorded")


@formula("aten::_convert_indices_from_coo_to_csr", "torch._convert_indices_from_coo_to_csr")
def coo_to_csr(input: TensorSpec, size: Any, out_int32: Any = False) -> Cost:
    # Each of the sorted row indices is compared with the next; size + 1 beginnings are written.
    return vector(input.numel, input, spec((need(size, "size") + 1,), "int32" if out_int32 is True else "int64"))


@formula("aten::_convert_indices_from_csr_to_coo", "torch._convert_indices_from_csr_to_coo")
def csr_to_coo(crow_indices: TensorSpec, col_indices: TensorSpec, out_int32: Any = False, transpose: Any = False) -> Cost:
    written = "int32" if out_int32 is True else "int64"
    return vector(0, crow_indices, col_indices, spec((2, col_indices.numel), written))


_MADE_OF = """
    sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor
    _sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_with_dims _sparse_csr_tensor_unsafe _sparse_csc_tensor_unsafe
    _sparse_bsr_tensor_unsafe _sparse_bsc_tensor_unsafe _sparse_compressed_tensor_unsafe sparse_resize_ sparse_resize_and_clear_
    sparse_resize sparse_resize_and_clear resize_as_sparse_ resize_as_sparse _coalesced_ _coalesced _dimI _dimV
    _sparse_broadcast_to _sparse_broadcast_to_copy
"""


@formula(*(f"{place}{op}" for op in _MADE_OF.split() for place in ("torch.", "aten::")), kind="structural")
def made_of(*tensors: Any, **more: Any) -> Cost:
    return Cost(0, 0, 0)


# ---------------------------------------------------------------------------------------------- oneDNN's own layout


@formula("Tensor.to_mkldnn", "aten::to_mkldnn", kind="copy")
def to_mkldnn(input: TensorSpec, dtype: Any = None) -> Cost:
    return copy_cost(input, spec(input.shape, dtype_of(dtype) or input.dtype))


@formula("aten::to_mkldnn_backward", kind="copy")
def to_mkldnn_backward(grad: TensorSpec, input: TensorSpec) -> Cost:
    return copy_cost(grad, gradient(input))


@formula(
    *(f"{place}mkldnn_reorder_conv{rank}d_weight" for rank in (2, 3) for place in ("torch._C._nn.", "aten::")), kind="copy"
)
def mkldnn_reorder(input: TensorSpec, *options: Any) -> Cost:
    return copy_cost(input, gradient(input))
