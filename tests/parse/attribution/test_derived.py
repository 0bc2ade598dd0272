"""What an op's formula asks for beyond the op's own arguments: the ops inside it, the step of a serving engine."""

from pathlib import Path
from typing import Any

import pytest

import pyprof
from pyprof.loading.formats import op_rules
from pyprof.loading.load import load, load_capture, open_trace
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records.netdict.write import lines
from tests.graph_traces import _x, write

BF16 = "c10::BFloat16"


def _op(name: str, ts: float, dur: float, *inputs: tuple[list[int], str, str]) -> dict[str, Any]:
    dims, types, concrete = map(list, zip(*inputs, strict=True))
    return _x("cpu_op", name, ts, dur, **{"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete})


def _experts(begin: float, top_k: int, corr: int) -> list[dict[str, Any]]:
    """An op of an engine for a layer of experts: what chooses them and the views of their weights lie inside."""
    return [
        _op("vllm::moe_forward", begin, 90, ([4, 64], BF16, ""), ([4, 8], BF16, ""), ([], "", "")),
        _op("TopK", begin + 5, 10, ([4, 8], BF16, ""), ([], "Scalar", str(top_k))),
        _op("aten::empty", begin + 6, 2, ([], "ScalarList", "[4, 2]"), ([], "Scalar", "15")),
        _op("aten::view", begin + 20, 2, ([4, 64], BF16, ""), ([], "ScalarList", "[256]")),
        _op("aten::view", begin + 30, 2, ([8, 64, 256], BF16, ""), ([], "ScalarList", "[8, 64, 256]")),
        _op("aten::view", begin + 33, 2, ([8, 128, 64], BF16, ""), ([], "ScalarList", "[8, 128, 64]")),
        _op("aten::view", begin + 36, 2, ([8, 128, 64], BF16, ""), ([], "ScalarList", "[8, 128, 64]")),
        _x("cuda_runtime", "cudaLaunchKernel", begin + 50, 2, correlation=corr),
        _x("kernel", "experts_k", begin + 500, 5, 7, 0, device=0, stream=7, correlation=corr),
    ]


def _call(records: Any, row: int) -> OpCall:
    found: OpCall = records.calls[int(records["call"][row])]
    return found


def test_an_op_is_told_the_ops_inside_it_without_views_and_allocations(tmp_path: Path) -> None:
    run = write(tmp_path / "t.json", [*_experts(1000, 2, 5), *_experts(3000, 2, 6), *_experts(5000, 3, 7)])
    records = load(str(run))
    inside = dict(_call(records, 0).kwargs)["inside"]
    assert inside == [
        ["autograd::TopK", TensorSpec((4, 8), "bfloat16"), 2],
        ["aten::view", TensorSpec((8, 64, 256), "bfloat16"), [8, 64, 256]],
        ["aten::view", TensorSpec((8, 128, 64), "bfloat16"), [8, 128, 64]],
    ]
    assert records["call"].tolist()[:2] == [0, 0], "two executions that called the same are one call"
    assert _call(records, 2) != _call(records, 0) and len(set(records["instance"].tolist())) == 3


@pytest.mark.parametrize("most", [1, 2, 1 << 16])
def test_nor_does_it_depend_on_how_many_kernels_are_attributed_at_a_time(tmp_path: Path, most: int) -> None:
    run = write(tmp_path / "t.json", [event for turn in range(6) for event in _experts(1000 + 100 * turn, 2, turn + 5)])
    whole = list(lines(load_capture(run)))
    assert list(lines(attribute(open_trace(run), op_rules(), most))) == whole
    assert all("autograd::TopK" in line for line in whole)


def _attention(begin: float, corr: int, sums: str, *beside: str) -> list[dict[str, Any]]:
    tensor = ([2, 8, 64], BF16, "")
    return [
        *(_x("user_annotation", text, begin - 20, 150) for text in (f"execute_2_context_0(sq0sk0sqsq0sqsk0)_{sums}", *beside)),
        _op("vllm::unified_attention", begin, 90, tensor, tensor, tensor, ([], "", "")),
        _x("cuda_runtime", "cudaLaunchKernel", begin + 50, 2, correlation=corr),
        _x("kernel", "attention_k", begin + 500, 5, 7, 0, device=0, stream=7, correlation=corr),
    ]


def test_attention_is_told_the_requests_of_its_step(tmp_path: Path) -> None:
    texts = [f"generation_2(sq2sk{keys}sqsq2sqsk{keys})" for keys in (300, 400)]
    events = [
        *_attention(1000, 5, texts[0], "step[DECODE bs=2]"),
        *_attention(3000, 6, texts[1]),
        *_attention(5000, 7, texts[0]),
    ]
    run = write(tmp_path / "t.json", events)
    records = load(str(run))
    steps = [dict(_call(records, row).kwargs)["engine_step"] for row in range(3)]
    assert [text.partition(")_")[2] for text in steps] == [texts[0], texts[1], texts[0]]
    assert records["call"].tolist() == [0, 1, 0], "steps that are told alike are one call"
    frame = pyprof.load(run).to_pandas(columns="flops")
    assert frame["flops"].tolist() == [4 * 8 * 64 * keys for keys in (300, 400, 300)]


def test_replayed_attention_is_told_the_step_of_its_replay(captures: Path) -> None:
    costs = pyprof.load(captures / "kineto/serving/vllm_decode_full.run.json.gz").to_pandas(
        columns="op,instance,flops,bytes,sil"
    )
    attention = costs[costs["op"] == "unified_attention_with_output"].groupby("instance")["flops"].sum()
    assert len(attention) == 24 and set(attention) == {902_529_024}
    known = costs[costs["flops"].notna() & costs["bytes"].notna()]
    assert known["sil"].sum() >= 0.92 * costs["sil"].sum()
