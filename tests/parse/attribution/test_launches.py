"""Which API call launched an activity, and whose ranges it takes, where ids, threads and domains are awkward."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyprof.loading.formats import op_rules
from pyprof.loading.load import load_capture, open_trace
from pyprof.model.trace import Trace, make_table
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.attribution.launches import launch_of_activity
from pyprof.parse.records.netdict.write import lines
from tests import examples
from tests.tiny import SESSION_END, Nsys, tid

GEMM, ADD = "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4>(int)"


def rows_of(capture: Nsys, path: Path, shuffle: int | None = None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(load_capture(capture.write(path / "net.sqlite", shuffle=shuffle)))]


def op(row: dict[str, Any]) -> str | None:
    return row["call"].split("(")[0].lstrip("~?").split("::")[-1] if "call" in row else None


def test_stacks_of_recursion_and_of_leaks_have_a_bounded_size(tmp_path: Path) -> None:
    """A kernel at each of 500 levels, 500 start/end ranges that overlap: what is told of each stays small and in order."""
    n = Nsys()
    for depth in range(500):
        n.range(f"level {depth}", depth, 20_000 - depth)
        n.range(f"free {depth}", 30_000 + depth, 50_000 + depth, event=60)
    for depth in range(500):
        n.kernel(GEMM, depth, 100_000 + depth, 100_001 + depth)
        n.kernel(ADD, 30_000 + depth, 200_000 + depth, 200_001 + depth)
    records = load_capture(n.write(tmp_path / "net.sqlite", drop=["ANALYSIS_DETAILS"]))
    told = [records.stacks[code].ranges for code in records["stack"]]
    for depth in (0, 5, 127, 128, 300, 499):
        levels = range(depth + 1)
        expected = levels if depth < 128 else [*levels[:64], *levels[-64:]]
        assert told[depth] == tuple(f"level {level}" for level in expected)
    assert max(map(len, told)) <= 128 and set(told[500 + 20]) == {f"free {number}" for number in range(21)}
    assert {f"free {number}" for number in range(32)} <= set(told[-1])


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_launches_equal_brute_force(data: st.DataObject) -> None:
    """Whatever the range of the ids: in a table, or by searching."""
    small = st.sampled_from([0, 1, 2, 3, 4, 900, 1 << 62])
    calls = data.draw(st.lists(st.tuples(small, st.integers(0, 30), st.integers(0, 9), st.integers(0, 2)), max_size=12))
    kernels = data.draw(st.lists(st.tuples(small, st.integers(0, 40), st.integers(0, 1)), min_size=1, max_size=8))
    trace = Trace("nsys")
    trace.threads = make_table("threads", {"process": np.array([0, 0, 1]), "tid": np.array([7, 8, 9])})
    trace.processes = make_table("processes", {"pid": np.array([7, 9])})
    corr, start, length, thread = (np.array([c[i] for c in calls], np.int64) for i in range(4))
    trace.launches = make_table("launches", {"start_ns": start, "end_ns": start + length, "thread": thread, "corr": corr - 1})
    trace.activities = make_table(
        "activities",
        {"corr": np.array([k[0] for k in kernels]) - 1, "start_ns": np.array([k[1] for k in kernels]),
         "process": np.array([k[2] for k in kernels])},
    )  # fmt: skip
    found = launch_of_activity(trace)
    for row, (corr_of, begin, process) in enumerate(kernels):
        mine = [i for i, (c, s, _, t) in enumerate(calls) if c == corr_of > 0 and (t == 2) == (process == 1)]
        mine.sort(key=lambda i: (calls[i][1], calls[i][3], -calls[i][2]))
        outer: list[int] = []
        for i in mine:  # a call inside another is one of the same thread
            others = [j for j in mine[: mine.index(i)] if calls[j][3] == calls[i][3]]
            if all(calls[i][1] >= sum(calls[j][1:3]) for j in others):
                outer.append(i)
        before = [i for i in outer if calls[i][1] <= begin]
        expected = (before[-1] if before else outer[0]) if outer else -1
        if expected < 0:
            assert found[row] == -1
        else:
            assert calls[found[row]][:2] == calls[expected][:2] and calls[found[row]][3] == calls[expected][3]


def test_an_api_call_without_a_thread_invents_no_process(tmp_path: Path) -> None:
    n = Nsys()
    n.kernel(GEMM, 20, 100, 110, corr=5)
    n.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((10, 15, None, 5, n.string("cudaLaunchKernel")))
    trace = open_trace(n.write(tmp_path / "net.sqlite"))
    assert trace.processes["pid"].tolist() == [7] and trace.threads["tid"].tolist() == [7]
    assert attribute(trace, op_rules())["launch_ns"].tolist() == [20]


def test_a_launch_before_time_zero_is_a_launch(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", -50, -10)  # its end is a time, not the lack of one
    n.kernel(GEMM, -20, 100, 110)
    assert [op(row) for row in rows_of(n, tmp_path)] == ["mm"]


def test_an_engine_range_inside_a_backward_function_ends_what_it_says(tmp_path: Path) -> None:
    """A reentrant backward opens an evaluation of its own: what runs there directly belongs to no function outside."""
    n = Nsys()
    n.range("aten::mul, seq = 4, op_id = 1", 1, 9)
    n.range("MulBackward0, seq = 4, op_id = 2", 20, 90, thread=8)
    n.range("autograd::engine::evaluate_function: AddBackward0", 30, 80, thread=8)
    n.kernel(ADD, 50, 200, 210, thread=8)
    (row,) = rows_of(n, tmp_path)
    assert row["dir"] == "bprop" and "fwd_instance" not in row


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**9))
def test_no_order_of_rows_shows_however_many_tie(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    n = Nsys()
    pick = random_.randrange
    texts = ["aten::mm, seq = 1, op_id = 1", "aten::mm", "aten::mul, seq = 1", "MulBackward0, seq = 1", "user", "ProfilerStep#1",
             "aten::add"]  # fmt: skip
    for pid in (7, 8):
        for domain, name in ((3, "b"), (4, "a"), (3, "c")):
            n.rows["NVTX_EVENTS"].append((1, None, 75, name, tid(pid), None, domain))
    for _ in range(pick(14)):
        start = pick(4) * 10
        end = None if pick(8) == 0 else start + pick(4) * 10
        where = {"pid": 7 + pick(2), "thread": None if pick(2) else 20 + pick(2)}
        n.range(texts[pick(len(texts))], start, end, event=59 + pick(2), domain=(0, 0, 3, 4)[pick(4)], **where)
    for _ in range(pick(5)):
        n.rows["CUDA_GRAPH_NODE_EVENTS"].append(
            (pick(4) * 10, 50, tid(7, None if pick(2) else 20), 500 + pick(3), 500 + pick(3))
        )
    for _ in range(1 + pick(10)):
        launch, start = (None, 10, 20, 30)[pick(4)], 10 * pick(6)
        n.kernel((GEMM, ADD)[pick(2)], launch, start, start + pick(3), pid=7 + pick(2), thread=None if pick(2) else 20 + pick(2),
                 corr=pick(3), node=None if pick(3) else 500 + pick(3), grid=(1 + pick(2), 1, 1))  # fmt: skip
    for name in ("V100", "A100"):
        n.rows["TARGET_INFO_GPU"].append((0, name, 0, 80, 7, 0))
    first = list(lines(load_capture(n.write(tmp_path / "net.sqlite"))))
    assert list(lines(load_capture(n.write(tmp_path / "net.sqlite", shuffle=seed)))) == first


def _steps(capture: Nsys, path: Path) -> list[int]:
    return load_capture(capture.write(path / "net.sqlite"))["step"].tolist()


def test_the_step_that_the_end_of_recording_cut_is_a_step_until_another_begins(tmp_path: Path) -> None:
    n = Nsys()
    n.range("ProfilerStep#1", 10, None)  # an exception left it
    n.range("ProfilerStep#2", 100, 200)
    n.range("ProfilerStep#3", 300, SESSION_END)
    for launch in (5, 50, 150, 250, 350):
        n.kernel(GEMM, launch, 1000 + launch, 1001 + launch)
    n.kernel(GEMM, 360, 2000, 2001, thread=99)
    assert _steps(n, tmp_path) == [-1, 1, 2, -1, 3, 3]


def test_what_crosses_an_op_and_is_set_aside_itself_leaves_the_lighter_ranges_where_they_were(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 50)
    n.range("{'traceMarker': ['net.py:3']}", 20, 40)
    n.range("aten::add, op_id = 2", 30, 60, domain=3)  # crosses an op of equal weight: the later goes
    n.kernel(GEMM, 35, 100, 101)
    (row,) = rows_of(n, tmp_path)
    assert op(row) == "mm" and row["trace"] == ["net.py:3"]


def test_stacks_of_which_not_all_is_told_are_counted(tmp_path: Path) -> None:
    n = Nsys()
    for depth in range(200):
        n.range(f"level {depth}", 10 + depth, 5000 - depth)
    for number in range(40):
        n.range(f"leak {number}", number, None, thread=9)
    for launch in (100, 137, 138, 139, 1000):
        n.kernel(GEMM, launch, 10_000 + launch, 10_001 + launch)
    n.kernel(GEMM, 1000, 20_000, 20_001, thread=9)
    assert load_capture(n.write(tmp_path / "net.sqlite")).counts == {
        "kernels inside more than 128 nested ranges; the 64 outermost and the 64 innermost are kept": 3,
        "kernels inside more than 32 ranges that overlap or were never closed; the first are kept": 1,
        "of the user's ranges were still open when the recording ended: leak 0, leak 1, leak 10 ...": 40,
    }


def test_on_the_cpu_a_range_that_ends_before_it_begins_is_none(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::mm, op_id = 1", 10, 100)
    n.range("aten::reshape, op_id = 2", 40, 60)
    n.range("aten::copy_, op_id = 3", 50, 20)
    assert [(op(row), row["kDuration"]) for row in rows_of(n, tmp_path)] == [("mm", 90)]


@pytest.mark.parametrize(("described", "expected"), [
    (["V100"], ["V100", "V100"]), (["V100", "V100"], ["V100", "V100"]), (["V100", "A100"], ["V100", None]), ([], [None, None]),
])  # fmt: skip
def test_an_ordinal_that_is_not_described_is_of_the_only_kind(
    tmp_path: Path, described: list[str], expected: list[str | None]
) -> None:
    n = Nsys()
    n.kernel(GEMM, 10, 1000, 1001, device=0)
    n.kernel(GEMM, 20, 1002, 1003, device=2)
    for ordinal, name in enumerate(described):
        n.rows["TARGET_INFO_GPU"].append((ordinal, name, ordinal, 80, 7, 0))
    records = load_capture(n.write(tmp_path / "net.sqlite"))
    assert [records.gpus[code].name if code >= 0 else None for code in records["gpu"].tolist()] == expected
