"""How much of the kernel time of the given torch.profiler captures has a cost, and what is known to lack one."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.model.opcall import UNKNOWN, OpCall
from pyprof.model.trace import ActivityKind
from pyprof.prof.cost import cost_records
from pyprof.prof.infer import infer
from tests.given import records_of, slow

# capture: least percent of the kernel time of ops whose shapes were recorded that has FLOPs, and bytes. What lacks: sums over
# dimensions in a forward, and permutations of sparse features, whose results' sizes are in no argument.
LEAST = {
    "kineto/h100_bert_small.json.gz": (100, 100),
    "kineto/h100_vit.json.gz": (100, 99.4),
    "kineto/v100_resnet50_2021.json.gz": (99.7, 99.7),
    "kineto/a100_train_stacks.json.gz": (99.9, 99),
    "kineto/a100_triton_add.json.gz": (0, 100),  # what a generated kernel computes is in no trace
    **{f"kineto/v100_dlrm_8ranks/worker{rank}.pt.trace.json.gz": (100, 99.3) for rank in (0, 7)},
    "nvprof/v100_lm/net.sql": (100, 100),
    "kineto/serving/sglang_prefilldecode.json.gz": (99.9, 99.9),
    "kineto/serving/vllm_decode_full.run.json.gz": (92, 92),  # what lacks: a kernel that pads and whatever else
}
# Ops that take tensors in lists, of which these traces hold nothing: their shapes were not recorded.
LISTS = {"cat", "stack", "index", "index_put_", "_index_put_impl_"}


def recorded(call: OpCall) -> bool:
    return bool(call.tensors) and not (call.op in LISTS and UNKNOWN in call.args)


LARGE = ("kineto/v100_resnet50_2021.json.gz", "kineto/a100_train_stacks.json.gz")


@pytest.mark.parametrize("name", [*slow(*LARGE), *(name for name in LEAST if name not in LARGE)])
def test_kernel_time_with_a_cost(captures: Path, name: str) -> None:
    records = infer(records_of(captures / name))
    costs = cost_records(records)
    has = np.array([recorded(call) for call in records.calls] + [False], np.bool_)
    says = np.array([call.described for call in records.calls] + [False], np.bool_)
    kernel = records["kind"] == ActivityKind.KERNEL
    shaped = kernel & np.where(says[records["own"]], has[records["own"]], has[records["call"]])
    time = np.where(shaped, records["dur_ns"], 0)
    flops = 100 * time[costs.flops >= 0].sum() / time.sum()
    moved = 100 * time[costs.bytes >= 0].sum() / time.sum()
    assert flops >= LEAST[name][0] and moved >= LEAST[name][1], (flops, moved, costs.reasons)
    assert time.sum() > 0.4 * records["dur_ns"][kernel].sum()  # the rest says nothing of its shapes
    assert not (
        shaped & costs.of("main", slice(None)) & (costs.bytes == 0)
    ).any()  # what does an op's main work moves something


def test_collectives_take_their_sizes_from_nccls_annotation(captures: Path) -> None:
    # c10d::allreduce_ has its tensors in lists, which no trace holds; nccl:all_reduce within it has them: 394241 fp32, each
    # read and written.
    records = records_of(captures / "kineto/v100_dlrm_8ranks/worker0.pt.trace.json.gz")
    costs = cost_records(records)
    reduced = [i for i in range(len(records)) if records["own"][i] >= 0 and records.calls[records["own"][i]].op == "allreduce_"]
    assert len(reduced) == 3
    inner = [records.calls[records["inner"][i]].tensors[0].numel for i in reduced]
    assert 394241 in inner
    assert costs.bytes[reduced].tolist() == [8 * n for n in inner]
    assert costs.vector_flops[reduced].tolist() == inner


def test_look_ups_take_their_width_from_their_gradient(captures: Path) -> None:
    # 3 tables of 16 columns, 128 bags: 768 indices, each a row of 16 fp32 to read and to add.
    records = infer(records_of(captures / "kineto/v100_dlrm_8ranks/worker0.pt.trace.json.gz"))
    costs = cost_records(records)
    ops = [records.calls[code].op if code >= 0 else "" for code in records["own"].tolist()]
    (look_up,) = [i for i, op in enumerate(ops) if op == "split_embedding_codegen_lookup_adagrad_function"]
    call = records.calls[records["own"][look_up]]
    assert dict(call.kwargs) == {"total_D": 48, "inferred": "total_D"}
    assert costs.flops[look_up] == 768 * 16
    assert costs.bytes[look_up] == 4 * 768 * 16 + 8 * (768 + 385) + 4 * 128 * 48
    back = [i for i, op in enumerate(ops) if op.startswith("CppNode<SplitLookupFunction_adagrad")]
    assert costs.flops[back].sum() == 7 * 768 * 16  # added, and AdaGrad's six operations a weight


def test_the_type_of_a_list_comes_from_the_kernels_template_and_is_marked(captures: Path) -> None:
    """torch.profiler records no types of tensors in lists: `CatArrayBatchedCopy<OpaqueType<2>>` says that they have two bytes."""
    records = infer(records_of(captures / "kineto/h100_vit.json.gz"))
    costs = cost_records(records)
    joined = np.array([call.op == "cat" for call in records.calls] + [False], np.bool_)[records["own"]]
    assert joined.sum() == 1 and costs.of("inferred", slice(None)).tolist() == joined.tolist()
    tokens = [t for code in records["own"][joined].tolist() for t in records.calls[code].tensors]
    # The class token is one row, expanded to the batch; all that is joined is written.
    assert costs.bytes[joined].tolist() == [2 * (sum(t.stored for t in tokens) + sum(t.numel for t in tokens))]
    assert (costs.of("at_least", slice(None)) < 0).all()
