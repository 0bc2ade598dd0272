"""Embedding look-ups and bags. A look-up does no arithmetic; a bag adds its rows.

Bytes: the indices, each row asked for (read as often as it is asked for: which are equal is data) and the output. The
gradient of the table is zeroed and then added to: read the incoming rows, read and write as many rows, and write the table's
zeros.
"""

from __future__ import annotations

from typing import Any

from pyprof.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, need, opt, spec, vector, wants
from pyprof.prof.formulas.pointwise import spellings
from pyprof.prof.formulas.registry import Cost, Missing, Piece, backward, formula

__all__: list[str] = []


def _lookup(table: TensorSpec, indices: TensorSpec) -> Cost:
    rows = spec((*indices.shape, table.shape[-1]), table.dtype)
    return copy_cost(indices, rows, rows)


def _lookup_backward(table: TensorSpec, indices: TensorSpec, sparse: Any) -> tuple[Piece, ...]:
    if not wants(table):
        return ()
    rows = spec((*indices.shape, table.shape[-1]), table.dtype)
    if sparse is True:  # the gradient is the rows and their indices
        return (Piece("weight", copy_cost(rows, rows, indices)),)
    return (Piece("weight", vector(rows.numel, rows, rows, rows, indices, gradient(table))),)


@formula("torch.nn.functional.embedding")
def functional_embedding(
    input: TensorSpec, weight: TensorSpec, padding_idx: Any = None, max_norm: Any = None, norm_type: Any = 2.0,
    scale_grad_by_freq: Any = False, sparse: Any = False,
) -> Cost:  # fmt: skip
    return _lookup(weight, input)


@backward("torch.nn.functional.embedding")
def functional_embedding_backward(
    input: TensorSpec, weight: TensorSpec, padding_idx: Any = None, max_norm: Any = None, norm_type: Any = 2.0,
    scale_grad_by_freq: Any = False, sparse: Any = False,
) -> tuple[Piece, ...]:  # fmt: skip
    return _lookup_backward(weight, input, sparse)


@formula("aten::embedding", "torch.embedding")
def embedding(
    weight: TensorSpec, indices: TensorSpec, padding_idx: Any = -1, scale_grad_by_freq: Any = False, sparse: Any = False
) -> Cost:
    return _lookup(weight, indices)


@backward("aten::embedding", "torch.embedding")
def embedding_backward(
    weight: TensorSpec, indices: TensorSpec, padding_idx: Any = -1, scale_grad_by_freq: Any = False, sparse: Any = False
) -> tuple[Piece, ...]:
    return _lookup_backward(weight, indices, sparse)


@formula("aten::embedding_dense_backward", "aten::embedding_backward")
def embedding_dense_backward(
    grad_output: TensorSpec, indices: TensorSpec, num_weights: Any, padding_idx: Any = -1, scale_grad_by_freq: Any = False,
    sparse: Any = False,
) -> Cost:  # fmt: skip
    table = spec((need(num_weights, "num_weights"), grad_output.shape[-1]), grad_output.dtype)
    rows = gradient(grad_output)
    return vector(rows.numel, grad_output, rows, rows, indices, table)


# ---------------------------------------------------------------------------------------------- bags


def _bag(table: TensorSpec, indices: TensorSpec, offsets: Any, weights: Any, mode: Any) -> Cost:
    size = table.shape[-1]
    bags = indices.shape[0] if len(indices.shape) == 2 else (opt(offsets) or spec((1,), None)).numel
    rows = spec((indices.numel, size), table.dtype)
    operations = rows.numel * (2 if opt(weights) is not None else 1)
    made = spec((bags, size), table.dtype)
    # The greatest of a bag leaves its position too.
    positions = spec((bags, size), "int64") if mode in ("max", 2) else None
    return vector(operations, indices, opt(offsets), opt(weights), rows, made, positions)


def _bag_backward(table: TensorSpec, indices: TensorSpec, offsets: Any, weights: Any) -> tuple[Piece, ...]:
    if not wants(table):
        return ()
    size = table.shape[-1]
    bags = indices.shape[0] if len(indices.shape) == 2 else (opt(offsets) or spec((1,), None)).numel
    rows = spec((indices.numel, size), table.dtype)
    incoming = spec((bags, size), table.dtype)
    return (Piece("weight", vector(rows.numel, incoming, indices, opt(offsets), opt(weights), rows, rows, gradient(table))),)


@formula("torch.nn.functional.embedding_bag")
def functional_embedding_bag(
    input: TensorSpec, weight: TensorSpec, offsets: Any = None, max_norm: Any = None, norm_type: Any = 2,
    scale_grad_by_freq: Any = False, mode: Any = "mean", sparse: Any = False, per_sample_weights: Any = None,
    include_last_offset: Any = False, padding_idx: Any = None,
) -> Cost:  # fmt: skip
    table, indices = _table_first(input, weight)
    return _bag(table, indices, offsets, per_sample_weights, mode)


