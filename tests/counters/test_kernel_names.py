"""The same kernel as Nsight Compute, nsys and Kineto write it."""

import pytest

from pyprof.counters.match import base, same_kernels, words

NCU = (
    "void vectorized_elementwise_kernel<4, unnamed>::silu_kernel(TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() "
    "lambda() (instance 6)]::operator ()() lambda(BFloat16) (instance 1)], array<char *, 2>>(int, T2, T3)"
)
KINETO = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)"
    "::{lambda()#1}::operator()() const::{lambda()#6}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >"
    "(int, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}, std::array<char*, 2ul>)"
)
NSYS = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::silu_kernel(at::TensorIteratorBase &)"
    "::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 6)]::operator ()() const::"
    "[lambda(c10::BFloat16) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)"
)


def test_three_spellings_of_one_kernel() -> None:
    assert words(NCU) == words(KINETO) == words(NSYS)
    assert words(NCU) != words(NCU.replace("instance 6", "instance 7"))
    assert words(NCU) != words(NCU.replace("silu", "gelu"))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (NCU, "vectorized_elementwise_kernel"),
        (KINETO, "vectorized_elementwise_kernel"),
        ("enable_if<!T7, void>::type kernel<int, 0, 1, cublasGemvParamsEx<int>>(T13)", "kernel"),
        ("std::enable_if<!T7, void>::type internal::gemvx::kernel<int, false>(T13)", "kernel"),
        ("void (anonymous namespace)::elementwise_kernel_with_index<int>(int)", "elementwise_kernel_with_index"),
        (
            "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel<bfloat16_t>::Params)",
            "fmha_cutlassF_bf16_aligned_64x64_rf_sm80",
        ),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("", ""),
    ],
)
def test_the_functions_own_name(name: str, function: str) -> None:
    assert base(name) == function


def test_names_pair_at_the_first_level_that_any_equals() -> None:
    others = [KINETO, "void at::native::vectorized_elementwise_kernel<8, F>(int)", "triton_poi_fused_add_0"]
    own, theirs = same_kernels([NCU, "triton_poi_fused_add_0", "gone<1>(int)"], others)
    assert own[0] == theirs[0] >= 0 and own[1] == theirs[2] >= 0 and own[2] == -1 and theirs[1] == -1
    own, theirs = same_kernels(["vectorized_elementwise_kernel"], others)  # --kernel-name-base function
    assert own[0] == theirs[0] == theirs[1] >= 0 and theirs[2] == -1
    assert same_kernels([], others) == ([], [-1, -1, -1])


def test_a_bool_is_a_number() -> None:
    assert words("void f<false, true, 7>(T1)") == words("void f<(bool)0, (bool)1, (int)7>(float *)") == words("f<0, 1, 7>(int)")
