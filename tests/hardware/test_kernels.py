"""Kernel names understood: every rule's own example, real names of many devices, and what Kineto recorded beside them."""

import bisect
import gzip
import json
import re
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.hardware.kernels import classify, has_tensor_path, is_of, rules, verdict
from pyprof.hardware.precision import READERS
from pyprof.model.dtypes import lookup


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.kernel.rule)
def test_every_rule_is_the_first_to_match_its_own_example(rule: Any) -> None:
    kernel = classify(rule.example)
    assert kernel.rule == rule.kernel.rule
    assert rule.kernel.kind in ("gemm", "conv", "attention", "rnn", "memory", "copy", "comm", "unknown")
    assert rule.kernel.role in ("main", "aux") and rule.kernel.certainty in ("high", "medium", "low")
    assert rule.reads in READERS or not rule.reads.startswith("@")
    if rule.kernel.tensor_core == "yes":
        assert kernel.is_product and kernel.unit not in ("fma", "dfma", "memory", "copy", "comm")
    if kernel.role == "aux" or rule.kernel.kind in ("memory", "copy", "comm"):
        assert rule.kernel.tensor_core == "no"


@pytest.mark.parametrize(
    "families", [{"nccl"}, {"nccl", "symm_mem_collective", "expert_parallel_comm"}, {"cutlass", "memset"}, set()]
)
def test_a_kernel_is_of_the_families_that_hold_its_class(families: set[str]) -> None:
    names = [*(rule.example for rule in rules()), "add", "", "nccl", "record_param_comms"]
    assert [is_of(name, families) for name in names] == [classify(name).family in families for name in names]


CUTLASS75 = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(cutlass_75_tensorop::Params)"
FFMA = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
SM90 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
GEMVX = (
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, (bool)0, "
    "(bool)1, (bool)1, (bool)0, (int)6, (bool)0, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const __nv_bfloat16>>>(T13)"
)
FA2 = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0, (bool)0, cutlass::bfloat16_t>>"
TINYGEMM = "void at::native::tinygemm_m16n8k16_chunk_kernel<at::native::ALayout_RM<0>, at::native::BLayout_TC_int4<8, 128>>(void const*)"
VLLM_CUTLASS = (
    "void cutlass::Kernel2<vllm::enable_sm%s_to_sm%s<cutlass::gemm::kernel::GemmWithEpilogueVisitor<cutlass::gemm::threadblock::"
    "MmaMultistage<%s, cutlass::gemm::warp::MmaTensorOp<cutlass::gemm::GemmShape<64, 64, 64>>, cutlass::bfloat16_t>>>>"
)
V100, T4, A100, ADA, H100, B200, B300, PRO6000 = (7, 0), (7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0)
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)"

