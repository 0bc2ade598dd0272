"""Ops of fbgemm_gpu by definition; signatures as the given traces of DLRM have them."""

from __future__ import annotations

from pyprof.opcall import UNKNOWN
from pyprof.prof.formulas import evaluate
from tests.prof.formulas.formula_oracles import call, t


def test_sparse_features_are_moved_and_their_offsets_summed() -> None:
    permute, lengths, values = t(24, dtype="int32"), t(24, 16, dtype="int32"), t(768, dtype="int32")
    cost = evaluate(call("fbgemm::permute_2D_sparse_data", permute, lengths, values, None, UNKNOWN)).cost
    assert (cost.flops, cost.bytes) == (2 * 24 * 16, 4 * (24 + 2 * 24 * 16 + 2 * 768))
    weighted = evaluate(call("fbgemm::permute_2D_sparse_data", permute, lengths, values, t(768), UNKNOWN)).cost
    assert weighted.bytes == (cost.bytes or 0) + 4 * 2 * 768
    # Features repeated: the number of values that come out is data, unless it is given.
    repeated = t(30, dtype="int32")
    unknown = evaluate(call("fbgemm::permute_2D_sparse_data", repeated, lengths, values, None, UNKNOWN)).cost
    assert (unknown.flops, unknown.bytes) == (54 * 16, None)
    told = evaluate(call("fbgemm::permute_2D_sparse_data", repeated, lengths, values, None, 900)).cost
    assert told.bytes == 4 * (30 + 54 * 16 + 768 + 900)


def test_offsets_and_checks() -> None:
    cost = evaluate(call("fbgemm::asynchronous_complete_cumsum", t(384, dtype="int32"))).cost
    assert (cost.flops, cost.bytes) == (384, 4 * (384 + 385))
    rows, indices, offsets = t(3, dtype="int64"), t(768, dtype="int64"), t(385, dtype="int64")
    cost = evaluate(call("fbgemm::bounds_check_indices", rows, indices, offsets, 0, t(1, dtype="int64"), None)).cost
    assert (cost.flops, cost.bytes) == (2 * 768, 8 * (3 + 768 + 385))


def test_pooled_embeddings_are_copied() -> None:
    places = [t(n, dtype="int64") for n in (5, 4, 5, 4)]
    cost = evaluate(call("fbgemm::permute_pooled_embs_auto_grad", t(16, 96), *places)).cost
    assert (cost.flops, cost.bytes) == (0, 2 * 4 * 16 * 96 + 8 * 18)
