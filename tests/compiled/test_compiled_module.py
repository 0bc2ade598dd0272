"""Generated modules read as syntax trees: hand-written ones whose every buffer is counted here by hand."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.compiled.kernel_source import cpp_kernel, triton_kernel
from pyprof.compiled.module import CompiledModule, find_modules, read_module
from pyprof.errors import InputError
from tests import examples

HEAD = "# AOT ID: ['{graph}']\nfrom torch._inductor.async_compile import AsyncCompile\nasync_compile = AsyncCompile()\n"
TRITON = """
{name} = async_compile.triton('{name}', '''
@triton_heuristics.{heuristic}(
    size_hints=[64],
    triton_meta={{'signature': {signature}, 'constants': {{}}}},
    inductor_meta={{'kernel_name': '{name}', 'mutated_arg_names': {mutated}{extra}}},
)
@triton.jit
def {function}({parameters}, XBLOCK: tl.constexpr):
{body}
''', device_str='cuda')
"""


def triton(name: str, signature: dict[str, str], body: str, heuristic: str = "pointwise", mutated: str = "[]", extra: str = "",
           function: str = "") -> str:  # fmt: skip
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return TRITON.format(name=name, heuristic=heuristic, signature={**signature, "XBLOCK": "constexpr"}, mutated=mutated,
                         extra=extra, function=function or name, parameters=", ".join(signature), body=lines)  # fmt: skip


def inner(text: str) -> str:
    """The source of the kernel."""
    return text.partition("'''")[2].rpartition("'''")[0]


def module(path: Path, *parts: str, graph: str = "0_forward") -> CompiledModule:
    path.write_text(HEAD.format(graph=graph) + "\n".join(parts) + "\nraise SystemExit('never run')\n")
    return read_module(path)


def sites(found: CompiledModule, name: str) -> list[tuple[int | None, int | None]]:
    return [(site.read_bytes, site.written_bytes) for site in found.kernels[name].sites]


BIAS = triton("triton_poi_fused_add_0", {"in_out_ptr0": "*fp32", "in_ptr0": "*fp16", "xnumel": "i32"}, """
xnumel = 60
xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
x2 = xindex
x0 = (xindex % 10)
tmp0 = tl.load(in_out_ptr0 + (x2), None)
tmp1 = tl.load(in_ptr0 + (x0), None).to(tl.float32)
tl.store(in_out_ptr0 + (x2), tmp0 + tmp1, None)
""")  # fmt: skip


CPP_SOURCE = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(float* in_out_ptr0,
                       const double* in_ptr0,
                       bfloat16* out_ptr0,
                       const int64_t ks0)
{
    RAIIAtenRecordFunctionHandle record_graph_3_cpp_fused_add_0_("graph_3_cpp_fused_add_0", nullptr);
    auto in_ptr1 = in_out_ptr0;
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(4L); x0+=static_cast<int64_t>(1L))
    {
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(30L); x1+=static_cast<int64_t>(16L))
        {
            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1), static_cast<int64_t>(16));
            auto tmp1 = in_ptr0[static_cast<int64_t>(x0 + 100L*x1 + 100L*x1_inner)];
            tmp0.store(out_ptr0 + static_cast<int64_t>(x1 + 30L*x0), static_cast<int64_t>(16));
            in_out_ptr0[static_cast<int64_t>(x0)] = tmp1;
        }
    }
}
"""
CPP = f"cpp_fused_add_0 = async_compile.cpp_pybinding(['float*', 'const double*', 'bfloat16*', 'const int64_t'], '''{CPP_SOURCE}''')\n"
CALL = """
def call(args):
    primals_1, primals_2 = args
    args.clear()
    assert_size_stride(primals_1, (6, 10), (10, 1), 'input')
    assert_size_stride(primals_2, (10, ), (1, ))
    buf0 = empty_strided_cuda((6, 10), (10, 1), torch.float32)
    # Topologically Sorted Source Nodes: [linear, y], Original ATen: [aten.addmm, aten.add]
    stream0 = get_raw_stream(0)
    triton_poi_fused_add_0.run(buf0, primals_2, 60, stream=stream0)
    extern_kernels.mm(primals_1, primals_1, out=buf0)
    buf1 = reinterpret_tensor(buf0, (60, ), (1, ), 0); del buf0  # reuse
    triton_poi_fused_add_0.run(buf1, primals_2, 60, grid=grid(60), stream=stream0)
    return (buf1, )
"""


