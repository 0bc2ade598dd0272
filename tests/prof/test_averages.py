"""The table that torch users know: against torch's own key_averages of the same run, and against a peer's on a GPU."""

import csv
import io
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import pyprof
from pyprof.cli import main
from pyprof.errors import UsageError
from tests.tiny import Nsys


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[profile, Path]:
    """Two training steps on the CPU with everything that torch's table shows."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
    )
    optimizer, x = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9), torch.randn(4, 3, 8, 8)

    def step() -> None:
        with record_function("forward pass"):
            loss = net(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_flops=True) as p:
        step()
        p.step()
        step()
    path = tmp_path_factory.mktemp("averages") / "net.json"
    p.export_chrome_trace(str(path))
    return p, path


@pytest.mark.parametrize("shapes", [False, True])
def test_numbers_are_those_of_key_averages(run: tuple[profile, Path], shapes: bool) -> None:
    prof, path = run
    theirs = {(e.key, str(e.input_shapes) if shapes else ""): e for e in prof.key_averages(group_by_input_shape=shapes)}
    ours = pyprof.load(str(path)).ops(shapes).to_pandas()
    rows = {(row["op"], row["shape"] if shapes else ""): row for _, row in ours.iterrows()}
    assert len(rows) == len(ours) and {key for key in theirs if key[0] != "[memory]"} == set(rows) and len(rows) > 40
    for key, row in rows.items():
        event = theirs[key]
        assert row["calls"] == event.count
        # A trace holds microseconds with three digits: each call may be half a nanosecond off at both ends.
        near = 2 * event.count + 1
        assert abs(row["self_cpu"] - 1000 * event.self_cpu_time_total) <= near * 20, key
        assert abs(row["cpu_total"] - 1000 * event.cpu_time_total) <= near, key
        assert row["cpu_avg"] == pytest.approx(row["cpu_total"] / event.count)
        assert (row["cpu_mem"], row["self_cpu_mem"]) == (event.cpu_memory_usage, event.self_cpu_memory_usage)
        assert (row["device_mem"], row["self_device_mem"]) == (0, 0)
        assert pd.isna(row["self_device"]) and pd.isna(row["device_total"])
        if event.flops:
            assert row["flops"] == event.flops, key
    assert ours["self_cpu"].is_monotonic_decreasing and ours["self_cpu_pct"].sum() == pytest.approx(100)


def test_a_peer_gives_the_same_device_times(captures: Path) -> None:
    for name in ("h100_vit", "h100_bert_small"):
        theirs = pd.read_csv(captures / "peer_tables" / name / "ops_summary.csv").set_index("name")
        ours = pyprof.load(str(captures / "kineto" / f"{name}.json.gz")).ops(shapes=False).to_pandas().set_index("op")
        assert len(theirs) >= 5
        for op, row in theirs.iterrows():
            assert abs(ours["self_device"][op] - 1000 * row["total_direct_kernel_time_sum"]) <= 20, op
            assert abs(ours["device_total"][op] - 1000 * row["total_subtree_kernel_time_sum"]) <= 20, op


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str]]:
    assert main(["prof", "--csv", *arguments]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))


def test_the_command_and_old_names(captures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(captures / "kineto/h100_vit.json.gz")
    whole = rows_of(capsys, path, "--group-by", "op,shape", "--sort", "self_device")
    heads = "Op,Shape,SelfCPU(ns),SelfCPU(%),CPUTotal(ns),CPUAvg(ns),SelfDevice(ns),SelfDevice(%),DeviceTotal(ns),DeviceAvg(ns)"
    assert list(whole[0])[:10] == heads.split(",") and whole[0]["Shape"] == "[[768], [788, 768], [768, 768], [], []]"
    times = [int(row["SelfDevice(ns)"]) for row in whole]
    assert times == sorted(times, reverse=True) and sum(int(row["Calls"]) for row in whole) > 1000
    old = "op,count,self_cuda_time_total,cuda_time_total,cuda_time,self_cpu_time_total,cpu_time_total,cuda_memory_usage"
    named = rows_of(capsys, path, "--group-by", "op", "--sort", "self_cuda_time_total", "-c", old, "--top", "3")
    assert [row["Op"] for row in named] == ["aten::addmm", "aten::cudnn_convolution", "aten::_flash_attention_forward"]
    assert list(named[0]) == "Op,Calls,SelfDevice(ns),DeviceTotal(ns),DeviceAvg(ns),SelfCPU(ns),CPUTotal(ns),DeviceMem".split(
        ","
    )
    assert named[0]["SelfDevice(ns)"] == "735037" and named[0]["Calls"] == "73"
    # Without such a column the groups are those of kernels and the ops that launched them, as ever.
    assert "SelfCPU(ns)" not in rows_of(capsys, path, "--group-by", "op,shape")[0]


def test_a_capture_of_nsys_has_the_table_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    n.range("aten::linear, seq = 1, op_id = 1, sizes = [[4, 8], [2, 8], [2]]", 1_000, 2_000)
    n.range("aten::addmm, seq = 2, op_id = 2, sizes = [[2], [4, 8], [8, 2], [], []]", 1_100, 1_900)
    n.kernel("ampere_sgemm_128x64_tn", 1_200, 5_000, 6_000)
    n.range("aten::sum, op_id = 3, sizes = [[4, 2]]", 3_000, 3_500)
    n.range("aten::sum, op_id = 4, sizes = [[4, 2], []]", 3_100, 3_400)  # one op inside with the same name: one row, one call
    n.kernel("reduce", 3_200, 6_000, 6_500)
    rows = rows_of(capsys, str(n.write(tmp_path / "net.sqlite")), "--group-by", "op", "--sort", "self_device")
    keys = ("Op", "Calls", "SelfCPU(ns)", "CPUTotal(ns)", "SelfDevice(ns)", "DeviceTotal(ns)", "Kernels", "CPUMem", "FLOPs")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        ("aten::addmm", "1", "800", "800", "1000", "1000", "1", "na", "128"),
        ("aten::sum", "1", "500", "500", "500", "500", "1", "na", "8"),
        ("aten::linear", "1", "200", "1000", "0", "1000", "0", "na", "128"),
    ]


def test_what_cannot_be_done(tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(data / "kineto_cpu.json.gz")
    for arguments, error in (
        (["--group-by", "layer", "--sort", "self_cpu"], UsageError),
        (["--group-by", "op", "--sort", "self_cpu", "--where", "op=mm"], UsageError),
        (["--group-by", "op", "--sort", "self_cpu", path], UsageError),
        (["--group-by", "op", "--sort", "self_cpu,nothing"], UsageError),
        (["--sort", "self_cpu"], UsageError),
    ):
        assert main(["prof", path, *arguments]) == error("", "").exit_code, arguments
    assert main(["parse", path, "-o", str(tmp_path / "net.dict")]) == 0
    assert main(["prof", str(tmp_path / "net.dict"), "--group-by", "op", "--sort", "self_cpu"]) == 1
    assert "give the capture itself" in capsys.readouterr().err


def test_sums_over_calls_of_which_some_are_unknown_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Nsys()
    texts = ("aten::mm, op_id = {}, sizes = [[4, 8], [8, 2]]", "aten::mm, op_id = {}", "aten::tanh, op_id = {}, sizes = [[9]]")
    for number, text in enumerate(texts):
        n.range(text.format(number), 100 * number, 100 * number + 50)
        n.kernel("k", 100 * number + 5, 10_000 + 100 * number, 10_000 + 100 * number + 10)
    rows = rows_of(capsys, str(n.write(tmp_path / "net.sqlite")), "--group-by", "op", "--sort", "self_device")
    found = {row["Op"]: (row["Calls"], row["FLOPs"], row["Bytes"], row["Known(%)"]) for row in rows}
    assert found == {"aten::mm": ("2", "na", "na", "50.0"), "aten::tanh": ("1", "9", "na", "100.0")}
