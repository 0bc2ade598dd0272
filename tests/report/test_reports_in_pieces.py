"""Reports do not depend on how many records are handled at a time, nor on the number of processes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pyprof.arrays import processes, spool
from pyprof.arrays.processes import several
from pyprof.loading import load_with_trace
from pyprof.prof.frame import Frame
from pyprof.report import gapcolumns
from pyprof.report.gapcolumns import Report
from pyprof.report.gaps import TABLES
from pyprof.report.overview import Overview
from pyprof.report.page.data import section_of
from pyprof.report.summary.make import summarise
from pyprof.tables.table import Table, printed
from tests.tiny import Nsys

_CAPTURES = ("nsys/h100_2gpu_train.nsys2026.2.sqlite", "kineto/v100_resnet50_2021.json.gz", "kineto/multi_stream_sync.json.gz")


@pytest.mark.parametrize("name", _CAPTURES)
def test_pieces_of_a_few_records_and_two_processes(name: str, captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = str(captures / name)
    records, trace = load_with_trace(file)
    whole = summarise(Overview(Frame(records), trace), file).json()
    section = section_of(Overview(Frame(records), trace), file)
    monkeypatch.setattr(spool, "PIECE_ROWS", 53)
    assert summarise(Overview(Frame(records), trace), file).json() == whole
    of_pieces = section_of(Overview(Frame(records), trace), file)
    assert of_pieces.charts == section.charts and of_pieces.sentences == section.sentences
    if hasattr(os, "fork"):
        monkeypatch.setattr(processes, "LEAST_ROWS", 1)
        with several(2), spool.columns_on_disk():
            assert summarise(Overview(Frame(records), trace), file).json() == whole


def cells(report: Report) -> dict[str, list[list[str]]]:
    """All that the tables of gaps show."""
    return {name: printed_rows(make(report).whole()) for name, make in TABLES.items()}


def printed_rows(table: Table) -> list[list[str]]:
    return [printed(values) for values in table.values]


@pytest.mark.parametrize("by_stream", [False, True])
@pytest.mark.parametrize("name", _CAPTURES)
def test_gaps_in_pieces_of_a_few_activities(
    name: str, by_stream: bool, captures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, trace = load_with_trace(str(captures / name))
    chosen = np.arange(len(records)) % 1000 < 300
    for window in (None, chosen):
        with monkeypatch.context() as patch:
            whole = cells(Report(Frame(records), trace, window, by_stream))
            patch.setattr(spool, "PIECE_ROWS", 53)
            patch.setattr(spool, "_LEAST_BYTES", 64)
            with spool.columns_on_disk():
                assert cells(Report(Frame(records), trace, window, by_stream)) == whole


def test_the_longest_gaps_are_those_at_the_top_of_all(captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, trace = load_with_trace(str(captures / _CAPTURES[0]))
    for by_stream in (False, True):
        report = Report(Frame(records), trace, None, by_stream)
        table = TABLES["gaps"](report)
        assert report.longest(len(table.rows) + 1).tolist() == report.by_length.tolist()
        with monkeypatch.context() as patch:
            patch.setattr(spool, "PIECE_ROWS", 7)
            few = [printed_rows(table.first(count)) for count in (0, 1, 2, 10, 100)]
            patch.setattr(gapcolumns, "_FEW", -1)
            assert [printed_rows(TABLES["gaps"](report).first(count)) for count in (0, 1, 2, 10, 100)] == few


def test_equal_gaps_stand_in_order_of_begin_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = Nsys()
    for at in range(40):
        n.kernel("k", 100 * at, 100 * at + 10, 100 * at + 60, device=at % 2)
    records, trace = load_with_trace(str(n.write(tmp_path / "net.sqlite")))
    report = Report(Frame(records), trace)
    begins = report.gaps.start[report.by_length]
    assert begins.tolist() == sorted(begins.tolist())
    monkeypatch.setattr(spool, "PIECE_ROWS", 3)
    assert report.gaps.start[report.longest(5)].tolist() == begins[:5].tolist()
