"""Costs of the ops of two captures of inference engines beside those in TraceLens's tables of the same captures, op by op.

Where the two differ, the reason stands here, and the difference is exactly that: a convention, or what TraceLens counts wrongly.
"""

import ast
import csv
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from pyprof.model.dtypes import lookup
from pyprof.model.opcall import OpCall, TensorSpec
from pyprof.prof.formulas import evaluate
from tests.given import records_of

# TraceLens's op -> FLOPs and bytes that pyprof has more than TraceLens, from its arguments, and why.
_Difference = Callable[[list[TensorSpec]], int]


def _rows(t: list[TensorSpec]) -> int:
    return t[0].numel // t[0].shape[-1]


def _expanded(t: list[TensorSpec]) -> bool:
    return t[1].strides is not None and 0 in t[1].strides


def _offset(t: list[TensorSpec]) -> int:
    return math.prod(t[0].shape[:2])


FLOPS: dict[str, tuple[str, _Difference]] = {
    "sgl_kernel::silu_and_mul": ("convention: silu 5 and a product, TraceLens 5 for both", lambda t: t[0].numel),
    "aiter::rmsnorm": ("convention: TraceLens counts a root and an addition a row", lambda t: -2 * _rows(t)),
    "aiter::rms_norm": ("convention: TraceLens counts a root and an addition a row", lambda t: -2 * _rows(t)),
    "aiter::add_rmsnorm": ("convention: TraceLens counts a root and an addition a row", lambda t: -2 * _rows(t)),
    "aiter::rmsnorm2d_fwd_with_add_ck": ("convention: TraceLens counts a root and an addition a row", lambda t: -2 * _rows(t)),
    "aten::copy_": ("convention: a copy computes nothing, TraceLens counts 1 an element", lambda t: -t[0].numel),
    "aiter::mha_batch_prefill": (
        "a causal mask leaves S(S+1)/2 pairs of each request, TraceLens half of all: 4·Hq·D·S/2 more a request, of 15",
        lambda t: 4 * 32 * 128 * 15 * 1024 // 2,
    ),
    "vllm::rocm_unquantized_gemm": (
        "convention: the bias added in a product is not counted, TraceLens counts M·N",
        lambda t: -t[0].shape[0] * t[1].shape[0] if len(t) > 2 else 0,
    ),
}
BYTES: dict[str, tuple[str, _Difference]] = {
    "aiter::mha_batch_prefill": (
        "the logarithms of the sums are written: a float32 a query and head",
        lambda t: 4 * _offset(t),
    ),
    "sgl_kernel::rotary_embedding": (
        "positions, and their rows of the table of cosines and sines, are read",
        lambda t: 8 * t[0].numel + 2 * t[0].numel * t[3].shape[-1],
    ),
    "sglang::store_cache": ("the slots are read", lambda t: 8 * t[4].numel),
    "aten::copy_": (
        "what is expanded is stored, and read, once",
        lambda t: (t[1].nbytes or 0) - t[1].numel * 4 if _expanded(t) else 0,
    ),
}
# Rows that have no counterpart of one call.
NOT_OURS = {
    "aten::cumsum": "tiny, int32 to int64: TraceLens does not widen the result",
    "aten::max": "tiny integers",
    "aten::neg": "tiny integers",
}


def _is(call: OpCall, row: dict[str, str]) -> bool:
    """Whether a row of the table is of this call: its name, shapes, types and strides."""
    columns = [ast.literal_eval(row[key]) for key in ("Input Dims", "Input type", "Input Strides")]
    recorded = [(tuple(d), lookup(k), tuple(s)) for d, k, s in zip(*columns, strict=True)]
    own = [(a.shape, lookup(a.dtype), a.strides or ()) if isinstance(a, TensorSpec) else ((), None, ()) for a in call.args]
    return call.name == row["name"] and own == recorded


def _table(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(1 << 30)
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["GFLOPS"] or row["Data Moved (MB)"]]


def _in_step(call: OpCall) -> OpCall:
    """An attention of the decode step that the capture has, where attribution did not say so."""
    step = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
    wanted = call.name.startswith("vllm::unified_attention") and not call.kwargs
    return call._replace(kwargs=(("engine_step", step),)) if wanted else call


@pytest.mark.parametrize(
    ("capture", "table", "least"),
    [
        ("sglang_prefilldecode.json.gz", "sglang_prefilldecode.tracelens.csv", 12),
        ("vllm_decode_full.run.json.gz", "vllm_decode_full.tracelens.csv", 8),
    ],
)
def test_as_tracelens_or_with_its_reason(captures: Path, capture: str, table: str, least: int) -> None:
    calls = records_of(captures / "kineto/serving" / capture).calls
    compared, wrong = set(), {}
    for row in _table(captures / "kineto/serving" / table):
        name = row["name"]
        for call in calls if row["Input Dims"] else ():
            if not _is(call, row) or name in NOT_OURS:
                continue
            cost, tensors = evaluate(_in_step(call)).cost, [arg for arg in call.args if isinstance(arg, TensorSpec)]
            flops = round(float(row["GFLOPS"]) * 1e9) + FLOPS.get(name, ("", lambda _: 0))[1](tensors)
            moved = round(float(row["Data Moved (MB)"] or -1) * 1024**2) + BYTES.get(name, ("", lambda _: 0))[1](tensors)
            compared.add((name, row["Input Dims"]))
            if cost.flops != flops or (cost.bytes != moved and row["Data Moved (MB)"]):
                wrong[name, row["Input Dims"]] = (cost.flops, flops, cost.bytes, moved)
    assert wrong == {}
    assert len(compared) >= least, compared


def test_experts_have_the_sizes_that_were_recorded(captures: Path) -> None:
    """TraceLens takes the padded hidden size of 3072 for the experts' inner size too; the weights' views say 2944, twice that
    before the gate. It reads, of 32 experts, the number that 32 tokens of 4 each are expected to choose, pyprof at the most all."""
    table = _table(captures / "kineto/serving/vllm_decode_full.tracelens.csv")
    theirs = {row["name"].rpartition("_")[2]: round(float(row["GFLOPS"]) * 1e9) for row in table if "moe_triton" in row["name"]}
    assert theirs == {"up": 2 * 128 * 3072 * 6144, "down": 2 * 128 * 3072 * 3072}
    calls = records_of(captures / "kineto/serving/vllm_decode_full.run.json.gz").calls
    (cost,) = {evaluate(call).cost for call in calls if call.op == "moe_forward" and call.kwargs}
    assert cost.flops == 2 * 128 * 3072 * 5888 + 2 * 128 * 2944 * 3072
    assert cost.bytes == 32 * (3072 * 5888 + 2944 * 3072) // 2 + 2 * 2 * 32 * 3072 + 2 * 32 * 32
