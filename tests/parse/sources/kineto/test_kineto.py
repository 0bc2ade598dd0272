"""pyprof.parse.sources.kineto.reader: on a trace whose program is known, on small traces written here, and on real captures."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from pyprof.columns.nesting import nest
from pyprof.errors import EmptyCapture, NotACapture
from pyprof.loading.formats import _is_torch_trace
from pyprof.loading.load import load_capture, open_trace
from pyprof.model.markers import Kind, Marker
from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.model.trace import COPY_KINDS, TABLES, ActivityKind, Trace
from pyprof.parse.sources.inputs import Input
from pyprof.parse.sources.kineto import events as kineto_json
from pyprof.parse.sources.kineto import trace_file
from pyprof.parse.sources.kineto.odd_text import requoted
from pyprof.prof.formulas import evaluate
from tests import ROOT
from tests.given import slow

PID, SIDE = 100, 101


def sniffed(path: Path) -> bool:
    with Input(str(path)) as given:
        return _is_torch_trace(given)


def x(cat: str, name: str, ts: float, dur: float, *, tid: Any = PID, pid: Any = PID, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        "args": {key.replace("_", " "): value for key, value in args.items()},
    }  # fmt: skip


def op(name: str, ts: float, dur: float, *, tid: Any = PID, pid: Any = PID, **args: Any) -> dict[str, Any]:
    return x("cpu_op", name, ts, dur, tid=tid, pid=pid, **args)


def kernel(corr: int, ts: float, **args: Any) -> dict[str, Any]:
    return x("kernel", "gemm", ts, 5, pid=0, tid=7, device=0, stream=7, correlation=corr, **args)


def launch(corr: int, ts: float, *, tid: Any = PID, pid: Any = PID, **args: Any) -> dict[str, Any]:
    return x("cuda_runtime", "cudaLaunchKernel", ts, 1, tid=tid, pid=pid, correlation=corr, **args)


def write(folder: Path, events: list[dict[str, Any]], name: str = "t.json", **facts: Any) -> Path:
    path = folder / name
    text = json.dumps({"schemaVersion": 1, **facts, "traceEvents": events, "displayTimeUnit": "ms"}).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def markers_of(trace: Trace, name: str) -> list[Marker]:
    return [m for m in trace.markers if m.name == name]


def rows_of(trace: Trace, name: str) -> list[int]:
    labels = [i for i, m in enumerate(trace.markers) if m.name == name]
    return np.flatnonzero(np.isin(trace.ranges["label"], labels)).tolist()


def content(trace: Trace) -> dict[str, list[tuple[Any, ...]]]:
    """All rows with texts in place of codes, in an order of their own."""

    def thread(row: int) -> tuple[int, int]:
        process = int(trace.threads["process"][row])
        return int(trace.processes["pid"][process]), int(trace.threads["tid"][row])

    decode: dict[str, Any] = {
        "name": lambda code: trace.strings[code],
        "src": lambda code: trace.strings[code],
        "label": lambda code: repr(trace.markers[code]),
        "thread": thread,
        "fwd_thread": lambda row: thread(row) if row >= 0 else None,
        "process": lambda row: int(trace.processes["pid"][row]) if row >= 0 else None,
    }
    result = {}
    for table, columns in TABLES.items():
        stored = getattr(trace, table)
        values = [[decode.get(c.name, int)(v) for v in stored[c.name].tolist()] for c in columns]
        result[table] = sorted(zip(*values, strict=True), key=repr)
    return result


@pytest.fixture(scope="module", params=["recorded", pytest.param("fresh", marks=pytest.mark.torch)])
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The trace of kineto_program.py: the one in tests/data, and one recorded now."""
    if request.param == "recorded":
        return open_trace(ROOT / "tests/data/kineto_cpu.json.gz")
    pytest.importorskip("torch")
    from tests.parse.sources.kineto.kineto_program import train

    train(fresh := tmp_path_factory.mktemp("fresh") / "fresh.json.gz")
    return open_trace(fresh)