def test_an_in_place_kernel_reads_and_writes_its_buffer_unless_nothing_is_in_it(tmp_path: Path) -> None:
    found = module(tmp_path / "m.py", BIAS, CALL)
    assert (found.graph, found.direction) == ("0", "forward")
    assert sites(found, "triton_poi_fused_add_0") == [(20, 240), (240 + 20, 240)]
    (fused,) = found.fused
    assert fused.sites[0].nodes == ("linear", "y") and fused.sites[0].atens == ("aten.addmm", "aten.add")
    assert fused.sites[1].nodes == () and fused.kernel.category == "pointwise"


def test_only_what_the_indices_reach_is_counted(tmp_path: Path) -> None:
    part = triton("triton_poi_fused_cat_0", {"in_ptr0": "*i64", "in_ptr1": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32"}, """
xnumel = 96
xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
x1 = xindex // 16
x0 = (xindex % 16)
tmp0 = tl.load(in_ptr0 + (x1), None, eviction_policy='evict_last')
tmp1 = tl.where(tmp0 < 0, tmp0 + 1000, tmp0)
tmp2 = tl.load(in_ptr1 + (x0 + 16*tmp1), None)
tl.store(out_ptr0 + (x0 + 32*x1), tmp2, None)
""")  # fmt: skip
    found = module(tmp_path / "m.py", part, """
class Runner:
    def call(self, args):
        arg0_1, arg1_1 = args
        buf2 = empty_strided_cuda((6, 32), (32, 1), torch.float32)
        buf0 = reinterpret_tensor(buf2, (6, 16), (32, 1), 0)  # alias
        triton_poi_fused_cat_0.run(arg0_1, arg1_1, buf0, 96, stream=stream0)
        return (buf2, )

def get_args():
    arg0_1 = rand_strided((6, ), (1, ), device='cuda:0', dtype=torch.int64)
    arg1_1 = rand_strided((1000, 16), (16, 1), device='cuda:0', dtype=torch.float32)
""")  # fmt: skip
    # 6 indices and the 6 rows of 16 that they name out of 1000; half of each row of the result.
    assert sites(found, "triton_poi_fused_cat_0") == [(6 * 8 + 6 * 16 * 4, 6 * 16 * 4)]


def test_two_parts_of_one_buffer_and_a_part_within_the_whole(tmp_path: Path) -> None:
    kernel = triton("triton_poi_fused_cat_0", {"in_ptr0": "*fp32", "in_ptr1": "*fp32", "out_ptr0": "*fp32", "out_ptr1": "*fp32"}, """
xnumel = 8
x0 = xindex
tl.store(out_ptr0 + (x0), tl.load(in_ptr0 + (x0), None), None)
tl.store(out_ptr1 + (x0), tl.load(in_ptr1 + (x0), None), None)
""")  # fmt: skip
    found = module(tmp_path / "m.py", kernel, """
def call(args):
    arg0_1, = args
    assert_size_stride(arg0_1, (8, ), (1, ))
    buf0 = empty_strided_cuda((16, ), (1, ), torch.float32)
    triton_poi_fused_cat_0.run(arg0_1, arg0_1, buf0, reinterpret_tensor(buf0, (8, ), (1, ), 8), stream=stream0)
    buf1 = empty_strided_cuda((8, ), (1, ), torch.float32)
    triton_poi_fused_cat_0.run(buf0, reinterpret_tensor(buf0, (8, ), (1, ), 4), buf1, buf1, stream=stream0)
""")  # fmt: skip
    assert sites(found, "triton_poi_fused_cat_0") == [(32, 64), (64, 32)]


def test_symbols_leave_sizes_unknown(tmp_path: Path) -> None:
    found = module(tmp_path / "m.py", BIAS, """
def call(args):
    arg0_1, arg1_1 = args
    s0 = arg0_1
    assert_size_stride(arg1_1, (s0, 10), (10, 1))
    buf0 = empty_strided_cuda((10, ), (1, ), torch.float16)
    triton_poi_fused_add_0.run(arg1_1, buf0, 10*s0, stream=stream0)
""")  # fmt: skip
    assert sites(found, "triton_poi_fused_add_0") == [(None, None)]
    assert found.kernels["triton_poi_fused_add_0"].sites[0].bytes is None


def test_what_a_kernel_says_of_itself() -> None:
    source = triton("triton_tem_fused_mm_0", {"arg_A": "*bf16", "arg_B": "*bf16", "out_ptr0": "*bf16"}, "A = arg_A", "template",
                    extra=", 'kernel_num_gb': 0.001, 'kernel_flop': 2000")  # fmt: skip
    kernel = triton_kernel(inner(source), "triton_tem_fused_mm_0")
    assert kernel is not None and (kernel.category, kernel.num_gb, kernel.flop) == ("template", 0.001, 2000)
    # A pointer that is handed on goes by its name.
    shown = [(p.itemsize, p.reads, p.writes, p.most) for p in kernel.arguments if p]
    assert shown == [(2, True, False, None), (2, True, False, None), (2, False, True, None)]
    mutated = triton("add_kernel_0", {"in_ptr0": "*fp8e5", "n": "i32"}, "tl.atomic_add(in_ptr0 + (tl.arange(0, 8)), 1)",
                     "user_autotune", "['in_ptr0']", function="add_kernel")  # fmt: skip
    kernel = triton_kernel(inner(mutated), "add_kernel_0")
    assert kernel is not None and kernel.category == "user Triton" and kernel.names == {"add_kernel", "add_kernel_0"}
    pointer, scalar = kernel.arguments
    assert pointer is not None and (pointer.itemsize, pointer.reads, pointer.writes) == (1, True, True) and scalar is None
    assert triton_kernel("def f(:") is None and triton_kernel("def f(x):\n    return x\n") is None


def test_operations_of_a_triton_kernel() -> None:
    """A softmax over rows of 100 after a bias by column, looped; what masks and places need is not counted."""
    body = """
xnumel = 6
r0_numel = 100
xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
x0 = xindex
x1 = xindex // 3
_tmp5 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
for r0_offset in range(0, r0_numel, R0_BLOCK):
    r0_index = r0_offset + r0_base
    r0_mask = r0_index < r0_numel
    r0_1 = r0_index
    tmp0 = tl.load(in_ptr0 + (r0_1 + 100*x0), r0_mask & xmask, other=0.0)
    tmp1 = tl.load(in_ptr1 + (r0_1), r0_mask, other=0.0)
    tmp7 = tl.load(in_ptr2 + (x1), xmask)
    tmp2 = -tmp1
    tmp3 = tmp0 + tmp2
    tmp4 = tl_math.exp(tmp3)
    tmp8 = libdevice.rsqrt(tmp7)
    tmp6 = tl.broadcast_to(tmp4 * tmp8, [XBLOCK, R0_BLOCK])
    tmp9 = _tmp5 + tmp6
    _tmp5 = tl.where(r0_mask & xmask, tmp9, _tmp5)
    tmp10 = tmp0 * 3.0
tmp5 = tl.sum(_tmp5, 1)[:, None]
tmp11 = tl.where(x0 < 2, tmp5, 0.0)
tmp12 = tl.where(tmp5 > 1.0, tmp11, tmp5)
tl.store(out_ptr0 + (x0), tmp12, xmask)
"""
    pointers = {"in_ptr0": "*fp32", "in_ptr1": "*fp32", "in_ptr2": "*fp32", "out_ptr0": "*fp32"}
    source = triton("triton_red_fused_0", {**pointers, "xnumel": "i32", "r0_numel": "i32"}, body, "reduction")
    kernel = triton_kernel(inner(source))
    # negation by column, 2 of rsqrt by x1, add, exp, mul and the sum of each element, > and its choice of each row
    assert kernel is not None and kernel.operations == 100 + 2 * 2 + 4 * 600 + 2 * 6
    shown = [(p.reads, p.writes, p.most) for p in kernel.arguments if p]
    assert shown == [(True, False, 600), (True, False, 100), (True, False, 2), (False, True, 6)]


def test_cpp_kernels() -> None:
    kernel = cpp_kernel(["float*", "const double*", "bfloat16*", "const int64_t"], CPP_SOURCE)
    assert kernel.operations == 0
    assert kernel.names == {"graph_3_cpp_fused_add_0"} and kernel.category == "cpp_fused"
    shown = [p and (p.itemsize, p.reads, p.writes, p.most) for p in kernel.arguments]
    assert shown == [(4, True, True, 30 + 4), (8, True, False, 4 * 30), (2, False, True, 4 * 30), None]


def test_operations_of_a_cpp_kernel() -> None:
    """Rows of 20, in a main loop of 16 and a tail of 4: (x * scale of the row).exp() summed up, and 1 / sqrt of the sum."""
    block = """
            if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>(16L)))
            {
                auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 20L*x0), static_cast<int64_t>(16));
                auto tmp1 = in_ptr1[static_cast<int64_t>(x0)];
                auto tmp2 = decltype(tmp1)(-tmp1);
                auto tmp3 = at::vec::Vectorized<float>(tmp2);
                auto tmp4 = tmp0 * tmp3;
                auto tmp5 = tmp4.exp();
                tmp_acc0_vec = tmp_acc0_vec + tmp5;
            }
