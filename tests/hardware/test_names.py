"""Kernel names: one spelling for every tool, against what the original parser printed and against c++filt's forms."""

import ast
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.hardware import names
from pyprof.hardware.names import Demangler, demangle, normalise, short_name

SAME = [  # (nsys, Kineto)
    (
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, float, const float *, float *)",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*, float*)",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
    ),
    (
        "void f<at::native::exp_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]::operator ()() const::"
        "[lambda(float) (instance 1)]>(int)",
        "void f<at::native::exp_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda(float)#1}>(int)",
    ),
    (
        "void g<(int)-2, (unsigned int)2>(const std::array<c10::BFloat16, (unsigned long)2> &, const <unnamed>::Meta<int> *, unsigned long)",
        "void g<-2, 2u>(std::array<c10::BFloat16, 2ul> const&, (anonymous namespace)::Meta<int> const*, unsigned long)",
    ),
    (
        "void h<const unsigned long long, (cudnnKernelDataType_t)0>(unsigned char *, void *)",
        "void h<unsigned long long const, (cudnnKernelDataType_t)0>(unsigned char*, void*)",
    ),
    ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
]


@pytest.mark.parametrize(("nsys", "kineto"), SAME, ids=range(len(SAME)))
def test_both_tools_give_one_spelling(nsys: str, kineto: str) -> None:
    assert normalise(nsys) == normalise(kineto)
    assert "<unnamed>" not in normalise(nsys)


@given(
    st.text(alphabet="<>(){}[]:,*& constlambd()#1u(int)4operator T_", max_size=60)
    | st.sampled_from([n for p in SAME for n in p])
)
def test_normalise_is_idempotent(name: str) -> None:
    once = normalise(name)
    assert normalise(once) == once


def test_a_name_of_many_blanks_takes_no_time_of_their_square() -> None:
    assert normalise("f(a" + " " * 1_000_000 + "b *)") == "f(a" + " " * 1_000_000 + "b*)"  # else it would not end


def test_normalise_keeps_pointers_to_const_data_apart_from_const_pointers() -> None:
    assert normalise("void f(const float *, float *const)") == "void f(float const*, float*const)"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64>(cutlass_80::Params)", "cutlass::Kernel2"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<2, float>(float*)", "cunn_SoftMaxForward"),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("void at::cuda::(anonymous namespace)::kernelPointwiseApply3<f>(int)", "kernelPointwiseApply3"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclKernel_AllReduce_RING_LL_Sum_float"),
        ("volta_sgemm_128x64_tn", "volta_sgemm_128x64_tn"),
    ],
)
def test_short_name_is_the_originals(name: str, short: str) -> None:
    assert short_name(name) == short


def test_v100_lm_gives_the_originals_names(captures: Path) -> None:
    folder = captures / "nvprof" / "v100_lm"
    records = [ast.literal_eval(line) for line in (folder / "net.dict").read_text().splitlines()]
    db = sqlite3.connect(f"file:{folder / 'net.sql'}?mode=ro&immutable=1", uri=True)
    query = "SELECT s.value FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL k JOIN StringTable s ON k.name = s._id_ ORDER BY k.start, k._id_"
    stored = [row[0] for row in db.execute(query)]
    db.close()
    read = Demangler()
    assert len(stored) == len(records) == 160
    assert [short_name(read(name)) for name in stored] == [r["kShortName"] for r in records]
    # The rest differ by demangler: in how it prints nested template arguments.
    assert sum(read(name) == r["kLongName"] for name, r in zip(stored, records, strict=True)) >= 135
    assert read.left == 0 and read.notes == []


MANGLED = "_ZN2at6native13reduce_kernelILi512ELi1EfEEvT1_"


@pytest.mark.parametrize(("name", "readable", "short"), [
    ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELb1EEEvPT0_PT_PfS4_i",
     "void aiter::add_rmsnorm_quant_kernel<__bf16, __bf16, 64, true>(__bf16*, __bf16*, float*, __bf16*, int)", "aiter::add_rmsnorm_quant_kernel"),
    ("_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdIDF16bEEEEvPT0_",
     "void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<__bf16> >(ck_tile::Rmsnorm2dFwd<__bf16>*)", "ck_tile::Rmsnorm2dFwd"),
    ("_ZN7ck_tile6kentryILi1EDF16_EEvPT0_", "void ck_tile::kentry<1, _Float16>(_Float16*)", "_Float16"),
])  # fmt: skip
def test_half_types_of_amd_are_demangled(name: str, readable: str, short: str) -> None:
    assert demangle(name) == readable and short_name(name) == short
    assert demangle(name[:-12] + "?") == name[:-12] + "?"  # cut short


def test_short_name_of_what_cannot_be_demangled() -> None:
    cut = "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm_xdl"
    assert demangle(cut) == cut
    assert short_name(cut) == "ck::tensor_operation::device::kernel_grouped_conv_fwd_xdl_cshuffle_v3"
    assert short_name("_ZN") == "_ZN" and short_name("_ZN9999x") == "x"


def test_demangle_leaves_what_is_not_mangled() -> None:
    assert demangle(MANGLED) == "void at::native::reduce_kernel<512, 1, float>(float)"
    for text in ("volta_sgemm_128x64_tn", "_Zzz", "_ZN2at", "", "_Z\0f", "_Z" + "P" * 100_000, "_Zé"):
        assert demangle(text) == text


def test_without_a_demangler_names_stay_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_load", lambda: (None, "the package cxxfilt cannot be used (not here)"))
    read = Demangler()
    assert [read(MANGLED), read(MANGLED), read("_Z1fv"), read("plain")] == [MANGLED, MANGLED, "_Z1fv", "plain"]
    assert read.left == 2
    assert len(read.notes) == 1 and read.notes[0].startswith("2 kernel names stay mangled")