# name, op dtype, op multiplies matrices, compute capability -> tc, unit, math
VERDICTS: list[tuple[str, str | None, bool | None, tuple[int, int] | None, str | None, str, str]] = [
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "bfloat16", True, H100, "1", "wgmma", "bf16"),
    ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", "bfloat16", True, B200, "1", "tcgen05", "bf16"),
    ("nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT", None, None, None, "1", "mma", "bf16"),
    ("nvjet_sm100_tst_64x8_64x16_2x4_h_bz_splitK_TNT", None, None, None, "1", "tcgen05", "bf16"),
    ("nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN", "bf16", True, PRO6000, "1", "hmma", "bf16"),
    ("nvjet_sm120_qqhsh_mma_128x64x64", "float8_e4m3fn", True, PRO6000, "1", "qmma", "fp8"),
    ("nvjet_qqtst_128x256_128x6_2x1_2cta_v_bz_TNT", "float8_e4m3fn", True, B200, "1", "tcgen05", "fp8"),
    ("nvjet_ootst_128x256_256x5_2x1_2cta_v_bz_Avec16UE4M3_Bvec16UE4M3_TNT", None, True, B300, "1", "tcgen05", "fp4"),
    ("nvjet_sss_tf32_128x256_TNT", "float32", True, H100, "1", "wgmma", "tf32"),
    ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "Half", True, H100, "1", "wgmma", "fp16"),
    (SM90, "c10::BFloat16", True, H100, "1", "wgmma", "bf16"),
    (CUTLASS75, "c10::BFloat16", True, H100, "1", "hmma", "bf16"),
    ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>()", "bf16", True, H100, "1", "hmma", "bf16"),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x4_nn_align1>()", "float32", True, A100, "1", "hmma", "tf32"),
    ("cutlass_80_tensorop_s1688bf16gemm_128x128_16x4_nt_align4", "float32", True, A100, "1", "hmma", "bf16"),
    ("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_32x6_nn_align8", None, None, None, "1", "hmma", "fp16"),
    ("cutlass_80_tensorop_i16832gemm_s8_128x128_64x4_tn_align16", "int8", True, A100, "1", "imma", "int8"),
    ("cutlass_80_tensorop_d884gemm_64x128_16x3_nn_align1", "float64", True, A100, "1", "dmma", "fp64"),
    ("cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_128x128x64_2x1x1_0_ttt_align8_warpspecialized", None, True, H100, "1", "wgmma", "fp16"),
    ("cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_64x128x128_2x1x1_0_tnt_align16", None, True, H100, "1", "wgmma", "fp8"),
    ("cutlass3x_sm100_bstensorop_s256x256x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_bf16_bf16_256x256x256_4x4x1_0_tnt_align32", None, True, B200, "1", "tcgen05", "fp4"),
    ("cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu", "float", True, B200, "0", "fma", "fp32"),
    (FFMA, "float", True, A100, "0", "fma", "fp32"),  # Tensor Cores by the original's list
    (FFMA, None, None, None, "0", "fma", "fp32"),  # an sm80 kernel needs a device that has TF32
    ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8", "float", True, A100, "1", "hmma", "tf32"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32", "bf16", True, H100, "1", "hmma", "bf16"),
    ("sm80_xmma_fprop_implicit_gemm_interleaved_i8i8_i8i32_f32_nchw_vect_c_32kcrs_vect_c_32_nchw_vect_c_32_tilesize256x128x64", "qint8", True, A100, "1", "imma", "int8"),
    ("sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x64_stage3_warpsize2x2x1_tensor16x8x32_execute_kernel__5x_cublas", "float8_e4m3fn", True, ADA, "1", "qmma", "fp8"),
    ("sm90_xmma_gemm_f64f64_f64f64_f64_nt_n_tilesize128x128x16_stage3_warpsize4x2x1_tensor16x8x16", "double", True, H100, "1", "dmma", "fp64"),
    ("sm75_xmma_fprop_implicit_gemm_indexed_wo_smem_f16f16_f16f16_f16_nhwckrsc_nhwc_tilesize128x128x32", "half", True, T4, "1", "hmma", "fp16"),
    ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "float16", True, V100, "1", "hmma", "fp16"),
    ("volta_h884gemm_256x64_ldg8_tn", "float16", True, V100, "1", "hmma", "fp16"),
    ("turing_fp16_s1688gemm_fp16_128x64_sliced1x2_ldg8_f2f_tn", "float16", True, T4, "1", "hmma", "fp16"),
    ("turing_fp16_i8816cudnn_int8_256x64_ldg16_relu_singleBuffer_small_nt_v1", None, True, T4, "1", "imma", "int8"),
    ("trt_turing_h1688cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", "half", True, T4, "1", "hmma", "fp16"),
    ("ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "bf16", True, A100, "1", "hmma", "bf16"),
    ("ampere_s16816gemm_bf16_128x128_nt", "bf16", True, A100, "1", "hmma", "bf16"),
    ("ampere_sgemm_128x64_tn", "float", True, A100, "0", "fma", "fp32"),
    ("ampere_sgemm_128x64_tn", None, None, None, "0", "fma", "fp32"),
    ("ampere_sgemm_128x64_tn", "float", True, (8, 6), "0", "fma", "fp32"),
    ("volta_sgemm_64x64_nt", "float", True, V100, "-", "fma", "fp32"),
    ("volta_sgemm_64x64_nt", "float", True, A100, "0", "fma", "fp32"),
    ("volta_sgemm_64x64_nt", "float", True, None, None, "fma", "fp32"),
    ("volta_fp16_sgemm_fp16_64x64_nn", "half", True, V100, "0", "fma", "fp32"),
    ("volta_dgemm_64x64_nn", "double", True, V100, "-", "dfma", "fp64"),
    ("cutlass_80_simt_dgemm_128x128_8x3_nn_align1", "double", True, A100, "0", "dfma", "fp64"),
    ("ampere_sgemm_32x32_sliced1x4_tn", "float", True, T4, "-", "fma", "fp32"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(T1::Params)", "float", True, (8, 6), "0", "fma", "fp32"),
    ("cudnn_volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "float", True, V100, "-", "fma", "fp32"),
    ("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int)", "float", True, V100, "-", "fma", "fp32"),
    ("void cudnn::cnn::wgrad_alg0_engine<__half, 128, 6, 7, 3, 3, 5, false, 512>(int, int)", "half", True, V100, "0", "fma", "fp32"),
    (GEMVX, "c10::BFloat16", True, H100, "0", "fma", "fp32"),
    (GEMVX, "c10::BFloat16", True, None, None, "fma", "fp32"),
    ("void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, false, cublasGemvParams<float>>(float)", "float", True, V100, "-", "fma", "fp32"),
    (FA2, "bf16", True, H100, "1", "hmma", "bf16"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm75", "float", True, T4, "-", "fma", "fp32"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", "float", True, A100, "1", "hmma", "tf32x3"),
    ("fmha_cutlassB_f16_aligned_64x64_k64_sm70", "half", True, V100, "1", "hmma", "fp16"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x256_4x1x1_kernel0_0", "half", True, H100, "1", "wgmma", "fp16"),
    ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x128_4x1x1_kernel0_0", "half", True, A100, "1", "hmma", "fp16"),
    ("triton_tem_fused__to_copy_addmm_gelu_t_view_9", "bf16", True, H100, "1", "wgmma", "bf16"),
    ("triton_tem_fused_addmm_t_view", "float", True, A100, None, "unknown", ""),
    ("triton_tem_fused_bmm_7", "float", True, V100, "-", "fma", "fp32"),
    ("triton_poi_fused_add_cos_sin_0", "float", True, A100, "-", "memory", ""),
    ("triton__0d1d2d3", "float", True, A100, None, "unknown", ""),
    ("triton__0d1d2d3", "float", False, A100, "-", "unknown", ""),
    ("void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>)", "float", True, A100, "-", "memory", ""),
    (GELU, "bf16", True, H100, "-", "memory", ""),
    ("my_own_kernel", "bf16", True, H100, None, "unknown", ""),
    # products in namespaces that hold other kernels too: vLLM, SGLang, ATen, FBGEMM, bitsandbytes, TensorRT-LLM
    (TINYGEMM, None, None, A100, "1", "hmma", "bf16"),
    ("void at::native::matrix_to_m16n8k16_Bint4_layout<8>(int)", None, None, A100, "-", "memory", ""),
    ("void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int, int, __half*, int*, __half*)", None, None, A100, "1", "hmma", "fp16"),
    ("vllm::awq::dequantize_weights(int*, __half*, int*, __half*, int, int, int)", None, None, A100, "-", "memory", ""),
    ("void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 4>(__half const*)", None, None, A100, "0", "hfma2", "fp16"),
    ("void vllm::gptq::reconstruct_exllama_4bit_kernel(unsigned int const*)", None, None, A100, "-", "memory", ""),
    ("void vllm::moe::MarlinMoESingle<256, 4, 16, 4, 4, false, 8>(int4 const*)", "bfloat16", True, A100, "1", "hmma", "bf16"),
    ("void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899906843648l, 256>(int4 const*)", None, None, H100, "1", "hmma", "bf16"),
    ("void marlin::gptq_marlin_repack_kernel<256, 4, false>(unsigned int const*)", None, None, H100, "-", "memory", ""),
    (VLLM_CUTLASS % ("89", "90", "cutlass::float_e4m3_t"), None, None, ADA, "1", "qmma", "fp8"),
    (VLLM_CUTLASS % ("80", "89", "signed char"), None, None, A100, "1", "imma", "int8"),
    ("void cutlass::Kernel2<vllm::enable_sm89_to_sm90<", None, None, ADA, "1", "hmma", ""),
    ("void cutlass::Kernel<cutlass::gemm::kernel::GemmFpAIntB<cutlass::half_t, cutlass::gemm::warp::MmaTensorOp>>", None, None, A100, "1", "hmma", "fp16"),
    ("void cutlass::Kernel<cutlass::gemm::kernel::Gemm<float, cutlass::gemm::warp::MmaSimt<float>>>", None, None, A100, "0", "fma", "fp32"),
    ("void router_gemm_kernel_bf16_output<__nv_bfloat16, 128, 8, 4, 256, 7168>(int)", None, None, H100, "0", "fma", "fp32"),
    ("void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int)", None, None, A100, "0", "fma", "fp32"),
    ("void fused_a_gemm_kernel<1, 2112, 7168, 16, 8, 256, 8>(__nv_bfloat16*)", None, None, H100, None, "unknown", ""),
    ("void fbgemm_gpu::gqa_attn_splitk_wmma_kernel<8, true>(int)", None, None, H100, None, "unknown", ""),
    ("void fbgemm_gpu::jagged_dense_bmm_kernel<int, float>(int)", None, None, A100, "0", "fma", "fp32"),
    ("void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)", None, None, A100, "-", "memory", ""),
    ("void flash::flash_fwd_splitkv_mla_kernel<Traits<cutlass::bfloat16_t>>(int)", None, None, H100, "1", "wgmma", "bf16"),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x256x128x1_swiglu", None, None, H100, "1", "wgmma", "bf16"),
    ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", None, None, (9, 4), "1", "mfma", "bf16"),
    ("_kernel_matmul_fp8_row", None, None, H100, "1", "wgmma", "fp8"),
    ("void vllm::some_kernel_of_tomorrow<float>(float*)", None, None, H100, None, "unknown", ""),
    ("void at::native::some_kernel_of_tomorrow<float>(float*)", None, None, H100, None, "unknown", ""),
    ("void cudnn::cnn::some_kernel_of_tomorrow<float>(float*)", None, None, H100, None, "unknown", ""),
    ("void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<float>>(int)", None, None, (9, 4), "-", "memory", ""),
    ("_ZN2ck16tensor_operation6device39kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28Gridwise", "bf16", True, (9, 4), "1", "mfma", "bf16"),
    ("my_own_kernel", "bf16", False, H100, "-", "unknown", ""),
    ("Memset (Device)", "bf16", True, H100, "-", "copy", ""),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", None, None, H100, "-", "comm", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "matmul", "cc", "tc", "unit", "math"), VERDICTS, ids=range(len(VERDICTS)))
def test_verdict(
    name: str, dtype: str | None, matmul: bool | None, cc: tuple[int, int] | None, tc: str | None, unit: str, math: str
) -> None:
    found = verdict(classify(name), op_dtype=dtype, matmul=matmul, cc=cc)
    assert (found.tc, found.unit, found.math) == (tc, unit, math), found.reason
    assert bool(found.reason) == (found.tc != "1")


# family, Tensor Cores in an op of bf16 on an H100 of which nothing is known: kernels (~ is a blank)
OF_LIBRARIES = """
norm -: _gemma_rms_layernorm_forward layer_norm_fwd_kernel _rms_norm_fwd_kernel l2norm_fwd_kernel
activation -: _silu_mul_fp8_quant_deep_gemm swiglu_fwd_kernel logsigmoid_bwd_kernel
loss -: cross_entropy_fwd_kernel liger_cross_entropy_kernel
softmax -: _softmax_fwd_kernel
rope -: _rope_fwd_kernel _triton_qwen2vl_mrope
recurrent_scan -: _chunk_cumsum_fwd_kernel _state_passing_fwd_kernel _causal_conv1d_fwd_kernel
recurrent_scan -: void~selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128>>
recurrent_scan -: fused_recurrent_gated_delta_rule_fwd_kernel chunk_local_cumsum_scalar_kernel
linear_attention 1: chunk_gated_delta_rule_fwd_kernel_h_blockdim64 chunk_kda_bwd_kernel_wy_dqkg_fused _chunk_scan_fwd_kernel
linear_attention 1: _bmm_chunk_fwd_kernel parallel_nsa_fwd_kernel
attention_aux -: parallel_attn_bwd_kernel_preprocess _attn_bwd_preprocess attn_fwd_combine _bwd_preprocess_do_o_dot
attention_aux -: _fwd_kernel_stage2
paged_attn_decode 0: _fwd_kernel_stage1
paged_attn_prefill 1: _fwd_grouped_kernel_stage1
triton_attention 1: _attn_fwd _fwd_kernel _jagged_flash_attention_bwd_basic_kernel
triton_matmul 1: _swiglu_kernel_forward _lora_shrink_kernel triton_fp8_gemm_1x128_128x1_kernel
quantize_cast -: _triton_fp8_rowwise_2d_fused_scale_and_cast_kernel SubMeanKernel
grouped_gemm 1: _fbgemm_grouped_gemm_fp8_rowwise
sage_attention 1: void~qk_int_sv_f8_attn_kernel<128u,64u,32u> sage_fwd
nccl -: ncclAllReduceRingLLKernel_sum_f32(ncclColl) ncclBroadcastRingKernel_copy_i8(ncclColl)
nccl -: ncclReduceScatterTreeLLKernel_sum_f16(ncclColl) void~AllReduceKernel<512,2,FuncSum<float>,float>(KernelArgs<float>)
nccl -: ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)
symm_mem_collective -: allToAllV(void*,void*,long*,long)
nvfuser -: CudaCodeGen::kernel1(CudaCodeGen::Tensor<float,2>) nvfuser_inner_persistent_f0_c1_r0_g3
xla_fusion -: loop_add_fusion input_reduce_fusion_2 wrapped_transpose
xla_product 1: gemm_fusion_dot_general_1
libcudf -: void~cudf::detail::valid_if_n_kernel<int>(int)
tensorrt_myelin -: __myl_MulSumMulDivAdd_myl0_3
tensorrt_myelin ?: __myl_FcAdd_myl0_5
sort_scan -: DeviceCompactInitKernel
splitk_reduce -: Cijk_B_PostGSU2
inductor_template 1: triton_tem_fused_mm_0
unknown ?: my_own_fwd_kernel
"""


@pytest.mark.parametrize("line", OF_LIBRARIES.split("\n")[1:-1])
def test_kernels_of_libraries(line: str) -> None:
    family, tc = line.partition(":")[0].split()
    for name in line.partition(": ")[2].split():
        kernel = classify(name.replace("~", " "))
        found = verdict(kernel, op_dtype="bfloat16", matmul=None, cc=H100)
        assert (kernel.family, found.tc or "?") == (family, tc), name
        if tc == "?" or kernel.rule == "triton_attention":  # an op that is known to have no products knows better than a word
            assert verdict(kernel, op_dtype="bfloat16", matmul=False, cc=H100).tc == "-"


def test_fp32_where_tf32_exists_says_so() -> None:
    assert verdict(classify("ampere_sgemm_128x64_tn"), op_dtype="float", matmul=True, cc=A100).reason == "TF32 off"


@pytest.mark.parametrize(
    ("name", "accumulator", "align"),
    [
        (CUTLASS75, "fp32", 1),
        (FFMA, "fp32", 4),
        ("volta_h884gemm_64x64_nt", "fp16", None),
        ("cutlass_80_tensorop_h16816gemm_128x64_32x6_nn_align8", "fp16", 8),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "fp32", None),
        ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize128x128x32", "fp16", None),
    ],
)
def test_accumulator_and_alignment(name: str, accumulator: str, align: int | None) -> None:
    kernel = classify(name)
    assert (kernel.accumulator, kernel.align) == (accumulator, align)


def test_tensor_paths_by_device() -> None:
    assert [has_tensor_path("fp16", cc) for cc in ((6, 1), V100, T4)] == [False, True, True]
    assert [has_tensor_path("bf16", cc) for cc in (T4, A100)] == [False, True]
    assert [has_tensor_path("fp8", cc) for cc in ((8, 6), ADA, H100)] == [False, True, True]
    assert [has_tensor_path("fp64", cc) for cc in (A100, (8, 6), H100, B200, B300)] == [True, False, True, True, False]
    assert has_tensor_path("int64", A100) is None


@given(st.text(max_size=80))
def test_any_text_is_classified(name: str) -> None:
    kernel = classify(name)
    assert (kernel.rule == "") == (kernel.family == "unknown" and kernel.kind == "unknown" and kernel.certainty == "")


PIECES = st.sampled_from(
    "nvjet_ sm100_ cutlass_80_ cutlass3x_sm90_ wmma_ tensorop_ simt_ sm80_xmma_gemm_ ampere_ volta_ bmm_ Cijk_Ailk_Bljk_ fmhaSm100a "
    "tst_ qqtst_ zzz_ s16816gemm i32i32_i32i32_i32_ i8i32_i8i32_i32_ f16f16_ f32_ s8_ e4m3_ ue4m3xf4_ gemm_ h884 sgemm_ E2m1_ Fp32_ "
    "128x64 align8 warpgroupsize <double> <__half> _t128x16x256 sm100f HHS_ F8_".split()
)


@given(st.lists(PIECES, max_size=8))
def test_any_mixture_of_name_parts_is_classified(parts: list[str]) -> None:
    kernel = classify("".join(parts))
    found = verdict(kernel, op_dtype="bf16", matmul=True, cc=A100)
    assert found.tc != "1" or found.unit not in ("fma", "dfma", "memory", "copy", "comm", "unknown", "")
    assert kernel.precision in ("", *"fp64 tf32 tf32x3 fp32 bf16 fp16 fp8 fp6 fp4 int8 int4 int1 int32".split())


def _read(path: Path) -> dict[str, Any]:
    with gzip.open(path, "rt") as stream:
        loaded: dict[str, Any] = json.loads(stream.read(), strict=False)
    return loaded


def _durations(captures: Path, name: str) -> dict[str, float]:
    """Time by kernel name of a capture."""
    path, total = captures / name, defaultdict[str, float](float)
    if path.name.endswith(".json.gz"):
        for event in _read(path)["traceEvents"]:
            if str(event.get("cat")).lower() in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
                total[event["name"]] += event["dur"]
        return total
    names = (
        ("KERNEL", "demangledName", "StringIds", "id")
        if "nsys" in name
        else ("CONCURRENT_KERNEL", "name", "StringTable", "_id_")
    )
    table, column, strings, key = names
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    query = f"SELECT s.value, sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_{table} k JOIN {strings} s ON s.{key} = k.{column} GROUP BY 1"
    total.update(dict(db.execute(query)))
    db.close()
    return total


# By eye, over all names of these captures: what runs on Tensor Cores, and which other products there are.
ON_TENSOR_CORES = re.compile(r"tensorop|sm90_xmma_gemm_bf16|nvjet_tst|flash_fwd_kernel")
ON_CUDA_CORES = re.compile(r"sgemm|scudnn|gemv|gemmSN|gemmk1|dot_kernel|[dw]grad_(?:alg0_)?engine|convolve")


@pytest.mark.parametrize(
    ("name", "cc"),
    [
        ("kineto/h100_bert_small.json.gz", H100),
        ("kineto/h100_vit.json.gz", H100),
        pytest.param("kineto/a100_train_stacks.json.gz", A100, marks=pytest.mark.slow),
        ("kineto/v100_resnet50_2021.json.gz", V100),
        ("kineto/v100_dlrm_8ranks/worker0.pt.trace.json.gz", V100),
        ("nsys/h100_2gpu_train.nsys2026.2.sqlite", H100),
        ("nsys/a100_gpt2.7b.nsys2024.6.sqlite", A100),
        ("nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", (8, 6)),
        ("nvprof/v100_lm/net.sql", V100),
    ],
)
def test_captures_are_covered(captures: Path, name: str, cc: tuple[int, int]) -> None:
    """Family and verdict are known for every kernel; the verdict is what a look at the name says (all V100 ones ran fp32)."""
    durations = _durations(captures, name)
    assert sum(durations.values()) > 0
    for kernel_name in durations:
        kernel = classify(kernel_name)
        assert kernel.family != "unknown", kernel_name
        expected = "-"
        if ON_TENSOR_CORES.search(kernel_name):
            expected = "1"
        elif ON_CUDA_CORES.search(kernel_name) and cc >= A100:
            expected = "0"
        assert verdict(kernel, op_dtype=None, matmul=None, cc=cc).tc == expected, kernel_name
        assert kernel.is_product == bool(ON_TENSOR_CORES.search(kernel_name) or ON_CUDA_CORES.search(kernel_name)), kernel_name


@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("h100_bert_small.json.gz", 30),
        ("h100_vit.json.gz", 85),
        pytest.param("a100_train_stacks.json.gz", 1700, marks=pytest.mark.slow),
    ],
)
def test_precision_in_the_name_is_that_of_the_op(captures: Path, name: str, at_least: int) -> None:
    """The operand type read from a kernel's name against `Input type` of the op that launched it."""
    events = _read(captures / "kineto" / name)["traceEvents"]
    ops: dict[Any, list[tuple[float, float, list[str]]]] = defaultdict(list)
    launches = {}
    for event in events:
        args = event.get("args", {})
        if event.get("cat") == "cpu_op":
            ops[event["tid"]].append(
                (event["ts"], event["ts"] + event["dur"], args.get("Input type") or args.get("Input Types") or [])
            )
        elif event.get("cat") in ("cuda_runtime", "cuda_driver"):
            launches[args.get("correlation")] = (event["tid"], event["ts"])
    for rows in ops.values():
        rows.sort(key=lambda row: row[0])
    compared = 0
    for event in events:
        kernel = classify(event["name"]) if event.get("cat") == "kernel" else None
        if kernel is None or not kernel.is_product or event["args"]["correlation"] not in launches:
            continue
        thread, start = launches[event["args"]["correlation"]]
        rows = ops[thread]
        inner = next(
            (r for r in reversed(rows[: bisect.bisect(rows, start, key=lambda r: r[0])]) if r[1] >= start and r[2]), None
        )
        known = [d for d in map(lookup, inner[2] if inner else []) if d and d.kind == "float"]
        if known and kernel.precision:
            expected = known[0].matmul
            assert kernel.precision == expected or (kernel.precision, expected) == ("tf32", "fp32"), (event["name"], inner)
            compared += 1
    assert compared >= at_least


TENSILE = "Cijk_Ailk_Bljk_{}_MT128x128x16_MI16x16x16x1_SN_1LDSB0"


@pytest.mark.parametrize(("name", "dtype", "expected"), [
    (TENSILE.format("BBS_BH"), "bfloat16", ("1", "mfma", "bf16")), (TENSILE.format("S_B"), "float32", ("1", "mfma", "fp32")),
    (TENSILE.format("DB"), "float64", ("1", "mfma", "fp64")), ("attn_fwd", "bfloat16", ("1", "mfma", "bf16")),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "bfloat16", ("1", "mfma", "bf16")),
    ("attn_fwd", "float32", (None, "unknown", "")),
    ("void at::native::vectorized_elementwise_kernel<4, int>(int)", "float32", ("-", "memory", "")),
])  # fmt: skip
def test_matrix_cores_of_amd(name: str, dtype: str, expected: tuple[str | None, str, str]) -> None:
    found = verdict(classify(name), op_dtype=dtype, matmul=True, cc=None, amd=True)
    assert (found.tc, found.unit, found.math) == expected