def test_inputs_of_ops_are_those_of_the_program(known: Trace) -> None:
    (conv,) = markers_of(known, "aten::conv2d")
    assert conv.kind == Kind.DISPATCH and conv.call is not None and conv.call.dispatcher and not conv.call.flat
    x_, weight = TensorSpec((2, 3, 8, 8), "float32", (192, 64, 8, 1)), TensorSpec((4, 3, 3, 3), "float32", (27, 9, 3, 1))
    assert conv.call.args == (x_, weight, None, [1, 1], [1, 1], [1, 1], 1)
    (linear,) = markers_of(known, "aten::linear")
    assert linear.call is not None and str(linear.call) == "linear(fp32[2,256], fp32[5,256], fp32[5])"
    (cat,) = markers_of(known, "aten::cat")
    assert cat.call is not None and cat.call.args == ([TensorSpec((2, 5), None, (5, 1))] * 2, 0)


def test_ranges_of_ours_steps_and_optimizers_mean_what_they_mean_in_nvtx(known: Trace) -> None:
    (own,) = [m for m in known.markers if m.own]
    assert own.call is not None and own.call.name == "torch.nn.functional.softmax" and own.src == ("net.py:7",)
    assert len(rows_of(known, "softmax")) == 2
    assert sorted(m.step for m in known.markers if m.kind == Kind.STEP) == [1, 2]
    assert [m.name for m in known.markers if m.kind == Kind.OPTIMIZER] == ["SGD.step"]
    assert [m.kind for m in markers_of(known, "forward")] == [Kind.USER]


def test_modules_are_layers_around_their_ops(known: Trace) -> None:
    ranges, layers = known.ranges, [m.name for m in known.markers if m.kind == Kind.LAYER]
    # pyprof's recorder adds the running model's names; the recorded file is older than that.
    net, conv, head = ("Net", "conv", "head") if "head" in layers else ("Net_0", "Net_0.Conv2d_0", "Net_0.Linear_0")
    assert sorted(layers) == [net, conv, head]
    for layer, inner in ((conv, "aten::conv2d"), (head, "aten::addmm"), (net, "aten::addmm")):
        for outer_row, inner_row in zip(rows_of(known, layer), rows_of(known, inner), strict=True):
            assert ranges["start_ns"][outer_row] < ranges["start_ns"][inner_row]
            assert ranges["end_ns"][outer_row] > ranges["end_ns"][inner_row]


def test_source_lines_are_the_users_functions(known: Trace) -> None:
    program = (Path(__file__).parent / "kineto_program.py").read_text().splitlines()
    of = {name: {known.strings[known.ranges["src"][row]] for row in rows_of(known, name)} for name in ("aten::relu", "softmax")}
    for name, function in (("aten::relu", "def forward"), ("softmax", "def loss_of")):
        (source,) = of[name]
        file, _, line = source.rpartition(":")
        assert file.endswith("kineto_program.py") and function in program[int(line) - 1]


def test_backward_functions_point_to_their_forward_op(known: Trace) -> None:
    ranges = known.ranges
    numbers = {int(ranges["seq"][row]) for row in rows_of(known, "aten::addmm")}
    backward = [row for row in rows_of(known, "AddmmBackward0") if known.markers[ranges["label"][row]].kind == Kind.BACKWARD]
    assert {int(ranges["seq"][row]) for row in backward} == numbers and len(backward) == 2
    (main,) = np.flatnonzero(known.threads["main"]).tolist()
    assert {int(ranges["fwd_thread"][row]) for row in backward} == {main}
    assert known.threads["tid"][main] == known.processes["pid"][0]
    assert {m.kind for m in markers_of(known, "torch::autograd::AccumulateGrad")} == {Kind.BACKWARD, Kind.ENGINE}


def test_ops_nest_without_crossing(known: Trace) -> None:
    start, end = known.ranges["start_ns"], known.ranges["end_ns"]
    order = np.lexsort((known.ranges["op_id"], -end, start))
    forest = nest(start[order], end[order])
    inner = forest.parent >= 0
    assert (end[order][inner] <= end[order][forest.parent[inner]]).all()
    assert known.session_end_ns > end.max() and known.notes == [] and known.utc_ns > 1_700_000_000_000_000_000


