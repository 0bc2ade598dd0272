"""Embedding look-ups and bags. A look-up does no arithmetic; a bag adds its rows.

Bytes: the indices, each row that is looked up (as if no two were equal, which is data, but at most the table) and the output.
The gradient of the table is zeroed and then added to: read the incoming rows, read and write as many rows (at most the table),
and write the table's zeros.
"""

from __future__ import annotations

from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gathered, grad, gradient, need, opt, spec, vector, wants
from pyprof.prof.formulas.registry import Cost, Missing, Op, Piece, op


@op("aten::embedding", "torch.embedding", "torch.nn.functional.embedding", input="indices")
def embedding(weight: TensorSpec, indices: TensorSpec, sparse: object = False) -> Op:
    rows = spec((*indices.shape, weight.shape[-1]), weight.dtype)
    table = gathered(weight, rows.shape)
    yield copy_cost(indices, table, rows)
    if sparse is not True:
        yield from grad("weight", weight, rows.numel, rows, table, table, indices)
    elif wants(weight):  # the gradient is the rows and their indices
        yield Piece("weight", copy_cost(rows, rows, indices))


@op("aten::embedding_dense_backward", "aten::embedding_backward", grad="grad_output")
def embedding_dense_backward(grad_output: TensorSpec, indices: TensorSpec, num_weights: object) -> Cost:
    table = spec((need(num_weights, "num_weights"), grad_output.shape[-1]), grad_output.dtype)
    rows = gathered(table, grad_output.shape)
    return vector(grad_output.numel, grad_output, rows, rows, indices, table)


# ---------------------------------------------------------------------------------------------- bags


@op("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", places="ta")
def embedding_bag(
    weight: TensorSpec, indices: TensorSpec, offsets: object, mode: object = 0, per_sample_weights: object = None
) -> Op:
    size = weight.shape[-1]
    bags = indices.shape[0] if len(indices.shape) == 2 else (opt(offsets) or spec((1,), None)).numel
    rows, made = gathered(weight, (indices.numel, size)), spec((bags, size), weight.dtype)
    added = indices.numel * size
    read = (indices, opt(offsets), opt(per_sample_weights))
    # The greatest of a bag leaves its position too.
    positions = spec((bags, size), "int64") if mode in ("max", 2) else None
    yield vector(added * (2 if opt(per_sample_weights) else 1), *read, rows, made, positions)
    yield from grad("weight", weight, added, made, *read, rows, rows)


@op("torch.nn.functional.embedding_bag")
def functional_embedding_bag(
    input: TensorSpec, weight: TensorSpec, offsets: object = None, mode: object = "mean", per_sample_weights: object = None
) -> Op:
    if wants(input) and not wants(weight):  # once it took the table first; the indices are the integers
        input, weight = weight, input
    return embedding_bag(weight, input, offsets, mode, per_sample_weights)


@op("aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward")
def embedding_bag_dense_backward(grad: TensorSpec, indices: TensorSpec, *more: object) -> Cost:
    numbers = [m for m in more if isinstance(m, int) and not isinstance(m, bool)]
    count = numbers[0] if numbers else need(UNKNOWN, "num_weights")
    table = spec((count, grad.shape[-1]), grad.dtype)
    rows = gathered(table, (indices.numel, grad.shape[-1]))
    return vector(indices.numel * grad.shape[-1], grad, indices, rows, rows, table)


@op("aten::_embedding_bag_sparse_backward")
def embedding_bag_sparse_backward(
    grad: TensorSpec, indices: TensorSpec, offset2bag: object, mode: object, per_sample_weights: object = None
) -> Cost:
    # Each index takes its bag's gradient, divided by the bag's size (mode 1) or times its weight: the rows, and their indices.
    rows = spec((indices.numel, grad.shape[-1]), grad.dtype)
    operations = rows.numel * ((need(mode, "mode") == 1) + (opt(per_sample_weights) is not None))
    return vector(operations, rows, opt(offset2bag), opt(per_sample_weights), rows, indices)


@op("aten::_embedding_bag_per_sample_weights_backward")
def per_sample_weights_backward(grad: TensorSpec, weight: TensorSpec, indices: TensorSpec, offset2bag: object) -> Cost:
    # For each index the inner product of its row and its bag's gradient.
    size = weight.shape[-1]
    rows = gathered(weight, (indices.numel, size))
    return vector(2 * indices.numel * size, grad, rows, indices, opt(offset2bag), spec((indices.numel,), grad.dtype))


