"""Kernels that a compiler generated: bytes of their arguments, products where Inductor counted them."""

from __future__ import annotations

import pytest

from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.prof import formulas

X = TensorSpec((10, 10), "float32")


@pytest.mark.parametrize(
    ("facts", "products"),
    [({}, None), ({"kernel_flop": 2e3}, 2000), ({"kernel_flop": "2000"}, 2000), ({"kernel_flop": 0}, None), ({"kernel_flop": "na"}, None)],
)  # fmt: skip
def test_a_triton_kernel(facts: dict[str, object], products: int | None) -> None:
    call = OpCall("inductor", "triton_poi_fused_add_0", (X, X, X, 100), tuple(facts.items()), dispatcher=True)
    cost = formulas.evaluate(call).cost
    assert (cost.matmul_flops, cost.bytes) == (products, 1200)
    assert cost.vector_flops == (None if products is None else 0)


@pytest.mark.parametrize(("rows", "moved"), [(640, 4 * (10 + 640 * 8 + 10 * 8)), (641, None)])
def test_a_table_of_which_indices_choose_rows_is_not_counted_whole(rows: int, moved: int | None) -> None:
    buffers = TensorSpec((10,), "int32"), TensorSpec((rows, 8), "float32"), TensorSpec((10, 8), "float32")
    call = OpCall("inductor", "triton_poi_fused_embedding_0", (*buffers, 80), dispatcher=True)
    assert formulas.evaluate(call).cost.bytes == moved


def test_nothing_is_said_of_a_kernel_without_arguments() -> None:
    result = formulas.evaluate(OpCall("inductor", "cpp_fused_add_0", dispatcher=True, described=False))
    assert result.cost == formulas.Cost() and result.reason == "cpp_fused_add_0: arguments not recorded"
    assert formulas.known("inductor::anything") and not formulas.known("inductor.anything")


@pytest.mark.parametrize(
    ("name", "computes"),
    [
        ("triton_poi_fused__to_copy_1", False),
        ("triton_poi_fused_cat_constant_pad_nd_12", False),
        ("triton_poi_fused__unsafe_view_clone_transpose_3", False),
        ("triton_poi_fused_clone_mul_3", True),
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", True),  # what else it does is not known
        ("triton_red_fused__to_copy_1", True),
        ("triton_poi_fused_0", True),
    ],
)
def test_a_kernel_whose_ops_only_move_values_computes_nothing(name: str, computes: bool) -> None:
    cost = formulas.evaluate(OpCall("inductor", name, (X, X, 100), dispatcher=True)).cost
    assert (cost.flops, cost.bytes) == (None if computes else 0, 800)