def test_kernels_copies_and_fills(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 10, 20), launch(1, 12), launch(2, 14, tid=SIDE), launch(0, 15),
        kernel(1, 40, grid=[2, 3, 1], block=[128, 1, 1], registers_per_thread=90, shared_memory=49152, graph_node_id=7),
        kernel(9, 50.25),
        x("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 60, 1, pid=0, tid=7, device=0, stream=7, correlation=2, bytes=4096),
        x("gpu_memset", "Memset (Device)", 70, 1, pid=0, tid=7, device=1, stream=9, correlation=3, bytes=8),
        x("gpu_user_annotation", "ProfilerStep#1", 40, 90, pid=0, tid=7),
    ]  # fmt: skip
    device = {"id": 0, "name": "A100", "computeMajor": 8, "computeMinor": 0, "numSms": 108, "warpSize": 32,
              "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 167936}  # fmt: skip
    trace = open_trace(write(tmp_path, events, deviceProperties=[device], baseTimeNanoseconds=10**18))
    a = {name: column.tolist() for name, column in trace.activities.items()}
    assert a["kind"] == [ActivityKind.KERNEL, ActivityKind.KERNEL, ActivityKind.MEMCPY, ActivityKind.MEMSET]
    assert a["start_ns"] == [40_000, 50_250, 60_000, 70_000] and a["end_ns"][0] == 45_000
    assert (a["grid_x"][0], a["grid_y"][0], a["block_x"][0], a["regs"][0], a["smem_bytes"][0]) == (2, 3, 128, 90, 49152)
    assert a["graph_node"] == [7, -1, -1, -1] and a["grid_x"][1] == -1 and a["bytes"] == [-1, -1, 4096, 8]
    assert a["corr"] == [1, 9, 2, 3] and a["process"] == [0] * 4 and a["device"] == [0, 0, 0, 1]
    assert [COPY_KINDS.get(k) for k in a["copykind"]] == [None, None, "HtoD", None]
    assert trace.launches["corr"].tolist() == [1, 2, -1] and len(trace.threads["tid"]) == 2
    assert trace.strings[trace.launches["name"][0]] == "cudaLaunchKernel" and trace.utc_ns == 10**18
    d = {name: column.tolist() for name, column in trace.devices.items()}
    assert (d["cc_major"], d["sms"], d["max_warps_per_sm"], d["smem_per_sm_bytes"]) == ([8], [108], [64], [167936])


def test_names_of_2021(tmp_path: Path) -> None:
    stack = "/x/lib/python3.7/site-packages/torch/nn/modules/conv.py(1): f;/home/me/net.py(54): loss;run.py(9): <module>"
    events = [
        x("Operator", "aten::mm", 10, 20, tid=str(PID), External_id=3, Input_dims=[[2, 3], [3, 4]], Input_type=["float", "float"],
          Call_stack=stack),
        x("Operator", "ProfilerStep#5", 5, 90, tid=str(PID), External_id=1),
        x("Operator", "aten::empty", 40, 2, tid=str(PID), External_id=4, Input_dims=[[], []], Input_type=["GenericList", "Int"]),
        x("Runtime", "cudaLaunchKernel", 12, 1, tid=str(PID), correlation=1),
        x("Kernel", "gemm", 40, 5, pid=0, tid="stream 7", correlation=1, grid=[1, 1, 1], block=[32, 1, 1]),
        x("Memcpy", "Memcpy DtoH (Device -> Pageable)", 50, 1, pid=1, tid="stream 9", correlation=2),
    ]  # fmt: skip
    trace = open_trace(write(tmp_path, events))
    (mm,) = markers_of(trace, "aten::mm")
    assert mm.call is not None and mm.call.args == (TensorSpec((2, 3), "float32"), TensorSpec((3, 4), "float32"))
    assert mm.call.args[0].strides is None
    (row,) = rows_of(trace, "aten::mm")
    assert trace.strings[trace.ranges["src"][row]] == "/home/me/net.py:54" and trace.ranges["op_id"][row] == 3
    assert trace.activities["stream"].tolist() == [7, 9] and trace.activities["device"].tolist() == [0, 1]
    assert len(trace.threads["tid"]) == 1 and [m.step for m in trace.markers if m.kind == Kind.STEP] == [5]
    (empty,) = markers_of(trace, "aten::empty")
    assert empty.call is not None and str(empty.call) == "empty(?, ?)"


def test_a_rocm_kernel_takes_its_grid_from_the_launch(tmp_path: Path) -> None:
    events = [launch(1, 12, grid=[4, 1, 1], block=[256, 1, 1]), kernel(1, 40), launch(2, 20), kernel(2, 50)]
    trace = open_trace(write(tmp_path, events))
    assert trace.activities["grid_x"].tolist() == [4, -1] and trace.activities["block_x"].tolist() == [256, -1]


def test_what_ops_without_a_namespace_are(tmp_path: Path) -> None:
    kinds = {
        "detach": (Kind.DISPATCH, "aten::detach"),
        "graph_0_cpp_fused_gelu_1": (Kind.DISPATCH, "inductor::graph_0_cpp_fused_gelu_1"),
        "Torch-Compiled Region: 0/0": (Kind.USER, None),
        "torch::autograd::CppNode<Lookup<1, 2> >": (Kind.BACKWARD, "autograd::CppNode<Lookup<1, 2> >"),
        "aten::add.Tensor": (Kind.DISPATCH, "aten::add"),
        "autograd::engine::evaluate_function: MulBackward0": (Kind.ENGINE, None),
    }
    events = [op(name, 10 * i, 5) for i, name in enumerate(kinds)]
    events.append(op("MyFunction", 100, 5, Sequence_number=1, Fwd_thread_id=0))
    events.append(op("triton_poi_0", 110, 5, Input_Dims=[[4]], Input_type=["float"]))
    events[-1]["args"] |= {"kernel_backend": "triton", "kernel_file": "/c/k.py", "kernel_num_gb": 0.5, "num_warps": 4}
    trace = open_trace(write(tmp_path, events))
    found = {m.text: (m.kind, m.call.name if m.call else None) for m in trace.markers}
    assert {name: found[name] for name in kinds} == kinds
    assert found["MyFunction"] == (Kind.DISPATCH, "autograd::MyFunction")
    (fused,) = markers_of(trace, "triton_poi_0")
    assert fused.call is not None and fused.call.name == "inductor::triton_poi_0"
    assert dict(fused.call.kwargs) == {"kernel_file": "/c/k.py", "kernel_num_gb": 0.5, "num_warps": 4}


def test_communication_carries_what_was_moved(tmp_path: Path) -> None:
    comms = op("record_param_comms", 10, 5, Input_Dims=[[8]], Input_type=["float"], Collective_name="allreduce",
               In_msg_nelems=8, Out_msg_nelems=8, Group_size=4, dtype="BFloat16")  # fmt: skip
    old = x("user_annotation", "nccl:all_reduce", 20, 5, Input_Dims=[[16]], Input_type=["float"])
    trace = open_trace(write(tmp_path, [comms, old]))
    (new,) = markers_of(trace, "record_param_comms")
    moved = TensorSpec((8,), "bfloat16")
    assert new.call is not None and new.call.name == "c10d::record_param_comms"
    assert dict(new.call.kwargs) == {"collective": "allreduce", "input": moved, "output": moved, "group_size": 4}
    (nccl,) = markers_of(trace, "nccl:all_reduce")
    assert nccl.call is not None and nccl.call.name == "nccl::all_reduce" and nccl.call.args == (TensorSpec((16,), "float32"),)


def test_nccls_annotation_takes_what_torchs_record_around_it_says(tmp_path: Path) -> None:
    def record(ts: float, elements: int, group: str, tid: int = PID) -> dict[str, Any]:
        return op("record_param_comms", ts, 10, tid=tid, Collective_name="_allgather_base", In_msg_nelems=elements,
                  Out_msg_nelems=4 * elements, Group_size=4, dtype="Float", Process_Group_Name=group)  # fmt: skip

    def annotation(ts: float, elements: int, tid: int = PID) -> dict[str, Any]:
        name = "nccl:_all_gather_base"
        return x("user_annotation", name, ts, 5, tid=tid, Input_Dims=[[elements]], Input_type=["float"])

    events = [annotation(42, 8), record(10, 8, "0"), annotation(12, 8), record(40, 8, "7"), annotation(60, 8), annotation(13, 8, tid=SIDE),
              record(10, 9, "0", SIDE)]  # fmt: skip
    trace = open_trace(write(tmp_path, events))
    rows = sorted(rows_of(trace, "nccl:_all_gather_base"), key=lambda row: trace.ranges["start_ns"][row])
    calls = [trace.markers[label].call for label in trace.ranges["label"][rows].tolist()]
    facts = [dict(call.kwargs) for call in calls if call is not None]
    assert [fact.get("group") for fact in facts] == ["0", "0", "7", None]
    assert facts[0]["output"] == TensorSpec((32,), "float32") and facts[0]["group_size"] == 4
    assert facts[1]["output"] == TensorSpec((36,), "float32")
    costs = [evaluate(call).cost.bytes for call in calls if call is not None]
    assert costs == [4 * (8 + 32), 4 * (9 + 36), 4 * (8 + 32), None]


def test_processes_ranks_and_main_threads(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 10, 5), launch(1, 11), kernel(1, 40), launch(5, 11), kernel(5, 60),
        x("user_annotation", "mine", 10, 5, pid=200, tid=202), op("aten::mm", 10, 5, pid=200, tid=201),
        launch(2, 11, pid=200, tid=201), kernel(2, 50), launch(5, 11, pid=200, tid=201),
    ]  # fmt: skip
    trace = open_trace(write(tmp_path, events, name="rank3.json"))
    assert trace.processes["pid"].tolist() == [100, 200] and trace.processes["rank"].tolist() == [-1, -1]
    assert sorted(zip(trace.threads["tid"].tolist(), trace.threads["main"].tolist(), strict=True)) == [
        (100, 1),
        (201, 0),
        (202, 1),
    ]
    of = dict(zip(trace.activities["corr"].tolist(), trace.activities["process"].tolist(), strict=True))
    assert of == {1: 0, 2: 1, 5: -1} and "correlation" in trace.notes[-1]
    single = [op("aten::mm", 10, 5)]
    assert open_trace(write(tmp_path, single, name="rank3_x.json")).processes["rank"].tolist() == [3]
    assert open_trace(write(tmp_path, single, name="rank3.json", distributedInfo={"rank": "5"})).processes["rank"].tolist() == [
        5
    ]


