"""`pyprof inductor`: compiled programs recorded here on the CPU, and hand-written captures whose truth fits on a screen."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.compiled.module import CompiledModule, find_modules, read_module
from pyprof.compiled.report import BusyTimes, busy, categories, grouped, kernels
from pyprof.loading.load import load
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.model.records import COLUMNS, Records
from pyprof.model.trace import ActivityKind
from pyprof.prof.formulas import evaluate
from pyprof.prof.frame import Frame
from pyprof.tables.table import Fractions, Integers, printed
from tests.compiled.test_compiled_module import module, triton
from tests.conftest import ROOT
from tests.given import slow

PROGRAMS = ROOT / "tests" / "programs"


def rows_of(text: str) -> list[dict[str, str]]:
    """A table that was printed as CSV."""
    return list(csv.DictReader(io.StringIO(text)))


class Compiled(NamedTuple):
    """A capture of a compiled training step, the cache that holds its modules, and the environment that it ran in."""

    trace: Path
    cache: Path
    env: dict[str, str]

    def modules(self) -> list[CompiledModule]:
        return [read_module(path) for path in find_modules([self.cache])]


def _inductor(folder: Path) -> dict[str, str]:
    """An environment in which programs are compiled into a new cache; skips where that cannot be."""
    pytest.importorskip("torch", reason="needs torch")
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("torch.compile on a CPU needs a C++ compiler")
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_BENCHMARK_KERNEL": "1"}
    return {**os.environ, **cache, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module", params=[pytest.param("cpp", marks=[pytest.mark.slow, pytest.mark.xdist_group("compiled")])])
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder = tmp_path_factory.mktemp("compiled")
    env = _inductor(folder)
    program = str(PROGRAMS / "compiled_step.py")
    command = [sys.executable, "-m", "pyprof", "run", "--inductor", "--tool", "torch", "--steps", "2:4", "-o", "net", program]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "pyprof inductor net.json.gz" in done.stderr, done.stderr
    return Compiled(folder / "net.json.gz", folder / "cache", env)


def _touched(modules: list[CompiledModule], env: dict[str, str]) -> dict[str, dict[str, list[int]]]:
    """What each kernel of the modules really reads and writes, by running it alone with other contents of its buffers."""
    command = [sys.executable, str(PROGRAMS / "kernel_truth.py"), *(str(found.path) for found in modules)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    truth: dict[str, dict[str, list[int]]] = json.loads(done.stdout.splitlines()[-1])
    return truth


def _counted(modules: list[CompiledModule]) -> dict[str, dict[str, list[int | None]]]:
    """What their source tells of each, where each is called once."""
    return {
        str(found.path): {f.name: [f.sites[0].read_bytes, f.sites[0].written_bytes] for f in found.fused if len(f.sites) == 1}
        for found in modules
    }


def test_bytes_are_what_the_kernels_really_touch(compiled: Compiled) -> None:
    counted = _counted(compiled.modules())
    assert counted == _touched(compiled.modules(), compiled.env)
    assert sorted(map(len, counted.values())) == [3, 3]


def test_operations_are_those_of_the_formulas(compiled: Compiled) -> None:
    forward = next(found for found in compiled.modules() if found.direction == "forward")
    x, row = TensorSpec((8, 16, 16, 16), "float32"), TensorSpec((16, 16, 16), "float32")
    calls = {
        "cpp_fused_gelu_native_layer_norm_1": [
            OpCall("aten", "native_layer_norm", (x, [16, 16, 16], row, row, 1e-5), dispatcher=True),
            OpCall("aten", "gelu", (x,), dispatcher=True),
        ],
        "cpp_fused__softmax_2": [OpCall("aten", "_softmax", (TensorSpec((8, 10), "float32"), 1, False), dispatcher=True)],
        "cpp_fused_0": [],
    }
    for name, ops in calls.items():
        expected = sum(evaluate(call).cost.flops or 0 for call in ops)
        assert forward.kernels[name].kernel.operations == pytest.approx(expected, rel=1e-3), name


@pytest.mark.slow
def test_bytes_of_kernels_that_touch_parts_of_their_buffers(tmp_path: Path) -> None:
    env = _inductor(tmp_path)
    subprocess.run([sys.executable, str(PROGRAMS / "compiled_parts.py")], env=env, check=True, capture_output=True)
    modules = [read_module(path) for path in find_modules([tmp_path / "cache"])]
    counted = _counted(modules)
    assert counted == _touched(modules, env)
    assert len(counted) == 9 and [1280, 640] in [sizes for kernels in counted.values() for sizes in kernels.values()]
    # By the formulas of the ops on the shapes that compiled_parts.py has; batch_norm's statistics of 5 channels come on top.
    operations = {f.name: f.kernel.operations for found in modules for f in found.fused}
    batch_norm = operations.pop("cpp_fused__native_batch_norm_legit_functional_copy__relu_0") or 0
    reductions = operations.pop("cpp_fused__softmax_gelu_mul_sum_var_0") or 0
    assert 0 <= reductions - 300 * 201 * (5 + 1 + 1 + 5 + 4 + 1) <= 5 * 300
    assert sorted(value or 0 for value in operations.values()) == sorted(
        [16 * 10 * 3, 8 * 50, 16 * 50 + 16 * 4, 16 * 53, 33 * 3, 20 * 70, 5 * 40 + 9 * 40]
    )
    assert 0 <= batch_norm - 720 * (6 + 1) <= 5 * 20


def test_every_fused_kernel_is_a_row_with_its_bytes(compiled: Compiled, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inductor", str(compiled.trace), "--module", str(compiled.cache), "--csv"]
    assert main([*arguments, "--table", "kernels"]) == 0
    rows = rows_of(capsys.readouterr().out)
    fused = {(row["Graph"], row["Kernel"]): row for row in rows if row["Category"] == "cpp_fused"}
    modules = {f"{m.graph}_{m.direction}": m for m in compiled.modules()}
    assert set(modules) == {"0_forward", "0_backward"}
    assert set(fused) == {(graph, f.name) for graph, module in modules.items() for f in module.fused}
    for (graph, name), row in fused.items():
        site = next(f for f in modules[graph].fused if f.name == name).sites[0]
        assert (row["Launches"], row["Bytes"], row["From"]) == ("2", str(site.bytes), "module")
        assert row["File"] == str(modules[graph].path)
    assert fused["0_forward", "cpp_fused_gelu_native_layer_norm_1"]["Fuses"] == "gelu,native_layer_norm"
    assert {row["Category"] for row in rows if row["Kernel"] in ("aten::addmm", "aten::mm")} == {"gemm"}
    assert {row["Category"] for row in rows if row["Kernel"].startswith("aten::convolution")} == {"conv"}
    # The modules are found without --module as well: the capture's Python frames name them.
    assert main(["inductor", str(compiled.trace), "--csv", "--table", "kernels"]) == 0
    assert rows_of(capsys.readouterr().out) == rows


def test_a_module_that_was_not_given_is_not_taken_for_another(
    compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both modules have a first kernel `cpp_fused...0`; copies under other names are found by direction and kernels."""
    paths = {found.direction: found.path for found in compiled.modules()}

    def known(*modules: Path) -> dict[str, int]:
        arguments = ["inductor", str(compiled.trace), "--csv", "--table", "kernels", "--module", *map(str, modules)]
        assert main(arguments) == 0
        rows = [row for row in rows_of(capsys.readouterr().out) if row["Category"] == "cpp_fused" and row["Bytes"] != "na"]
        return dict(Counter(row["Graph"] for row in rows))

    assert known(paths["forward"]) == {"0_forward": 3} and known(paths["backward"]) == {"0_backward": 3}
    copies = [shutil.copy(path, tmp_path / f"{direction}.py") for direction, path in paths.items()]
    assert known(*map(Path, copies)) == {"0_forward": 3, "0_backward": 3}
    other = tmp_path / "c" / f"c{'z' * 51}.py"  # a module of another program, whose kernels have the same names
    other.parent.mkdir()
    shutil.copy(paths["backward"], other)
    assert known(paths["forward"], other) == {"0_forward": 3}


