"""`pyprof counters` from end to end: traces with counters, files of ncu beside a capture, and what it refuses."""

import csv
import html
import io
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.cli import main
from pyprof.counters.counted import metrics
from pyprof.errors import InputError
from pyprof.hardware.devices import load
from pyprof.loading.load import open_trace
from tests.tiny import Nsys

FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
PID = 100


def drawn_in(page: Path) -> dict[str, Any]:
    """What the one chart of a page of --roofline shows; the page runs and loads nothing else."""
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'; script-src" in html.unescape(text) and text.count("<script") == 2
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    (chart,) = json.loads(found)
    assert isinstance(chart, dict)
    return chart


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, str]]:
    assert main(["counters", *map(str, arguments), "--csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def event(cat: str, name: str, ts: float, dur: float, pid: Any = PID, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "args": args}


def op(name: str, ts: float, dur: float) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, **{"External id": int(ts) + 1})


def launch(corr: int, ts: float, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return event("cuda_runtime", name, ts, 5, correlation=corr)


def counted(number: int, name: str = "k") -> dict[str, Any]:
    return event("cuda_profiler_range", name, 1000.0 + number, 1, pid=0, **{FFMA: number})


def trace(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "trace.json"
    facts = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}],
    }
    path.write_text(json.dumps({**facts, "traceEvents": events}))
    return path


def test_the_nth_range_is_of_the_nth_launch_whatever_call_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [
        op("aten::linear", 0, 90),
        op("aten::addmm", 10, 70),
        launch(1, 20, "cuLaunchKernelEx"),
        launch(2, 40, "cudaLaunchKernelExC"),
        event("cuda_driver", "cuLaunchKernelEx", 41, 3, correlation=2),  # inside the call above
        op("aten::relu", 100, 50),
        launch(3, 110),
        event("cuda_runtime", "cudaMemcpyAsync", 120, 5, correlation=4),
    ]
    path = trace(tmp_path, *calls, counted(2, "b"), counted(1, "a"), counted(3, "__missing__"))
    found = rows_of(capsys, path, "-c", f"kernel,op_stack,top_op,bottom_op,match,{FFMA}")
    assert [row["Kernel"] for row in found] == ["a", "b", "na"]
    assert [row["OpStack"] for row in found] == ["linear > addmm", "linear > addmm", "relu"]
    assert (found[0]["TopOp"], found[0]["BottomOp"], found[0]["Match"]) == ("linear", "addmm", "order")
    assert [float(row[FFMA]) for row in found] == [1, 2, 3]


def test_unequal_counts_give_what_is_certain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [op("aten::a", 0, 50), launch(1, 10), launch(2, 20), launch(3, 30), op("aten::b", 100, 50), launch(4, 110)]
    found = rows_of(capsys, trace(tmp_path, *calls, counted(1), counted(2), counted(3)), "-c", "top_op,match")
    assert [row["TopOp"] for row in found] == ["a", "a", "na"]  # the third was launched by a or by b
    assert {row["Match"] for row in found} == {"ambiguous"}
    found = rows_of(capsys, trace(tmp_path, *calls[:2], *calls[4:], *map(counted, range(3))), "-c", "top_op")
    assert [row["TopOp"] for row in found] == ["a", "na", "b"]
    graph = [op("aten::g", 200, 50), launch(5, 210, "cudaGraphLaunch")]
    found = rows_of(capsys, trace(tmp_path, *calls[:2], *graph, *map(counted, range(3))), "-c", "top_op,match")
    assert [(row["TopOp"], row["Match"]) for row in found] == [("na", "ambiguous")] * 3  # the graph may be any of them


def test_devices_whose_order_among_each_other_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [op("aten::a", 0, 50), launch(1, 10), launch(2, 20), op("aten::b", 100, 50), launch(3, 110), launch(4, 120)]
    ranges = [event("cuda_profiler_range", "k", 1000.0 + n, 1, pid=n % 2, **{FFMA: n}) for n in range(4)]
    found = rows_of(capsys, trace(tmp_path, *calls, *ranges), "-c", "device,top_op,match")
    # The first of a device is one of the first three launches, the second one of the last three.
    assert [(row["Device"], row["TopOp"], row["Match"]) for row in found] == [(str(n % 2), "na", "ambiguous") for n in range(4)]
    found = rows_of(capsys, trace(tmp_path, *calls[:3], *ranges[:2]), "-c", "top_op")
    assert [row["TopOp"] for row in found] == ["a", "a"]


