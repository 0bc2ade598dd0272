"""One cost an instance, shared among its main kernels; v100_lm's known numbers from our records and from the original's."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.loading.load import load, load_capture
from pyprof.model.opcall import UNKNOWN, TensorSpec
from pyprof.model.records import Records
from pyprof.prof.columns import COLUMNS
from pyprof.prof.cost import cost_records
from pyprof.prof.frame import Frame
from pyprof.tables.table import choose
from tests import examples
from tests.graph_traces import _x as x
from tests.graph_traces import write
from tests.prof.formulas.formula_oracles import call, t
from tests.tiny import Nsys

GEMM, SPLITK, ADD = (
    "ampere_sgemm_128x64_tn",
    "void splitKreduce_kernel<float>(int)",
    "void at::native::vectorized_elementwise_kernel<4>(int)",
)
CALL = 'linear(fp32[64,1024], fp32[1024,1024], fp32[1024]) #pyprof{"mod":"torch.nn.functional"}'
FLOPS, BYTES = 2 * 64 * 1024 * 1024, 4 * (64 * 1024 + 1024 * 1024 + 1024 + 64 * 1024)


def _records(n: Nsys, path: Path) -> Records:
    return load_capture(n.write(path / "net.sqlite"))


def test_main_kernels_carry_the_cost_and_auxiliary_ones_nothing(tmp_path: Path) -> None:
    n = Nsys()
    n.range(CALL, 10, 100)
    for at, (name, duration) in enumerate([(GEMM, 300), (SPLITK, 50), (ADD, 900)]):
        n.kernel(name, 20 + 10 * at, 1000 * at, 1000 * at + duration)
    costs = cost_records(_records(n, tmp_path))
    assert costs.matmul_flops.tolist() == [FLOPS, 0, 0]
    assert costs.bytes.tolist() == [BYTES, 0, 0]
    assert costs.problems == [(64, 1024, 1024, 1)] and costs.problem.tolist() == [0, -1, -1]


def test_without_a_main_kernel_the_longest_carries_it(tmp_path: Path) -> None:
    n = Nsys()
    n.range(CALL, 10, 100)
    n.kernel(SPLITK, 20, 0, 50)
    n.kernel(SPLITK, 30, 100, 190)
    assert cost_records(_records(n, tmp_path)).matmul_flops.tolist() == [0, FLOPS]


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from([GEMM, ADD, SPLITK]), st.integers(0, 10**7)), min_size=1, max_size=7), st.integers(1, 3)
)
def test_shares_are_whole_and_sum_exactly(tmp_path: Path, kernels: list[tuple[str, int]], calls: int) -> None:
    n = Nsys()
    for turn in range(calls):
        n.range(CALL, 1000 * turn, 1000 * turn + 900)
        for at, (name, duration) in enumerate(kernels):
            start = 10**9 * turn + 10**8 * at
            n.kernel(name, 1000 * turn + 10 + at, start, start + duration)
    costs = cost_records(_records(n, tmp_path))
    for part, total in ((costs.matmul_flops, FLOPS), (costs.bytes, BYTES)):
        assert part.sum() == calls * total and (part >= 0).all()
        assert part.reshape(calls, -1).sum(axis=1).tolist() == [total] * calls


def test_unknown_stays_unknown_and_says_why(tmp_path: Path) -> None:
    n = Nsys()
    n.range("mymod::thing, op_id = 1", 10, 100)
    n.kernel(GEMM, 20, 0, 50)
    n.kernel(ADD, 500, 60, 90)
    costs = cost_records(_records(n, tmp_path))
    assert costs.flops.tolist() == [-1, -1] and costs.bytes.tolist() == [-1, -1]
    assert costs.reasons["no op is known"] == (1, 30)
    assert [reason for reason in costs.reasons if "mymod::thing" in reason]


def test_a_cost_beyond_64_bits_is_unknown(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1, sizes = [[1000000000, 1000000000], [1000000000, 1000000000]]", 10, 100)
    n.kernel(GEMM, 20, 0, 50)
    costs = cost_records(_records(n, tmp_path))
    assert costs.flops.tolist() == [-1] and costs.reasons == {"a cost beyond 64 bits": (1, 50)}


def test_types_that_were_not_recorded_are_those_of_the_op_inside() -> None:
    """Old traces of torch.profiler have the options of no op: what `to` casts to is told by the copy inside it alone."""
    wide, narrow, whole = t(100), t(100, dtype="bfloat16"), t(100, dtype="int64")
    calls = [
        call("aten::to", wide, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        call("aten::copy_", narrow, wide, UNKNOWN),
        call("aten::zeros_like", whole, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        call("aten::fill_", t(100, dtype="int32"), UNKNOWN),
        call("aten::index", wide, UNKNOWN),  # selects by a mask: how much is data
        call("aten::nonzero", whole),
    ]
    own, inner, instance = [0, 2, 4, 4, 0, 2], [1, 3, 4, 3, 0, 2], [0, 1, 2, 2, 3, 4]
    columns = {"own": own, "call": own, "inner": inner, "instance": instance}
    more = {"kind": [0] * 6, "name": [0] * 6, "dur_ns": [10] * 6}
    records = Records({name: np.array(values, np.int32) for name, values in (columns | more).items()}, calls=calls)
    records.strings.code("k")
    assert cost_records(records).bytes.tolist() == [600, 400, -1, -1, -1, -1]
    assert cost_records(records).matmul_flops.tolist()[:2] == [0, 0]


def test_types_in_lists_of_tensors_are_those_that_the_kernel_names() -> None:
    """torch.profiler records the sizes of a TensorList and no types."""
    sizes = [TensorSpec((4, 10)), TensorSpec((4, 20))]
    calls = [call("aten::cat", sizes, 1), call("aten::_foreach_add_", [TensorSpec((100,))], 1.0)]
    columns = {"own": [0, 0, 0, 1], "call": [0, 0, 0, 1], "inner": [0, 0, 0, 1], "instance": [0, 1, 1, 2], "name": [0, 1, 2, 3]}
    columns |= {"kind": [0] * 4, "dur_ns": [10] * 4}
    records = Records({name: np.array(values, np.int32) for name, values in columns.items()}, calls=calls)
    cat = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<%s, unsigned int, 2, 64, 64>(int)"
    add = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<1>, at::native::BinaryOpScalarFunctor<double, 1>>"
    for name in (cat % "float", cat % "at::native::OpaqueType<2u>", "another", add):
        records.strings.code(name)
    assert cost_records(records).bytes.tolist() == [2 * 4 * 120, 2 * 120, 2 * 120, 2 * 8 * 100]


def _linear_training(n: Nsys, inner_sizes: bool, products: int = 2) -> None:
    n.range(CALL, 10, 60)
    n.range("aten::linear, seq = 5, op_id = 1, sizes = [[64, 1024], [1024, 1024], [1024]]", 12, 58)
    n.range("aten::addmm, seq = 6, op_id = 2, sizes = [[1024], [64, 1024], [1024, 1024], [], []]", 14, 56)
    n.kernel(GEMM, 20, 1000, 1100)
    n.range("AddmmBackward0, seq = 6, op_id = 4", 70, 200, thread=8)
    for k, sizes in enumerate(("[[64, 1024], [1024, 1024]]", "[[1024, 64], [64, 1024]]")[2 - products :]):
        text = f"aten::mm, op_id = {10 + k}" + (f", sizes = {sizes}" if inner_sizes else "")
        n.range(text, 80 + 40 * k, 110 + 40 * k, thread=8)
        n.kernel(GEMM, 90 + 40 * k, 2000 + 200 * k, 2100 + 200 * k, thread=8)
        n.kernel(SPLITK, 95 + 40 * k, 2100 + 200 * k, 2110 + 200 * k, thread=8)


@pytest.mark.parametrize("inner_sizes", [True, False])
@pytest.mark.parametrize("products", [2, 1])
def test_each_backward_product_counts_on_its_own(tmp_path: Path, inner_sizes: bool, products: int) -> None:
    n = Nsys()
    _linear_training(n, inner_sizes, products)
    records = _records(n, tmp_path)
    costs = cost_records(records)
    assert costs.matmul_flops.tolist() == [FLOPS] + [FLOPS, 0] * products
    assert (costs.bytes[1::2] > 0).all() and (costs.bytes[2::2] == 0).all()
    frame = Frame(records)
    assert set(choose("op", COLUMNS)[0].texts(frame)) == {"linear"}
    # With the inner shapes, dgrad is M x K of N and wgrad N x K of M; the last is wgrad where only one ran.
    problems = [costs.problems[code] for code in costs.problem[costs.problem >= 0][1:].tolist()]
    assert problems[-1][:3] == (1024, 1024, 64) and (products == 1 or problems[0][:3] == (64, 1024, 1024))


def _column(frame: Frame, key: str) -> list[str]:
    return choose(key, COLUMNS)[0].texts(frame)


@pytest.mark.parametrize("name", ["net.sql", "net.dict"])
def test_v100_lm(captures: Path, name: str) -> None:
    folder = captures / "nvprof/v100_lm"
    records = load(str(folder / name))
    frame = Frame(records.select(records["kind"] == 0))
    theirs = list(csv.DictReader((folder / "lm.csv").read_text().splitlines()))
    assert len(frame.records) == len(theirs) == 160
    assert _column(frame, "kernel") == [row["Kernel"] for row in theirs]
    assert _column(frame, "sil") == [row["Sil(ns)"] for row in theirs]
    wrong = [i for i, (own, row) in enumerate(zip(_column(frame, "dir"), theirs, strict=True)) if own != row["Direction"]]
    assert len(wrong) == 24 and all(theirs[i]["Direction"] == "fprop" for i in wrong)
    rows = list(zip(*(_column(frame, key) for key in ("op", "dir", "flops", "params", "tc", "m", "n", "k")), strict=True))
    big = [row for row in rows if row[0] == "linear" and "33278" in row[3] and row[2] not in ("0", "na")]
    assert [row[1:3] for row in big] == [("fprop", "9317840000"), ("bprop", "9317840000"), ("bprop", "9317840000")]
    assert {row[3] for row in big} == {"M=700,N=33278,K=200,fp32"}  # forward shapes beside backward kernels
    # Matrix products inside multi_head_attention_forward have FLOPs, the wrapper itself has none.
    assert not any(row[0] == "multi_head_attention_forward" for row in rows)
    stacks = [frame.records.stacks[code] for code in frame.records["scope"].tolist()]
    inside = [
        row
        for row, stack, kernel in zip(rows, stacks, _column(frame, "kernel"), strict=True)
        if "multi_head_attention_forward" in stack.op and "sgemm" in kernel
    ]
    assert len(inside) >= 4 and all(int(row[2]) > 0 for row in inside)
    # A V100 has no Tensor Core path for fp32; the original's records do not say which device it was.
    assert {row[4] for row in rows} == ({"-"} if name == "net.sql" else {"-", "na"})


def test_bytes_of_an_op_without_a_formula_are_a_lower_bound_and_count_as_unknown(tmp_path: Path) -> None:
    """An op of a library: rows of bf16[32,6] in and out, of a table as many as it likes; its two kernels share the bound."""
    arguments = {"Input Dims": [[32, 6], [32, 6], [1000, 6]], "Input type": ["c10::BFloat16"] * 3}
    events = [x("cpu_op", "mylib::fused", 0, 90, **arguments)]
    for at, dur in ((100, 3), (200, 1)):
        events.append(x("cuda_runtime", "cudaLaunchKernel", at / 10, 1, correlation=at))
        events.append(x("kernel", "mylib::fused_kernel", at, dur, 7, 0, device=0, stream=7, correlation=at))
    path = write(tmp_path / "net.json", events)
    frame = Frame(load(str(path)))
    printed = {c.key: c.texts(frame) for c in COLUMNS if c.key in ("flops", "bytes", "bytes_bound", "gbs", "ai")}
    unknown = dict.fromkeys(("flops", "gbs", "ai"), ["na"] * 2)
    assert printed == {**unknown, "bytes": ["576", "192"], "bytes_bound": ["lower"] * 2}
    assert frame.costs.bytes.tolist() == [-1, -1]
    assert next(iter(frame.costs.reasons)) == "no formula for mylib::fused"
