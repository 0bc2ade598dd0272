"""Attribution on captures whose whole truth is on the screen."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.errors import EmptyCapture
from pyprof.loading.formats import op_rules
from pyprof.loading.load import open_trace
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.records.netdict.write import lines
from tests import examples
from tests.tiny import SESSION_END, Nsys, rules

GEMM, ADD, COPY = "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4>(int)", "void copy_kernel<2>(int)"
LINEAR = "{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [{'name': '', 'type': 'tensor', 'shape': (4, 8), 'dtype': 'float32'}, {'name': '', 'type': 'tensor', 'shape': (2, 8), 'dtype': 'float32'}]}"


def records_of(capture: Nsys, path: Path, op_rules: Any = None, **options: Any) -> list[dict[str, Any]]:
    trace = open_trace(capture.write(path / "net.sqlite", **options))
    found = attribute(trace, op_rules or rules(["torch.nn.functional.linear", "aten::addmm", "aten::mm", "aten::add"]))
    return [json.loads(line) for line in lines(found)]


def test_outermost_op_with_a_formula_is_the_instance_and_composites_are_passed_through(tmp_path: Path) -> None:
    n = Nsys()
    n.range("{'mod': 'torch.nn.functional', 'op': 'multi_head_attention_forward', 'args': []}", 10, 100)
    n.range(LINEAR, 20, 60)
    n.range("aten::linear, seq = 3, op_id = 5, sizes = [[4, 8], [2, 8], []]", 22, 58)
    n.range("aten::addmm, seq = 4, op_id = 6, sizes = [[2], [4, 8], [8, 2], [], []]", 24, 56)
    n.kernel(GEMM, 30, 200, 300)
    n.kernel(ADD, 40, 300, 310)
    n.kernel(ADD, 70, 310, 320)  # in the composite only: its innermost op
    first, second, third = records_of(n, tmp_path)
    assert first["call"].startswith("~?torch.nn.functional.linear(fp32[4,8], fp32[2,8])")
    assert first["inner"] == "~?aten::addmm(any[2], any[4,8], any[8,2], ?, ?)"
    assert first["instance"] == second["instance"] != third["instance"]
    assert third["call"] == "~torch.nn.functional.multi_head_attention_forward()"
    assert first["op"] == ["multi_head_attention_forward", "linear"] and first["seqId"] == [3] and first["altSeqId"] == [4]


def test_the_copy_with_which_an_op_makes_its_result_is_part_of_it(tmp_path: Path) -> None:
    """masked_fill fills a clone; its formula counts both. The cast of its input is no part of that, a view makes no result."""
    n = Nsys()
    for number, (name, start, end) in enumerate(
        [("masked_fill", 10, 100), ("clone", 20, 40), ("copy_", 22, 38), ("masked_fill_", 50, 90), ("masked_fill", 110, 200),
         ("to", 112, 130), ("_to_copy", 114, 128), ("copy_", 116, 126), ("to", 132, 136), ("reshape", 140, 160),
         ("clone", 142, 158), ("copy_", 144, 156), ("linear", 210, 290), ("layout", 220, 240), ("copy_", 225, 235)]
    ):  # fmt: skip
        n.range(f"aten::{name}, op_id = {number}", start, end)
    for launch in (30, 60, 120, 134, 150, 180, 230, 250):
        n.kernel("k", launch, 1000 + launch, 1001 + launch)
    copies, known = ("aten::clone", "aten::copy_", "aten::to", "aten::_to_copy"), ("aten::masked_fill", "aten::masked_fill_")
    rows = records_of(n, tmp_path, rules([*known, *copies, "aten::linear"], copies))
    assert [row["call"].split("(")[0].removeprefix("~?") for row in rows] == [
        "aten::masked_fill", "aten::masked_fill", "aten::to", "aten::masked_fill", "aten::clone", "aten::masked_fill",
        "aten::copy_", "aten::linear",
    ]  # fmt: skip
    assert len({row["instance"] for row in rows}) == 6


def test_a_kernel_without_a_launch_is_a_row(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 50)
    n.kernel(GEMM, None, 20, 30)
    (row,) = records_of(n, tmp_path)
    assert row["tid"] == "na" and "call" not in row and "launch" not in row and row["mod"] == ["na"] and row["kDuration"] == 10


@pytest.mark.parametrize("end", [None, SESSION_END])
def test_a_leaked_range_names_no_op_but_stays_as_a_layer(tmp_path: Path, end: int | None) -> None:
    n = Nsys()
    n.range("{'mod': 'torch', 'op': '__getattr__', 'args': [{'name': '', 'type': 'str', 'value': 'x'}]}", 5, end)
    n.range("layer:body", 6, end)
    n.range("aten::mm, op_id = 1", 10, 50)
    n.kernel(GEMM, 20, 100, 200)
    n.kernel(ADD, 60, 200, 210)
    first, second = records_of(n, tmp_path)
    assert first["call"] == "aten::mm(...)" and first["layer"] == ["body"] and first["open"] == 1
    assert "call" not in second and second["layer"] == ["body"]


def test_user_ranges_stand_in_for_layers_only_where_no_layer_is_named(tmp_path: Path) -> None:
    n = Nsys()
    n.range("step", 0, 500)
    n.range("inner", 10, 50)
    n.range("layer:fc", 100, 200)
    n.kernel(GEMM, 20, 1000, 1100)
    n.kernel(GEMM, 110, 1100, 1200)
    first, second = records_of(n, tmp_path)
    assert first["layer"] == ["step", "inner"] == first["ranges"]
    assert second["layer"] == ["fc"] and second["ranges"] == ["step"]


@pytest.mark.parametrize(
    "name",
    ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.zero_grad#SGD.zero_grad", "gloo:all_reduce"],
)
def test_ranges_of_torch_itself_are_no_layers(tmp_path: Path, name: str) -> None:
    n = Nsys()
    n.range("outer", 0, 500)
    n.range(name, 10, 50)
    n.kernel(GEMM, 20, 1000, 1100)
    (first,) = records_of(n, tmp_path)
    assert first["layer"] == ["outer"] and first["ranges"] == ["outer", name]


def test_module_paths_keep_the_innermost_only(tmp_path: Path) -> None:
    n = Nsys()
    n.range('net #pyprof{"layer":"Net"}', 0, 500, registered=True)
    n.range('net.encoder.0 #pyprof{"layer":"Encoder"}', 10, 400, registered=True)
    n.kernel(GEMM, 20, 1000, 1100)
    assert records_of(n, tmp_path)[0]["layer"] == ["net.encoder.0"]


def _training(n: Nsys, *, seq: int = 5, at: int = 0, main: int = 7, engine: int = 8, forward: str = "aten::addmm") -> None:
    """A linear on the main thread and its backward, with two matrix products, on the engine's."""
    n.range(f"aten::linear, seq = {seq}, op_id = {at + 1}, sizes = [[4, 8], [2, 8], []]", at + 10, at + 40, thread=main)
    n.range(
        f"{forward}, seq = {seq + 1}, op_id = {at + 2}, sizes = [[2], [4, 8], [8, 2], [], []]", at + 12, at + 38, thread=main
    )
    n.kernel(GEMM, at + 20, at + 1000, at + 1100, thread=main)
    n.range(f"autograd::engine::evaluate_function: AddmmBackward0, op_id = {at + 3}", at + 50, at + 90, thread=engine)
    n.range(f"AddmmBackward0, seq = {seq + 1}, op_id = {at + 4}, sizes = [[4, 2]]", at + 52, at + 88, thread=engine)
    for k, sizes in enumerate(("[[4, 2], [2, 8]]", "[[2, 4], [4, 8]]")):
        n.range(f"aten::mm, op_id = {at + 5 + k}, sizes = {sizes}", at + 55 + 10 * k, at + 60 + 10 * k, thread=engine)
        n.kernel(GEMM, at + 57 + 10 * k, at + 1100 + 100 * k, at + 1200 + 100 * k, thread=engine)


