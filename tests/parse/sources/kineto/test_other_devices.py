"""torch.profiler's traces of devices that are neither NVIDIA's nor AMD's: rows, times, launches and ops.

Events as their writers write them: Kineto's XPU plugin (XpuptiActivityHandlers.cpp), torch_npu's trace_view.json
(trace_event_manager, torch_op_bean, msprof's task timeline).
"""

import json
from pathlib import Path

import pytest

from pyprof.cli import main
from pyprof.loading.load import load
from pyprof.model.records import Records
from pyprof.model.trace import COPY_KINDS, ActivityKind

US = 1_699_529_623_106_000  # epoch microseconds: a float does not hold their nanoseconds


def rows(records: Records) -> list[tuple[object, ...]]:
    """kind, name, begin in ns from US, duration, launch from US (None unknown), op of each record."""
    found = []
    for at in range(len(records)):
        launch, call = int(records["launch_ns"][at]), int(records["call"][at])
        found.append((
            ActivityKind.NAMES[records["kind"][at]], records.strings[records["name"][at]], int(records["start_ns"][at]) - US * 1000,
            int(records["dur_ns"][at]), launch - US * 1000 if launch >= 0 else None, records.calls[call].name if call >= 0 else None,
        ))  # fmt: skip
    return found


class Xpu:
    """A trace of one Intel GPU; times in microseconds after US."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.corr = 0

    def event(self, cat: str, name: str, ts: float, dur: float, pid: int, tid: int, **args: object) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": US + ts, "dur": dur, "args": args}
        )

    def launched(self, cat: str, name: str, launch: float, ts: float, dur: float, **args: object) -> None:
        """Work on queue 5 of device 0."""
        self.corr += 1
        api = "urEnqueueKernelLaunch" if cat == "kernel" else "urEnqueueUSMMemcpy"
        self.event("xpu_runtime", api, launch, 2, 900, 901, **{"External id": self.corr, "correlation": self.corr})
        more = {"device": 0, "context": "0x01", "sycl queue": 5, "l0 queue": "0x02", "kernel_id": self.corr, **args}
        self.event(cat, name, ts, dur, 0, 5, correlation=self.corr, appended="0.1", submitted="0.2", **more)

    def write(self, path: Path) -> str:
        path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": self.events}))
        return str(path)


def test_an_intel_gpu(tmp_path: Path) -> None:
    x = Xpu()
    shapes = {"Input Dims": [[64, 128], [128, 256]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    x.event("cpu_op", "aten::mm", 10, 20, 900, 901, **{"External id": 1, **shapes})
    x.launched("kernel", "gemm_kernel", 15, 100, 30)
    x.launched("gpu_memcpy", "Memcpy M2D (Memory -> Device)", 50, 140, 4, bytes=4096)
    x.launched("gpu_memset", "Memset (0 -> Device)", 60, 150, 2, bytes=64)
    x.event("xpu_driver", "zeCommandQueueExecuteCommandLists", 16, 1, 900, 901, correlation=77)
    x.event("xpu_sync", "zeEventHostSynchronize", 70, 90, -1, 901, correlation=78, Type="HOST_EVENT")
    records = load(x.write(tmp_path / "xpu.json"))
    assert rows(records) == [
        ("kernel", "gemm_kernel", 100_000, 30_000, 15_000, "aten::mm"),
        ("memcpy", "Memcpy M2D (Memory -> Device)", 140_000, 4_000, 50_000, None),
        ("memset", "Memset (0 -> Device)", 150_000, 2_000, 60_000, None),
    ]
    assert COPY_KINDS[int(records["copykind"][1])] == "HtoD" and records["bytes"].tolist() == [-1, 4096, 64]
    assert records["stream"].tolist() == [5, 5, 5] and records["device"].tolist() == [0, 0, 0]


class Ascend:
    """A trace_view.json: a bare list, times as texts, tasks of the device without a category."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
            for pid, name in ((100, "Python"), (2, "CANN"), (3, "Ascend Hardware"))
        ]

    def op(self, name: str, ts: float, dur: float, dims: str = "", types: str = "") -> None:
        args = {"Sequence number": -1, "Fwd thread id": 0, "Input type": types, "Input Dims": dims}
        self.events.append({"ph": "X", "name": name, "pid": 100, "tid": 100, "ts": f"{US + ts:.3f}", "dur": f"{dur:.3f}",
                            "cat": "cpu_op", "args": args})  # fmt: skip

    def task(self, name: str, ts: str, dur: float, kind: str, origin: float | None = None, stream: int = 2) -> None:
        """ts: its fraction too, in microseconds after US; origin: when the op began from which an arrow leads here."""
        args = {"Model Id": 4294967295, "Task Type": kind, "Stream Id": stream, "Task Id": 5, "connection_id": 7}
        whole, _, fraction = ts.partition(".")
        when = f"{US + int(whole)}.{fraction}"
        self.events.append({"ph": "X", "name": name, "pid": 3, "tid": stream, "ts": when, "dur": dur, "args": args})
        if origin is not None:
            arrow = {"bp": "e", "name": "torch_to_npu", "id": when.replace(".", ""), "cat": "async_npu"}
            self.events.append({**arrow, "ph": "s", "pid": 100, "tid": 100, "ts": f"{US + origin:.3f}"})
            self.events.append({**arrow, "ph": "f", "pid": 3, "tid": stream, "ts": when})

    def write(self, path: Path) -> str:
        path.write_text(json.dumps(self.events))
        return str(path)


