"""Attention of a product, softmax and a product: found by shapes, by ops or by neighbouring kernels, and by nothing less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.timeline import A100, H100, Timeline

HALF = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
MANY = (4, 4, 96)


def _attention(timeline: Timeline, length: int, batch: int = 96) -> Timeline:
    """Scale, mask, softmax and dropout, forward; each product of 1000 us."""
    scores, values = f"bf16[8,{batch // 8},{length},{length}]", f"bf16[8,{batch // 8},{length},64]"
    timeline.op(f"matmul({values}, bf16[8,{batch // 8},64,{length}])", (HALF, 1_000))
    timeline.op(f"mul({scores}, 0.125)", ("mul_kernel", 400)).op(
        f"add({scores}, bf16[1,1,{length},{length}])", ("add_kernel", 500)
    )
    timeline.op(f"F.softmax({scores}, -1)", ("cunn_SoftMaxForward", 700)).op(
        f"F.dropout({scores}, 0.1)", ("fused_dropout_kernel", 300)
    )
    return timeline.op(f"matmul({scores}, {values})", (HALF, 1_000))


def test_all_that_is_done_to_the_scores_goes(tmp_path: Path) -> None:
    """A long vision transformer with odd sizes: first of all the attention, not its alignment."""
    timeline = _attention(Timeline(H100), 3137)
    timeline.op("F.linear(bf16[8,3137,768], bf16[768,768])", (HALF, 200)).op("F.gelu(bf16[8,3137,3072])", ("gelu_kernel", 100))
    found = timeline.advice(tmp_path)
    advice = found["fused_attention"]
    least = 2 * 96 * 3137 * 3137 * 64 / 989.4e12 * 1e9
    assert next(iter(found)) == "fused_attention" and "scaled_dot_product_attention" in advice.do
    assert advice.saves_ns == pytest.approx(1_900_000 + 2 * (1e6 - least), abs=8_000)
    assert advice.time_ns == 3_900_000 and "4 kernels on its scores take 1.90 ms" in advice.evidence


def test_backward_is_fused_as_well(tmp_path: Path) -> None:
    timeline = _attention(Timeline(), 1024)
    forward = timeline.advice(tmp_path)["fused_attention"].saves_ns or 0
    scores, values = "bf16[96,1024,1024]", "bf16[96,1024,64]"
    timeline.op(f"bmm({scores}, {values})", (HALF, 1_000)).op(f"bmm({values}, bf16[96,64,1024])", (HALF, 1_000))
    timeline.op(f"_softmax_backward_data({scores}, {scores}, -1, bf16[])", ("cunn_SoftMaxBackward", 600))
    timeline.op(f"bmm({scores}, {values})", (HALF, 1_000)).op(f"bmm({scores}, {values})", (HALF, 1_000))
    both = timeline.advice(tmp_path)["fused_attention"]
    least = 2 * 96 * 1024 * 1024 * 64 / 312e12 * 1e9
    assert both.saves_ns == pytest.approx(forward + 600_000 + 4 * (1e6 - least), rel=0.01)


@pytest.mark.parametrize("scale", ["elementwise_kernel<MulFunctor<float>>", "elementwise_kernel<DivFunctor<float>>"])
def test_without_shapes_by_the_kernels_between_products_of_one_batch(tmp_path: Path, scale: str) -> None:
    timeline = Timeline().op(None, ("ampere_sgemm_128x128_tn", 300), grid=MANY).op(None, (scale, 150), ("fill", 2))
    timeline.op(None, ("reduce_kernel<512, 1, ReduceOp<float, MaxOps<float>>>", 100), ("exp_kernel_cuda", 150))
    timeline.op(None, ("reduce_kernel<512, 1, ReduceOp<float, sum_functor<float>>>", 90), ("div_kernel", 200))
    timeline.op(None, ("ampere_sgemm_128x128_nn", 450), grid=(1, 4, 96))
    advice = timeline.advice(tmp_path)["fused_attention"]
    assert advice.saves_ns == pytest.approx(690_000 + 150_000, abs=9_000)  # the second product could be as fast as the first


def test_without_shapes_by_the_ops_between(tmp_path: Path) -> None:
    timeline = Timeline().op("baddbmm(...)", (HALF, 300)).op("F.softmax(...)", ("softmax_warp_forward", 200))
    advice = timeline.op("bmm(...)", (HALF, 300)).advice(tmp_path)["fused_attention"]
    assert advice.saves_ns == pytest.approx(200_000, abs=3_000)


def test_silent_where_the_second_product_is_of_new_tensors(tmp_path: Path) -> None:
    """Products of two matrices, split along k by their grid's third side, and the softmax of each."""
    timeline = Timeline()
    for _ in range(2):
        drawn = "distribution_elementwise_grid_stride_kernel<float, 4, normal_and_transform<float>>"
        timeline.op(None, (drawn, 30), (drawn, 30)).op(None, ("ampere_sgemm_128x64_nn", 1_300), grid=(16, 32, 7))
        timeline.op(None, ("softmax_warp_forward", 400))
    assert "fused_attention" not in timeline.advice(tmp_path)


