"""Small whole files of every format that pyprof reads, each with much of what its format can say: what is changed to fuzz.

READERS names them by reader. A file is made once a process, in memory: {name within a folder: bytes}, the first is the one given
to the commands.
"""

from __future__ import annotations

import io
import json
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.loading.load import load_capture
from pyprof.parse.records import parquet
from pyprof.parse.records.netdict.write import lines
from pyprof.timers.buffer import Buffer
from tests import graph_traces, rank_traces
from tests.compiled import test_compiled_module
from tests.model.test_scheduler_steps import CASES
from tests.parse.sources import test_nvprof
from tests.parse.sources.measured.test_ncu_csv import _BEFORE, _DETAILS, launch
from tests.parse.sources.measured.test_proton import kernel, kernel_event, node
from tests.tiny import Nsys

Files = dict[str, bytes]
Event = dict[str, Any]


class Reader(NamedTuple):
    """What one reader is fuzzed with. kind: of its files' syntax, which says how they are changed; commands: what reads them."""

    kind: str
    commands: tuple[str, ...]
    make: Callable[[Path], Files]
    weight: float = 1.0  # share of the inputs


def whole_nsys() -> Nsys:
    """Every table that is read, and ranges of every kind."""
    n = Nsys()
    n.range("aten::linear, seq = 5, op_id = 1, sizes = [[4, 8], [2, 8], []]", 10, 40)
    n.kernel("ampere_sgemm_128x64_tn", 20, 1000, 1100)
    n.range("AddmmBackward0, seq = 5, op_id = 4, sizes = [[4, 2]]", 50, 90, thread=8)
    n.kernel("ampere_sgemm_128x64_tn", 60, 1100, 1200, thread=8)
    n.range("mine", 6, 500, event=60, domain=3, registered=True)
    n.range('linear(fp32[4,8], fp32[2,8]) #pyprof{"mod":"torch.nn.functional","src":"net.py:3"}', 9, 41)
    n.range("layer:fc", 8, 45)
    n.range("ProfilerStep#1", 5, 600)
    n.range("Optimizer.step#SGD.step", 610, 700)
    n.range("ProfilerStep#2", 601, 900)
    n.kernel("void at::native::vectorized_elementwise_kernel<4, F>(int, F)", 620, 1250, 1290)
    n.rows["NVTX_EVENTS"].append((1, None, 75, "domain", (1 << 48) | (7 << 24) | 7, None, 3))
    n.rows["CUDA_GRAPH_NODE_EVENTS"].append((20, 21, (1 << 48) | (7 << 24) | 7, 500, None))
    n.kernel("g", 25, 1300, 1400, node=500)
    n.copy(2, 200, 1500, 1510)
    n.copy(1, 210, 1520, 1600, bytes=1 << 20, memory=(0, 2))
    n.api(1700, 99, name="cudaDeviceSynchronize_v3020", took=400)
    n.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"].append((500, 600, 0, 7, 41, (1 << 48) | (7 << 24), 3))
    n.rows["TARGET_INFO_GPU"].append((0, "NVIDIA A100", 0, 108, 8, 0))
    return n


def _nsys(folder: Path) -> Files:
    return {"net.sqlite": whole_nsys().write(folder / "net.sqlite").read_bytes()}


def _texts(folder: Path) -> Files:
    n = Nsys()
    from tests.test_unreadable import USERS

    for number, text in enumerate((*(text for text in USERS.values() if len(text) < 500), *CASES)):
        n.range(text, 10 + 20 * number, 29 + 20 * number, registered=bool(number % 2))
        n.kernel(f"k{number}", 12 + 20 * number, 5000 + 20 * number, 5015 + 20 * number)
    return {"net.sqlite": n.write(folder / "net.sqlite").read_bytes()}