def test_several_files_each_with_its_own_ops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name in "ab":
        (tmp_path / name).mkdir()
        paths.append(trace(tmp_path / name, op(f"aten::{name}", 0, 50), launch(1, 10), counted(1)))
    ncu = tmp_path / "net.csv"
    ncu.write_text('"ID","Process ID","Kernel Name","x__y.sum"\n"","","",""\n"0","9","k","5"\n')
    found = rows_of(capsys, paths[0], ncu, paths[1], "-c", "top_op,match,x__y.sum")
    assert [(row["TopOp"], row["Match"]) for row in found] == [("a", "order"), ("na", "none"), ("b", "order")]


def test_what_the_ops_of_measured_launches_need(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A product of 8x16 by 16x4 takes 1024 FLOPs, whatever the times, which are made up."""
    shapes = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"], "External id": 1}
    ops = [{**op("aten::mm", 0, 50), "args": shapes}, launch(1, 10), op("aten::relu", 100, 50), launch(2, 110)]
    sass = {FFMA: 512, FFMA.replace("ffma", "fadd"): 1024, FFMA.replace("ffma", "fmul"): 0}
    ranges = [
        event("cuda_profiler_range", name, 1000.0 + at, 100, pid=0, **sass)
        for at, name in enumerate(("mm_kernel", "relu_kernel"))
    ]
    path = trace(tmp_path, *ops, *ranges)
    found = rows_of(capsys, path, "-c", "kernel,op,flops_meas,flops_model,ratio,bytes_model,sil,tflops,match")
    assert list(found[0].values()) == ["mm_kernel", "mm", "2048", "1024", "2.000", "896", "na", "na", "order"]
    assert (found[1]["Op"], found[1]["Match"]) == ("relu", "order")
    assert main(["counters", str(path)]) == 0
    assert "their times are not real" in capsys.readouterr().err


def test_a_real_trace_with_counters(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = captures / "kineto" / "a100_alexnet_cupti_counters.json.gz"
    found = rows_of(capsys, path, "-c", "kernel,op_stack,top_op,flops_meas,flags,tc")
    assert len(found) == 77 and sum(int(row["FLOPsMeasured"]) for row in found) == 80_231_038_456
    of_op: dict[str, list[int]] = {}
    for row in found:
        of_op.setdefault(row["TopOp"], []).append(int(row["FLOPsMeasured"]))
    assert (len(of_op["conv2d"]), sum(of_op["conv2d"])) == (38, 49_873_387_520)
    assert (len(of_op["linear"]), sum(of_op["linear"])) == (12, 30_162_550_784)
    assert found[5]["OpStack"] == "conv2d > convolution > _convolution > cudnn_convolution"
    assert found[5]["Kernel"].startswith("fft2d_r2c") and int(found[5]["FLOPsMeasured"]) == 234_946_560
    assert sum("hfma" in row["Flags"] for row in found) == 17
    # Of AlexNet at batch 128: the first convolution counts all of its FLOPs, and so do the linear layers.
    assert int(found[1]["FLOPsMeasured"]) / (2 * 128 * 64 * 55 * 55 * 3 * 11 * 11) == pytest.approx(1.015, abs=5e-4)
    linear = 2 * 128 * (9216 * 4096 + 4096 * 4096 + 4096 * 1000)
    assert sum(of_op["linear"]) / 2 / linear == pytest.approx(1.005, abs=5e-4)
    tensor = [row for row in found if row["TC"] == "1"]
    assert len(tensor) == 6 and all(row["Flags"] == "tensor_uncounted" for row in tensor)
    assert max(int(row["FLOPsMeasured"]) for row in tensor) < 1e-3 * 2 * 128 * 256 * 13 * 13 * 384 * 9


def test_samples_are_means_over_the_time_of_an_ops_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def kernel(corr: int, ts: float, dur: float) -> dict[str, Any]:
        return event("kernel", "k", ts, dur, pid=0, correlation=corr, device=0, stream=7)

    def sample(ts: float, value: float, name: str = "gpu__dram_throughput") -> dict[str, Any]:
        fixed = {"ph": "C", "cat": "hardware_counters", "pid": "GPU 0 Counters", "tid": 0}
        return {**fixed, "name": name, "ts": ts, "args": {"": value}}

    path = trace(
        tmp_path, op("aten::a", 0, 20), launch(1, 5), op("aten::b", 30, 20), launch(2, 35), kernel(1, 100, 30), kernel(2, 130, 20),
        *(sample(ts, value) for ts, value in ((100, 99), (110, 10), (120, 20), (140, 60), (160, 0))), sample(100, 5, "sm__x"),
    )  # fmt: skip
    found = rows_of(capsys, path)
    assert [(row["Op"], row["Kernels"], row["Time(ns)"]) for row in found] == [("a", "1", "30000"), ("b", "1", "20000")]
    # a: 10 us at 10, 10 at 20, 10 at 60; b: 10 us at 60, 10 at 0.
    assert [float(row["gpu__dram_throughput"]) for row in found] == [30, 30]
    assert {row["sm__x"] for row in found} == {"na"}  # one sample covers no time


def sampled_by_nsys(path: Path, *more: str) -> Path:
    """GPU 3 of nsys is CUDA's 0 (cuDevice): aten::mm runs in 100 to 300 in layer `attn`, aten::relu 300 to 310."""
    n = Nsys()
    n.range("attn", 1, 30)
    n.range("aten::mm, op_id = 1", 2, 20)
    n.range("aten::relu, op_id = 2", 40, 60)
    n.kernel("gemm", 5, 100, 300)
    n.kernel("relu", 45, 300, 310)
    n.rows["TARGET_INFO_GPU"] += [(3, "NVIDIA A100-SXM4-40GB", 0, 108, 8, 0), (5, "Tesla T4", 1, 40, 7, 5)]
    n.write(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, metricName TEXT)"
        )
        db.execute(
            "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL)"
        )
        own, other = (7 << 48) + 3, (7 << 48) + 5
        names = [
            (own, 0, "GA100", 0, "GPC Clock [MHz]"),
            (own, 0, "GA100", 8, "SMs Active [Throughput %]"),
            (other, 0, "TU104", 0, "SMs Active [Throughput %]"),
        ]
        db.executemany("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (?, ?, ?, ?, ?)", names)
        # relu's ten ns are a tenth of the last sample's time. The other GPU's samples are no business of device 0.
        db.executemany(
            "INSERT INTO GPU_METRICS VALUES (?, ?, 8, ?)", [(400, own, 7), (100, own, 1), (200, own, 60), (300, own, 80)]
        )
        db.executemany("INSERT INTO GPU_METRICS VALUES (?, ?, 0, ?)", [(time, other, 99) for time in (100, 200, 300, 400)])
        for statement in more:
            db.execute(statement)
        db.commit()
    return path


