"""Ops of fbgemm_gpu around jagged features and pooled embeddings: permutations, offsets and checks.

Values are moved, not computed; the running sums that turn lengths into offsets count one operation a length. The look-ups
themselves are with the embeddings. Signatures: github.com/pytorch/FBGEMM, fbgemm_gpu/src.
"""

from __future__ import annotations

from pyprof.opcall import TensorSpec
from pyprof.prof.formulas.algebra import copy_cost, gradient, opt, spec, vector
from pyprof.prof.formulas.registry import Cost, op

__all__: list[str] = []


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
    return copy_cost(pooled, gradient(pooled), *places)