def _table_first(a: TensorSpec, b: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    """F.embedding_bag once took the table first; the indices are the integers."""
    return (a, b) if wants(a) and not wants(b) else (b, a)


@backward("torch.nn.functional.embedding_bag")
def functional_embedding_bag_backward(
    input: TensorSpec, weight: TensorSpec, offsets: Any = None, max_norm: Any = None, norm_type: Any = 2,
    scale_grad_by_freq: Any = False, mode: Any = "mean", sparse: Any = False, per_sample_weights: Any = None,
    include_last_offset: Any = False, padding_idx: Any = None,
) -> tuple[Piece, ...]:  # fmt: skip
    return _bag_backward(weight, input, offsets, per_sample_weights)


_BAG = ("aten::embedding_bag", "torch.embedding_bag", "aten::_embedding_bag", "torch._embedding_bag",
        "aten::_embedding_bag_forward_only", "torch._embedding_bag_forward_only")  # fmt: skip


@formula(*_BAG)
def embedding_bag(
    weight: TensorSpec, indices: TensorSpec, offsets: Any, scale_grad_by_freq: Any = False, mode: Any = 0, sparse: Any = False,
    per_sample_weights: Any = None, include_last_offset: Any = False, padding_idx: Any = None,
) -> Cost:  # fmt: skip
    return _bag(weight, indices, offsets, per_sample_weights, mode)


@backward(*_BAG)
def embedding_bag_backward(
    weight: TensorSpec, indices: TensorSpec, offsets: Any, scale_grad_by_freq: Any = False, mode: Any = 0, sparse: Any = False,
    per_sample_weights: Any = None, include_last_offset: Any = False, padding_idx: Any = None,
) -> tuple[Piece, ...]:  # fmt: skip
    return _bag_backward(weight, indices, offsets, per_sample_weights)


@formula("aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward")
def embedding_bag_dense_backward(grad: TensorSpec, indices: TensorSpec, *more: Any) -> Cost:
    numbers = [m for m in more if isinstance(m, int) and not isinstance(m, bool)]
    count = numbers[0] if numbers else need(UNKNOWN, "num_weights")
    rows = spec((indices.numel, grad.shape[-1]), grad.dtype)
    return vector(rows.numel, grad, indices, rows, rows, spec((count, grad.shape[-1]), grad.dtype))


@formula("aten::_embedding_bag_sparse_backward")
def embedding_bag_sparse_backward(
    grad: TensorSpec, indices: TensorSpec, offsets: Any, offset2bag: Any, bag_size: Any, num_weights: Any,
    scale_grad_by_freq: Any, mode: Any, per_sample_weights: Any = None, padding_idx: Any = -1,
) -> Cost:  # fmt: skip
    # Each index takes its bag's gradient, divided by the bag's size (mode 1) or times its weight: the rows, and their indices.
    rows = spec((indices.numel, grad.shape[-1]), grad.dtype)
    operations = rows.numel * ((need(mode, "mode") == 1) + (opt(per_sample_weights) is not None))
    return vector(operations, rows, opt(offset2bag), opt(per_sample_weights), rows, indices)


@formula("aten::_embedding_bag_per_sample_weights_backward")
def per_sample_weights_backward(
    grad: TensorSpec,
    weight: TensorSpec,
    indices: TensorSpec,
    offsets: Any,
    offset2bag: Any,
    mode: Any = 0,
    padding_idx: Any = -1,
) -> Cost:
    # For each index the inner product of its row and its bag's gradient.
    rows = spec((indices.numel, weight.shape[-1]), weight.dtype)
    return vector(2 * rows.numel, grad, rows, indices, opt(offset2bag), spec((indices.numel,), grad.dtype))


@formula("aten::embedding_sparse_backward")
def embedding_sparse_backward(
    grad: TensorSpec, indices: TensorSpec, num_weights: Any, padding_idx: Any, scale_grad_by_freq: Any = False
) -> Cost:
    # The gradient's own rows become the values of a sparse tensor; without a padding row nothing is moved.
    if need(padding_idx, "padding_idx") == -1:
        return Cost(0, 0, 0)
    raise Missing("how many indices are padding is data, not recorded")


@formula(*spellings("embedding_renorm_", "ta"), *spellings("embedding_renorm", "ta"))
def embedding_renorm(input: TensorSpec, indices: TensorSpec, max_norm: Any, norm_type: Any = 2.0) -> Cost:
    # The norm of each row asked for, 2 an element, and its scaling; rows are read and at the most all are written.
    rows = spec((indices.numel, input.shape[-1]), input.dtype)
    return vector(3 * rows.numel, indices, rows, rows)


@formula("aten::_no_grad_embedding_renorm_")
def script_embedding_renorm(weight: TensorSpec, input: TensorSpec, max_norm: Any, norm_type: Any = 2.0) -> Cost:
    return embedding_renorm(weight, input, max_norm, norm_type)


# ---------------------------------------------------------------------------------------------- FBGEMM's tables of tables

_FBGEMM = tuple(
    f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function"
    for optimizer in "sgd adagrad rowwise_adagrad adam partial_rowwise_adam lamb partial_rowwise_lamb lars_sgd none".split()
)


def _bags(
    weights: TensorSpec, tables: TensorSpec, total: Any, indices: TensorSpec, offsets: TensorSpec
) -> tuple[TensorSpec, TensorSpec]:
    """The rows read, and the bags written.

    As many tables as offsets of weights, of `total` columns together: a row of the mean width is read for each index
    (github.com/pytorch/FBGEMM, fbgemm_gpu/codegen).
    """
    count = max(tables.numel, 1)
    rows = spec((round(indices.numel * need(total, "total_D") / count),), weights.dtype)
    return rows, spec(((offsets.numel - 1) // count, total), weights.dtype)


def _bag_forward(
    weights: TensorSpec, tables: TensorSpec, total: Any, indices: TensorSpec, offsets: TensorSpec, scale: Any
) -> Cost:
    rows, bags = _bags(weights, tables, total, indices, offsets)
    return vector(rows.numel * (2 if opt(scale) is not None else 1), rows, indices, offsets, opt(scale), bags)


@formula(*_FBGEMM)
def fbgemm_lookup(
    placeholder: Any, dev_weights: TensorSpec, uvm_weights: Any, lxu_cache_weights: Any, weights_placements: Any,
    weights_offsets: TensorSpec, D_offsets: Any, total_D: Any, max_D: Any, hash_size_cumsum: Any, total_hash_size_bits: Any,
    indices: TensorSpec, offsets: TensorSpec, pooling_mode: Any = 0, indice_weights: Any = None, *more: Any,
) -> Cost:  # fmt: skip
    return _bag_forward(dev_weights, weights_offsets, total_D, indices, offsets, indice_weights)


@formula("fbgemm::dense_embedding_codegen_lookup_function")
def fbgemm_dense_lookup(
    dev_weights: TensorSpec, weights_offsets: TensorSpec, D_offsets: Any, total_D: Any, max_D: Any, hash_size_cumsum: Any,
    total_hash_size_bits: Any, indices: TensorSpec, offsets: TensorSpec, pooling_mode: Any = 0, indice_weights: Any = None,
    *more: Any,
) -> Cost:  # fmt: skip
    return _bag_forward(dev_weights, weights_offsets, total_D, indices, offsets, indice_weights)


@backward("fbgemm::dense_embedding_codegen_lookup_function")
def fbgemm_dense_lookup_backward(
    dev_weights: TensorSpec, weights_offsets: TensorSpec, D_offsets: Any, total_D: Any, max_D: Any, hash_size_cumsum: Any,
    total_hash_size_bits: Any, indices: TensorSpec, offsets: TensorSpec, pooling_mode: Any = 0, indice_weights: Any = None,
    *more: Any,
) -> tuple[Piece, ...]:  # fmt: skip
    # For each index its bag's gradient is read and added; the table's gradient is written in full.
    rows, _ = _bags(dev_weights, weights_offsets, total_D, indices, offsets)
    return (Piece("weight", vector(rows.numel, rows, indices, offsets, gradient(dev_weights))),)


# Operations of the update, a weight: w -= r g; row-wise AdaGrad squares and adds a row first,
# AdaGrad divides by sqrt(s += g g).
_UPDATE = {"sgd": 2, "rowwise_adagrad": 4, "adagrad": 6}


def _updating(optimizer: str) -> None:
    @backward(f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function")
    def fbgemm_lookup_backward(
        placeholder: Any, dev_weights: TensorSpec, uvm_weights: Any, lxu_cache_weights: Any, weights_placements: Any,
        weights_offsets: TensorSpec, D_offsets: Any, total_D: Any, max_D: Any, hash_size_cumsum: Any,
        total_hash_size_bits: Any, indices: TensorSpec, offsets: TensorSpec, pooling_mode: Any = 0,
        indice_weights: Any = None, *more: Any,
    ) -> tuple[Piece, ...]:  # fmt: skip
        # The gradients of equal indices are added, then the optimizer updates each row touched, in place: at most as many as
        # there are indices, and at most the tables.
        rows, _ = _bags(dev_weights, weights_offsets, total_D, indices, offsets)
        touched = spec((min(rows.numel, dev_weights.numel),), dev_weights.dtype)
        state = [touched, touched] if optimizer == "adagrad" else []
        operations = rows.numel + _UPDATE[optimizer] * touched.numel
        return (Piece("weight", vector(operations, rows, indices, offsets, touched, touched, state)),)


for _optimizer in _UPDATE:
    _updating(_optimizer)
