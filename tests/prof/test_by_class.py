"""What is worked out for classes of records is what each of their records has by itself."""

from pathlib import Path

import numpy as np
import pytest

from pyprof.loading.load import load_capture
from pyprof.model.trace import ActivityKind
from pyprof.prof import frame as module
from pyprof.prof.frame import Frame
from pyprof.report.utilisation import _Cells
from tests.tiny import Nsys

GEMM, HALVES = "volta_sgemm_128x64_tn", "splitKreduce_kernel"


def _frame(path: Path) -> Frame:
    """Steps of one product, of which each third is two kernels and each fifth is begun late, and a copy in each."""
    n = Nsys()
    for step in range(40):
        begin = 10_000 * step
        late = 4_000 if step % 5 else 20
        n.range("~?aten::mm(fp32[256,256], fp32[256,256])", begin, begin + 60)
        n.range("aten::mm, op_id = 1, sizes = [[256, 256], [256, 256]]", begin + 1, begin + 59)
        n.kernel(GEMM, begin + 10, begin + late, begin + 5_000 + step % 7)
        if step % 3 == 0:
            n.kernel(HALVES, begin + 20, begin + 5_100, begin + 5_300)
        n.copy(1, begin + 500, begin + 6_000, begin + 6_100, 1 << 12)
    return Frame(load_capture(n.write(path / "net.sqlite")))


@pytest.mark.parametrize("part_rows", [7, 1 << 18])
def test_the_roofline_of_each_record_is_that_of_its_class_or_its_own(
    tmp_path: Path, part_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_ROWS", part_rows)
    frame = _frame(tmp_path)
    rows = np.arange(len(frame.records))
    for whole, single in zip(frame.roofline, frame.take(rows).roofline, strict=True):
        np.testing.assert_array_equal(whole, single)
    assert 0 < len(frame._unlike_their_class) < len(rows)
    assert (frame.verdicts[0] == frame.class_verdicts[0][frame.classes.code]).all()


def test_cells_hold_each_record_once(tmp_path: Path) -> None:
    frame = _frame(tmp_path)
    rows = np.flatnonzero(frame.records["kind"] == ActivityKind.KERNEL)[1:]
    cells = _Cells.of(frame, rows)
    keys = [*zip(frame.classes.code[rows].tolist(), frame.costs.code[rows].tolist(), strict=True)]
    time = dict.fromkeys(keys, 0)
    for key, took in zip(keys, frame.records["dur_ns"][rows].tolist(), strict=True):
        time[key] += took
    found = [*zip(cells.of_class.tolist(), cells.cost.tolist(), strict=True)]
    assert sorted(found) == sorted(time) and len(set(found)) == len(found)
    assert cells.time_ns.tolist() == [time[key] for key in found]
    assert cells.number.tolist() == [keys.count(key) for key in found]
    assert cells.first.tolist() == [keys.index(key) for key in found]


def test_a_column_of_one_value_takes_no_room_and_one_that_changes_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    from pyprof.parse.records.parquet import read, write, writer

    monkeypatch.setattr(writer, "_ROWS", 10)
    records = _frame(tmp_path).records
    rows = len(records)
    for late in (rows, rows - 1, 15, 10, 0):  # from which row on there is another value
        records.columns["graph_node"] = np.where(np.arange(rows) < late, -1, 3)
        write(records, tmp_path / "net.parquet")
        found = read(tmp_path / "net.parquet")["graph_node"]
        assert found.tolist() == records["graph_node"].tolist()
        assert (found.strides == (0,)) == (late in (0, rows))