def test_categories_sum_to_the_whole(compiled: Compiled) -> None:
    records = load(str(compiled.trace))
    rows = np.arange(len(records))
    groups, times = grouped(Frame(records), rows, compiled.modules()), busy(records, rows)
    assert (groups.sums.ns.sum(), groups.sums.launches.sum()) == (records["dur_ns"].sum(), len(records))
    assert times.total == records["dur_ns"].sum() and 0 < times.union <= times.wall
    table = categories(groups, times)
    for key in ("launches", "time_us", "busy", "wall", "gb"):
        values = table.of(key)
        assert isinstance(values, (Integers, Fractions))
        known = np.where(values.unknown, 0, values.values)
        assert known[-1] == pytest.approx(known[:-1].sum()), key
    assert float(printed(table.of("busy"))[-1]) == 100
    assert kernels(groups, times).rows.size == len(groups.launches)


def test_a_module_runs_by_itself_whatever_its_file_is_called(
    compiled: Compiled, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels are recorded even where the module was generated without the switch for that."""
    backward = next(found for found in compiled.modules() if found.direction == "backward")
    plain = re.sub(r".*RecordFunctionHandle.*\n", "", backward.path.read_text())
    (tmp_path / "bwd.py").write_text(plain)
    for name, value in compiled.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    assert main(["inductor", "run", "bwd.py", "--times", "2", "--csv", "--table", "kernels"]) == 0
    rows = {row["Kernel"]: row for row in rows_of(capfd.readouterr().out)}
    assert {row["Graph"] for row in rows.values()} == {"0_backward"} and (tmp_path / "bwd.json.gz").exists()
    for fused in backward.fused:
        assert (rows[fused.name]["Launches"], rows[fused.name]["Bytes"]) == ("2", str(fused.sites[0].bytes))
    assert rows["aten::mm"]["Launches"] == "4"

    (tmp_path / "broken.py").write_text("raise ValueError('boom')\n")
    assert main(["inductor", "run", "broken.py"]) == 1 and main(["inductor", "run", "gone.py"]) == 1
    err = capfd.readouterr().err
    assert "ValueError: boom" in err and "Traceback" not in err and "gone.py: no such file" in err


def test_bench_times_each_kernel_alone(
    compiled: Compiled, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = next(found for found in compiled.modules() if found.direction == "forward")
    for name, value in compiled.env.items():
        monkeypatch.setenv(name, value)
    arguments = ["inductor", "bench", str(forward.path), "--csv", "--seconds", "0.02"]
    assert main(arguments) == 0
    rows = rows_of(capsys.readouterr().out)
    assert {row["Kernel"]: row["Bytes"] for row in rows} == {f.name: str(f.sites[0].bytes) for f in forward.fused}
    for row in rows:
        assert float(row["best(us)"]) <= float(row["Time(us)"]) <= float(row["p99(us)"]) and int(row["Calls"]) >= 10
        assert float(row["GB/s"]) == pytest.approx(int(row["Bytes"]) / float(row["Time(us)"]) / 1e3, abs=0.02, rel=0.02)
    assert main([*arguments, "--kernel", "cpp_fused_0"]) == 0
    assert [row["Kernel"] for row in rows_of(capsys.readouterr().out)] == ["cpp_fused_0"]
    assert main([*arguments, "--kernel", "other"]) == 2
    assert "no C++ kernel 'other'" in capsys.readouterr().err


def test_without_modules_the_bytes_are_unknown(compiled: Compiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.py"
    other.write_text("print('never run')\n")
    assert main(["inductor", str(compiled.trace), "--module", str(other), "--csv", "--table", "kernels"]) == 0
    out, err = capsys.readouterr()
    assert {r["Bytes"] for r in rows_of(out) if r["Category"] == "cpp_fused"} == {"na"}
    assert "6 of 6 fused kernels without bytes" in err and "never run" not in out


def test_a_triton_launch_with_recorded_arguments(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """x, y and the sum of sin(x) and cos(y), each 10 by 10 of fp32."""
    assert main(["inductor", str(captures / "kineto/a100_triton_add.json.gz"), "--csv", "--table", "kernels"]) == 0
    (row,) = rows_of(capsys.readouterr().out)
    assert row["Kernel"] == "triton_poi_fused_add_cos_sin_0" and row["Category"] == "pointwise"
    assert (row["Bytes"], row["From"], row["Fuses"]) == ("1200", "arguments", "add,cos,sin")
    assert row["File"].endswith("/cqaokwf2bph4egogzevc22vluasiyuui4i54zpemp6knbsggfbuu.py")


@pytest.mark.parametrize("name", ["kineto/h100_vit.json.gz", *slow("kineto/a100_train_stacks.json.gz")])
def test_real_captures_add_up(captures: Path, name: str) -> None:
    records = load(str(captures / name))
    rows = np.arange(len(records))
    groups, times = grouped(Frame(records), rows, []), busy(records, rows)
    assert groups.sums.ns.sum() == times.total == records["dur_ns"].sum() and times.union <= min(times.total, times.wall)
    assert {"gemm", "norm", "memcpy"} <= {launch.category for launch in groups.launches}


STEM = {graph: "c" + letter * 51 for graph, letter in (("0_forward", "a"), ("0_backward", "b"))}
CALL = """
def call(args):
    x, = args
    assert_size_stride(x, (6, 10), (10, 1))
    buf0 = empty_strided_cuda((6, 10), (10, 1), torch.float32)
    # Topologically Sorted Source Nodes: [{node}], Original ATen: [aten.{node}]
    stream0 = get_raw_stream(0)
    triton_poi_fused_0.run({arguments}, 60, stream=stream0)
"""
COPY = """
xnumel = 60
xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
x0 = xindex
tl.store(out_ptr0 + (x0), tl.load(in_ptr0 + (x0), None), None)
"""


def gpu_trace(path: Path, frames: bool = False) -> Path:
    """A compiled forward and backward whose kernels have one name, a template, a kernel of the user's, a copy and a product."""
    events: list[dict[str, object]] = []

    def range_(name: str, start: int, end: int, **args: object) -> None:
        category = "python_function" if ".py(" in name else "user_annotation" if name.startswith("##") else "cpu_op"
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args}
        )

    def kernel(name: str, launch: int, start: int, length: int, stream: int = 7, category: str = "kernel") -> None:
        corr = len(events)
        runtime = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": 1, "tid": 1, "ts": launch, "dur": 1}
        events.append({**runtime, "args": {"correlation": corr}})
        device = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length}
        events.append(
            {**device, "args": {"correlation": corr, "device": 0, "stream": stream, "grid": [1, 1, 1], "block": [128, 1, 1]}}
        )

    def triton_(name: str, start: int, end: int, **facts: object) -> None:
        range_(name, start, end, kernel_backend="triton", kernel_file="/gone/k.py", kernel_hash="k", **facts)

    described = {"Input Dims": [[8, 4], [8, 4], []], "Input type": ["float", "float", "Scalar"]}
    for at, graph in ((0, "0_forward"), (100, "0_backward")):
        range_(f"## Call CompiledFxGraph {graph} ##", at + 10, at + 40)
        if frames:
            range_(f"/cache/{STEM[graph][1:3]}/{STEM[graph]}.py(30): call", at + 10, at + 40)
        triton_("triton_poi_fused_0", at + 12, at + 20)
        kernel("triton_poi_fused_0", at + 14, at + 50, 10)
    range_("CompiledFunctionBackward", 105, 145, **{"Sequence number": 3, "Fwd thread id": 1})
    triton_("triton_tem_fused_mm_1", 22, 26, kernel_num_gb=0.004, kernel_flop=8000)
    kernel("triton_tem_fused_mm_1", 23, 55, 20, stream=8)
    triton_("my_kernel", 50, 54, **described)
    kernel("my_kernel", 51, 76, 4)
    range_("aten::mm", 60, 70, **{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]})
    kernel("ampere_sgemm_128x64_nn", 61, 80, 10)
    kernel("Memcpy HtoD (Pageable -> Device)", 80, 95, 5, category="gpu_memcpy")
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": A100}], "traceEvents": events}))
    return path