"""
    tail = block.replace("x1 >= static_cast<int64_t>(0)", "x1 >= static_cast<int64_t>(16L)").replace(
        "x1 < static_cast<int64_t>(16L)", "x1 < static_cast<int64_t>(20L)"
    )
    source = f"""
extern "C"  void  kernel(const float* in_ptr0, const float* in_ptr1, float* out_ptr0)
{{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(6L); x0+=static_cast<int64_t>(1L))
    {{
        float tmp_acc0 = 0;
        at::vec::Vectorized<float> tmp_acc0_vec = at::vec::Vectorized<float>(0);
        for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(20L); x1+=static_cast<int64_t>(16L))
        {{
            {block}{tail}
        }}
        tmp_acc0 = tmp_acc0 + at::vec::vec_reduce_all<float, 1>([](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y) {{ return x + y; }}, tmp_acc0_vec);
        auto tmp6 = static_cast<float>(1.0);
        auto tmp7 = tmp6 / std::sqrt(tmp_acc0);
        out_ptr0[static_cast<int64_t>(x0)] = tmp7;
    }}
}}
"""
    kernel = cpp_kernel(["const float*", "const float*", "float*"], source)
    assert kernel.operations == 2 * 6 + 6 * 20 * 3 + 6 * 2  # the negation is in both parts of the loop


def test_a_statement_that_is_not_understood_leaves_its_part_unknown() -> None:
    source = """
