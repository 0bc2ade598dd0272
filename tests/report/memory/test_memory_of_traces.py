"""`pyprof memory` on traces of torch.profiler and exports of nsys."""

import gzip
import json
import sqlite3
import subprocess
import sys
from collections import defaultdict
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.cli import main
from tests.children import LIGHT
from tests.conftest import ROOT
from tests.counters.test_counters import PID, event, op, trace
from tests.tiny import Nsys

KIB = 1024

MIB = 1 << 20


def of_json(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Events of the GPU's memory in order, and ops, straight from the file."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    memory = [one for one in events if one.get("name") == "[memory]" and one["args"]["Device Type"] != 0]
    return sorted(memory, key=lambda one: one["ts"]), [one for one in events if one.get("cat") in ("cpu_op", "Operator")]


@pytest.mark.parametrize(
    ("name", "peak", "reserved"),
    [("h100_vit", 220.6162, 234.0), ("h100_bert_small", 96.6123, 116.0), ("mi300_vit", None, None),],
)  # fmt: skip
def test_given_traces_are_what_their_events_say(name: str, peak: float | None, reserved: float | None, captures: Path) -> None:
    memory, ops = of_json(captures / "kineto" / f"{name}.json.gz")
    totals = [one["args"]["Total Allocated"] for one in memory]
    at = totals.index(max(totals))
    alive: dict[int, dict[str, Any]] = {}
    for one in memory[: at + 1]:
        if one["args"]["Bytes"] > 0:
            alive[one["args"]["Addr"]] = one
        else:
            alive.pop(one["args"]["Addr"], None)
    by_op: dict[str | None, int] = defaultdict(int)
    for one in alive.values():
        around = [o for o in ops if o["tid"] == one["tid"] and o["ts"] <= one["ts"] < o["ts"] + o["dur"] and "::" in o["name"]]
        by_op[min(around, key=lambda o: o["ts"])["name"].split("::")[-1] if around else None] += one["args"]["Bytes"]
    by_op[None] += totals[at] - sum(by_op.values())
    [device] = [
        one for one in pyprof.load(captures / "kineto" / f"{name}.json.gz").memory().to_dict()["devices"] if one["device"] == 0
    ]  # type: ignore[attr-defined]
    found = device["peak"]
    assert (found["event"], found["allocated_bytes"], found["requested_bytes"]) == (at, totals[at], None)
    assert found["reserved_bytes"] == memory[at]["args"]["Total Reserved"] >= found["allocated_bytes"]
    assert found["older_bytes"] == totals[at] - sum(one["args"]["Bytes"] for one in alive.values())
    assert {one["name"]: one["bytes"] for one in device["by"]["op"]} == {key: size for key, size in by_op.items() if size}
    if peak is not None:
        assert (round(found["allocated_bytes"] / MIB, 4), found["reserved_bytes"] / MIB) == (peak, reserved)


def test_changes_without_totals_are_relative(captures: Path) -> None:
    path = captures / "kineto" / "v100_resnet50_2021.json.gz"
    memory, _ = of_json(path)
    total = most = 0
    for one in memory:
        total += one["args"]["Bytes"]
        most = max(most, total)
    one = pyprof.load(path).memory().to_dict()["devices"][0]  # type: ignore[index]
    assert one["relative"] and one["peak"]["allocated_bytes"] == most and not any(one["by"].values())


def moment(ts: int, size: int, addr: int, total: int, device: int = 0) -> dict[str, Any]:
    args = {
        "Bytes": size,
        "Addr": addr,
        "Device Type": int(device >= 0),
        "Device Id": device,
        "Total Allocated": total,
        "Total Reserved": 4096,
    }
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": PID, "tid": PID, "ts": ts, "args": args}


def test_a_trace_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1000 older bytes, an activation of 512 of mm, a gradient of 256 made in its backward, one optimizer step."""
    step = {
        "ph": "X",
        "cat": "user_annotation",
        "pid": PID,
        "tid": PID,
        "name": "Optimizer.step#SGD.step",
        "ts": 60,
        "dur": 10,
        "args": {},
    }
    forward, backward = ({"Sequence number": 3, "Fwd thread id": thread} for thread in (0, 1))
    path = trace(
        tmp_path,
        {**op("aten::mm", 10, 10), "args": forward}, moment(12, 512, 1, 1512),
        {**op("autograd::engine::evaluate_function: MmBackward0", 30, 20), "args": backward},
        {**op("MmBackward0", 31, 18), "args": backward}, {**op("aten::mm", 32, 5), "args": {}}, moment(33, 256, 2, 1768), moment(48, -512, 1, 1256),
        step, moment(80, -256, 2, 1000), moment(81, 16, 7, 16, -1),
    )  # fmt: skip
    gpu, cpu = pyprof.load(path).memory().to_dict()["devices"]  # type: ignore[misc]
    assert (gpu["peak"]["event"], gpu["peak"]["allocated_bytes"], gpu["peak"]["older_bytes"], gpu["peak"]["phase"]) == (
        1,
        1768,
        1000,
        "backward",
    )
    assert [(one["name"], one["bytes"], one["blocks"]) for one in gpu["by"]["kind"]] == [
        ("older", 1000, None), ("activations", 512, 1), ("gradients", 256, 1),
    ]  # fmt: skip
    assert cpu["device"] == "cpu" and cpu["peak"]["allocated_bytes"] == 16
    assert main(["memory", str(path)]) == 0 and "The CPU's own memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("listed", "most"),
    [([], 1600 * KIB), ([["parameters", "", 9, 4000 * KIB, -1], ["gradients", "", 2, 256 * KIB, -1]], 5600 * KIB)],
)
def test_memory_of_the_cpu_is_the_same_everywhere(
    listed: list[list[object]], most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """torch counts it from the recording's begin: what was there before is known where the model's tensors are listed."""
    sizes = [(12, 1344, 1, 1344), (13, 256, 2, 1600), (14, -1344, 1, 256)]
    changes = [moment(when, size * KIB, address, whole * KIB, -1) for when, size, address, whole in sizes]
    path = trace(tmp_path, {**op("aten::mm", 10, 10), "args": {}}, *changes)
    if listed:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"pyprof_memory": listed}))
    loaded = pyprof.load(path)
    [peak], [device] = loaded.summary().to_dict()["memory"], loaded.memory().to_dict()["devices"]  # type: ignore[misc]
    assert (peak["allocated_bytes"], device["peak"]["allocated_bytes"]) == (most, most)
    assert peak["relative"] is device["relative"] is (not listed)
    for command in ("summary", "memory"):
        assert main([command, str(path)]) == 0 and ("above its begin" in capsys.readouterr().out) is (not listed)


def test_a_capture_without_allocations_says_how_to_record_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", str(trace(tmp_path, op("aten::mm", 1, 5), event("kernel", "k", 2, 3)))]) == 1
    assert "no allocations were recorded\nhint: record them" in capsys.readouterr().err


def test_memory_that_cudamalloc_took(tmp_path: Path) -> None:
    """By nsys: 8 taken inside a range, 2 more, the 8 given back; host memory apart."""
    n = Nsys()
    n.range('mm(fp32[4,4], fp32[4,4]) #pyprof{"mod":"torch"}', 100, 400)
    n.kernel("k", 150, 300, 350)
    path = n.write(tmp_path / "net.sqlite")
    with sqlite3.connect(path) as db:
        pid = db.execute("SELECT globalTid & ~16777215 FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
        corr = db.execute("SELECT correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()[0]
        db.execute(
            "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT, globalPid INT, deviceId INT, contextId INT, address INT, pc INT,"
            " bytes INT, memKind INT, memoryOperationType INT, name TEXT, correlationId INT)"
        )
        rows = [
            (152, 0, 64, 8 * MIB, 2, 0, corr),
            (410, 0, 65, 2 * MIB, 2, 0, 0),
            (420, 0, 64, 8 * MIB, 2, 1, 0),
            (430, 0, 70, MIB, 1, 0, 0),
        ]
        db.executemany(f"INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (?, {pid}, ?, 1, ?, 0, ?, ?, ?, NULL, ?)", rows)
    gpu, cpu = pyprof.load(path).memory().to_dict()["devices"]  # type: ignore[misc]
    peak = gpu["peak"]
    assert (peak["event"], peak["requested_bytes"], peak["allocated_bytes"], peak["reserved_bytes"]) == (
        1,
        None,
        None,
        10 * MIB,
    )
    assert [(one["name"], one["bytes"] // MIB) for one in gpu["by"]["op"]] == [("mm", 8), (None, 2)]
    assert cpu["device"] == "cpu" and cpu["peak"]["reserved_bytes"] == MIB


@pytest.mark.torch
def test_a_recorded_step_holds_what_torch_counts(tmp_path: Path) -> None:
    """Parameters, gradients, optimizer state at the end; activations before backward frees them: what autograd saved."""
    pytest.importorskip("torch", reason="needs torch")
    trace_file = tmp_path / "net.json"
    program = [sys.executable, "-c", LIGHT + (ROOT / "tests/programs/memory_step.py").read_text(), str(trace_file)]
    result = subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT)
    counted = json.loads(result.stdout.splitlines()[-1])
    loaded = pyprof.load(trace_file)

    def bytes_of(at: str) -> dict[str, int]:
        [device] = loaded.memory(at).to_dict()["devices"]  # type: ignore[misc]
        return {one["name"]: one["bytes"] for one in device["by"]["kind"]}

    end = bytes_of("end")
    for kind in ("parameters", "gradients", "optimizer state"):
        assert end[kind] == counted[kind]
    kinds = (bytes_of(str(time)) for time in loaded.memory().devices[0].trace.time_ns.tolist())
    most = max(one.get("activations", 0) for one in takewhile(lambda one: "gradients" not in one, kinds))
    assert most == counted["activations"]


def test_the_timeline_has_a_lane_of_memory_and_reads_back_the_same(tmp_path: Path) -> None:
    path = trace(
        tmp_path, op("aten::mm", 10, 10), moment(12, 512, 1, 1512), moment(15, -512, 1, 1000), event("kernel", "k", 11, 3)
    )
    assert main(["trace", str(path), "-o", str(tmp_path / "out.json")]) == 0
    lanes = [one for one in json.loads((tmp_path / "out.json").read_text())["traceEvents"] if one.get("cat") == "memory"]
    assert [(one["name"], one["args"]) for one in lanes] == [
        ("memory of GPU 0", {"allocated": size, "reserved": 4096}) for size in (1512, 1000)
    ]
    before, after = (pyprof.load(file).memory().to_dict()["devices"] for file in (path, tmp_path / "out.json"))
    assert [one["peak"]["allocated_bytes"] for one in before] == [one["peak"]["allocated_bytes"] for one in after]  # type: ignore[attr-defined]
