"""Slices of time: what lies in each, and that attribution by slices is that of the whole."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.loading.formats import op_rules
from pyprof.loading.load import open_trace
from pyprof.model.records import Records
from pyprof.model.trace import make_table
from pyprof.parse.attribution import slices
from pyprof.parse.attribution.attribute import attribute
from pyprof.parse.attribution.slices import Slice, Slices
from pyprof.parse.records.netdict.write import lines
from tests import examples
from tests.parse.attribution.test_oracle import World
from tests.tiny import Nsys, tid

USER, ENGINE = 0, 1  # labels: what may be taken apart, and what may not


def plan(ranges: list[tuple[int, int, int, int]], when: list[int], most: int, kept: list[bool] | None = None) -> list[Slice]:
    """Slices of ranges (begin, end, thread, label) and kernels at these times."""
    columns = np.array(ranges, np.int64).reshape(-1, 4).T
    table = make_table("ranges", dict(zip(("start_ns", "end_ns", "thread", "label"), columns, strict=True)))
    known = np.ones(len(ranges), np.bool_) if kept is None else np.array(kept, np.bool_)
    slices = Slices(table, known, np.array([False, True]), np.array(when, np.int64), most)
    return [*slices]


@st.composite
def forests(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Ranges of three threads that nest, in any order."""
    found: list[tuple[int, int, int, int]] = []

    def fill(begin: int, end: int, thread: int, depth: int) -> None:
        at = begin
        while at < end and depth < 4 and draw(st.booleans()):
            start = draw(st.integers(at, end - 1))
            stop = draw(st.integers(start, end))
            found.append((start, stop, thread, draw(st.sampled_from((USER, USER, ENGINE)))))
            fill(start, stop, thread, depth + 1)
            at = stop + 1

    for thread in range(3):
        fill(0, 200, thread, 0)
    return draw(st.permutations(found))


@settings(deadline=None, max_examples=examples(80))
@given(forests(), st.lists(st.integers(-1, 220), min_size=1, max_size=40), st.integers(1, 50), st.randoms())
def test_a_slice_has_all_that_is_open_in_it_and_every_whole_range_with_all_inside(
    ranges: list[tuple[int, int, int, int]], when: list[int], most: int, random: object
) -> None:
    kept = [(start * 7 + stop) % 11 != 0 for start, stop, _, _ in ranges]
    seen: list[int] = []
    begun: list[int] = []
    for one in plan(ranges, when, most, kept):
        seen += one.kernels.tolist()
        rows = set(one.ranges.tolist())
        assert len(rows) == len(one.ranges) and all(kept[row] for row in rows)
        begun += [row for row in rows if one.begin <= ranges[row][0] < one.end]
        for kernel in one.kernels.tolist():
            assert one.begin <= when[kernel] < one.end
        for row, (start, stop, thread, label) in enumerate(ranges):
            if not kept[row] or not (start < one.end and stop > one.begin):
                continue
            assert row in rows
            inside = [i for i, r in enumerate(ranges) if r[2] == thread and start <= r[0] and r[1] <= stop and kept[i]]
            assert label == USER or rows.issuperset(inside)
    assert sorted(seen) == list(range(len(when)))
    assert sorted(begun) == [row for row in range(len(ranges)) if kept[row]]  # each begins in one slice


def test_kernels_are_parted_into_about_equal_numbers() -> None:
    found = list(plan([], list(range(1000)), 100))
    assert len(found) == 10
    assert all(90 <= len(one.kernels) <= 110 for one in found)


def test_what_must_not_be_taken_apart_is_cut_once_at_most() -> None:
    found = list(plan([(5, 950, 0, ENGINE), (20, 30, 0, USER), (940, 945, 0, USER)], list(range(1000)), 100))
    assert all(set(one.ranges.tolist()) == {0, 1, 2} for one in found if one.begin < 950)
    assert [one.begin for one in found[1:]] == [100]  # the other eight cuts go through it again


def test_what_is_on_no_thread_takes_nothing_of_a_thread_along() -> None:
    ranges = [(5, 150, -1, ENGINE), (10, 20, 0, USER), (110, 120, 0, USER)]
    assert [one.ranges.tolist() for one in plan(ranges, list(range(200)), 100)] == [[0, 1], [0, 2]]
    assert [one.ranges.tolist() for one in plan(ranges[:1], list(range(200)), 100)] == [[0], [0]]