def a_step() -> Ascend:
    a = Ascend()
    a.op("aten::linear", 10, 30)
    a.op("aten::mm", 15, 20, "64,128;\r\n128,256", "c10::Half;\r\nc10::Half")
    a.op("aten::add", 50, 10)
    a.events.append({"ph": "X", "name": "AscendCL@aclnnMm", "pid": 2, "tid": 100, "ts": f"{US + 16}.000", "dur": 3,
                     "args": {"Thread Id": 100, "Mode": "ACL_OP", "level": "acl", "connection_id": 7}})  # fmt: skip
    a.task("aclnnMm_MatMulV2", "100.501", 33.25, "AI_CORE", 15)
    a.task("EVENT_WAIT", "134.000", 5, "EVENT_WAIT")
    a.task("aclnnAdd_Add", "150.000", 7, "AI_VECTOR_CORE", 50)
    a.task("MEMCPY_ASYNC", "160.000", 3, "MEMCPY_ASYNC")
    a.task("hcom_allReduce_", "170.000", 9, "COMMUNICATION", stream=5)
    return a


def test_an_ascend_npu(tmp_path: Path) -> None:
    records = load(a_step().write(tmp_path / "trace_view.json"))
    assert rows(records) == [
        ("kernel", "aclnnMm_MatMulV2", 100_501, 33_250, 15_000, "aten::linear"),
        ("kernel", "aclnnAdd_Add", 150_000, 7_000, 50_000, "aten::add"),
        ("memcpy", "MEMCPY_ASYNC", 160_000, 3_000, None, None),
        ("kernel", "hcom_allReduce_", 170_000, 9_000, None, None),
    ]
    assert records["stream"].tolist() == [2, 2, 2, 5]
    inner = records.calls[records["inner"][0]]
    assert inner.name == "aten::mm" and [(t.shape, t.dtype) for t in inner.tensors] == [
        ((64, 128), "float16"),
        ((128, 256), "float16"),
    ]


def test_reports_of_both_end_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = Xpu()
    x.event("cpu_op", "aten::relu", 10, 20, 900, 901)
    x.launched("kernel", "relu_kernel", 15, 100, 30)
    for file in (x.write(tmp_path / "xpu.json"), a_step().write(tmp_path / "trace_view.json")):
        for command in ("prof", "summary", "gaps"):
            assert main([command, file]) == 0, capsys.readouterr().err
