"""Which collective a kernel ran, from its name and the ops around it."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyprof.loading.load import load_capture
from pyprof.model.opcall import UNKNOWN, OpCall, TensorSpec
from pyprof.report.ranks.collectives import Collective, bus_factor, describe, of_records

RING = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"


def t(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype)


def call(name: str, *args: Any, **kwargs: Any) -> OpCall:
    module, _, op = name.rpartition("::") if "::" in name else name.rpartition(".")
    return OpCall(module, op, args, tuple(kwargs.items()), dispatcher="::" in name)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (RING, 24),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", 48),
        ("ncclDevKernel_AllReduce_Sum_f64_TREE_LL128(x)", 96),
        ("ncclKernel_AllReduce_TREE_LL_Max___nv_bfloat16(x)", 24),
        ("ncclDevKernel_AllReduce_RING_LL(x)", None),
    ],
)
def test_sizes_that_emit_nvtx_records_take_their_type_from_the_kernel(kernel: str, expected: int | None) -> None:
    flat = OpCall("nccl", "all_reduce", (TensorSpec((10,)), TensorSpec((2,))), dispatcher=True, flat=True)
    assert describe(kernel, [flat]) == Collective("all_reduce", expected)


@pytest.mark.parametrize(
    ("kernel", "calls", "expected"),
    [
        (RING, [], Collective("all_reduce")),
        (SEND, [], Collective("send_recv")),
        ("ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*)", [], Collective("reduce_scatter")),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", [], Collective("all_gather")),
        ("ncclDevKernel_Broadcast_RING_LL(x)", [], Collective("broadcast")),
        ("void multimem_all_reduce_kernel<4>(x)", [], Collective("multimem_all_reduce_kernel")),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)", [], Collective("multimem_all_reduce_kernel")),
        (SEND, [call("nccl::all_to_all", t(6)), call("autograd::All2All_Pooled_Wait", t(1))], Collective("all_to_all", 24)),
        (SEND, [call("c10d::alltoall_base_", t(8), t(6), UNKNOWN)], Collective("all_to_all", 24)),
        (RING, [call("nccl::all_reduce", t(10)), call("c10d::allreduce_", UNKNOWN)], Collective("all_reduce", 40)),
        (RING, [call("torch.distributed.all_reduce", t(10), group=UNKNOWN)], Collective("all_reduce", 40)),
        ("ncclX", [call("torch.distributed.all_gather", [t(3), t(3)], t(3))], Collective("all_gather", 24)),
        ("ncclX", [call("torch.distributed.reduce_scatter_tensor", t(3), t(6))], Collective("reduce_scatter", 24)),
        ("ncclX", [call("nccl::_all_gather_base", t(3))], Collective("all_gather")),
        ("ncclX", [call("_c10d_functional::all_gather_into_tensor", t(3), 4, "tp")], Collective("all_gather", 48, "tp", 4)),
        ("ncclX", [call("_c10d_functional::reduce_scatter_tensor", t(8), "sum", 4, "dp")], Collective("reduce_scatter", 32, "dp", 4)),
        (
            "ncclX",
            [call("c10d::record_param_comms", collective="_allgather_base", input=t(3), output=t(12), group_size=4, group="7")],
            Collective("all_gather", 48, "7", 4),
        ),
        (SEND, [call("c10d::record_param_comms", collective="send", input=t(3), output=t(3))], Collective("send_recv", 12, direction="send")),
        (RING, [call("aten::mm", t(3, 3), t(3, 3))], Collective("all_reduce")),
    ],
)  # fmt: skip
def test_names_and_calls(kernel: str, calls: list[OpCall], expected: Collective) -> None:
    assert describe(kernel, calls) == expected


def test_bus_bandwidth_is_nccl_tests() -> None:
    """https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""
    assert [bus_factor(kind, 8) for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")] == [
        2 * 7 / 8, 7 / 8, 7 / 8, 7 / 8, 1, 1
    ]  # fmt: skip
    assert bus_factor("all_reduce", None) is None and bus_factor("barrier", 8) is None and bus_factor("all_reduce", 1) == 0


def test_what_torch_profiler_records_today(tmp_path: Path) -> None:
    """A kernel launched within `nccl:` within record_param_comms within the op, as torch writes them since 2.2."""

    def x(cat: str, name: str, ts: float, dur: float, tid: int = 100, **args: Any) -> dict[str, Any]:
        named = {key.replace("_", " "): value for key, value in args.items()}
        return {"ph": "X", "cat": cat, "name": name, "pid": 100, "tid": tid, "ts": ts, "dur": dur, "args": named}

    facts: dict[str, Any] = {
        "Collective_name": "allreduce", "dtype": "BFloat16", "In_msg_nelems": 1000, "Out_msg_nelems": 1000, "Group_size": 4,
        "Process_Group_Name": "11", "Process_Group_Ranks": "[0, 2, 4, 6]",
    }  # fmt: skip
    events = [
        x(
            "cpu_op",
            "c10d::allreduce_",
            10,
            50,
            External_id=1,
            Input_Dims=[[], [], [], []],
            Input_type=["TensorList", "", "", ""],
        ),
        x("cpu_op", "record_param_comms", 12, 40, External_id=2, **facts),
        x("user_annotation", "nccl:all_reduce", 14, 30, External_id=3, Input_Dims=[[1000]], Input_type=["c10::BFloat16"]),
        x("cuda_runtime", "cudaLaunchKernelExC", 20, 5, correlation=9),
        x("kernel", RING, 30, 100, 20, correlation=9, device=0, stream=20, **facts),
    ]
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    rows, which, found = of_records(load_capture(tmp_path / "t.json"))
    assert len(rows) == 1 and found[which[0]] == Collective("all_reduce", 2000, "11", 4)