def test_backward_kernels_get_their_forward_op_and_keep_their_own_inner_op(tmp_path: Path) -> None:
    n = Nsys()
    _training(n)
    forward, dgrad, wgrad = records_of(n, tmp_path)
    assert [r["dir"] for r in (forward, dgrad, wgrad)] == ["fprop", "bprop", "bprop"]
    assert dgrad["fwd_instance"] == wgrad["fwd_instance"] == forward["instance"]
    assert dgrad["call"] == forward["call"] == "~?aten::addmm(any[2], any[4,8], any[8,2], ?, ?)"
    assert (dgrad["inner"], wgrad["inner"]) == ("~?aten::mm(any[4,2], any[2,8])", "~?aten::mm(any[2,4], any[4,8])")
    assert dgrad["instance"] != wgrad["instance"] and dgrad["seqId"] == [6] and dgrad["phase"] == "backward"


def test_forward_threads_that_tie_are_na_and_counted(tmp_path: Path) -> None:
    n = Nsys()
    _training(n, main=7, engine=8)
    n.range("aten::addmm, seq = 6, op_id = 90, sizes = [[2], [4, 8], [8, 2], [], []]", 12, 38, thread=11)
    trace = open_trace(n.write(tmp_path / "net.sqlite"))
    found = attribute(trace, rules(["aten::linear", "aten::addmm", "aten::mm"]))
    rows = [json.loads(line) for line in lines(found)]
    assert ["fwd_instance" in row for row in rows] == [False, False, False]
    assert [row["dir"] for row in rows] == ["fprop", "bprop", "bprop"]
    assert found.counts == {"backward functions whose forward thread is unknown": 1}