@pytest.mark.parametrize("arrows", [False, True])
def test_the_forward_thread_is_found_from_torchs_own_number(tmp_path: Path, arrows: bool) -> None:
    events = []
    for number, (tid, name) in enumerate(((PID, "aten::mm"), (SIDE, "aten::mul")), start=1):
        for seq in range(4):
            forward = "aten::relu" if arrows else name  # with arrows the names need not fit
            events.append(op(forward, 10 * seq, 5, tid=tid, Sequence_number=seq, Fwd_thread_id=0))
            function = {"aten::mm": "MmBackward0", "aten::mul": "MulBackward0"}[name]
            when = 500 + 100 * number + 10 * seq
            events.append(op(function, when, 5, tid=900, Sequence_number=seq, Fwd_thread_id=number))
            if arrows:
                ends = ({"ph": "s", "tid": tid, "ts": 10 * seq}, {"ph": "f", "tid": 900, "ts": when, "bp": "e"})
                events += [{"cat": "fwdbwd", "name": "fwdbwd", "pid": PID, "id": 10 * number + seq, **end} for end in ends]
    events.append(op("TanhBackward0", 2000, 5, tid=900, Sequence_number=1, Fwd_thread_id=7))
    trace = open_trace(write(tmp_path, events))
    tid = {int(row): int(t) for row, t in enumerate(trace.threads["tid"])}
    for function, wanted in (("MmBackward0", PID), ("MulBackward0", SIDE), ("TanhBackward0", -1)):
        assert {tid[int(trace.ranges["fwd_thread"][row])] for row in rows_of(trace, function)} == {wanted}
    # Thread 7 ran no forward in the capture: its number 1 must not be matched to another thread's.
    (absent,) = {int(trace.ranges["fwd_thread"][row]) for row in rows_of(trace, "TanhBackward0")}
    assert not (trace.ranges["thread"] == absent).any()


