"""Ops of fbgemm_gpu by definition; signatures as the given traces of DLRM have them."""

from pyprof.model.opcall import UNKNOWN
from pyprof.prof.formulas import evaluate, evaluate_backward
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


def test_look_ups_read_each_weight_once_at_most_and_the_gradient_of_bags() -> None:
    """Three tables of 8 columns, 10 rows each; 4 bags of 100 indices a table: 2,400 weights are asked for, 240 are there."""
    weights, tables, columns = t(240), t(3, dtype="int64"), t(4, dtype="int32")
    indices, offsets, cumulated = t(300, dtype="int64"), t(13, dtype="int64"), t(4, dtype="int64")
    shared = (tables, columns, 24, 8, cumulated, 10, indices, offsets, 0)
    split = (t(0), weights, t(0), t(0, 0), t(3, dtype="int32"))
    read, table, bags = 8 * (300 + 13), 4 * 240, 4 * 4 * 24
    look_up = call("fbgemm::dense_embedding_codegen_lookup_function", weights, *shared, None)
    assert (evaluate(look_up).cost.flops, evaluate(look_up).cost.bytes) == (2400, read + table + bags)
    (piece,) = evaluate_backward(look_up)
    assert (piece.cost.flops, piece.cost.bytes) == (2400, read + bags + table)
    look_up = call("fbgemm::split_embedding_codegen_lookup_sgd_function", *split, *shared, None)
    assert evaluate(look_up).cost.bytes == read + table + bags
    (piece,) = evaluate_backward(look_up)  # the rows are updated in place
    assert (piece.cost.flops, piece.cost.bytes) == (2400 + 2 * 240, read + bags + 2 * table)
    few = call("fbgemm::dense_embedding_codegen_lookup_function", t(24_000), *shared, None)
    assert evaluate(few).cost.bytes == read + 4 * 2400 + bags


def test_a_gather_reads_no_more_than_there_is() -> None:
    table, many = t(10, 8), t(1000, dtype="int64")
    for name, arguments in (
        ("aten::embedding", (table, many)),
        ("aten::index_select", (table, 0, many)),
        ("aten::index", (table, [many])),
        ("aten::gather", (table, 0, t(1000, 8, dtype="int64"))),
    ):
        found = evaluate(call(name, *arguments)).cost.bytes
        index = 8 * 8000 if name == "aten::gather" else 8 * 1000
        assert found == index + 4 * 80 + 4 * 8000, name
        (piece,) = evaluate_backward(call(name, *arguments))
        assert piece.cost.bytes == index + 4 * 8000 + 3 * 4 * 80, name