extern "C"  void  kernel(const bool* in_ptr0, const float* in_ptr1, float* out_ptr0)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L))
    {
        alignas(64) float tmpbuf[16];
        auto tmp0 = at::vec::VecMask<float,1>::from(in_ptr0 + static_cast<int64_t>(x0));
        auto tmp1 = decltype(tmp0)(1)/(decltype(tmp0)(1) + tmp0.neg().exp());
        out_ptr0[static_cast<int64_t>(x0)] = tmp1;
        STRANGE
    }
}
"""
    types = ["const bool*", "const float*", "float*"]
    for strange, operations in (("", 4 * 8), ("auto tmp9 = in_ptr1 ->* tmp1;", None)):
        kernel = cpp_kernel(types, source.replace("STRANGE", strange))
        assert kernel.operations == operations
        shown = [p and (p.itemsize, p.reads, p.writes, p.most) for p in kernel.arguments]
        assert shown == [(1, True, False, 8), (4, True, False, None), (4, False, True, 8)]


def test_what_is_not_a_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("x = 1\n")
    with pytest.raises(InputError, match="no compiled module"):
        find_modules([tmp_path])
    assert find_modules([tmp_path / "other.py"]) == [tmp_path / "other.py"]
    assert read_module(tmp_path / "other.py").kernels == {}
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(InputError, match="not a Python module"):
        read_module(tmp_path / "broken.py")


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 30), st.sampled_from("(){}[];,=+-'x1\n ")), min_size=1, max_size=8)
)
def test_damaged_modules_are_read_or_refused(cuts: list[tuple[float, int, str]]) -> None:
    text = HEAD.format(graph="0_forward") + BIAS + CPP + CALL
    for place, length, put in cuts:
        at = int(place * len(text))
        text = text[:at] + put + text[at + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.py"
        path.write_text(text)
        try:
            read_module(path)
        except InputError as error:
            assert "not a Python module" in str(error)
    deep = "+".join(["x0"] * 5000)
    source = inner(triton("triton_poi_0", {"out_ptr0": "*fp32"}, f"tl.store(out_ptr0 + ({deep}), 1.0)"))
    assert triton_kernel(source.replace(deep, "x0")) is not None and triton_kernel(source) is None