def test_silent_with_short_sequences(tmp_path: Path) -> None:
    assert "fused_attention" not in _attention(Timeline(), 64).advice(tmp_path)


def test_silent_where_it_is_fused(tmp_path: Path) -> None:
    timeline = Timeline().op("F.linear(bf16[8,1024,768], bf16[2304,768])", (HALF, 300))
    q = "bf16[8,12,1024,64]"
    timeline.op(
        f"F.scaled_dot_product_attention({q}, {q}, {q})", ("pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", 400)
    )
    assert "fused_attention" not in timeline.op("F.linear(bf16[8,1024,768], bf16[768,768])", (HALF, 300)).advice(tmp_path)


def test_one_op_that_fell_back_to_its_parts(tmp_path: Path) -> None:
    """SDPA of torch runs as product, softmax and product where no fused kernel takes its arguments."""
    q = "fp32[8,12,1024,64]"
    parts = ("ampere_sgemm_128x128_tn", 900), ("softmax_warp_forward", 700), ("ampere_sgemm_128x64_nn", 900)
    advice = Timeline().op(f"F.scaled_dot_product_attention({q}, {q}, {q})", *parts).advice(tmp_path)["fused_attention"]
    assert advice.saves_ns == pytest.approx(700_000, abs=3_000) and advice.time_ns == 2_500_000
    assert "sdpa_kernel" in advice.do


def test_silent_about_a_classifier_and_its_loss(tmp_path: Path) -> None:
    """A product, softmax and a product of its gradient: no batch of heads, with shapes or without."""
    named, bare = Timeline(), Timeline()
    named.op("F.linear(bf16[8192,768], bf16[32000,768])", (HALF, 3_000)).op(
        "F.log_softmax(bf16[8192,32000], -1)", ("cunn_SoftMaxForward", 900)
    )
    named.op("mm(bf16[8192,32000], bf16[32000,768])", (HALF, 3_000))
    splits = (24, 32, 2)
    bare.op(None, ("ampere_sgemm_128x64_tn", 3_000), grid=splits).op(
        None, ("cunn_SoftMaxForward<LogSoftMaxForwardEpilogue>", 900)
    )
    bare.op(None, ("nll_loss_forward_reduce_cuda_kernel_2d", 5)).op(None, ("ampere_sgemm_128x64_nn", 3_000), grid=splits)
    assert not {"fused_attention"} & (named.advice(tmp_path).keys() | bare.advice(tmp_path).keys())


def test_silent_about_other_tensors_of_as_many_elements(tmp_path: Path) -> None:
    """[8,256,3072] has as many elements as [8,12,256,256], and batched products without a softmax are no attention."""
    timeline = _attention(Timeline(), 256)
    before = timeline.advice(tmp_path)["fused_attention"].time_ns
    after = timeline.op("F.gelu(bf16[8,256,3072])", ("gelu_kernel", 800)).advice(tmp_path)["fused_attention"].time_ns
    assert before == after
    products = (
        Timeline().op("bmm(bf16[96,1024,64], bf16[96,64,1024])", (HALF, 900)).op("mul(bf16[96,1024,1024], 2)", ("mul", 900))
    )
    assert "fused_attention" not in products.op("bmm(bf16[96,1024,1024], bf16[96,1024,64])", (HALF, 900)).advice(tmp_path)


def test_of_another_stream_or_batch_without_shapes(tmp_path: Path) -> None:
    timeline = Timeline(A100).op(None, ("ampere_sgemm_128x128_tn", 300), grid=MANY).op(None, ("softmax_warp_forward", 400))
    assert "fused_attention" not in timeline.op(None, ("ampere_sgemm_128x128_nn", 450), grid=(1, 4, 95)).advice(tmp_path)