def test_no_cut_where_much_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_MOST_OPEN", 10)
    deep = [(i, 600 - i, 0, USER) for i in range(30)]
    found = list(plan(deep, list(range(1000)), 100))
    assert all(not 30 < one.begin < 571 for one in found) and len(found) > 3


@pytest.mark.parametrize("seed", range(6))
def test_random_captures_are_the_same_in_any_number_of_slices(tmp_path: Path, seed: int) -> None:
    world = World(seed)
    world.write(tmp_path / "net.sqlite", None)
    whole = list(lines(attribute(open_trace(tmp_path / "net.sqlite"), op_rules(), 1 << 30)))
    for most in (1, 3, 13, 40):
        assert list(lines(attribute(open_trace(tmp_path / "net.sqlite"), op_rules(), most))) == whole


@pytest.mark.parametrize(
    ("file", "most"),
    [
        ("nsys/h100_2gpu_train.nsys2026.2.sqlite", 50),
        ("nvprof/v100_lm/net.sql", 3),
        ("nsys/rtx3070ti_fwdbwd.nsys2025.1.sqlite", 700),
        pytest.param("kineto/mi300_resnet_checkpoint.json.gz", 300, marks=pytest.mark.slow),
        ("kineto/h100_vit.json.gz", 100),
    ],
)
def test_real_captures_are_the_same_in_slices(captures: Path, file: str, most: int) -> None:
    path = captures / file
    if not path.exists():
        pytest.skip(f"{file} is not among the captures")
    whole = attribute(open_trace(path), op_rules(), 1 << 30)
    sliced = attribute(open_trace(path), op_rules(), most)
    assert list(lines(sliced)) == list(lines(whole))
    assert sliced.counts == whole.counts and sliced["instance"].tolist() == whole["instance"].tolist()


def same_in_slices(n: Nsys, path: Path) -> Records:
    """What is found of a capture, whatever number of slices it is cut into."""
    n.write(path)
    whole = attribute(open_trace(path), op_rules(), 1 << 30)
    for most in (1, 2):
        sliced = attribute(open_trace(path), op_rules(), most)
        assert list(lines(sliced)) == list(lines(whole)) and sliced.counts == whole.counts
    return whole


def test_instances_that_begin_together_are_numbered_as_they_nest(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::addmm, op_id = 1", 10, 90)
    n.range("aten::reshape, op_id = 2", 10, 20)
    n.range("aten::copy_, op_id = 3", 10, 20)
    n.kernel("copy", 15, 1000, 1001)  # of the inner one, in a slice before that of the outer one's kernel
    n.kernel("gemm", 80, 1002, 1003)
    assert same_in_slices(n, tmp_path / "net.sqlite")["instance"].tolist() == [1, 0]


def test_replays_that_begin_together_are_numbered_as_their_ops_began(tmp_path: Path) -> None:
    n = Nsys()
    n.range("aten::addmm, op_id = 1", 10, 90)
    n.range("aten::reshape, op_id = 2", 12, 20)
    n.range("aten::copy_, op_id = 3", 12, 20)
    rows = [(15, 16, tid(), 1, None), (80, 81, tid(), 2, None)]
    n.rows["CUDA_GRAPH_NODE_EVENTS"] += rows
    corr = n.kernel("copy", 100, 1000, 1001, node=1)
    n.kernel("gemm", None, 1002, 1003, corr=corr, node=2)
    assert same_in_slices(n, tmp_path / "net.sqlite")["instance"].tolist() == [1, 0]


def test_what_is_told_in_part_is_counted_of_kernels_only(tmp_path: Path) -> None:
    n = Nsys()
    for number in range(40):
        n.range(f"never closed {number}", number, None)
    for number in range(5):
        n.range(f"aten::mul, seq = {number}, op_id = {number}", 100 + 10 * number, 108 + 10 * number)
        n.range(f"MulBackward0, seq = {number}, op_id = {50 + number}", 300 + 10 * number, 308 + 10 * number, thread=8)
    n.kernel("mul", 103, 1000, 1001)
    n.kernel("mul", 304, 1002, 1003, thread=8)
    counts = same_in_slices(n, tmp_path / "net.sqlite").counts
    assert counts["kernels inside more than 32 ranges that overlap or were never closed; the first are kept"] == 1
