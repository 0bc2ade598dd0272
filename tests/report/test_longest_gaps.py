"""The first rows of a table of gaps are those at the top of the whole table."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyprof.loading import load_with_trace
from pyprof.prof.frame import Frame
from pyprof.report import gapcolumns
from pyprof.report.gapcolumns import Report
from pyprof.report.gaps import TABLES
from pyprof.tables.table import Table, printed
from tests.tiny import Nsys


def printed_rows(table: Table) -> list[list[str]]:
    return [printed(values) for values in table.values]


@pytest.mark.parametrize("by_stream", [False, True])
def test_the_longest_gaps_are_those_at_the_top_of_all(captures: Path, monkeypatch: pytest.MonkeyPatch, by_stream: bool) -> None:
    records, trace = load_with_trace(str(captures / "nsys/h100_2gpu_train.nsys2026.2.sqlite"))
    report = Report(Frame(records), trace, None, by_stream)
    table = TABLES["gaps"](report)
    assert report.longest(len(table.rows) + 1).tolist() == report.by_length.tolist()
    few = [printed_rows(table.first(count)) for count in (0, 1, 2, 10, 100)]
    monkeypatch.setattr(gapcolumns, "_FEW", -1)
    assert [printed_rows(TABLES["gaps"](report).first(count)) for count in (0, 1, 2, 10, 100)] == few


def test_equal_gaps_stand_in_order_of_begin_and_line(tmp_path: Path) -> None:
    n = Nsys()
    for at in range(40):
        n.kernel("k", 100 * at, 100 * at + 10, 100 * at + 60, device=at % 2)
    records, trace = load_with_trace(str(n.write(tmp_path / "net.sqlite")))
    report = Report(Frame(records), trace)
    begins = report.gaps.start[report.by_length]
    assert begins.tolist() == sorted(begins.tolist())
    assert report.gaps.start[report.longest(5)].tolist() == begins[:5].tolist()