def test_notes_say_what_to_record(tmp_path: Path) -> None:
    bare = open_trace(write(tmp_path, [op("aten::mm", 10, 5), launch(1, 11)])).notes
    assert [word for note in bare for word in ("record_shapes", "with_stack", "ProfilerActivity.CUDA") if word in note] == [
        "record_shapes", "with_stack",
    ]  # fmt: skip
    counted = [op("aten::mm", 10, 5), x("cuda_profiler_range", "gemm", 0, 9, pid=0, tid=0)]
    assert any("counters" in note for note in open_trace(write(tmp_path, counted)).notes)
    assert any("ProfilerActivity.CPU" in note for note in open_trace(write(tmp_path, [kernel(1, 5)])).notes)


def test_the_order_of_events_changes_nothing(data: Path, tmp_path: Path) -> None:
    path = data / "kineto_cpu.json.gz"
    text = requoted(gzip.decompress(path.read_bytes()))
    trace = json.loads(text)
    random.Random(0).shuffle(trace["traceEvents"])
    (tmp_path / "shuffled.json").write_text(json.dumps(trace))
    assert content(open_trace(tmp_path / "shuffled.json")) == content(open_trace(path))


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    empty = write(tmp_path, [], "empty.json")
    assert sniffed(empty)
    with pytest.raises(EmptyCapture, match="nothing was captured") as caught:
        open_trace(empty)
    assert caught.value.hint
    chrome = tmp_path / "chrome.json"
    chrome.write_text('{"traceEvents":[{"ph":"X","cat":"blink","name":"paint","ts":1,"dur":2,"pid":1,"tid":1}]}')
    with pytest.raises(NotACapture):
        open_trace(chrome)
    for name, content_ in (("a", b'{"a": 1}'), ("b", b"[1, 2]"), ("d", b"\x1f\x8b\x08broken"), ("e", b"\xff\xfe{")):
        (tmp_path / name).write_bytes(content_)
        assert not sniffed(tmp_path / name)


