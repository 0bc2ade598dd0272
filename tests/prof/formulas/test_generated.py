"""Kernels that a compiler generated: bytes of their arguments, products where Inductor counted them."""

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


IDS, TABLE, ROWS = TensorSpec((10,), "int64"), TensorSpec((500, 8), "bfloat16"), TensorSpec((10, 8), "float32")
PART = TensorSpec((10, 8), "bfloat16")
GATHERED = 80 + 80 * 2 + 80 * 4  # indices, as many elements as are written, and those


# name, arguments -> bytes, their lower bound where they are unknown
@pytest.mark.parametrize(("name", "args", "moved", "at_least"), [
    ("poi_fused__to_copy_embedding", (IDS, TABLE, ROWS, 80), GATHERED, None),
    ("poi_fused_slice", (TABLE, PART, 80), 2 * 80 * 2, None),
    ("poi_fused_slice", (TABLE, PART, 10, 8), 2 * 80 * 2, None),  # by rows and columns
    ("poi_fused_index_put", (IDS, PART, TABLE, 80), None, 80 + 2 * 80 * 2),
    ("poi_fused_cat_slice", (TABLE, TensorSpec((2, 8), "bfloat16"), PART, 80), None, 2 * 80 * 2),
    ("poi_fused_stack_select", (TABLE, TABLE, PART, 80), None, 2 * 80 * 2),
    ("poi_fused_clone", (PART, PART, 80), 2 * 80 * 2, None),
    ("red_fused_embedding_mean_mul", (IDS, TABLE, ROWS, 10, 8), None, GATHERED),
    ("poi_fused_mul_slice", (TABLE, PART, 80), None, 2 * 80 * 2),
    ("poi_fused_cat_mul_slice", (TABLE, PART, 80), None, 80 * 2),
    ("red_fused_mean", (TABLE, IDS, 10, 400), 4000 * 2 + 80, None),
    ("poi_fused_avg_pool2d", (TABLE, PART, 80), 4000 * 2 + 80 * 2, None),  # reads all of it
    ("poi_fused", (IDS, TensorSpec((641, 8), "bfloat16"), PART), None, 80 + 8 * 2 + 80 * 2),
    ("poi_fused", (IDS, TensorSpec((640, 8), "bfloat16"), PART), 80 + 640 * 8 * 2 + 80 * 2, None),
])  # fmt: skip
def test_parts_of_buffers_that_a_kernel_reads(
    name: str, args: tuple[object, ...], moved: int | None, at_least: int | None
) -> None:
    cost = formulas.evaluate(OpCall("inductor", f"triton_{name}_0", args, dispatcher=True)).cost
    assert (cost.bytes, cost.at_least) == (moved, at_least)


A, B, OUT = (TensorSpec(shape, "bfloat16") for shape in ((32, 64), (128, 64), (32, 128)))
Q, KV = TensorSpec((2, 8, 256, 64), "bfloat16"), TensorSpec((2, 2, 256, 64), "bfloat16")
ONE, BLOCKS = TensorSpec((1, 1, 1), "int32"), TensorSpec((1, 1, 2, 2), "int32")
PAIRS = 2 * 8 * 256 * 256


@pytest.mark.parametrize(("ops", "args", "products", "bound"), [
    ("mm", (A, B, OUT), 2 * 32 * 64 * 128, ""),
    ("addmm_relu_t", (A, B, TensorSpec((128,), "bfloat16"), OUT), 2 * 32 * 64 * 128, ""),
    ("add_mm", (OUT, A, B), 2 * 32 * 64 * 128, ""),  # written in place
    ("bmm", (TensorSpec((4, 8, 16), "float16"), TensorSpec((4, 16, 8), "float16"), TensorSpec((4, 8, 8), "float16")), 2 * 4 * 8 * 16 * 8, ""),
    ("mm", (A, TensorSpec((128, 60), "bfloat16"), OUT), None, ""),
    ("mm_mm", (A, B, OUT), None, ""),
    ("convolution", (TensorSpec((2, 3, 8, 8), "half"), TensorSpec((4, 3, 3, 3), "half"), TensorSpec((2, 4, 6, 6), "half")), 2 * 288 * 27, ""),
    ("flex_attention", (Q, KV, KV, ONE, ONE, Q), 4 * PAIRS * 64, ""),
    ("flex_attention", (Q, KV, KV, BLOCKS, BLOCKS, Q), 4 * PAIRS * 64, "upper"),
    ("flex_attention_backward", (Q, KV, KV, Q, BLOCKS, Q), 10 * PAIRS * 64, "upper"),
])  # fmt: skip
def test_a_template(ops: str, args: tuple[object, ...], products: int | None, bound: str) -> None:
    cost = formulas.evaluate(OpCall("inductor", f"triton_tem_fused_{ops}_3", args, dispatcher=True)).cost
    assert (cost.matmul_flops, cost.bound) == (products, bound)


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
