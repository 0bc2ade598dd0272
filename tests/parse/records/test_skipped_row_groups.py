"""Row groups that cannot hold what is asked for are not read, and the answer is the same as if they were."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.cli import main
from pyprof.columns.types import Bools, Ints
from pyprof.commands import prof as prof_command
from pyprof.hardware.devices import Gpu
from pyprof.loading.load import load, load_capture
from pyprof.model.records import Records
from pyprof.parse.records import parquet
from pyprof.prof.frame import Frame
from tests.given import slow
from tests.tiny import Nsys

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
reader = pytest.importorskip("pyprof.parse.records.parquet.reader")
writer = pytest.importorskip("pyprof.parse.records.parquet.writer")
pq = pytest.importorskip("pyarrow.parquet")

_CAPTURES = (
    "nsys/h100_2gpu_train.nsys2026.2.sqlite", "kineto/multi_stream_sync.json.gz", *slow("kineto/mi300_resnet_checkpoint.json.gz"),
)  # fmt: skip
_COLUMNS = "idx,start,dir,op,kernel,params,sil,flops,bytes,tflops,peak,bound,lost,step,layer,altseq,instance"
Ran = tuple[int, str, str]


def windows(records: Records) -> list[list[str]]:
    """Options that choose parts of a capture."""
    start = records["start_ns"][records["start_ns"] >= 0]
    times = np.quantile(start, [0, 0.01, 0.5, 1]).astype(np.int64).tolist()
    found = [["--time", f"{begin}:{end}"] for begin, end in pairwise(times)]
    found += [["--time", ":1ms"], ["--time", "99999s:"], ["--step", "1:"], ["--step", ":2"], ["--step", "77"]]
    names = sorted({name for stack in records.stacks for name in (*stack.ranges, *stack.layer)})
    return found + [["--range", name] for name in (*names[:: max(len(names) // 2, 1)], "no such range")]


def commands(records: Records) -> list[tuple[str, ...]]:
    prof = ("prof", "--csv", "-c", _COLUMNS)
    found = windows(records)
    shown = [(*prof, *window, *(["--kinds", "all"] * (at % 2))) for at, window in enumerate(found)]
    return shown + [("summary", "--json", *window) for window in found[1:7:2]]


def run(file: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> Ran:
    code = main([command[0], str(file), *command[1:]])
    return code, *capsys.readouterr()


@pytest.fixture
def of_parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Records, Path, int], Path]:
    """A function that writes records in row groups of so many rows."""

    def write(records: Records, path: Path, rows: int) -> Path:
        monkeypatch.setattr(writer, "_ROWS", rows)
        parquet.write(records, path)
        return path

    return write


def whole_frame(records: Records, shown: Bools, inside: Ints, gpu: Gpu | None) -> tuple[Frame, Ints]:
    return Frame(records.select(shown), gpu, records), (np.cumsum(shown) - 1)[inside]


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
        patch.setattr(reader._Stored, "within", Records.within)
        patch.setattr(prof_command, "frame_around", whole_frame)
        expected = [run(file, command, capsys) for command in asked]
    assert len({out for _, out, _ in expected}) > len(expected) // 4
    of_parts(records, file, max(len(records) // 37, 1))
    assert [run(file, command, capsys) for command in asked] == expected
    # As another program or an earlier version may write it.
    pq.write_table(pq.read_table(file), file, row_group_size=max(len(records) // 11, 1), write_statistics=False)
    assert [run(file, command, capsys) for command in asked[::3]] == expected[::3]


@pytest.fixture
def steps(tmp_path: Path, of_parts: Callable[[Records, Path, int], Path]) -> Path:
    """Ten kernels, one each microsecond, in row groups of two."""
    n = Nsys()
    for at in range(10):
        n.range(f"aten::mm, seq = {at}, op_id = {at}, sizes = [[4, 2], [2, 8]]", 1000 * at, 1000 * at + 50)
        n.kernel(f"k{at}", 1000 * at + 10, 1000 * at + 100, 1000 * at + 200)
    return of_parts(load_capture(n.write(tmp_path / "n.sqlite")), tmp_path / "net.parquet", 2)


def read_groups(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Column -> the row groups that are read; filled while the test runs."""
    found: dict[str, set[int]] = {}
    read = reader.pq.ParquetFile.read_row_group

    def noted(file: object, group: int, columns: list[str], **options: object) -> object:
        for column in columns:
            found.setdefault(column, set()).add(group)
        return read(file, group, columns, **options)

    monkeypatch.setattr(reader.pq.ParquetFile, "read_row_group", noted)
    return found


def test_row_groups_outside_a_time_are_not_read(
    steps: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_groups(monkeypatch)
    assert run(steps, ("prof", "--time", "4us:6us", "-c", "kernel,params,sil"), capsys)[1].split()[-6::3] == ["k4", "k5"]
    assert found["sil"] == found["scope_id"] == found["instance"] == {2}
    assert found["start"] == {0, 1, 2, 3, 4}  # 4 us after the first, which may be anywhere
    found.clear()
    assert load(str(steps)).within("start_ns", 4_000, 6_000).tolist() == [False] * 4 + [True] * 2 + [False] * 4
    assert found == {"start": {2}}


def test_damaged_column_metadata_crashes_no_process(steps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, random = steps.read_bytes(), Random(1)
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(20):
        at, bit = random.randrange(begin, len(whole) - 8), 1 << random.randrange(8)
        steps.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
        for command in ("prof", "gaps"):
            assert run(steps, (command, "--time", "4us:6us"), capsys)[0] in (0, 1), f"byte {at}, bit {bit}"


def test_statistics_rule_row_groups_out(steps: Path) -> None:
    def held(least: int, beyond: int, name: str = "start_ns") -> list[bool]:
        stored = load(str(steps))
        return [stored._file.may_hold(name, group, least, beyond) for group in range(stored._file.file.num_row_groups)]

    assert held(4_100, 5_101) == [False, False, True, False, False]
    assert held(5_101, 6_100) == [False] * 5 and held(-1, 101) == [True] + [False] * 4
    assert held(0, 9, "step") == [False] * 5  # no step is known
    assert held(0, 9, "tid") == [True] * 5  # without statistics
    pq.write_table(pq.read_table(steps), steps, row_group_size=3, write_statistics=False)
    assert held(4_100, 5_101) == [True] * 4


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_rows_of_row_groups_are_those_of_the_whole(sizes: list[int], data: st.DataObject) -> None:
    file = object.__new__(reader._File)
    file.begins, whole = np.cumsum([0, *sizes]), np.arange(100, 100 + sum(sizes))
    rows = np.array(data.draw(st.lists(st.integers(0, sum(sizes) - 1), max_size=20)), data.draw(st.sampled_from(["i4", "i8"])))
    groups, places = file._find_groups(rows)
    read = [whole[file.begins[group] : file.begins[group + 1]] for group in groups.tolist()]
    assert np.concatenate([whole[:0], *read])[places].tolist() == whole[rows].tolist()
    assert set(groups.tolist()) == set((np.searchsorted(file.begins, rows, "right") - 1).tolist())
