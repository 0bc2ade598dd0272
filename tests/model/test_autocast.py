"""Calls under autocast and how they ran, from what torch's documentation says of its lists."""

import pytest

from pyprof.model.autocast import Cast, run_call, treatment
from pyprof.model.markers import decode, encode_op
from pyprof.model.opcall import OpCall, TensorSpec, parse_call

F = "torch.nn.functional"
CASES = [
    # module, call, device, dtype -> the call as it ran
    (F, "linear(fp32[4,8], fp32[16,8]^, fp32[16])", "cuda", "float16", "linear(fp16[4,8], fp16[16,8]^, fp16[16])"),
    (F, "linear(bf16[4,8], fp32[16,8], None)", "cpu", "bfloat16", "linear(bf16[4,8], bf16[16,8], None)"),
    (F, "linear(fp64[4,8], fp64[16,8], None)", "cuda", "float16", "linear(fp64[4,8], fp64[16,8], None)"),
    ("Tensor", "__matmul__(fp32[4,8], fp32[8,2])", "cuda", "bfloat16", "__matmul__(bf16[4,8], bf16[8,2])"),
    ("torch", "mm(fp32[4,8], fp32[8,2], out=fp32[4,2])", "cuda", "bfloat16", "mm(fp32[4,8], fp32[8,2], out=fp32[4,2])"),
    ("Tensor", "addmm_(fp32[4,2], fp32[4,8], fp32[8,2])", "cuda", "bfloat16", "addmm_(fp32[4,2], fp32[4,8], fp32[8,2])"),
    (F, "layer_norm(bf16[4,8], (8,), fp32[8])", "cuda", "bfloat16", "layer_norm(fp32[4,8], (8,), fp32[8])"),
    (F, "layer_norm(bf16[4,8], (8,), fp32[8])", "cpu", "bfloat16", "layer_norm(bf16[4,8], (8,), fp32[8])"),
    ("Tensor", "softmax(bf16[4,8], -1)", "cuda", "bfloat16", "softmax(bf16[4,8], -1, dtype=fp32)"),
    ("Tensor", "softmax(bf16[4,8], -1, dtype=bf16)", "cuda", "bfloat16", "softmax(bf16[4,8], -1, dtype=bf16)"),
    ("Tensor", "softmax(fp32[4,8], -1)", "cuda", "bfloat16", "softmax(fp32[4,8], -1)"),
    ("Tensor", "softmax(bf16[4,8], -1)", "cpu", "bfloat16", "softmax(bf16[4,8], -1)"),
    ("torch", "addcmul(fp16[4], fp32[4], fp16[4])", "cuda", "float16", "addcmul(fp32[4], fp32[4], fp32[4])"),
    ("torch", "addcmul(fp16[4], fp16[4], fp16[4])", "cuda", "float16", "addcmul(fp16[4], fp16[4], fp16[4])"),
    ("torch", "cat([bf16[4], fp32[4], int64[4]])", "cpu", "bfloat16", "cat([fp32[4], fp32[4], int64[4]])"),
    (F, "cross_entropy(bf16[4,8], int64[4])", "cpu", "bfloat16", "cross_entropy(fp32[4,8], int64[4])"),
    # On CUDA only its parts are on a list, and they take the logits as they are.
    (F, "cross_entropy(bf16[4,8], int64[4])", "cuda", "bfloat16", "cross_entropy(bf16[4,8], int64[4])"),
    ("Tensor", "__add__(bf16[4], fp32[4])", "cuda", "bfloat16", "__add__(bf16[4], fp32[4])"),
    ("torch", "einsum(\"ij,jk->ik\", (fp32[4,8], fp32[8,2]))", "cpu", "bfloat16", "einsum(\"ij,jk->ik\", (bf16[4,8], bf16[8,2]))"),
    ("torch", "einsum(\"ij->ji\", (fp32[4,8],))", "cpu", "bfloat16", "einsum(\"ij->ji\", (fp32[4,8],))"),
    ("torch", "tensordot(fp32[4,8], fp32[8,2], 1)", "cpu", "bfloat16", "tensordot(any[4,8], any[8,2], 1)"),
    (F, "softmin(bf16[4,8], -1)", "cuda", "bfloat16", "softmin(bf16[4,8], -1, dtype=fp32)"),
    (F, "pairwise_distance(bf16[4,8], bf16[4,8])", "cuda", "bfloat16", "pairwise_distance(any[4,8], any[4,8])"),
    ("torch.linalg", "matrix_power(fp32[4,4], 3)", "cpu", "bfloat16", "matrix_power(any[4,4], 3)"),
    ("torch", "_transformer_encoder_layer_fwd(fp32[2,4,8], 8, 2, fp32[24,8])", "cpu", "bfloat16",
     "_transformer_encoder_layer_fwd(any[2,4,8], 8, 2, any[24,8])"),
    ("torch", "mm(fp32[4,8], fp32[8,2])", "mps", "float16", "mm(any[4,8], any[8,2])"),
    ("torch.linalg", "vector_norm(fp16[4], 2)", "cuda", "float16", "vector_norm(fp16[4], 2, dtype=fp32)"),
    ("torch.special", "expm1(fp16[4])", "cuda", "float16", "expm1(fp32[4])"),
    # What is cast is copied: dense, in the same order of dimensions.
    ("torch", "mm(fp32[4,8]{0,1}, fp32[8,2]{1,8})", "cuda", "float16", "mm(fp16[4,8], fp16[8,2]{1,8})"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "text", "device", "dtype", "ran"), CASES)
def test_types_in_which_a_call_ran(module: str, text: str, device: str, dtype: str, ran: str) -> None:
    call = parse_call(text, module)
    found, _ = run_call(call, device, dtype)
    assert str(found) == ran
    marker = decode(encode_op(call, ("net.py:1",), f"{device}:{dtype}"))
    assert marker.call == found
    assert marker.text.startswith(text), "the text is what was called"
    assert run_call(found, device, dtype)[0] == found, "what ran is cast no further" if "any" not in ran else ""


def test_casts_are_told_apart_from_what_is_passed_as_it_is() -> None:
    call = parse_call("linear(bf16[4,8], fp32[16,8]^, fp32[16])", F)
    _, casts = run_call(call, "cuda", "bfloat16")
    assert casts == (
        Cast(TensorSpec((16, 8), "float32", (8, 1)), "bfloat16"),
        Cast(TensorSpec((16,), "float32", (1,)), "bfloat16"),
    )


def test_undescribed_calls_and_unknown_ops_are_left_alone() -> None:
    bare = OpCall(F, "linear", described=False)
    assert run_call(bare, "cuda", "float16") == (bare, ())
    assert treatment(OpCall("mymod", "fused"), "cuda") == ""


def test_a_region_that_cannot_be_read_makes_no_marker() -> None:
    text = encode_op(parse_call("mm(fp32[4,8], fp32[8,2])", "torch"), (), "cuda:float17")
    assert not decode(text).own
