"""Row groups that cannot hold what is asked for are not read, and the answer is the same as if they were."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.loading import load, load_capture
from pyprof.parse.records import parquet
from pyprof.parse.records.records import ANYTHING, NOTHING_KNOWN, Limits, Records
from tests.tiny import Nsys

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
reader = pytest.importorskip("pyprof.parse.records.parquet.reader")
writer = pytest.importorskip("pyprof.parse.records.parquet.writer")
chosen = pytest.importorskip("pyprof.parse.records.parquet.chosen")
pq = pytest.importorskip("pyarrow.parquet")

_CAPTURES = (
    "nsys/h100_2gpu_train.nsys2026.2.sqlite", "kineto/v100_resnet50_2021.json.gz", "kineto/a100_train_stacks.json.gz",
    "kineto/multi_stream_sync.json.gz",
)  # fmt: skip
_COLUMNS = "idx,start,dir,op,kernel,params,sil,flops,bytes,tflops,peak,bound,lost,step,layer,altseq,instance"
Ran = tuple[int, str, str]


def windows(records: Records) -> list[list[str]]:
    """Options that choose parts of a capture."""
    start = records["start_ns"][records["start_ns"] >= 0]
    times = np.quantile(start, [0, 0.01, 0.1, 0.5, 0.95, 1]).astype(np.int64).tolist()
    found = [["--time", f"{begin}:{end}"] for begin, end in pairwise(times)]
    found += [["--time", ":1ms"], ["--time", "99999s:"], ["--step", "1"], ["--step", "1:"], ["--step", ":2"], ["--step", "77"]]
    names = sorted({name for stack in records.stacks for name in (*stack.ranges, *stack.layer)})
    return found + [["--range", name] for name in (*names[:: max(len(names) // 2, 1)], "no such range")]


def commands(records: Records) -> list[tuple[str, ...]]:
    prof = ("prof", "--csv", "-c", _COLUMNS)
    shown = [(*prof, *window, *kinds) for window in windows(records) for kinds in ([], ["--kinds", "all"])]
    return shown + [("summary", "--json", *window) for window in windows(records)[1:7:2]]


def run(file: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Ran:
    code = main([command[0], str(file), *command[1:]])
    return code, *capsys.readouterr()


@pytest.fixture
def of_parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Records, Path, int], Path]:
    """What writes records in row groups of so many rows."""

    def write(records: Records, path: Path, rows: int) -> Path:
        monkeypatch.setattr(writer, "_ROWS", rows)
        parquet.write(records, path)
        return path

    return write


@pytest.mark.parametrize("name", _CAPTURES)
def test_a_part_of_a_capture_is_the_same_however_it_is_read(
    captures: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    of_parts: Callable[[Records, Path, int], Path],
) -> None:  # fmt: skip
    records = load(str(captures / name))
    file = tmp_path / "net.parquet"
    asked = commands(records)
    with monkeypatch.context() as patch:  # all read
        of_parts(records, file, 1 << 20)
        patch.setattr(reader._Stored, "stretches", Records.stretches)
        expected = [run(file, command, capsys) for command in asked]
    assert len({out for _, out, _ in expected}) > len(expected) // 4
    of_parts(records, file, max(len(records) // 37, 1))
    assert [run(file, command, capsys) for command in asked] == expected
    # As another program or an earlier version may write it.
    pq.write_table(pq.read_table(file), file, row_group_size=max(len(records) // 11, 1), write_statistics=False)
    assert [run(file, command, capsys) for command in asked] == expected


@pytest.fixture
def steps(tmp_path: Path, of_parts: Callable[[Records, Path, int], Path]) -> Path:
    """Ten kernels, one each microsecond, in row groups of two."""
    n = Nsys()
    for at in range(10):
        n.range(f"aten::mm, seq = {at}, op_id = {at}, sizes = [[4, 2], [2, 8]]", 1000 * at, 1000 * at + 50)
        n.kernel(f"k{at}", 1000 * at + 10, 1000 * at + 100, 1000 * at + 200)
    return of_parts(load_capture(n.write(tmp_path / "n.sqlite")), tmp_path / "net.parquet", 2)


@pytest.mark.parametrize("lie", [Limits(5, 4, False), Limits(-(1 << 63), -5, True), Limits(0, 0, False), NOTHING_KNOWN])
@pytest.mark.parametrize("command", [("prof", "--time", "4us:6us"), ("prof", "--step", "1"), ("gaps", "--time", "4us:6us")])
def test_statistics_that_lie_are_no_crash(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lie: Limits, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(reader._Store, "_told", lambda *_: lie)
    assert run(steps, command, capsys)[0] in (0, 1)


def test_what_a_damaged_file_says_of_its_columns_ends_no_process(steps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, random = steps.read_bytes(), Random(1)
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(120):
        at, bit = random.randrange(begin, len(whole) - 8), 1 << random.randrange(8)
        steps.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        for command in ("prof", "gaps"):
            assert run(steps, (command, "--time", "4us:6us"), capsys)[0] in (0, 1), f"byte {at}, bit {bit}"


def test_what_a_file_says_of_its_columns(steps: Path) -> None:
    records = load(str(steps))
    start = [limits for _, (limits,) in records.stretches("start_ns")]
    assert [one.most - one.least for one in start] == [1000] * 5 and not any(one.unknown for one in start)
    assert [limits for _, (limits,) in records.stretches("step")] == [NOTHING_KNOWN] * 5
    assert [limits for _, (limits,) in records.stretches("tid")] == [ANYTHING] * 5
    assert records.of_rows("tid", slice(2, 4)).min() > 0
    assert [limits.unknown for _, (limits,) in records.stretches("tid")] == [True, False, True, True, True]  # read by now
    pq.write_table(pq.read_table(steps), steps, row_group_size=3, write_statistics=False)
    assert [limits for _, (limits,) in load(str(steps)).stretches("start_ns")] == [ANYTHING] * 4


@given(st.lists(st.integers(-1, 9), max_size=30), st.integers(-1, 9), st.integers(-1, 10))
def test_limits_never_leave_out_what_there_is(values: list[int], least: int, beyond: int) -> None:
    limits, inside = Limits.of(np.array(values, np.int64)), [least <= value < beyond for value in values]
    assert limits.may_hold(least, beyond) or not any(inside)
    assert not limits.must_hold(least, beyond) or all(inside)
    column = np.array(values, np.int64)
    records = Records({"kind": column, "step": column})
    assert records.within("step", least, beyond).tolist() == inside
    assert records.least("step") == min((value for value in values if value >= 0), default=None)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_rows_of_row_groups_are_those_of_the_whole(sizes: list[int], data: st.DataObject) -> None:
    begins, whole = np.cumsum([0, *sizes]), np.arange(100, 100 + sum(sizes))
    rows = np.array(data.draw(st.lists(st.integers(0, sum(sizes) - 1), max_size=20)), data.draw(st.sampled_from(["i4", "i8"])))
    some = chosen.Chosen(begins, rows)
    found = [piece.of(whole[begins[piece.group] : begins[piece.group + 1]]) for piece in some]
    assert np.concatenate([whole[:0], *found])[some.back].tolist() == whole[rows].tolist()
    first, last = sorted(data.draw(st.tuples(st.integers(0, sum(sizes)), st.integers(0, sum(sizes)))))
    found = [
        piece.of(whole[begins[piece.group] : begins[piece.group + 1]]) for piece in chosen.Chosen(begins, slice(first, last))
    ]
    assert np.concatenate([whole[:0], *found]).tolist() == whole[first:last].tolist()