def _nvprof(folder: Path) -> Files:
    return {"net.sql": test_nvprof.write(folder / "net.sql", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL").read_bytes()}


def _x(cat: str, name: str, ts: float, dur: float, tid: object = 100, pid: object = 100, **args: object) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kineto_events() -> list[Event]:
    """Two steps of training with modules, functions, backward, copies, a collective, counters and synchronisation."""
    inputs = {"Input Dims": [[4, 8], [2, 8], [2]], "Input type": ["float"] * 3, "Concrete Inputs": ["", "", ""]}
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "thread_name", "pid": 100, "tid": 100, "ts": 0, "args": {"name": "thread 100 (python)"}},
    ]
    for step, at in enumerate((1000.0, 3000.0)):
        corr = 10 * step
        events += [
            _x("user_annotation", f"ProfilerStep#{step}", at, 1900.5),
            _x("python_function", "net.py(3): forward", at + 5, 300, **{"Python id": 1 + corr, "Python parent id": 0}),
            _x("python_function", "nn.Module: Linear_0", at + 8, 200, **{"Python id": 2 + corr, "Python parent id": 1 + corr,
                                                                         "Python module id": 0}),
            _x("cpu_op", "aten::linear", at + 10, 100, **{"External id": 1 + corr, "Sequence number": 5 + step, "Fwd thread id": 0,
                                                          **inputs}),
            _x("cpu_op", "aten::addmm", at + 12, 80, **{"External id": 2 + corr, "Sequence number": 5 + step, **inputs}),
            _x("cuda_runtime", "cudaLaunchKernel", at + 20, 5, correlation=1 + corr, **{"External id": 2 + corr}),
            _x("kernel", "ampere_sgemm_128x64_tn", at + 30, 20, 7, 0, device=0, stream=7, correlation=1 + corr, grid=[1, 2, 1],
               block=[128, 1, 1], **{"External id": 2 + corr, "registers per thread": 32, "shared memory": 0}),
            {"ph": "s", "id": 3 + corr, "cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "tid": 100, "ts": at + 10},
            {"ph": "f", "id": 3 + corr, "cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "tid": 101, "ts": at + 410, "bp": "e"},
            {"ph": "s", "id": 1 + corr, "cat": "ac2g", "name": "ac2g", "pid": 100, "tid": 100, "ts": at + 20},
            {"ph": "f", "id": 1 + corr, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": at + 30, "bp": "e"},
            _x("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", at + 400, 200, 101,
               **{"Sequence number": 5 + step, "Fwd thread id": 1}),
            _x("cpu_op", "AddmmBackward0", at + 410, 150, 101, **{"Sequence number": 5 + step, "Fwd thread id": 1}),
            _x("cuda_runtime", "cudaLaunchKernel", at + 420, 5, 101, correlation=2 + corr),
            _x("kernel", "ampere_sgemm_128x64_nn", at + 430, 25, 7, 0, device=0, stream=7, correlation=2 + corr),
            _x("cuda_runtime", "cudaMemcpyAsync", at + 700, 5, correlation=3 + corr),
            _x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at + 710, 9, 8, 0, device=0, stream=8, correlation=3 + corr,
               bytes=4096),
            _x("cpu_op", "record_param_comms", at + 800, 30, **{"Collective name": "allreduce", "In msg nelems": 100,
               "Out msg nelems": 100, "dtype": "Float", "Group size": 2, "Process Group Name": "0", "In split size": "[]"}),
            _x("cuda_runtime", "cudaLaunchKernelExC", at + 810, 5, correlation=4 + corr),
            _x("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm)", at + 820, 60, 20, 0, device=0, stream=20,
               correlation=4 + corr, **{"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float", "Group size": 2}),
            _x("user_annotation", "Optimizer.step#SGD.step", at + 1000, 100),
            _x("cpu_op", "aten::_foreach_add_", at + 1010, 50, **{"Input Dims": [[[4, 8], [2]], []], "Input type": ["TensorList", ""]}),
            _x("cuda_runtime", "cudaLaunchKernel", at + 1020, 5, correlation=5 + corr),
            _x("kernel", "void multi_tensor<float>()", at + 1030, 5, 7, 0, device=0, stream=7, correlation=5 + corr),
            _x("cuda_runtime", "cudaDeviceSynchronize", at + 1200, 90, correlation=6 + corr),
            _x("cuda_sync", "Context Sync", at + 1200, 90, 7, 0, device=0, stream=7, correlation=6 + corr),
            _x("gpu_user_annotation", "nccl:all_reduce", at + 820, 60, 20, 0),
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", "pid": 100, "tid": 100, "ts": at + 15,
             "args": {"Total Allocated": 100, "Bytes": 4, "Device Id": 0, "Device Type": 1}},
            {"ph": "C", "name": "GPU power", "pid": 0, "ts": at, "args": {"value": 3}},
        ]  # fmt: skip
    return events


def _trace(events: list[Event], **facts: Any) -> bytes:
    device = {
        "id": 0,
        "name": "NVIDIA A100-SXM4-80GB",
        "computeMajor": 8,
        "computeMinor": 0,
        "numSms": 108,
        "totalGlobalMem": 85e9,
    }
    known = {"schemaVersion": 1, "deviceProperties": [device], "record_shapes": 1, "with_stack": 1}
    rank = {"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1], "group_count": 1}]}
    return json.dumps({**known, "distributedInfo": rank, **facts, "traceEvents": events}, indent=1).encode()


def _kineto(folder: Path) -> Files:
    return {"net.json": _trace(kineto_events())}


def _engine(folder: Path) -> Files:
    events: list[Event] = []
    for number, text in enumerate(CASES):
        at = 1000.0 + 100 * number
        events += [
            _x("user_annotation", text, at, 90),
            _x("gpu_user_annotation", text, at + 5, 80, 7, 0),
            _x("cpu_op", "vllm::unified_attention_with_output", at + 5, 50, **{
                "Input Dims": [[32, 8, 64], [32, 2, 64], [32, 2, 64], [32, 512]], "Input type": ["c10::BFloat16"] * 4}),
            _x("cuda_runtime", "cudaLaunchKernel", at + 20, 5, correlation=number + 1),
            _x("kernel", "flash_fwd_splitkv_kernel", at + 30, 20, 7, 0, device=0, stream=7, correlation=number + 1),
        ]  # fmt: skip
    return {"net.json": _trace(events)}


def _graphs(folder: Path) -> Files:
    run = {"run.json": _trace(graph_traces.replayed(nodes=True) + graph_traces.replayed(16, begin=50_000, nodes=True))}
    details = []
    for size in (16, 32):
        name = f"graph_capture_bs_{size}.json"
        run[f"capture_traces/{name}"] = _trace(graph_traces.captured(size))
        details.append({"file": name, "batch_size": size, "mode": "FULL"})
    run["capture_traces/execution_details.json"] = json.dumps(details).encode()
    return run


def _records(name: str) -> Callable[[Path], Files]:
    def make(folder: Path) -> Files:
        records = load_capture(whole_nsys().write(folder / "net.sqlite"))
        return {name: "".join(lines(records)).encode()}

    return make


def _original(folder: Path) -> Files:
    from tests.test_unreadable import OURS, RECORD

    marker = "{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [{'name': '', 'type': 'tensor', 'shape': (4, 8), 'dtype': 'float32'}]}"
    rows = [RECORD, RECORD | {"dir": "bprop", "reprMarkers": [marker], "marker": [marker], "altSeqId": [3]}, OURS]
    return {"net.dict": "".join(repr(row) + "\n" for row in rows).encode()}


def _parquet(folder: Path) -> Files:
    stream = io.BytesIO()
    parquet.write(load_capture(whole_nsys().write(folder / "net.sqlite")), stream)
    return {"net.parquet": stream.getvalue()}


def _ncu_raw(folder: Path) -> Files:
    metrics = '"dram__bytes_read.sum","gpu__time_duration.sum","smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"'
    units = '"","","","","","","","","","","","Mbyte","usecond","inst"\n'
    rows = "".join(f'{launch(n, "ampere_sgemm_128x64_tn")},"4.1","3{n}.5","1000"\n' for n in range(4))
    return {"net.csv": f"==PROF== Connected\n{_BEFORE},{metrics}\n{units}{rows}".encode()}


def _ncu_details(folder: Path) -> Files:
    rows = "".join(
        f'{launch(n)},"Speed","{metric}","{unit}","{value}","","","","",""\n'
        for n in range(3)
        for metric, unit, value in (
            ("Duration", "us", "3.5"),
            ("dram__bytes_read.sum", "Kbyte", "1,024.5"),
            ("Grid", "", "(1, 1)"),
        )
    )
    return {"net.csv": f"{_DETAILS}\n{rows}".encode()}


def _hatchet(folder: Path) -> Files:
    inner = node("forward", kernel("mm", 50, count=2, flops16=4e9, bytes=300), kernel("copy", 7, count=1))
    facts = {"CUDA": {"0": {"arch": "90", "num_sms": 132, "bus_width": 5120, "memory_clock_rate": 2619000}}}
    return {"p.hatchet": json.dumps([node("ROOT", node("step", inner)), facts]).encode()}


def _chrome(folder: Path) -> Files:
    events = [kernel_event("b", 2.0, 7, "forward", flops="12"), kernel_event("a", 1.0, 20), kernel_event("c", 3.0, 20)]
    return {"p.chrome_trace": json.dumps({"displayTimeUnit": "us", "traceEvents": events}).encode()}


def _timers(folder: Path) -> Files:
    buffer = Buffer({"Load": 1, "Solve": 2, "Store": 3, "Whole": 4}, 5, 4, kernel="k", whole=4)
    ticks = np.arange(100, dtype=np.int64).reshape(5, 5, 4) * 7 + 30
    pairs = np.array([[10, 1000], [5_000_010, 6_000_000]])
    buffer.ingest(ticks, starts=ticks * 3 + 9, sms=np.arange(4)).calibrate(pairs=pairs).save(folder / "timers.npz")
    return {"timers.npz": (folder / "timers.npz").read_bytes()}


def _module(folder: Path) -> Files:
    """A generated module with kernels for both devices, and a trace in which they ran."""
    events: list[Event] = []
    for number, name in enumerate(("triton_poi_fused_add_0", "cpp_fused_add_0")):
        at = 1000.0 + 100 * number
        events += [
            _x("user_annotation", "## Call CompiledFxGraph fabc ##", at, 90),
            _x("cpu_op", name, at + 5, 50, kernel_file="module.py", kernel_backend="triton", grid="grid(64,)",
               **{"Input Dims": [[6, 10], [10]], "Input type": ["float", "float"]}),
            _x("cuda_runtime", "cuLaunchKernel", at + 20, 5, correlation=number + 1),
            _x("kernel", name, at + 30, 20, 7, 0, device=0, stream=7, correlation=number + 1),
        ]  # fmt: skip
    head = test_compiled_module.HEAD.format(graph="0_forward")
    text = "\n".join([head, test_compiled_module.BIAS, test_compiled_module.CPP, test_compiled_module.CALL])
    return {"module.py": text.encode(), "net.json": _trace(events)}


def _pair(folder: Path) -> Files:
    return {"net.json": _trace(kineto_events()), "kept/main.json": _trace(kineto_events())}


def _ranks(folder: Path) -> Files:
    written = rank_traces.Steps(3).write(folder)
    return {path.name: path.read_bytes() for path in sorted(written.iterdir())}


def _every_format(folder: Path) -> Files:
    return _nsys(folder) | _nvprof(folder) | _kineto(folder) | _records("net.dict")(folder) | _parquet(folder)


_CAPTURE = ("prof", "prof", "summary", "gaps", "parse", "parse", "other")
_RECORDS = ("prof", "prof", "summary", "other")
READERS = {
    "nsys": Reader("sqlite", _CAPTURE, _nsys, 5),
    "nvprof": Reader("sqlite", _CAPTURE, _nvprof, 5),
    "texts": Reader("texts", ("prof", "summary", "gaps", "parse"), _texts, 2),
    "kineto": Reader("json", _CAPTURE, _kineto, 5),
    "engine": Reader("json", ("prof", "summary", "summary", "parse"), _engine, 2),
    "graphs": Reader("json", ("graphs", "prof", "summary", "gaps", "parse"), _graphs, 2),
    "netdict": Reader("lines", _RECORDS, _records("net.dict"), 4),
    "original": Reader("lines", _RECORDS, _original, 4),
    "jsonl": Reader("lines", _RECORDS, _records("net.jsonl"), 4),
    "parquet": Reader("parquet", _RECORDS, _parquet, 3),
    "ncu": Reader("csv", ("counters",), _ncu_raw, 5),
    "ncu-details": Reader("csv", ("counters",), _ncu_details, 5),
    "proton": Reader("json", ("counters",), _hatchet, 8),
    "proton-trace": Reader("json", ("counters",), _chrome, 6),
    "timers": Reader("npz", ("timers",), _timers, 4),
    "inductor": Reader("python", ("inductor",), _module, 3),
    "diff": Reader("json", ("diff",), _pair, 2),
    "ranks": Reader("json", ("ranks",), _ranks, 2),
    "places": Reader("places", ("prof", "summary", "parse", "gaps", "scrub"), _every_format, 2),
    "written": Reader("written", ("prof", "parse"), _nsys, 1),
}


@cache
def files_of(reader: str) -> Files:
    """The whole files of a reader."""
    with tempfile.TemporaryDirectory() as folder:
        return READERS[reader].make(Path(folder))


def size_of(content: bytes) -> int:
    """Of a file decompressed, of a damaged one as far as it goes."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        return len(unpack.decompress(content, 1 << 26)) if content.startswith(b"\x1f\x8b") else len(content)
    except zlib.error:
        return len(content)