A100 = "NVIDIA A100-SXM4-80GB"


def gpu_modules(folder: Path) -> list[str]:
    pointers = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32"}
    for graph, node, arguments in (("0_forward", "relu", "x, buf0"), ("0_backward", "neg", "x, x")):
        module(folder / f"{STEM[graph]}.py", triton("triton_poi_fused_0", pointers, COPY),
               CALL.format(node=node, arguments=arguments), graph=graph)  # fmt: skip
    return [str(folder / f"{stem}.py") for stem in STEM.values()]


@pytest.mark.parametrize("frames", [False, True])
def test_a_gpu_capture_with_its_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str], frames: bool) -> None:
    trace = str(gpu_trace(tmp_path / "net.json", frames))
    assert main(["inductor", trace, "--csv", "--module", *gpu_modules(tmp_path)]) == 0
    out, err = capsys.readouterr()
    totals, found = (rows_of(part) for part in out.replace("\r\n", "\n").split("\n\n"))
    by = {
        (row["Kernel"], row["Graph"]): (row["Category"], row["Launches"], row["Bytes"], row["From"], row["Fuses"])
        for row in found
    }
    assert by == {
        ("triton_poi_fused_0", "0_forward"): ("pointwise", "1", "480", "module", "relu"),
        ("triton_poi_fused_0", "0_backward"): ("pointwise", "1", "480", "module", "neg"),
        ("triton_tem_fused_mm_1", "forward"): ("template", "1", "4000000", "recorded", "mm"),
        ("my_kernel", "forward"): ("user Triton", "1", "256", "arguments", "-"),
        ("ampere_sgemm_128x64_nn", "forward"): ("gemm", "1", str(4 * (6 + 12 + 8)), "op", "-"),
        ("Memcpy HtoD", "na"): ("memcpy", "1", "na", "na", "-"),
    }
    assert [row["Category"] for row in totals] == ["pointwise", "template", "user Triton", "gemm", "memcpy", "total"]
    total = totals[-1]
    assert (total["Kernels"], total["Launches"], total["Time(us)"], total["Busy(%)"]) == ("6", "6", "59.0", "100.00")
    assert [row["Known(%)"] for row in totals] == ["100.00", "100.00", "0.00", "100.00", "100.00", "93.22"]
    # 50 to 75 (two streams), 76 to 90, 95 to 100, 150 to 160: 54 of the 110 us from the first begin to the last end.
    assert "busy 49.1 % of 0.110 ms wall (union of intervals); sum over wall 53.6 %" in err
    template = next(row for row in found if row["Category"] == "template")
    assert float(template["GFLOP"]) == 8e-6 and float(template["GB/s"]) == 200


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"xnumel = 60": f"xnumel = {10**20}", "(x0), None), None)": "(x0), None) * 2.0, None)"}, "GFLOP"),
        ({"xnumel = 60": f"xnumel = {10**20}", "(6, 10), (10, 1)": f"({10**10}, {10**10}), ({10**10}, 1)"}, "Bytes"),
        ({"(6, 10), (10, 1)": "(s0, 10), (10, 1)", "'kernel_name'": "'kernel_num_gb': 1e400, 'kernel_name'"}, "Bytes"),
        ({"(6, 10), (10, 1)": "(s0, 10), (10, 1)", "'kernel_name'": "'kernel_num_gb': 1e300, 'kernel_name'"}, "Bytes"),
        ({"'kernel_name'": f"'kernel_flop': {10**400}, 'kernel_name'", "tl.load(in_ptr0": "tl.dot(in_ptr0"}, "GFLOP"),
    ],
)
def test_amounts_beyond_all_memory_are_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], unknown: str
) -> None:
    modules = gpu_modules(tmp_path)
    for name in modules:
        text = Path(name).read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        Path(name).write_text(text)
    trace = str(gpu_trace(tmp_path / "net.json"))
    assert main(["inductor", trace, "--csv", "--table", "kernels", "--module", *modules]) == 0
    rows = [row for row in rows_of(capsys.readouterr().out) if row["Kernel"] == "triton_poi_fused_0"]
    assert [row[unknown] for row in rows] == ["na", "na"]