def test_samples_of_nsys_are_named_and_of_their_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows_of(capsys, sampled_by_nsys(tmp_path / "net.sqlite"))
    shown = [[row[name] for name in ("Layer", "Op", "Time(ns)", "Samples", "SMs_Active_[Throughput_%]")] for row in found]
    assert shown == [["attn", "mm", "200", "2", "70.00"], ["-", "relu", "10", "0", "na"]]
    assert "GPC_Clock_[MHz]" not in found[0]
    trace = open_trace(tmp_path / "net.sqlite")
    assert trace.notes == ["8 samples of hardware counters were recorded beside the kernels: see `pyprof counters`"]


def test_samples_of_a_gpu_that_processes_number_differently_are_no_ones(tmp_path: Path) -> None:
    path = sampled_by_nsys(
        tmp_path / "net.sqlite", "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)",
        "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (3, 0, 7), (5, 0, 7)",
    )  # fmt: skip
    trace = open_trace(path)
    assert trace.samples is None and trace.notes == ["samples of 2 GPUs were not read: CUDA's number of it is not known"]


def ncu_and_capture(tmp_path: Path) -> tuple[Path, Path]:
    """A product of 8x16 by 16x4: 1024 FLOPs and 4*(128+64+32) bytes are needed, 2048 FLOPs and 1792 bytes were counted."""
    shapes = {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"], "External id": 1}
    size = {"grid": [4, 1, 1], "block": [128, 1, 1], "device": 0, "stream": 7, "correlation": 1}
    name = "void ns::gemm_kernel<int, false>(float const*, float*)"
    capture = trace(
        tmp_path, event("cpu_op", "aten::mm", 0, 50, **shapes), launch(1, 10), event("kernel", name, 100, 2, pid=0, **size)
    )
    ncu = tmp_path / "net.csv"
    sass = [FFMA, FFMA.replace("ffma", "fadd"), FFMA.replace("ffma", "fmul")]
    header = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "Device", "CC", *sass, "dram__bytes.sum"]
    row = ["0", "9", "void gemm_kernel<int, 0>(const float *, float *)", "(128, 1, 1)", "(4, 1, 1)"]
    row += ["0", "8.0", "1000", "48", "0", "1.792"]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([header, [""] * 10 + ["Kbyte"], row])
    ncu.write_text("hello\n" + text.getvalue())
    return ncu, capture