def test_odd_values_cost_no_more_than_themselves(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 10, 5, External_id="12", Input_Dims="none", Input_type=[1, 2]),
        launch(1, 11), kernel(1, 40, grid="grid(100,)", shared_memory="N/A", registers_per_thread=32),
        {"ph": "X", "cat": "kernel", "name": "k2", "pid": 0, "tid": 7, "ts": "45.5", "dur": None, "args": None},
        {"ph": "X", "cat": "kernel", "name": "k3", "pid": 0, "tid": 7, "ts": "46.5", "dur": 1, "args": {"device": 1}},
        "not an event", None,
    ]  # fmt: skip
    trace = open_trace(write(tmp_path, events))
    assert trace.activities["regs"].tolist() == [32, -1] and trace.activities["grid_x"].tolist() == [-1, -1]
    assert trace.activities["start_ns"].tolist() == [40_000, 46_500] and trace.ranges["op_id"].tolist() == [12]
    assert sum("no time" in note and "1 of the kernels" in note for note in trace.notes) == 1


LOST = "1 of the kernels, copies and fills, 1 of the ranges, ops and calls"


@pytest.mark.parametrize("wrong", ['"ts": NaN, "dur": 5', '"ts": 4, "dur": NaN', '"ts": "nan", "dur": 5', '"ts": null, "dur": 5',
                                   '"ts": 4, "dur": "soon"', '"ts": -Infinity, "dur": 1', '"ts": 4, "dur": [1]',
                                   '"ts": 0, "dur": 0', '"ts": 4, "dur": -3', '"ts": 1e300, "dur": 1', '"ts": -1e300, "dur": 1', '"ts": 4, "dur": 1e300', '"ts": 4, "dur": -1e300',
                                   f'"ts": {10**400}, "dur": 1'])  # fmt: skip
def test_events_whose_time_cannot_be_are_counted(tmp_path: Path, wrong: str) -> None:
    path = write(
        tmp_path, [op("aten::mm", 10, 5), launch(1, 11), kernel(1, 40), op("aten::mm", 777, 1), kernel(2, 777, bytes=3)]
    )
    text = path.read_text().replace('"ts": 777, "dur": 1', wrong).replace('"ts": 777, "dur": 5', wrong)
    assert text.count(wrong) == 2
    path.write_text(text)
    trace = open_trace(path)
    assert trace.activities["start_ns"].tolist() == [40_000] and trace.ranges["start_ns"].tolist() == [10_000]
    assert [note.rpartition(": ")[2] for note in trace.notes if "no time" in note] == [LOST]


