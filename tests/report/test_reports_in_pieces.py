"""A summary does not depend on how many records are handled at a time, nor on the number of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyprof.arrays import processes, spool
from pyprof.arrays.processes import several
from pyprof.loading import load_with_trace
from pyprof.prof.frame import Frame
from pyprof.report.overview import Overview
from pyprof.report.page.data import section_of
from pyprof.report.summary.make import summarise

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
