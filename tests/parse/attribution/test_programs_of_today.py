"""Rules 3 to 5 on hooks, DTensors, compiled functions, pipelines and libraries: whose op is a kernel, and what it costs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pyprof.loading.load import load_capture
from pyprof.prof.columns import RecordTable
from pyprof.prof.frame import Frame
from pyprof.tables.table import printed
from tests.tiny import Nsys

GEMM = "ampere_sgemm_128x64_tn"
Rows = list[tuple[str, ...]]


def rows(capture: Path, columns: str) -> Rows:
    """The records' values in some columns of prof."""
    table = RecordTable(Frame(load_capture(capture)))
    return [*zip(*(printed(table.of(key)) for key in columns.split(",")), strict=True)]


def test_what_runs_around_a_function_is_no_part_of_it(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, seq = 3, op_id = 1, sizes = [[4, 5], [5, 6]]", 10, 20)
    n.kernel(GEMM, 12, 1000, 1001)
    n.range("autograd::engine::evaluate_function: MmBackward0, op_id = 2", 30, 90, thread=9)
    n.range("aten::sin, op_id = 3, sizes = [[4, 6]]", 32, 38, thread=9)
    n.kernel("hook", 34, 1002, 1003, thread=9)
    n.range("MmBackward0, seq = 3, op_id = 4", 40, 60, thread=9)
    n.range("aten::mm, op_id = 5, sizes = [[5, 4], [4, 6]]", 45, 50, thread=9)
    n.kernel(GEMM, 46, 1004, 1005, thread=9)
    n.range("aten::add, op_id = 6, sizes = [[5, 6], [5, 6], []]", 70, 80, thread=9)
    n.kernel("accumulation", 72, 1006, 1007, thread=9)
    assert rows(n.write(tmp_path / "net.sqlite"), "op,phase,flops") == [
        ("mm", "forward", "240"), ("sin", "backward", "24"), ("mm", "backward", "240"), ("add", "backward", "30"),
    ]  # fmt: skip


def test_ops_on_a_cpu_that_computed_nothing_have_no_flops(tmp_path: Path) -> None:
    """torch.compile traces on fake tensors; a mode of Python's calls the op, or does not."""

    def op(name: str, begin: int, end: int) -> dict[str, object]:
        inputs = {} if name.startswith("entire") else {"Input Dims": [[4, 5], [5, 6]], "Input type": ["float", "float"]}
        return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": end - begin, "args": inputs}

    mode = "PythonDispatchMode"
    events = [
        op("aten::mm", 10, 20), op(mode, 11, 19), op("aten::mm", 12, 18),
        op("aten::mm", 30, 40), op(mode, 31, 39),
        op("entire_frame_compile", 50, 70), op("bytecode_tracing", 51, 69), op("aten::mm", 52, 60), op("aten::t", 62, 64),
        op(mode, 80, 90),
    ]  # fmt: skip
    path = tmp_path / "net.json"
    path.write_text(json.dumps({"traceEvents": events}))
    mm = "M=4,N=6,K=5,fp32"
    assert rows(path, "op,layer,flops,bytes,params") == [
        ("mm", "", "240", "296", mm), ("mm", "", "na", "na", "[4,5]fp32;[5,6]fp32"),
        ("mm", "", "na", "na", "[4,5]fp32;[5,6]fp32"), ("t", "", "0", "0", "[4,5]fp32;[5,6]fp32"),
    ]  # fmt: skip


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_call_with_local_sizes_is_what_ran(tmp_path: Path, wrapped: bool) -> None:
    """linear > mm > mm, and an op whose tensors are in lists; torch 2.13 puts a range of its own between."""
    n = Nsys()
    n.range("aten::linear, op_id = 1, sizes = [[8, 4], [16, 4], []]", 10, 40)
    n.range("aten::mm, op_id = 2, sizes = [[8, 4], [4, 16]]", 12, 38)
    n.range("aten::_foreach_mul_, op_id = 5, sizes = [[8, 8], [4, 4], []]", 50, 70)
    if wrapped:
        n.range("PythonSubclass, op_id = 3, sizes = [[8, 4], [4, 16]]", 14, 36)
        n.range("PythonSubclass, op_id = 6, sizes = [[8, 8], [4, 4], []]", 52, 68)
    n.range("aten::mm, op_id = 4, sizes = [[8, 4], [4, 8]]", 16, 34)
    n.range("aten::_foreach_mul_, op_id = 7, sizes = [[4, 8], [2, 4], []]", 55, 65)
    n.kernel(GEMM, 20, 1000, 1001)
    n.kernel("multi_tensor_apply_kernel", 60, 1002, 1003)
    found = rows(n.write(tmp_path / "net.sqlite"), "op,m,n,k,flops,params")
    assert found == [("linear", "8", "8", "4", "512", "M=8,N=8,K=4"), ("_foreach_mul_", "na", "na", "na", "na", "[4,8];[2,4]")]


def test_a_larger_call_of_the_same_op_is_not_taken(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mul, op_id = 1, sizes = [[8, 1], [1, 8]]", 10, 40)
    n.range("aten::mul, op_id = 2, sizes = [[8, 8], [8, 8]]", 12, 38)
    n.kernel("k", 20, 1000, 1001)
    assert rows(n.write(tmp_path / "net.sqlite"), "op,params,flops") == [("mul", "[8,1];[1,8]", "64")]


def test_a_nested_tensor_computes_on_its_buffer(tmp_path: Path) -> None:
    """Its own sizes are not recorded; torch says that a subclass called the op again."""
    n = Nsys()
    n.range("aten::linear, op_id = 1, sizes = [[], [32, 64], [32]]", 10, 40)
    n.range("PythonSubclass, op_id = 2, sizes = [[], [32, 64], [32]]", 12, 38)
    n.range("aten::linear, op_id = 3, sizes = [[14, 64], [32, 64], [32]]", 14, 36)
    n.kernel(GEMM, 20, 1000, 1001)
    assert rows(n.write(tmp_path / "net.sqlite"), "op,params,flops") == [("linear", "M=14,N=32,K=64", "57344")]


def test_subclasses_and_vmap_cost_what_they_call(tmp_path: Path) -> None:
    """A product by two of a low rank; eight products at once, which vmap calls by another name in the op called again."""
    n = Nsys()
    n.range("aten::mm, op_id = 1, sizes = [[32, 64], [64, 128]]", 10, 50)
    n.range("PythonSubclass, op_id = 2, sizes = [[32, 64], [64, 128]]", 12, 48)
    n.range("aten::mm, op_id = 3, sizes = [[32, 64], [64, 4]]", 14, 24)
    n.range("aten::mm, op_id = 4, sizes = [[32, 4], [4, 128]]", 30, 40)
    n.range("aten::mm, op_id = 5, sizes = [[32, 64], [64, 16]]", 60, 99)
    n.range("aten::mm, op_id = 6, sizes = [[32, 64], [64, 16]]", 62, 98)
    n.range("aten::bmm, op_id = 7, sizes = [[8, 32, 64], [8, 64, 16]]", 64, 96)
    for at, launch in enumerate((16, 32, 70)):
        n.kernel(GEMM, launch, 1000 + at, 1001 + at)
    found = rows(n.write(tmp_path / "net.sqlite"), "op,flops")
    assert found == [("mm", "24576"), ("mm", "24576"), ("mm", str(8 * 2 * 32 * 64 * 16))]


def test_composites_under_vmap_cost_all_samples(tmp_path: Path) -> None:
    """softmax of eight samples; linear of eight, and its bias; under torch.func.grad, which records arguments twice. What an op
    calls with a larger tensor, but not again, was no sample of several."""
    n = Nsys()
    n.range("aten::softmax, op_id = 1, sizes = [[16, 32], [], []]", 10, 90)
    n.range("aten::softmax, op_id = 2, sizes = [[16, 32], [], []]", 11, 89)
    n.range("aten::_softmax, op_id = 3, sizes = [[16, 32], [], []]", 12, 88)
    n.range("aten::_softmax, op_id = 4, sizes = [[8, 16, 32], [], []]", 13, 87)
    n.range("aten::_softmax, op_id = 5, sizes = [[8, 16, 32], [], []]", 14, 86)
    both = [[16, 32], [32, 32], [32]]
    n.range(f"aten::linear, op_id = 6, sizes = {both}", 110, 190)
    n.range(f"aten::linear, op_id = 7, sizes = {both}", 111, 189)
    n.range("aten::addmm, op_id = 8, sizes = [[32], [16, 32], [32, 32], [], []]", 112, 188)
    for at, text in (
        (113, "matmul, op_id = 9, sizes = [[8, 16, 32], [32, 32]]"),
        (150, "add, op_id = 10, sizes = [[8, 16, 32], [32], []]"),
    ):
        n.range(f"aten::{text}", at, at + 30)
        n.range(f"aten::{text}", at + 1, at + 29)
    n.range("aten::tanh, op_id = 11, sizes = [[16, 32]]", 210, 290)
    n.range("aten::tanh, op_id = 12, sizes = [[16, 32]]", 211, 289)
    n.range("aten::tanh, op_id = 13, sizes = [[16, 32], [16, 32]]", 212, 288)
    n.range("aten::tanh, op_id = 14, sizes = [[16, 32], [8, 16, 32]]", 213, 287)
    n.range("aten::tanh, op_id = 15, sizes = [[16, 32], [8, 16, 32]]", 214, 286)
    n.range("aten::addmm, op_id = 16, sizes = [[32], [16, 64], [64, 32], [], []]", 310, 390)
    n.range("aten::addmm, op_id = 17, sizes = [[32], [16, 64], [64, 32], [], []]", 311, 389)
    n.range("aten::copy_, op_id = 18, sizes = [[16, 32], [16, 32], []]", 312, 320)
    for at, launch in enumerate((20, 120, 160, 220, 350)):
        n.kernel(GEMM if launch in (120, 350) else "k", launch, 1000 + at, 1001 + at)
    n_ = 8 * 16 * 32
    assert rows(n.write(tmp_path / "net.sqlite"), "op,flops") == [
        ("softmax", str(5 * n_)), ("linear", str(2 * n_ * 32 + n_)), ("linear", "0"), ("tanh", str(n_)),
        ("addmm", str(2 * 16 * 32 * 64)),
    ]  # fmt: skip


def test_a_copy_inside_a_collective_is_its_own(tmp_path: Path) -> None:
    n = Nsys()
    n.range("_c10d_functional::all_reduce, op_id = 1, sizes = [[30], [], []]", 10, 60)
    n.range("aten::clone, op_id = 2, sizes = [[30], []]", 12, 20)
    n.range("c10d::allreduce_, op_id = 3, sizes = [[30]]", 30, 50)
    n.kernel("copy_kernel", 14, 1000, 1001)
    n.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 40, 1002, 1003)
    found = rows(n.write(tmp_path / "net.sqlite"), "op,phase,flops")
    assert found == [("clone", "forward", "0"), ("all_reduce", "communication", "30")]


def test_forward_mode_differentiation_is_forward(tmp_path: Path) -> None:
    """tanh calls tanh_backward for its tangent; outside of tanh the same op is backward, called by whatever code."""
    n = Nsys()
    n.range("aten::tanh, op_id = 1, sizes = [[4, 8]]", 10, 40)
    n.range("aten::tanh_backward, op_id = 2, sizes = [[4, 8], [4, 8]]", 20, 30)
    n.range("aten::tanh_backward, op_id = 3, sizes = [[4, 8], [4, 8]]", 50, 60)
    for at, launch in enumerate((12, 25, 55)):
        n.kernel("k", launch, 1000 + at, 1001 + at)
    found = rows(n.write(tmp_path / "net.sqlite"), "op,phase")
    assert found == [("tanh", "forward"), ("tanh", "forward"), ("tanh_backward", "backward")]


def test_a_phase_is_not_filled_in_across_the_ranges_of_the_user(tmp_path: Path) -> None:
    """forward, unknown, forward: in one range; in ranges side by side; from one range into another's inside; out of `x(F)`."""
    n = Nsys()
    around = [("a", "a", "a"), ("b", "c", "d"), ("e", "e/f", "e"), ("g(F)", "h", "i")]
    for group, names in enumerate(around):
        begin = 1000 * group
        n.range(f"whole {group}", begin, begin + 900)
        for outer in dict.fromkeys(name.partition("/")[0] for name in names):
            mine = [at for at, name in enumerate(names) if name.partition("/")[0] == outer]
            n.range(outer, begin + 100 + 200 * mine[0], begin + 290 + 200 * mine[-1])
        for at, name in enumerate(names):
            when = begin + 150 + 200 * at
            if "/" in name:
                n.range(name.partition("/")[2], when - 20, when + 20)
            if at != 1:
                n.range(f"aten::mm, op_id = {10 * group + at}", when - 5, when + 5)
            n.kernel(GEMM if at != 1 else f"own{group}", when, 10_000 + when, 10_001 + when)
    found = [row[0] for row in rows(n.write(tmp_path / "net.sqlite"), "phase")]
    assert found[1::3] == ["forward", "forward", "na", "na"] and set(found[::3] + found[2::3]) == {"forward"}


@pytest.mark.parametrize(
    ("others", "op"),
    [
        ((), "na"),  # a library's scopes alone
        (("aten::mm, seq = 1, op_id = 1",), "na"),  # torch numbers its ops: this is none of them
        (("aten::mm, seq = 1",), "go"),  # an old torch prints ops without a number like this
    ],
)
def test_a_scope_of_cpp_is_an_op_only_where_something_says_so(tmp_path: Path, others: tuple[str, ...], op: str) -> None:
    n = Nsys()
    n.range("Engine::go", 10, 20)
    n.kernel("k", 15, 1000, 1001)
    for at, text in enumerate(others):
        n.range(text, 30 + 10 * at, 35 + 10 * at)
    assert rows(n.write(tmp_path / "net.sqlite"), "op,layer") == [(op, "" if op == "go" else "Engine::go")]


def test_ranges_opened_again_and_again_are_named_once_and_are_no_layers(tmp_path: Path) -> None:
    n = Nsys()
    n.range("epoch", 5, None)
    for begin in range(10, 40, 10):
        n.range("iter", begin, None)
        n.kernel("k", begin + 5, 1000 + begin, 1001 + begin)
    path = n.write(tmp_path / "net.sqlite")
    assert rows(path, "layer") == [("epoch",)] * 3
    assert load_capture(path).notes == ["ranges that were opened and never closed are in no layer: 3 x `iter`"]


CASES: dict[str, tuple[str, Rows]] = {
    "kineto/dtensor_tp2": ("op,n,flops", [("linear", "1408", "94489280512"), ("pow", "na", "16777216")]),
    "kineto/fsdp2_prebackward_hook": (
        "op,phase",
        [
            ("linear", "forward"), ("all_gather_copy_in", "backward"), ("_allgather_base_", "communication"),
            ("split_with_sizes_copy", "backward"), ("linear", "backward"), ("linear", "backward"),
        ],
    ),
    "kineto/ddp_hook_in_compiled_backward": (
        "op,phase", [("mm", "forward"), ("mm", "backward"), ("allreduce_", "communication")]
    ),
    "kineto/ranges_name_backward": (
        "phase,inferred",
        [(phase, "0") for phase in "forward forward forward backward forward forward forward backward backward".split()]
        + [("forward", "0")] * 3,
    ),
    "kineto/hccl_annotation": ("op,layer", [("mm", "")] * 6),
    "nsys/leaked_ranges": ("op,layer", [("mm", "")] * 200),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_given_case(captures: Path, name: str) -> None:
    columns, expected = CASES[name]
    (path,) = captures.glob(f"cases/{name}.*")
    assert rows(path, columns)[: len(expected)] == expected


def test_matrix_flops_of_a_tensor_hook_and_of_dtensors(captures: Path) -> None:
    for name, products in (("cpu_torch213_dtensor_tp4", [33_554_432] * 5), ("cpu_torch213_fsdp2_foreach", [134_217_728] * 5)):
        found = rows(captures / f"more/{name}.json.gz", "op,m,flops")
        assert [int(flops) for op, m, flops in found if op == "linear" and m != "na" and flops != "0"] == products


@pytest.mark.slow
@pytest.mark.parametrize("program", ["tp2", "fsdp2_tp2", "ddp_hooks", "compile_aot_eager", "pipeline_zero_bubble"])
def test_products_of_a_program_as_torch_counts_them(program: str) -> None:
    """All programs: scripts/checks/run distributed."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.checks.distributed", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