def test_the_time_of_a_name_does_not_matter(tmp_path: Path) -> None:
    name = {"ph": "M", "name": "thread_name", "pid": PID, "tid": PID, "ts": 9.3e15, "args": {"name": "trainer"}}
    trace = open_trace(write(tmp_path, [op("aten::mm", 10, 5), name]))
    assert [trace.strings[code] for code in trace.threads["name"].tolist()] == ["trainer"]


def test_a_kernel_alone_used_no_ids_of_others(tmp_path: Path) -> None:
    assert not any("correlation" in note for note in open_trace(write(tmp_path, [kernel(1, 40)])).notes)
    two = [op("aten::mm", 10, 5), launch(1, 11), kernel(1, 40), op("aten::mm", 10, 5, pid=200, tid=201), kernel(9, 60)]
    trace = open_trace(write(tmp_path, two))
    assert trace.activities["process"].tolist() == [0, -1] and not any("correlation" in note for note in trace.notes)


@pytest.mark.parametrize("name", ["execute_32_context_0", "execute_new_4_cached_0", "Step", "mine::step", "FooBackward"])
def test_annotations_are_no_ops(tmp_path: Path, name: str) -> None:
    events = [
        x("user_annotation", name, 5, 90, Sequence_number=3, External_id=1),
        op("aten::mm", 10, 5),
        launch(1, 50),
        kernel(1, 99),
    ]
    trace = open_trace(write(tmp_path, events))
    assert [m.kind for m in markers_of(trace, name)] == [Kind.USER]
    records = load_capture(tmp_path / "t.json")
    assert records["call"].tolist() == [-1] and records.stacks[records["stack"][0]].ranges == (name,)


def test_integers_that_no_column_holds(tmp_path: Path) -> None:
    huge = 1 << 64
    events = [
        op("aten::mm", 10, 5, External_id=huge, Sequence_number=huge - 1, Fwd_thread_id=huge), op("aten::mm", 20, 5, pid=huge),
        kernel(huge, 40, bytes=-huge, registers_per_thread=1 << 40), op("aten::mm", 30, 5),
    ]  # fmt: skip
    trace = open_trace(write(tmp_path, events))
    assert trace.ranges["seq"].tolist() == [-1] * 3 and trace.ranges["op_id"].tolist() == [-1] * 3
    assert trace.activities["corr"].tolist() == [-1] and trace.activities["regs"].tolist() == [-1]
    assert trace.processes["pid"].tolist() == [-1, PID]


def test_modules_on_threads_that_kineto_cannot_place_are_dropped(tmp_path: Path) -> None:
    modules = [x("python_function", "nn.Module: Net_0", 0, 90, tid=tid, pid=tid, Python_id=1) for tid in (0, PID)]
    trace = open_trace(write(tmp_path, [*modules, op("aten::mm", 10, 5)]))
    assert len(rows_of(trace, "Net_0")) == 1 and trace.processes["pid"].tolist() == [PID]


def test_the_tolerant_reader_gives_the_same(data: Path, captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: bytes, *decoders: object) -> None:
        raise msgspec.DecodeError("refused")

    files = [data / "kineto_cpu.json.gz", captures / "kineto/h100_vit.json.gz", captures / "kineto/multi_stream_sync.json.gz"]
    strict = [content(open_trace(path)) for path in files]
    monkeypatch.setattr(kineto_json, "_strict", refuse)
    monkeypatch.setattr(trace_file, "_BLOCK_BYTES", 300_000)
    assert [content(open_trace(path)) for path in files] == strict