def test_two_kernels_of_one_name_need_their_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inductor", str(gpu_trace(tmp_path / "net.json")), "--csv", "--table", "kernels"]) == 0
    out, err = capsys.readouterr()
    rows = [row for row in rows_of(out) if row["Kernel"] == "triton_poi_fused_0"]
    assert [(row["Graph"], row["Bytes"]) for row in rows] == [("backward", "na"), ("forward", "na")]
    assert "2 of 4 fused kernels without bytes" in err


def test_ops_of_a_module_in_cpp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With TORCHINDUCTOR_CPP_WRAPPER=1 library ops go by names of their own, and without shapes."""
    ops = ("aoti_torch_cpu_addmm_out", "aoti_torch_cpu_convolution", "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu",
           "aoti_torch_cpu_randint_low_out", "graph_0_cpp_fused_add_0")  # fmt: skip
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 10 * at, "dur": 5, "args": {"External id": at}}
        for at, name in enumerate(ops)
    ]
    (tmp_path / "net.json").write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    assert main(["inductor", str(tmp_path / "net.json"), "--csv", "--table", "categories"]) == 0
    rows = {row["Category"]: row["Time(us)"] for row in rows_of(capsys.readouterr().out)}
    assert rows == {"cpp_fused": "5.0", "gemm": "5.0", "conv": "5.0", "attention": "5.0", "other": "5.0", "total": "25.0"}


@pytest.mark.parametrize("form", [["-w", "200"], ["--format", "plain"], ["--format", "jsonl"], ["--format", "table"]])
def test_the_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: list[str]) -> None:
    assert main(["inductor", str(gpu_trace(tmp_path / "net.json")), "--top", "1", "--wall-ms", "0.2", *form]) == 0
    out, err = capsys.readouterr()
    assert "triton_tem_fused_mm_1" in out and "my_kernel" not in out and "busy 27.0 % of 0.200 ms" in err


@pytest.mark.parametrize(
    "arguments", [["--wall-ms", "0"], ["--top", "-1"], ["-w", "20"], ["--times", "0"], ["second"], ["--module", "/nowhere"]]
)
def test_wrong_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(["inductor", str(gpu_trace(tmp_path / "net.json")), *arguments]) in (1, 2)
    assert capsys.readouterr().err.startswith("pyprof: error: ")


def _records(rows: list[tuple[int, int, int]], kind: int = ActivityKind.KERNEL) -> Records:
    columns = {name: np.full(len(rows), -1, dtype) for name, (dtype, _) in COLUMNS.items()}
    columns["kind"][:] = kind
    for at, (start, length, device) in enumerate(rows):
        columns["start_ns"][at], columns["dur_ns"][at], columns["device"][at] = start, length, device
    return Records(columns)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(0, 1)), max_size=12), st.sets(st.integers(0, 11)))
def test_busy_is_the_union_on_each_device(rows: list[tuple[int, int, int]], among: set[int]) -> None:
    chosen = [at for at in sorted(among) if at < len(rows)]
    spans = [(start, start + length, device) for start, length, device in (rows[at] for at in chosen)]
    covered = {(at, device) for start, end, device in spans for at in range(start, end)}
    wall = sum(
        max(end for _, end, on in spans if on == device) - min(start for start, _, on in spans if on == device)
        for device in {device for *_, device in spans}
    )
    total = sum(end - start for start, end, _ in spans)
    assert busy(_records(rows), np.array(chosen, np.int64)) == BusyTimes(total, len(covered), wall)