def test_a_number_used_again_belongs_to_the_last_before_it(tmp_path: Path) -> None:
    n = Nsys()
    _training(n, at=0)
    _training(n, at=10_000)
    rows = records_of(n, tmp_path)
    assert [row.get("fwd_instance") for row in rows] == [None, 0, 0, None, 3, 3]


@pytest.mark.parametrize(
    ("text", "direction"),
    [("RegisterPostBackwardFunction, seq = 9, op_id = 4", "fprop"), ("my Backward pass", "bprop"), ("mlp(W)", "bprop")],
)
def test_the_direction_of_an_op_in_a_range_of_the_users(tmp_path: Path, text: str, direction: str) -> None:
    """It is the range's, where that is the user's; a function running forward only has the word in its name."""
    n = Nsys()
    n.range(text, 10, 50)
    n.range("aten::mm, op_id = 5", 12, 40)
    n.kernel(GEMM, 20, 100, 200)
    assert records_of(n, tmp_path)[0]["dir"] == direction


def test_kernels_of_the_engines_thread_outside_any_function_are_backward(tmp_path: Path) -> None:
    n = Nsys()
    n.range("conv2d, seq = 66", 10, 20)
    n.kernel(GEMM, 15, 100, 110)
    n.range("MulBackward1, seq = 66", 30, 40, thread=8)
    n.range("mul, seq = 0", 32, 38, thread=8)
    n.kernel(ADD, 35, 110, 120, thread=8)
    n.range("add_, seq = 0", 50, 60, thread=8)
    n.kernel(ADD, 55, 120, 130, thread=8)
    rows = records_of(n, tmp_path)
    assert [row["dir"] for row in rows] == ["fprop", "bprop", "bprop"]
    assert rows[2]["seqId"] == [] and rows[2]["altSeqId"] == [0]


def test_neither_activity_nor_op_ranges_is_an_error(tmp_path: Path) -> None:
    n = Nsys()
    n.range("just a range", 10, 20)
    with pytest.raises(EmptyCapture, match="neither GPU activity nor ranges of ops"):
        records_of(n, tmp_path)


def test_registered_strings_and_domains(tmp_path: Path) -> None:
    n = Nsys()
    n.rows["NVTX_EVENTS"].append((1, None, 75, "mine", (1 << 48) | (7 << 24) | 7, None, 3))
    n.range("aten::mm, seq = 4, op_id = 9, sizes = [[4, 2], [2, 8]]", 10, 50, registered=True)
    n.range("phase one", 5, 60, registered=True, domain=3)
    n.kernel(GEMM, 20, 100, 200)
    (row,) = records_of(n, tmp_path)
    assert row["call"] == "~?aten::mm(any[4,2], any[2,8])" and row["seqId"] == [4] and row["ranges"] == ["mine:phase one"]


@pytest.mark.parametrize("table", ["NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "ANALYSIS_DETAILS", "StringIds"])
def test_any_table_may_be_absent(tmp_path: Path, table: str) -> None:
    n = Nsys()
    _training(n)
    if table == "StringIds":
        n.strings.clear()
        n.string("unused")
    found = records_of(n, tmp_path, drop=[] if table == "StringIds" else [table])
    assert len(found) == 3 and [row["kDuration"] for row in found] == [100, 100, 100]


@st.composite
def _stacks(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Properly nested ranges as (begin, end), drawn as a walk of pushes and pops."""
    time, open_, done = 0, [], []
    for _ in range(draw(st.integers(1, 30))):
        time += draw(st.integers(0, 3))
        if open_ and draw(st.booleans()):
            done.append((open_.pop(), time))
        else:
            open_.append(time)
    while open_:
        time += draw(st.integers(0, 3))
        done.append((open_.pop(), time))
    return done


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_stacks(), st.integers(0, 100), st.lists(st.integers(0, 100), min_size=1, max_size=8))
def test_stacks_equal_brute_force_and_row_order_changes_nothing(
    tmp_path: Path, ranges: list[tuple[int, int]], seed: int, launches: list[int]
) -> None:
    n = Nsys()
    for number, (start, end) in enumerate(ranges):
        n.range(f"r{number}", start, end)
    for number, launch in enumerate(launches):
        n.kernel(GEMM, launch, 1000 + number, 2000)
    rows = records_of(n, tmp_path)
    for row, launch in zip(rows, launches, strict=True):
        open_then = {f"r{i}" for i, (start, end) in enumerate(ranges) if start <= launch < end}
        assert set(row.get("ranges", [])) == open_then
        lengths = [ranges[int(name[1:])] for name in row.get("ranges", [])]
        assert all(a[0] <= b[0] and a[1] >= b[1] for a, b in pairwise(lengths))
    assert records_of(n, tmp_path, shuffle=seed) == rows


def test_the_formulas_know_what_attribution_asks() -> None:
    asked = op_rules()
    assert asked.known("aten::mm") and not asked.known("torch.nn.functional.multi_head_attention_forward")
    assert asked.is_copy("aten::copy_") and asked.is_structural("aten::view") and not asked.is_structural("aten::mm")