# file: kernels, launches found, kernels inside an op, with inputs recorded, backward ranges with a forward thread
CAPTURES = {
    "a100_train_stacks.json.gz": (8568, 8568, 8520, 8520, 4764),
    "v100_resnet50_2021.json.gz": (8772, 8772, 8772, 8772, 1068),
    "h100_bert_small.json.gz": (60, 60, 60, 60, 0),
    "h100_vit.json.gz": (154, 154, 154, 154, 0),
    "v100_dlrm_8ranks/worker0.pt.trace.json.gz": (245, 245, 245, 245, 76),
    "a100_triton_add.json.gz": (1, 1, 1, 1, 0),
    "multi_stream_sync.json.gz": (3, 3, 3, 0, 0),
    "a100_alexnet_cupti_counters.json.gz": (0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", [*slow("a100_train_stacks.json.gz"), *list(CAPTURES)[1:]])
def test_captures(captures: Path, name: str) -> None:
    trace = open_trace(captures / "kineto" / name)
    assert sniffed(captures / "kineto" / name)
    is_kernel = trace.activities["kind"] == ActivityKind.KERNEL
    launch_of = {corr: row for row, corr in enumerate(trace.launches["corr"].tolist())}
    rows = [launch_of[corr] for corr in trace.activities["corr"][is_kernel].tolist() if corr in launch_of]
    ops, shaped = enclosing(trace, np.array(rows, np.int64))
    with_thread = int((trace.ranges["fwd_thread"] >= 0).sum())
    assert (int(is_kernel.sum()), len(rows), ops, shaped, with_thread) == CAPTURES[name]
    assert (trace.activities["process"] >= 0).all()


def enclosing(trace: Trace, launches: np.ndarray) -> tuple[int, int]:
    """How many launches lie within an op, and how many within one whose inputs are known: compared one by one."""
    ranges = trace.ranges
    is_op = np.array([m.kind in (Kind.DISPATCH, Kind.BACKWARD) for m in trace.markers])[ranges["label"]]
    known = np.array([m.call is not None and m.call.described for m in trace.markers])[ranges["label"]]
    found = [0, 0]
    for row in launches.tolist():
        when = trace.launches["start_ns"][row]
        around = is_op & (ranges["thread"] == trace.launches["thread"][row])
        around &= (ranges["start_ns"] <= when) & (when < ranges["end_ns"])
        found[0] += bool(around.any())
        found[1] += bool((around & known).any())
    return found[0], found[1]


def test_layers_and_lines_of_an_inference(captures: Path) -> None:
    trace = open_trace(captures / "kineto/h100_vit.json.gz")
    (row, *_) = rows_of(trace, "aten::conv2d")
    assert trace.strings[trace.ranges["src"][row]].startswith("transformers/models/vit/modeling_vit.py:")
    layers = [m.name.split(".") for m in trace.markers if m.kind == Kind.LAYER]
    assert {path[2] for path in layers if len(path) == 3} >= {f"ViTLayer_{number}" for number in range(12)}
    sources = {trace.strings[code] for code in np.unique(trace.ranges["src"]).tolist()}
    assert not any("torch/nn" in source or "torch/_" in source for source in sources)


def test_sampled_counters_beside_kernels_are_read_past_with_a_note(tmp_path: Path) -> None:
    events = [op("aten::relu", 0, 10), launch(1, 5), kernel(1, 20)]
    samples = [
        {"ph": "C", "cat": "hardware_counters", "name": "sm__cycles", "pid": "GPU 0 Counters", "tid": 0, "ts": 20 + turn,
         "args": {"": 7.5}} for turn in range(4)
    ]  # fmt: skip
    plain, sampled = (load_capture(write(tmp_path, found, "t.json")) for found in (events, events + samples))
    assert len(sampled) == len(plain) == 1 and sampled.calls == plain.calls
    assert sampled.notes == [
        *plain.notes,
        "4 samples of hardware counters were recorded beside the kernels: see `pyprof counters`",
    ]


def test_numbers_of_thousands_of_digits_are_unknown(tmp_path: Path) -> None:
    most = "9" * 5000
    inputs = {"Input Dims": [[4], []], "Input type": ["float", "Scalar"], "Concrete Inputs": ["", most]}
    ranges = x("cuda_profiler_range", "k", 1, 1, pid=f"GPU {most}", tid=0, counter=1)
    events = [op("aten::mul", 0, 50, **inputs), launch(1, 10), x("kernel", "k", 60, 5, pid=0, tid=f"stream {most}", correlation=1),
              op("aten::mul", 0, 50, tid=f"thread {most}"), ranges]  # fmt: skip
    trace = open_trace(write(tmp_path, events, distributedInfo={"rank": most}))
    assert trace.activities["stream"].tolist() == [-1]
    assert UNKNOWN in [call.args[1] for marker in trace.markers if (call := marker.call) and call.args]