def test_ncu_beside_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ncu, capture = ncu_and_capture(tmp_path)
    columns = (
        "kernel,op_stack,op,flops_meas,flops_model,ratio,bytes_meas,bytes_model,bytes_ratio,ai,ai_model,tflops,sil,match,tc"
    )
    (found,) = rows_of(capsys, ncu, "--trace", capture, "-c", columns)
    assert found["Kernel"] == "gemm_kernel" and found["OpStack"] == "mm" and found["Match"] == "exact"
    assert (found["FLOPsMeasured"], found["FLOPs"], found["Ratio"]) == ("2048", "1024", "2.000")
    assert (found["BytesMeasured"], found["Bytes"], found["BytesRatio"]) == ("1792", "896", "2.000")
    assert (found["AI"], found["AI(model)"], found["TFLOP/s"], found["Sil(ns)"]) == ("1.14", "1.14", "0.001", "2000")
    assert main(["counters", str(ncu), "--trace", str(capture), "--min-match", "100"]) == 0
    page = tmp_path / "roofline.html"
    assert main(["counters", str(ncu), "--trace", str(capture), "--roofline", str(page), "--gpu", "A100-SXM-80GB"]) == 0
    drawn = drawn_in(page)
    assert drawn["measured"] and [drawn["cells"]["phases"][at] for at in drawn["cells"]["phase"]] == ["DRAM", "algorithm"]
    assert drawn["cells"]["flops"] == [2048, 1024] and drawn["cells"]["bytes"] == [1792, 896]
    assert drawn["cells"]["time_ns"] == [2000, 2000] and drawn["total_ns"] == 2000 and drawn["roofs"]["dram"] == 2039e9
    ncu.write_text(ncu.read_text().replace("gemm_kernel", "other"))
    capsys.readouterr()
    assert main(["counters", str(ncu), "--trace", str(capture), "--min-match", "50"]) == 3
    assert "0.0 % of the kernel time is matched" in capsys.readouterr().err