ISA942 = "Cijk_%s_MT128x256x32_%s_SN_LDSB1_AFC1_ISA942_IU1_K1"
CK_CONV = (
    "_ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffleINS_34GridwiseGemmMultipleD_xdl_"
    "cshuffleI%sNS_5TupleIJEEE%sNS0_12element_wise11PassThroughES8_S8_Li1ELi256E"
)
CK_V3 = (
    "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm_xdl_cshuffle_v3INS_"
    "13tensor_layout4gemm8RowMajorENS6_11ColumnMajorES7_ttfttNS0_12element_wise11PassThroughESA_SA_Li7E"
)

# name, op dtype -> family, tc, unit, math. Written from the grammars of Tensile (README of its kernel names), CK, MIOpen, aiter
# (tables of its hsa/ folder) and vLLM, and from what MI300X and MI210 captures hold.
OF_AMD: list[tuple[str, str | None, str, str | None, str, str]] = [
    (ISA942 % ("Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs", "MI16x16x1"), None, "rocm_tensile", "1", "mfma", "bf16"),
    (ISA942 % ("Ailk_Bljk_HHS_BH", "MI32x32x8x1"), None, "rocm_tensile", "1", "mfma", "fp16"),
    (ISA942 % ("Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs", "MI16x16x1"), None, "rocm_tensile", "1", "mfma", "fp32"),
    (ISA942 % ("Ailk_Bljk_S_MX_B_Bias", "MI16x16x1"), None, "rocm_tensile", "1", "mfma", "tf32"),
    (ISA942 % ("Alik_Bljk_F8BS_BH_Bias", "MI16x16x1"), None, "rocm_tensile", "1", "mfma", "fp8"),
    (ISA942 % ("Alik_Bljk_B8F8S_BH_Bias", "MI16x16x1"), None, "rocm_tensile", "1", "mfma", "fp8"),
    (ISA942 % ("Alik_Bljk_I8II_BH", "MI16x16x1"), None, "rocm_tensile", "1", "mfma", "int8"),
    (ISA942 % ("Ailk_Bljk_DB", "MI16x16x4x1"), None, "rocm_tensile", "1", "mfma", "fp64"),
    ("Cijk_Ailk_Bljk_SB_MT64x64x8_SE_ISA906_K1_KLA_TT4_4_USFGRO0", None, "rocm_tensile", "0", "fma", "fp32"),
    ("Cijk_Ailk_Bljk_SB_MT16x16x16_SE", None, "rocm_tensile", None, "unknown", ""),  # cut short before it says
    (CK_CONV % ("tttft", "t"), None, "rocm_ck", "1", "mfma", "bf16"),
    (CK_CONV % ("DF16_DF16_DF16_fDF16_", "DF16_"), None, "rocm_ck", "1", "mfma", "fp16"),
    (CK_V3, None, "rocm_ck", "1", "mfma", "bf16"),
    (
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::Gridwise<ck::bhalf_t, ck::bhalf_t, float>>()",
        None,
        "rocm_ck",
        "1",
        "mfma",
        "bf16",
    ),
    ("void ck::kernel_gemm_xdl_cshuffle_v3<ck::Gridwise<unsigned short, float>>()", None, "rocm_ck", "1", "mfma", "bf16"),
    (
        "void ck_tile::kentry<2, ck_tile::FmhaBatchPrefillWithPagedKVCacheKernel<P<__bf16>>>()",
        None,
        "rocm_ck_attention",
        "1",
        "mfma",
        "bf16",
    ),
    ("void ck_tile::kentry<2, ck_tile::FmhaBwdOGradDotOKernel<P<__bf16>>>()", None, "rocm_attention_aux", "-", "memory", ""),
    ("_ZN5aiter44fmoe_stage1_bf16_pertokenFp8_g1u1_32x256_pf3E", None, "aiter_moe", "1", "mfma", "fp8"),
    ("_ZN5aiter46fmoe_fp16_pertokenInt8_g1u1_vs_silu_1tg_32x256E", None, "aiter_moe", "1", "mfma", "int8"),
    ("_ZN5aiter24fmha_fwd_hd128_bf16_rtneE", None, "aiter_attention", "1", "mfma", "bf16"),
    ("_ZN5aiter22fmha_bwd_hd64_odo_fp16E", None, "rocm_attention_aux", "-", "memory", ""),
    ("aiter::mla_dec_stage1_bf16_a16w16_subQ128_mqa128", None, "aiter_attention", "1", "mfma", "bf16"),
    ("aiter::pa_bf16_pertokenFp8_gqa16_2tg_4w", None, "aiter_attention", "1", "mfma", "bf16"),
    ("f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256", None, "aiter_gemm", "1", "mfma", "fp4"),
    ("_ZN5aiter41I8gemm_bf16_perTokenI8_BpreShuffle_32x128E", None, "aiter_gemm", "1", "mfma", "int8"),
    ("_gemm_a16_w16_kernel", "bf16", "aiter_triton_gemm", "1", "mfma", "bf16"),
    ("_gemm_a8w8_blockscale_kernel", None, "aiter_triton_gemm", None, "unknown", ""),  # fp8 or int8
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", None, "rocm_miopen", "1", "mfma", "bf16"),
    ("miopenSp3AsmConv_v30_3_1_gfx9_fp32_f3x2_stride1", None, "rocm_winograd", "0", "fma", "fp32"),
    ("naive_conv_ab_nonpacked_fwd_nchw_half_double_half", "bf16", "rocm_direct_conv", "0", "fma", "fp32"),
    ("void rocblas_gemvn_kernel<64, 4, int, float const*, float, float*>(int, int)", None, "rocblas_gemv", "0", "fma", "fp32"),
    ("Im2d2Col_v2", None, "layout_transform", "-", "memory", ""),
    ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", None, "nccl", "-", "comm", ""),
    (
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half>>(half const*)",
        None,
        "symm_mem_collective",
        "-",
        "comm",
        "",
    ),
    ("void rocprim::detail::radix_sort_block_sort_kernel<int>(int*)", None, "sort_scan", "-", "memory", ""),
    ("__amd_rocclr_copyBuffer", None, "rocclr_copy", "-", "copy", ""),
]


@pytest.mark.parametrize(("name", "dtype", "family", "tc", "unit", "math"), OF_AMD, ids=lambda value: str(value)[:60])
def test_kernels_of_amd(name: str, dtype: str | None, family: str, tc: str | None, unit: str, math: str) -> None:
    kernel = classify(name)
    found = verdict(kernel, op_dtype=dtype, matmul=True, cc=None, amd=True)
    assert (kernel.family, found.tc, found.unit, found.math) == (family, tc, unit, math)