@op("aten::embedding_sparse_backward")
def embedding_sparse_backward(padding_idx: object) -> Cost:
    # The gradient's own rows become the values of a sparse tensor; without a padding row nothing is moved.
    if need(padding_idx, "padding_idx") == -1:
        return Cost(0, 0, 0)
    raise Missing("how many indices are padding is data, not recorded")


@op("embedding_renorm_", "embedding_renorm", places="ta")
@op("aten::_no_grad_embedding_renorm_", weight="input", input="indices")
def embedding_renorm(input: TensorSpec, indices: TensorSpec) -> Cost:
    # The norm of each row that is looked up, 2 an element, and its scaling; rows are read and at the most all are written.
    rows = gathered(input, (indices.numel, input.shape[-1]))
    return vector(3 * indices.numel * input.shape[-1], indices, rows, rows)


# ---------------------------------------------------------------------------------------------- FBGEMM's tables of tables

_DENSE = (
    "dev_weights weights_offsets D_offsets total_D max_D hash_size_cumsum total_hash_size_bits indices offsets pooling_mode"
    " indice_weights ..."
)
_SPLIT = _DENSE.replace("dev_weights", "placeholder dev_weights uvm_weights lxu_cache_weights weights_placements")


def _bags(
    tables: TensorSpec, total: object, indices: TensorSpec, offsets: TensorSpec, dtype: str | None
) -> tuple[int, TensorSpec]:
    """How many elements are looked up, and the bags written.

    As many tables as offsets of weights, of `total` columns together: a row of the mean width is looked up for each index
    (github.com/pytorch/FBGEMM, fbgemm_gpu/codegen).
    """
    count, columns = max(tables.numel, 1), need(total, "total_D")
    return round(indices.numel * columns / count), spec(((offsets.numel - 1) // count, columns), dtype)


@op("fbgemm::dense_embedding_codegen_lookup_function", order=_DENSE)
def fbgemm_dense_lookup(
    dev_weights: TensorSpec, weights_offsets: TensorSpec, total_D: object, indices: TensorSpec, offsets: TensorSpec,
    indice_weights: object = None,
) -> Op:  # fmt: skip
    looked_up, bags = _bags(weights_offsets, total_D, indices, offsets, dev_weights.dtype)
    weights, rows = opt(indice_weights), gathered(dev_weights, (looked_up,))
    yield vector(looked_up * (2 if weights else 1), rows, indices, offsets, weights, bags)
    # The bags' gradient is read, and added for each index of the bag; the table's gradient is written in full.
    yield Piece("weight", vector(looked_up, bags, indices, offsets, gradient(dev_weights)))


# Operations of the update, a weight: w -= r g; row-wise AdaGrad squares and adds a row first,
# AdaGrad divides by sqrt(s += g g). Of the others only the forward is counted.
_UPDATE = {"sgd": 2, "rowwise_adagrad": 4, "adagrad": 6}
_FORWARD_ONLY = "adam partial_rowwise_adam lamb partial_rowwise_lamb lars_sgd none".split()


def _lookup(optimizer: str) -> None:
    @op(f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function", order=_SPLIT, backward=optimizer in _UPDATE)
    def fbgemm_lookup(
        dev_weights: TensorSpec, weights_offsets: TensorSpec, total_D: object, indices: TensorSpec, offsets: TensorSpec,
        indice_weights: object = None,
    ) -> Op:  # fmt: skip
        yield next(fbgemm_dense_lookup(dev_weights, weights_offsets, total_D, indices, offsets, indice_weights))
        # The gradients of equal indices are added, then the optimizer updates each row touched, in place: at most as many as
        # there are indices, and at most the tables.
        looked_up, bags = _bags(weights_offsets, total_D, indices, offsets, dev_weights.dtype)
        touched = gathered(dev_weights, (looked_up,))
        state = [touched, touched] if optimizer == "adagrad" else []
        operations = looked_up + _UPDATE[optimizer] * touched.numel
        yield Piece("weight", vector(operations, bags, indices, offsets, touched, touched, state))


for _optimizer in (*_UPDATE, *_FORWARD_ONLY):
    _lookup(_optimizer)