def test_the_published_ncu_files(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted((captures / "ncu" / "rtx5090_details").glob("*.metrics.csv"))
    found = rows_of(capsys, *files, "--gpu", "RTX 5090", "-c", "flops_meas,bytes_meas,ai,roof,bound,flags")
    assert len(found) == 10 and all(int(row["BytesMeasured"]) > 0 for row in found)
    known = {number for number, row in enumerate(found, 1) if row["FLOPsMeasured"] != "na"}
    assert (
        known
        == {3, 5, 9}
        == {number for number, row in enumerate(found, 1) if "na" not in (row["AI"], row["Roof(%)"], row["Bound"])}
    )
    assert {row["Flags"] for row in found} == {"-", "uncalibrated"}
    assert [found[at - 1]["Bound"] for at in (3, 5, 9)] == ["math", "math", "memory"]


def test_limits_that_ncu_says_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1000 additions of doubles and 500 bytes in 1 us, 2 FLOP/byte: 1 GFLOP/s of 4e9, 0.5 GB/s of 1e9 on an unknown device."""
    metrics = {
        **{FFMA.replace("ffma", f"d{what}"): count for what, count in (("add", 1000), ("mul", 0), ("fma", 0))},
        "dram__bytes.sum": 500,
        "gpu__time_duration.sum": 1000,
        "dram__bytes.sum.peak_sustained": 10,
        "dram__cycles_elapsed.avg.per_second": 1e8,
        "sm__sass_thread_inst_executed_op_dfma_pred_on.sum.peak_sustained": 2,
        "sm__cycles_elapsed.avg.per_second": 1e9,
    }
    ncu = tmp_path / "net.csv"
    header, row = ["ID", "Process ID", "Kernel Name", "CC", *metrics], ["0", "9", "k", "9.9", *map(str, metrics.values())]
    ncu.write_text("\n".join(",".join(f'"{cell}"' for cell in line) for line in (header, [""] * len(row), row)) + "\n")
    page = tmp_path / "roofline.html"
    (found,) = rows_of(capsys, ncu, "-c", "ai,roof,bound,gbs", "--roofline", page)
    assert (found["AI"], found["Roof(%)"], found["Bound"], found["GB/s"]) == ("2.00", "50.0", "memory", "0.50")
    roofs = drawn_in(page)["roofs"]
    assert roofs["arithmetic"] == [["fp64", 4e9]] and (roofs["dram"], roofs["l2"], roofs["l1"]) == (1e9, None, None)


def test_metrics_as_columns_by_their_own_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ncu = tmp_path / "net.csv"
    header = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
    names = ("dram__bytes.sum", "FP64 (DMMA) [%]", "kernel")
    rows = [f'"{number}","9","k","S","{name}","","{number}"' for number in range(3) for name in names]
    ncu.write_text("\n".join([header, *rows]) + "\n")
    found = rows_of(capsys, ncu, "-c", "idx,dram__bytes.sum", "--where", "dram__bytes.sum>=1,s: fp64 (dmma) [%]<2")
    assert [list(row.values()) for row in found] == [["2", "1.000000"]]


def test_tensor_cores_that_ran_and_were_counted_as_idle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ncu = tmp_path / "net.csv"
    name = "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel"
    metric = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
    ncu.write_text(f'"ID","Process ID","Kernel Name","CC","{metric}"\n"","","","",""\n"0","9","{name}","8.0","0"\n')
    (found,) = rows_of(capsys, ncu, "-c", "tc,flags,flops_meas")
    assert (found["TC"], found["Flags"], found["FLOPsMeasured"]) == ("1", "tensor_uncounted", "na")


def test_the_command_line_for_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["counters", "--metrics", "H100-SXM"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("ncu --csv ") and "sm__ops_path_tensor_src_fp16.sum" in line and "src_fp16_dst" not in line
    for same in ("H100", "NVIDIA H100 80GB HBM3", "gh100", "sm_90", "9.0"):
        assert main(["counters", "--metrics", same]) == 0
        assert capsys.readouterr().out == line
    assert main(["counters", "--metrics"]) == 0
    assert "tensor" not in capsys.readouterr().out
    for gpu, _ in load():
        assert FFMA in metrics(gpu.arch)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no file was given"),
        (["{capture}"], 1, "there are no counters in it"),
        (["{ncu}", "--min-match", "5"], 2, "--min-match needs a capture"),
        (["{ncu}", "--trace", "{capture}", "--min-match", "101"], 2, "a percentage"),
        (["{ncu}", "-c", "nothing"], 2, "there is no column 'nothing'"),
        (["{ncu}", "--roofline", "x.txt"], 2, ".html or .png"),
        (["{ncu}", "--roofline", "x.html"], 1, "no launch has FLOPs, bytes and time"),
        (["--metrics", "no such"], 1, "there is no device"),
        (["--metrics", "RTX"], 1, "is several devices"),
        (["--metrics", "MI300X"], 2, "does not measure MI300X"),
        (["--metrics", "P100"], 2, "does not measure P100"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    capture = trace(tmp_path, op("aten::a", 0, 20), launch(1, 5), event("kernel", "k", 100, 5, pid=0, correlation=1))
    ncu = tmp_path / "net.csv"
    ncu.write_text('"ID","Process ID","Kernel Name","Device","CC","x__y.sum"\n"","","","","",""\n"0","9","k","0","8.0","5"\n')
    given = [argument.format(capture=capture, ncu=ncu) for argument in arguments]
    assert main(["counters", *given]) == code
    assert message in capsys.readouterr().err
    assert main(["prof", str(ncu)]) == 1
    assert "measured counters, not a capture" in capsys.readouterr().err


def test_counters_in_python(tmp_path: Path) -> None:
    path = trace(tmp_path, op("aten::linear", 0, 90), op("aten::addmm", 10, 70), launch(1, 20), counted(7, "k"))
    frame = pyprof.load(path).counters()
    assert frame.loc[0, ["op_stack", "top_level_op", "bottom_level_op"]].tolist() == ["linear > addmm", "linear", "addmm"]
    assert frame.loc[0, FFMA] == 7 and frame["flops_meas"].isna().all()  # additions and products were not counted
    ncu = tmp_path / "net.csv"
    ncu.write_text(
        '"ID","Process ID","Kernel Name","Device","CC","dram__bytes.sum"\n"","","","","",""\n"0","9","k","0","8.0","5"\n'
    )
    loaded = pyprof.load(ncu)
    assert len(loaded) == 0 and loaded.counters().loc[0, "bytes_meas"] == 5
    sample = {"ph": "C", "cat": "hardware_counters", "name": "sm__x", "pid": "GPU 0 Counters", "tid": 0}
    kernel = event("kernel", "k", 100, 10, pid=0, correlation=1, device=0, stream=7)
    samples = ({**sample, "ts": ts, "args": {"": 5}} for ts in (95, 115))
    frame = pyprof.load(trace(tmp_path, op("aten::a", 0, 20), launch(1, 5), kernel, *samples)).counters()
    assert frame[["op", "sm__x"]].to_numpy().tolist() == [["a", 5.0]]
    with pytest.raises(InputError, match="no counters"):
        pyprof.load(trace(tmp_path, op("aten::a", 0, 20))).counters()
